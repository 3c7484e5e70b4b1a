// Steps for system calls and arguments that a policy denies.

#include "probe.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef __x86_64__
#error "the probe knows the system call numbers of x86-64 only"
#endif

// Numbers by value, since libc headers may be older than the call.
enum {
    NR_io_uring_setup = 425,
    NR_io_uring_enter = 426,
    NR_io_uring_register = 427,
    NR_open_tree = 428,
    NR_move_mount = 429,
    NR_fsopen = 430,
    NR_fsconfig = 431,
    NR_fsmount = 432,
    NR_fspick = 433,
    NR_clone3 = 435,
    NR_pidfd_getfd = 438,
    NR_process_madvise = 440,
    NR_mount_setattr = 442,
    NR_quotactl_fd = 443,
    NR_memfd_secret = 447,
    NR_process_mrelease = 448,
    NR_set_mempolicy_home_node = 450,
};

#define HIGH (1UL << 32)
#define BAD_FD ((unsigned long)-1)
#define NO_PID 0x7ffffff0UL
#define NOWHERE ((unsigned long)"/nonexistent/probe")

const struct call CALLS[] = {
    // S01: io_uring performs operations without the filter.
    {"io_uring_setup", NR_io_uring_setup, {1, 0}},
    {"io_uring_enter", NR_io_uring_enter, {999, 0, 0, 0, 0, 0}},
    {"io_uring_register", NR_io_uring_register, {999, 0, 0, 0}},

    // S02: other processes' memory, registers and descriptors.
    {"ptrace-attach", SYS_ptrace, {16, NO_PID, 0, 0}},
    {"ptrace-seize", SYS_ptrace, {0x4206, NO_PID, 0, 0}},
    {"ptrace-traceme", SYS_ptrace, {0, 0, 0, 0}},
    {"process_vm_readv", SYS_process_vm_readv, {NO_PID, 0, 0, 0, 0, 1}},
    {"process_vm_writev", SYS_process_vm_writev, {NO_PID, 0, 0, 0, 0, 1}},
    {"pidfd_getfd", NR_pidfd_getfd, {BAD_FD, 0, 0}},
    {"kcmp", SYS_kcmp, {NO_PID, NO_PID, 0, 0, 0}},
    {"process_madvise", NR_process_madvise, {BAD_FD, 0, 0, 0, 0}},
    {"process_mrelease", NR_process_mrelease, {BAD_FD, 0}},

    // S03: the kernel's programmable parts.
    {"bpf", SYS_bpf, {0, 0, 0}},
    {"perf_event_open", SYS_perf_event_open, {0, 0, BAD_FD, BAD_FD, 0}},
    {"userfaultfd", SYS_userfaultfd, {0xfff0}},

    // S04: namespaces; `clone` is in the steps below.
    {"unshare-newuser", SYS_unshare, {CLONE_NEWUSER}},
    {"unshare-newns", SYS_unshare, {CLONE_NEWNS}},
    {"unshare-newnet", SYS_unshare, {CLONE_NEWNET}},
    {"unshare-newpid", SYS_unshare, {CLONE_NEWPID}},
    {"unshare-newuts", SYS_unshare, {CLONE_NEWUTS}},
    {"unshare-newipc", SYS_unshare, {CLONE_NEWIPC}},
    {"unshare-newcgroup", SYS_unshare, {CLONE_NEWCGROUP}},
    {"unshare-newtime", SYS_unshare, {0x80}},
    {"setns", SYS_setns, {BAD_FD, 0}},
    {"setns-high", SYS_setns, {BAD_FD | HIGH, 0}},
    {"clone3-empty", NR_clone3, {0, 0}},

    // S05: mounts.
    {"mount", SYS_mount, {0, 0, 0, 0, 0}},
    {"umount2", SYS_umount2, {NOWHERE, 0}},
    {"pivot_root", SYS_pivot_root, {0, 0}},
    {"open_tree", NR_open_tree, {BAD_FD, 0, 0}},
    {"move_mount", NR_move_mount, {BAD_FD, 0, BAD_FD, 0, 0}},
    {"fsopen", NR_fsopen, {0, 0}},
    {"fsconfig", NR_fsconfig, {BAD_FD, 0, 0, 0, 0}},
    {"fsmount", NR_fsmount, {BAD_FD, 0, 0}},
    {"fspick", NR_fspick, {BAD_FD, 0, 0}},
    {"mount_setattr", NR_mount_setattr, {BAD_FD, 0, 0, 0, 0}},

    // S06, S19: keys.
    {"keyctl", SYS_keyctl, {0, (unsigned long)-3, 0}},
    {"add_key", SYS_add_key, {0, 0, 0, 0, 0}},
    {"request_key", SYS_request_key, {0, 0, 0, 0}},

    // S07: opening files by handle bypasses every path check.
    {"open_by_handle_at", SYS_open_by_handle_at, {BAD_FD, 0, 0}},
    {"name_to_handle_at", SYS_name_to_handle_at, {BAD_FD, 0, 0, 0, 0}},

    // S08: READ_IMPLIES_EXEC and ADDR_NO_RANDOMIZE.
    {"personality-read-implies-exec", SYS_personality, {0x0400000}},
    {"personality-no-randomize", SYS_personality, {0x0040000}},
    {"personality-high", SYS_personality, {0x0400000 | HIGH}},

    // S09: administration.
    {"modify_ldt", SYS_modify_ldt, {0, 0, 0}},
    {"iopl", SYS_iopl, {0}},
    {"ioperm", SYS_ioperm, {0, 1, 0}},
    {"swapon", SYS_swapon, {0, 0}},
    {"swapoff", SYS_swapoff, {NOWHERE}},
    {"reboot", SYS_reboot, {0, 0, 0, 0}},
    {"kexec_load", SYS_kexec_load, {0, 0, 0, 0xfff0}},
    {"kexec_file_load", SYS_kexec_file_load, {BAD_FD, BAD_FD, 0, 0, 0xfff0}},
    {"init_module", SYS_init_module, {0, 0, 0}},
    {"finit_module", SYS_finit_module, {BAD_FD, 0, 0}},
    {"delete_module", SYS_delete_module, {(unsigned long)"nonexistent_probe", O_NONBLOCK}},
    {"quotactl", SYS_quotactl, {(unsigned long)-1, 0, 0, 0}},
    {"quotactl_fd", NR_quotactl_fd, {BAD_FD, 0x80000100, 0, 0}},
    {"settimeofday", SYS_settimeofday, {1, 0}},
    {"clock_settime", SYS_clock_settime, {0, 0}},
    {"syslog", SYS_syslog, {10, 0, 0}},
    {"sethostname", SYS_sethostname, {0, BAD_FD}},
    {"setdomainname", SYS_setdomainname, {0, BAD_FD}},
    {"acct", SYS_acct, {NOWHERE}},
    {"fanotify_init", SYS_fanotify_init, {0xffffffff, 0}},
    {"fanotify_mark", SYS_fanotify_mark, {BAD_FD, 0, 0, BAD_FD, 0}},
    {"remap_file_pages", SYS_remap_file_pages, {0, 0, 0, 0, 0}},
    {"mbind", SYS_mbind, {0, 0, 99, 0, 0, 0}},
    {"set_mempolicy", SYS_set_mempolicy, {99, 0, 0}},
    {"set_mempolicy_home_node", NR_set_mempolicy_home_node, {0, 0, 0, 1}},
    {"migrate_pages", SYS_migrate_pages, {NO_PID, 0, 0, 0}},
    {"move_pages", SYS_move_pages, {NO_PID, 0, 0, 0, 0, 0}},
    {"vmsplice", SYS_vmsplice, {BAD_FD, 0, 0, 0}},
    {"lookup_dcookie", SYS_lookup_dcookie, {0, 0, 0}},
    {"memfd_secret", NR_memfd_secret, {0xffffffff}},

    // S10: terminal ioctls; the kernel reads only the low half of the request.
    {"ioctl-tiocsti", SYS_ioctl, {BAD_FD, TIOCSTI, 0}},
    {"ioctl-tiocsti-high", SYS_ioctl, {BAD_FD, TIOCSTI | HIGH, 0}},
    {"ioctl-tiocsti-all-high", SYS_ioctl, {BAD_FD, TIOCSTI | 0xffffffff00000000UL, 0}},
    {"ioctl-tioclinux", SYS_ioctl, {BAD_FD, TIOCLINUX, 0}},
    {"ioctl-tioclinux-high", SYS_ioctl, {BAD_FD, TIOCLINUX | HIGH, 0}},
    {"ioctl-tiocsetd", SYS_ioctl, {BAD_FD, TIOCSETD, 0}},
    {"ioctl-tiocsetd-high", SYS_ioctl, {BAD_FD, TIOCSETD | HIGH, 0}},

    // S11: x32's getpid, and a number that no kernel has.
    {"x32", 0x40000000 | SYS_getpid, {0}},
    {"unknown-number", 1023, {0}},

    // S13: a listener could answer CONTINUE to calls that our filter denies. GET_NOTIF_SIZES is its first step.
    {"seccomp-new-listener", SYS_seccomp, {1, 8, 0}},
    {"seccomp-new-listener-high", SYS_seccomp, {1, 8 | HIGH, 0}},

    // S14: unusual operations of prctl.
    {"prctl-set-mm", SYS_prctl, {PR_SET_MM, 0, 0, 0, 0}},
    {"prctl-set-securebits", SYS_prctl, {PR_SET_SECUREBITS, 0, 0, 0, 0}},
    {"prctl-set-securebits-high", SYS_prctl, {PR_SET_SECUREBITS | HIGH, 0, 0, 0, 0}},
    {"prctl-syscall-user-dispatch", SYS_prctl, {59, 0, 0, 0, 0}},

    // Calls of ordinary programs, which must be allowed.
    {"ordinary-getpid", SYS_getpid, {0}},
    {"ordinary-prctl-name", SYS_prctl, {PR_SET_NAME, (unsigned long)"probe", 0, 0, 0}},
    {"ordinary-ioctl", SYS_ioctl, {0, FIOCLEX, 0}},
    {"ordinary-personality-query", SYS_personality, {0xffffffff}},
    {0},
};

// A raw clone, like fork() with more flags. The child ends at once.
static void try_clone(struct answer *answer, unsigned long flags) {
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    answer_result(answer, child);
}

#define CLONE_STEP(name, flags) \
    static void name(struct answer *answer) { try_clone(answer, flags); }
CLONE_STEP(clone_newuser, CLONE_NEWUSER)
CLONE_STEP(clone_newuser_high, CLONE_NEWUSER | HIGH)
CLONE_STEP(clone_newns, CLONE_NEWNS)
CLONE_STEP(clone_newns_high, CLONE_NEWNS | HIGH)
CLONE_STEP(clone_newnet, CLONE_NEWNET)
CLONE_STEP(clone_newpid, CLONE_NEWPID)
CLONE_STEP(clone_newuts, CLONE_NEWUTS)
CLONE_STEP(clone_newipc, CLONE_NEWIPC)
CLONE_STEP(clone_newcgroup, CLONE_NEWCGROUP)
CLONE_STEP(clone_nothing_new, 0)

static void clone3_newuser(struct answer *answer) {
    unsigned long arguments[8] = {[0] = CLONE_NEWUSER, [4] = SIGCHLD};
    long child = syscall(NR_clone3, arguments, sizeof arguments);
    if (child == 0)
        _exit(0);
    answer_result(answer, child);
}

// getpid through the 32-bit entry, where numbers mean other calls: 20 is getpid there and writev here.
static void int80(struct answer *answer) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
    errno = result < 0 ? (int)-result : 0;
    answer_result(answer, result < 0 ? -1 : result);
}

static void ordinary_threads(struct answer *answer) {
    unsigned long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    static char stack[16384];
    // A thread that only calls exit(0): it must not use the C library.
    long result;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile(
        "syscall\n"
        "test %%rax, %%rax\n"
        "jnz 1f\n"
        "mov $60, %%eax\n"
        "xor %%edi, %%edi\n"
        "syscall\n"
        "1:"
        : "=a"(result)
        : "a"(SYS_clone), "D"(flags), "S"((unsigned long)(stack + sizeof stack) & ~15UL), "d"(0L), "r"(r10), "r"(r8)
        : "rcx", "r11", "memory");
    errno = result < 0 ? (int)-result : 0;
    answer_result(answer, result < 0 ? -1 : result);
}

// S16: a program that is in no file system.
static void exec_from_memory(struct answer *answer) {
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), copy = memfd_create("probe", MFD_CLOEXEC);
    char block[65536];
    ssize_t got;
    if (self == -1 || copy == -1) {
        answer_result(answer, -1);
        return;
    }
    while ((got = read(self, block, sizeof block)) > 0)
        if (write(copy, block, (size_t)got) != got)
            break;
    pid_t child = fork();
    if (child == 0) {
        char *const arguments[] = {"probe", "list", NULL}, *const environment[] = {NULL};
        if (freopen("/dev/null", "w", stdout))
            fexecve(copy, arguments, environment);
        _exit(errno & 0x7f);
    }
    int status;
    waitpid(child, &status, 0);
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
    answer_result(answer, errno == 0 ? 0 : -1);
}

// S17: memory that is both writable and executable.
static void writable_code(struct answer *answer) {
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    answer_result(answer, page == MAP_FAILED ? -1 : 0);
}

// S15: starts a program with a set-user-ID bit or a file capability, which prints its privileges.
static void run_elevated(struct answer *answer, const char *program) {
    int channel[2];
    char report[sizeof answer->detail] = "";
    if (pipe(channel) != 0) {
        answer_result(answer, -1);
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        dup2(channel[1], 1);
        execl(program, program, "privileges", (char *)NULL);
        _exit(127);
    }
    close(channel[1]);
    ssize_t got = read(channel[0], report, sizeof report - 1);
    waitpid(child, NULL, 0);
    if (got <= 0) {
        answer_word(answer, "not-run");
        return;
    }
    report[strcspn(report, "\n")] = '\0';
    // "privileges\tWORD\tDETAIL"
    char *word = strchr(report, '\t');
    char *detail = word ? strchr(word + 1, '\t') : NULL;
    if (!detail) {
        answer_word(answer, "not-understood");
        return;
    }
    *detail = '\0';
    answer_word(answer, word + 1);
    memcpy(answer->detail, detail + 1, strlen(detail + 1) + 1);
}

static void set_user_id_program(struct answer *answer) { run_elevated(answer, "/bin/probe-setuid"); }
static void file_capability_program(struct answer *answer) { run_elevated(answer, "/bin/probe-filecap"); }

// This process's privileges: "root" with any effective capability, "capable" with one as another user, otherwise
// "plain".
static void privileges(struct answer *answer) {
    unsigned int header[2] = {0x20080522, 0}, data[6] = {0};
    if (syscall(SYS_capget, header, data) != 0) {
        answer_result(answer, -1);
        return;
    }
    unsigned long bounding = 0, ambient = 0;
    for (int capability = 0; capability < 64; capability++) {
        if (prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1)
            bounding |= 1UL << capability;
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, capability, 0, 0) == 1)
            ambient |= 1UL << capability;
    }
    unsigned long effective = data[0] | (unsigned long)data[3] << 32;
    unsigned long permitted = data[1] | (unsigned long)data[4] << 32;
    unsigned long inheritable = data[2] | (unsigned long)data[5] << 32;
    answer_word(answer, !effective ? "plain" : geteuid() == 0 ? "root" : "capable");
    snprintf(answer->detail, sizeof answer->detail,
             "uid=%u euid=%u gid=%u egid=%u eff=%lx prm=%lx inh=%lx bnd=%lx amb=%lx nnp=%d seccomp=%d", getuid(),
             geteuid(), getgid(), getegid(), effective, permitted, inheritable, bounding, ambient,
             prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_SECCOMP, 0, 0, 0, 0));
}

// F16: a core limit of 1, unlike 0, prevents the start of a core_pattern pipe.
static void core_limit(struct answer *answer) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_CORE, &limit) != 0) {
        answer_result(answer, -1);
        return;
    }
    snprintf(answer->word, sizeof answer->word, "%ld/%ld", (long)limit.rlim_cur, (long)limit.rlim_max);
}

// S19: the description of the session keyring, if the kernel tells it.
static void session_keyring(struct answer *answer) {
    long length = syscall(SYS_keyctl, 6, -3L, answer->detail, sizeof answer->detail - 1, 0);
    if (length < 0)
        answer->detail[0] = '\0';
    answer_result(answer, length < 0 ? -1 : 0);
}

const struct step SYSCALL_STEPS[] = {
    {"clone-newuser", clone_newuser},
    {"clone-newuser-high", clone_newuser_high},
    {"clone-newns", clone_newns},
    {"clone-newns-high", clone_newns_high},
    {"clone-newnet", clone_newnet},
    {"clone-newpid", clone_newpid},
    {"clone-newuts", clone_newuts},
    {"clone-newipc", clone_newipc},
    {"clone-newcgroup", clone_newcgroup},
    {"clone3-newuser", clone3_newuser},
    {"int80", int80},
    {"ordinary-clone", clone_nothing_new},
    {"ordinary-thread", ordinary_threads},
    {"exec-from-memory", exec_from_memory},
    {"writable-code", writable_code},
    {"set-user-id-program", set_user_id_program},
    {"file-capability-program", file_capability_program},
    {"privileges", privileges},
    {"core-limit", core_limit},
    {"session-keyring", session_keyring},
    {0},
};
