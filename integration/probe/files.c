// Steps for files, devices, descriptors and other processes.

#include "probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>

bool reach_with_arguments(int argc, char **argv, struct answer *answer);

// Opens without O_TRUNC and writes nothing, so a file that can be opened does not change.
static void open_to_write(struct answer *answer, const char *path) {
    answer_result(answer, open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
}

// "ok" if at least one byte can be read; "empty" for a file masked with /dev/null or a really empty one.
static void read_file(struct answer *answer, const char *path) {
    char byte;
    int fd = open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    ssize_t got = fd == -1 ? -1 : read(fd, &byte, 1);
    answer_result(answer, got);
    if (got == 0)
        answer_word(answer, "empty");
}

// The entries of a directory; "empty" for one masked with an empty file system.
static void list_directory(struct answer *answer, const char *path) {
    DIR *directory = opendir(path);
    struct dirent *entry;
    if (!directory) {
        answer_result(answer, -1);
        return;
    }
    answer_word(answer, "empty");
    while ((entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        size_t used = strlen(answer->detail);
        answer_word(answer, "ok");
        snprintf(answer->detail + used, sizeof answer->detail - used, "%s%s", used ? "," : "", entry->d_name);
    }
}

// Makes a new file, and removes it.
static void create_file(struct answer *answer, const char *directory) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/.probe-%d", directory, getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    answer_result(answer, fd);
    if (fd != -1)
        unlink(path);
}

// F06: makes a device node and opens it. "made" means that it could be made but not used.
static void make_device(struct answer *answer, mode_t kind, unsigned int major, unsigned int minor) {
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/probe-%d", getpid());
    if (mknod(path, kind | 0600, makedev(major, minor)) != 0) {
        // /dev/shm may be missing or read-only: then use the root.
        snprintf(path, sizeof path, "/probe-%d", getpid());
        if (errno == EPERM || mknod(path, kind | 0600, makedev(major, minor)) != 0) {
            answer_result(answer, -1);
            return;
        }
    }
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    answer_word(answer, fd == -1 ? "made" : "ok");
    unlink(path);
}
// /dev/kmsg, which no container has, and the first disk.
static void mknod_character(struct answer *answer) { make_device(answer, S_IFCHR, 1, 11); }
static void mknod_block(struct answer *answer) { make_device(answer, S_IFBLK, 254, 0); }

// F06: RENAME_WHITEOUT leaves a device node with the number 0/0 at the old name, without CAP_MKNOD.
static void rename_whiteout(struct answer *answer) {
    char from[64], to[80];
    snprintf(from, sizeof from, "/dev/shm/whiteout-%d", getpid());
    snprintf(to, sizeof to, "%s-moved", from);
    int file = open(from, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    long result = file == -1 ? -1 : syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 4);
    answer_result(answer, (int)result);
    if (file != -1)
        close(file);
    unlink(from);
    unlink(to);
}

// F01, S05: a mount that would work, in this container's own mount namespace.
static void mount_tmpfs(struct answer *answer) {
    int result = mount("probe", "/proc/self/task", "tmpfs", MS_NOSUID, "size=4k");
    answer_result(answer, result);
    if (result == 0)
        umount2("/proc/self/task", MNT_DETACH);
}
static void remount_root(struct answer *answer) { answer_result(answer, mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL)); }
static void unmask_proc(struct answer *answer) { answer_result(answer, umount2("/proc/keys", MNT_DETACH)); }

// F05, S18: descriptors above 2, and a working directory outside of the root.
static void descriptors(struct answer *answer) {
    answer_word(answer, "three");
    for (int fd = 3; fd < 1000; fd++) {
        char link[64], target[128] = "?";
        if (fcntl(fd, F_GETFD) == -1)
            continue;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, target, sizeof target - 1);
        if (length >= 0)
            target[length] = '\0';
        size_t used = strlen(answer->detail);
        answer_word(answer, "more");
        snprintf(answer->detail + used, sizeof answer->detail - used, "%s%d=%s", used ? "," : "", fd, target);
    }
}
static void working_directory(struct answer *answer) {
    // getcwd() says "(unreachable)" for a directory outside of the root.
    char path[PATH_MAX];
    if (!getcwd(path, sizeof path))
        answer_result(answer, -1);
    else
        answer_word(answer, path[0] == '/' ? "inside" : "outside");
    snprintf(answer->detail, sizeof answer->detail, "%.400s", path);
}

// F09: watches for a runtime that enters this container, as `exec` does, and tries to open its binary for writing:
// "never-seen", "safe", or "writable". It never writes.
static void watch_runtime(struct answer *answer, int seconds) {
    struct timespec now, end;
    char own[PATH_MAX], path[300], target[PATH_MAX];
    ssize_t own_length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[own_length < 0 ? 0 : own_length] = '\0';
    answer_word(answer, "never-seen");
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += seconds;
    do {
        DIR *proc = opendir("/proc");
        struct dirent *entry;
        while (proc && (entry = readdir(proc))) {
            if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
                continue;
            snprintf(path, sizeof path, "/proc/%s/exe", entry->d_name);
            ssize_t length = readlink(path, target, sizeof target - 1);
            if (length < 0)
                continue;
            target[length] = '\0';
            // Programs of the image: this one and busybox.
            if (strcmp(target, own) == 0 || strncmp(target, "/bin/", 5) == 0)
                continue;
            int held = open(path, O_RDONLY | O_CLOEXEC);
            if (held == -1)
                continue;
            snprintf(answer->detail, sizeof answer->detail, "%.400s", target);
            if (strcmp(answer->word, "never-seen") == 0)
                answer_word(answer, "safe");
            snprintf(path, sizeof path, "/proc/self/fd/%d", held);
            // While it runs, the answer is ETXTBSY. It must not become writable afterwards either.
            for (int try = 0; try < 200; try++) {
                int writable = open(path, O_WRONLY | O_CLOEXEC);
                if (writable != -1) {
                    answer_word(answer, "writable");
                    return;
                }
                if (errno != ETXTBSY)
                    break;
                usleep(5000);
            }
            close(held);
        }
        if (proc)
            closedir(proc);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec);
}

bool run_with_arguments(int argc, char **argv, struct answer *answer) {
    if (argc == 2 && strcmp(argv[0], "open-to-write") == 0)
        open_to_write(answer, argv[1]);
    else if (argc == 2 && strcmp(argv[0], "read") == 0)
        read_file(answer, argv[1]);
    else if (argc == 2 && strcmp(argv[0], "list") == 0)
        list_directory(answer, argv[1]);
    else if (argc == 2 && strcmp(argv[0], "create-in") == 0)
        create_file(answer, argv[1]);
    else if (argc == 2 && strcmp(argv[0], "watch-runtime") == 0)
        watch_runtime(answer, atoi(argv[1]));
    else
        return reach_with_arguments(argc, argv, answer);
    return true;
}

// F04: paths that lead to the host's kernel.
#define WRITE_STEP(name, path) \
    static void name(struct answer *answer) { open_to_write(answer, path); }
#define READ_STEP(name, path) \
    static void name(struct answer *answer) { read_file(answer, path); }
#define LIST_STEP(name, path) \
    static void name(struct answer *answer) { list_directory(answer, path); }
WRITE_STEP(write_core_pattern, "/proc/sys/kernel/core_pattern")
WRITE_STEP(write_modprobe, "/proc/sys/kernel/modprobe")
WRITE_STEP(write_hostname, "/proc/sys/kernel/hostname")
WRITE_STEP(write_ip_forward, "/proc/sys/net/ipv4/ip_forward")
WRITE_STEP(write_sysrq, "/proc/sysrq-trigger")
WRITE_STEP(write_irq, "/proc/irq/default_smp_affinity")
WRITE_STEP(write_uevent_helper, "/sys/kernel/uevent_helper")
WRITE_STEP(write_kernel_profiling, "/sys/kernel/profiling")
WRITE_STEP(write_swappiness, "/proc/sys/vm/swappiness")
READ_STEP(read_kcore, "/proc/kcore")
READ_STEP(read_keys, "/proc/keys")
READ_STEP(read_timer_list, "/proc/timer_list")
READ_STEP(read_sched_debug, "/proc/sched_debug")
READ_STEP(read_latency_stats, "/proc/latency_stats")
READ_STEP(read_interrupts, "/proc/interrupts")
READ_STEP(read_kmsg, "/dev/kmsg")
READ_STEP(read_memory, "/dev/mem")
READ_STEP(read_fuse, "/dev/fuse")
LIST_STEP(list_firmware, "/sys/firmware")
LIST_STEP(list_acpi, "/proc/acpi")
LIST_STEP(list_scsi, "/proc/scsi")
LIST_STEP(list_dev, "/dev")

// F04: a v1 hierarchy's release_agent runs on the host, as root.
static void write_release_agent(struct answer *answer) {
    static const char *const PATHS[] = {"/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/memory/notify_on_release",
                                        "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/pids/cgroup.procs"};
    answer_word(answer, "refused");
    for (size_t i = 0; i < sizeof PATHS / sizeof *PATHS; i++)
        if (open(PATHS[i], O_WRONLY | O_CLOEXEC) != -1) {
            answer_word(answer, "ok");
            snprintf(answer->detail, sizeof answer->detail, "%s", PATHS[i]);
        }
}

const struct step FILE_STEPS[] = {
    {"write-core-pattern", write_core_pattern},
    {"write-modprobe", write_modprobe},
    {"write-hostname", write_hostname},
    {"write-ip-forward", write_ip_forward},
    {"write-sysrq", write_sysrq},
    {"write-irq", write_irq},
    {"write-uevent-helper", write_uevent_helper},
    {"write-kernel-profiling", write_kernel_profiling},
    {"write-swappiness", write_swappiness},
    {"write-release-agent", write_release_agent},
    {"read-kcore", read_kcore},
    {"read-keys", read_keys},
    {"read-timer-list", read_timer_list},
    {"read-sched-debug", read_sched_debug},
    {"read-latency-stats", read_latency_stats},
    {"read-interrupts", read_interrupts},
    {"read-kmsg", read_kmsg},
    {"read-memory", read_memory},
    {"read-fuse", read_fuse},
    {"list-firmware", list_firmware},
    {"list-acpi", list_acpi},
    {"list-scsi", list_scsi},
    {"list-dev", list_dev},
    {"mknod-character", mknod_character},
    {"mknod-block", mknod_block},
    {"rename-whiteout", rename_whiteout},
    {"mount-tmpfs", mount_tmpfs},
    {"remount-root", remount_root},
    {"unmask-proc", unmask_proc},
    {"descriptors", descriptors},
    {"working-directory", working_directory},
    {0},
};
