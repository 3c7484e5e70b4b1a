// A debugger in a container, and a hostile one.
//
//   tracer debug           does what gdb and strace do with their child
//   tracer rewrite         rewrites a child's calls at entry to calls that the filter denies
//   tracer powers          tries to suspend a child's filter, and to read it
//   tracer hunt SECONDS    seizes every process that it can, and examines each
//   tracer climb           leaves a chroot through a directory opened before
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HIGHEST = 4096, CAUGHT = 64 };

static const char *name_of(long result) {
    switch (-result) {
    case EPERM: return "EPERM";
    case ENOSYS: return "ENOSYS";
    case EACCES: return "EACCES";
    case EINVAL: return "EINVAL";
    case ENODEV: return "ENODEV";
    case EFAULT: return "EFAULT";
    default: return result < 0 ? strerror(-result) : "done";
    }
}

// A child that waits to be traced and then calls getppid once.
static pid_t traced_child(void) {
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
            _exit(77);
        raise(SIGSTOP);
        syscall(SYS_getppid);
        _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFSTOPPED(status)) {
        printf("traceme\t%s\n", WIFEXITED(status) && WEXITSTATUS(status) == 77 ? "EPERM" : "?");
        return -1;
    }
    return child;
}

static volatile int watched = 4711;

static int debug(void) {
    pid_t child = traced_child();
    if (child < 0)
        return 1;
    struct user_regs_struct regs;
    printf("registers\t%s\n", ptrace(PTRACE_GETREGS, child, 0, &regs) ? "?" : "done");
    printf("peek\t%d\n", (int)ptrace(PTRACE_PEEKDATA, child, &watched, 0));
    int seen = 0, wanted = 4712;
    struct iovec here = {&wanted, sizeof wanted}, there = {(void *)&watched, sizeof watched};
    long wrote = syscall(SYS_process_vm_writev, child, &here, 1, &there, 1, 0);
    printf("writev\t%s\n", name_of(wrote < 0 ? -errno : wrote));
    here.iov_base = &seen;
    long read = syscall(SYS_process_vm_readv, child, &here, 1, &there, 1, 0);
    printf("readv\t%s\t%d\n", name_of(read < 0 ? -errno : read), seen);
    ptrace(PTRACE_DETACH, child, 0, 0);
    int status = 0;
    waitpid(child, &status, 0);
    printf("ended\t%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}

// The result of `number` in place of the child's getppid.
static const char *rewritten(long number) {
    pid_t child = traced_child();
    if (child < 0)
        return "not traced";
    struct user_regs_struct regs;
    const char *result = "?";
    int status;
    ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD);
    for (int stop = 0; stop < 64; stop++) {
        ptrace(PTRACE_SYSCALL, child, 0, 0);
        waitpid(child, &status, 0);
        if (!WIFSTOPPED(status)) {
            result = WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "ended";
            return result;
        }
        if (WSTOPSIG(status) != (SIGTRAP | 0x80))
            continue;
        ptrace(PTRACE_GETREGS, child, 0, &regs);
        if (regs.orig_rax != SYS_getppid)
            continue;
        regs.orig_rax = number;
        regs.rdi = number == SYS_unshare ? 0x10000000 : 0;
        regs.rsi = regs.rdx = regs.r10 = regs.r8 = regs.r9 = 0;
        ptrace(PTRACE_SETREGS, child, 0, &regs);
        ptrace(PTRACE_SYSCALL, child, 0, 0);
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status))
            return strsignal(WTERMSIG(status));
        ptrace(PTRACE_GETREGS, child, 0, &regs);
        result = name_of((long)regs.rax);
        // A call that kills is not made: its number is in place of the result, and the signal comes next.
        if ((long)regs.rax == number) {
            ptrace(PTRACE_CONT, child, 0, 0);
            waitpid(child, &status, 0);
            if (WIFSIGNALED(status))
                return strsignal(WTERMSIG(status));
        }
        break;
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return result;
}

static int rewrite(void) {
    printf("getpid\t%s\n", rewritten(SYS_getpid));
    printf("unshare\t%s\n", rewritten(SYS_unshare));
    printf("mount\t%s\n", rewritten(SYS_mount));
    printf("keyctl\t%s\n", rewritten(SYS_keyctl));
    printf("bpf\t%s\n", rewritten(SYS_bpf));
    printf("io_uring_setup\t%s\n", rewritten(SYS_io_uring_setup));
    printf("setns\t%s\n", rewritten(SYS_setns));
    printf("x32-getpid\t%s\n", rewritten(0x40000000L | SYS_getpid));
    return 0;
}

static int powers(void) {
    pid_t child = traced_child();
    if (child < 0)
        return 1;
    // PTRACE_O_SUSPEND_SECCOMP, PTRACE_SECCOMP_GET_FILTER.
    printf("suspend\t%s\n", name_of(ptrace(PTRACE_SETOPTIONS, child, 0, 1 << 21) ? -errno : 0));
    printf("filter\t%s\n", name_of(ptrace(0x420c, child, 0, 0) < 0 ? -errno : 0));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}

// The value of a field of /proc/PID/status.
static void field(pid_t pid, const char *name, char out[64]) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    strcpy(out, "?");
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
            sscanf(line + strlen(name) + 1, "%63s", out);
    if (file)
        fclose(file);
}

static int same(pid_t pid, const char *name) {
    char own[64], theirs[64];
    field(getpid(), name, own);
    field(pid, name, theirs);
    return !strcmp(own, theirs);
}

static int hunt(int seconds) {
    pid_t own = getpid(), caught[CAUGHT] = {0};
    long refused = 0, count = 0, weak = 0;
    time_t end = time(NULL) + seconds;
    printf("ready\n");
    fflush(stdout);
    pid_t last = own + 1;
    while (time(NULL) < end) {
        // The next pids to be assigned.
        for (pid_t pid = own + 1; pid < last + 12 && pid < HIGHEST; pid++) {
            int known = 0;
            for (int i = 0; i < CAUGHT; i++)
                known |= caught[i] == pid;
            if (known)
                continue;
            if (ptrace(PTRACE_SEIZE, pid, 0, 0) != 0) {
                if (errno == EPERM) {
                    refused++;
                    last = pid > last ? pid : last;
                }
                continue;
            }
            last = pid > last ? pid : last;
            int status;
            ptrace(PTRACE_INTERRUPT, pid, 0, 0);
            if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status))
                continue;
            char exe[256] = "", path[64];
            snprintf(path, sizeof path, "/proc/%d/exe", pid);
            long n = readlink(path, exe, sizeof exe - 1);
            exe[n > 0 ? n : 0] = 0;
            int is_weak = !same(pid, "Seccomp") || !same(pid, "NoNewPrivs") || !same(pid, "CapPrm") || !same(pid, "CapBnd");
            if (is_weak || strstr(exe, "agentbox") || strstr(exe, "memfd")) {
                weak++;
                printf("weak\t%d\t%s\n", pid, exe);
            }
            caught[count++ % CAUGHT] = pid;
            ptrace(PTRACE_DETACH, pid, 0, 0);
        }
    }
    printf("hunted\trefused=%s\tcaught=%s\tweak=%ld\n", refused ? "some" : "none", count ? "some" : "none", weak);
    fprintf(stderr, "refused %ld caught %ld\n", refused, count);
    return 0;
}

static int climb(void) {
    struct stat before, after;
    stat("/", &before);
    mkdir("/tmp/jail", 0755);
    int outside = open("/", O_RDONLY | O_DIRECTORY);
    printf("chroot\t%s\n", name_of(chroot("/tmp/jail") ? -errno : 0));
    int inside = open("/etc/passwd", O_RDONLY);
    printf("jailed\t%s\n", inside < 0 ? "done" : "?");
    if (fchdir(outside) != 0)
        return 1;
    for (int i = 0; i < 64; i++)
        if (chdir("..") != 0)
            return 1;
    printf("climbed\t%s\n", name_of(chroot(".") ? -errno : 0));
    stat("/", &after);
    printf("root\t%s\n", before.st_dev == after.st_dev && before.st_ino == after.st_ino ? "the container's" : "another");
    // Hidden files are hidden here too.
    char byte;
    int file = open("/proc/kcore", O_RDONLY);
    printf("kcore\t%s\n", file >= 0 && read(file, &byte, 1) == 0 ? "empty" : file < 0 ? "absent" : "readable");
    printf("sysctl\t%s\n", open("/proc/sys/kernel/core_pattern", O_WRONLY) < 0 ? "read-only" : "writable");
    return 0;
}

int main(int argc, char *argv[]) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "debug"))
        return debug();
    if (!strcmp(mode, "rewrite"))
        return rewrite();
    if (!strcmp(mode, "powers"))
        return powers();
    if (!strcmp(mode, "climb"))
        return climb();
    if (!strcmp(mode, "hunt") && argc > 2)
        return hunt(atoi(argv[2]));
    return 2;
}
