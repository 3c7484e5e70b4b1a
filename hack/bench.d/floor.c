/* floor: what a start behind the walls of `wrap` costs the kernel, whatever the program around them does.
 *
 *   floor PARTS MOUNTS PROGRAM     PARTS are letters: p pid, ipc, uts and cgroup namespace; n network namespace with lo up;
 *                                  m mount namespace with MOUNTS binds, the kernel's file systems and pivot_root;
 *                                  s a second process in namespaces of its own on an empty root, which executes PROGRAM too;
 *                                  c cgroups: a directory in each hierarchy, which the process enters, and its removal
 *
 * It checks, judges and logs nothing. With "pnmsc" it makes what `wrap` makes. hack/bench shows it beside `wrap`. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call) ({ long r_ = (call); if (r_ < 0) { perror("floor: " #call); _exit(2); } r_; })

static const char *parts;
static pid_t child;
static int has(char part) { return strchr(parts, part) != NULL; }

static int opened(const char *type)
{
    int fs = CHECK(syscall(SYS_fsopen, type, 1));
    CHECK(syscall(SYS_fsconfig, fs, 6, NULL, NULL, 0));
    int mount = CHECK(syscall(SYS_fsmount, fs, 1, 0));
    close(fs);
    return mount;
}

static void moved(int tree, const char *to)
{
    CHECK(syscall(SYS_move_mount, tree, "", AT_FDCWD, to, 4));
    close(tree);
}

static void take_root(void)
{
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    moved(opened("tmpfs"), "/tmp");
    CHECK(chdir("/tmp"));
}

static void enter_root(void)
{
    CHECK(syscall(SYS_pivot_root, ".", "."));
    CHECK(umount2(".", MNT_DETACH));
    CHECK(chdir("/"));
}

static int tree_of(const char *path)
{
    int tree = CHECK(syscall(SYS_open_tree, AT_FDCWD, path, 1 | O_CLOEXEC));
    struct { unsigned long long set, clear, propagation, users; } attributes = {.set = 3, .propagation = MS_PRIVATE};
    CHECK(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes));
    return tree;
}

/* Each hierarchy of version 1, or the one of version 2. */
static void cgroups(void (*each)(const char *path))
{
    const char *base = "/sys/fs/cgroup";
    char path[512];
    if (access("/sys/fs/cgroup/cgroup.procs", F_OK) == 0) {
        snprintf(path, sizeof path, "%s/floor-%d", base, getpid());
        each(path);
        return;
    }
    DIR *all = opendir(base);
    for (struct dirent *one; all && (one = readdir(all));)
        if (one->d_type == DT_DIR && one->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s/floor-%d", base, one->d_name, getpid());
            each(path);
        }
    closedir(all);
}

static void make(const char *path) { CHECK(mkdir(path, 0755)); }
static void clear(const char *path) { while (rmdir(path) < 0) usleep(50); }

static void enter(const char *path)
{
    char file[600], pid[16];
    snprintf(file, sizeof file, "%s/cgroup.procs", path);
    int fd = CHECK(open(file, O_WRONLY));
    /* A cpuset of version 1 takes no process before it has processors. */
    if (write(fd, pid, snprintf(pid, sizeof pid, "%d", child)) < 0) {}
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    parts = argv[1];
    int mounts = atoi(argv[2]), trees[4096], ready[2], begin[2];
    CHECK(pipe(ready));
    CHECK(pipe(begin));
    pid_t second = 0;
    if (has('s') && (second = CHECK(fork())) == 0) {
        CHECK(unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID));
        pid_t inner = CHECK(fork());
        if (inner == 0) {
            int program = CHECK(open(argv[3], O_PATH | O_CLOEXEC));
            take_root();
            enter_root();
            CHECK(fexecve(program, argv + 3, environ));
        }
        waitpid(inner, NULL, 0);
        _exit(0);
    }
    if (has('c'))
        cgroups(make);
    if (has('m'))
        for (int n = 0; n < mounts; n++)
            trees[n] = tree_of("/etc/passwd");
    int flags = SIGCHLD | (has('p') ? CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP : 0) | (has('n') ? CLONE_NEWNET : 0) | (has('m') ? CLONE_NEWNS : 0);
    child = CHECK(syscall(SYS_clone, flags, NULL, NULL, NULL, NULL));
    if (child == 0) {
        char byte;
        if (has('n')) {
            struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
            CHECK(ioctl(CHECK(socket(AF_INET, SOCK_DGRAM, 0)), SIOCSIFFLAGS, &lo));
        }
        int program = CHECK(open(argv[3], O_PATH | O_CLOEXEC));
        if (has('m')) {
            take_root();
            char name[32];
            for (int n = 0; n < mounts; n++) {
                snprintf(name, sizeof name, "m%d", n);
                close(CHECK(open(name, O_CREAT | O_WRONLY, 0644)));
                moved(trees[n], name);
            }
            const char *kernels[] = {"proc", "tmpfs", "devpts", "tmpfs", "mqueue", "sysfs", "tmpfs", "tmpfs"};
            for (int n = 0; n < (has('p') && has('n') ? 8 : 0); n++) {
                snprintf(name, sizeof name, "k%d", n);
                CHECK(mkdir(name, 0755));
                moved(opened(kernels[n]), name);
            }
            enter_root();
        }
        CHECK(read(begin[0], &byte, 1));
        CHECK(fexecve(program, argv + 3, environ));
    }
    if (has('c'))
        cgroups(enter);
    CHECK(write(begin[1], "", 1));
    int status = 0;
    waitpid(child, &status, 0);
    if (second)
        waitpid(second, NULL, 0);
    if (has('c'))
        cgroups(clear);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
