/* steps: runs commands one after another and says how long each took and how much memory it held.
 *
 *   steps COMMAND ARG... [; COMMAND ARG...]...
 *   steps ... ; @ended FILE ; ...      waits for the end of the process whose pid is in FILE
 *
 * For each step one line on standard output: "<nanoseconds> <peak resident KiB> <exit code, or 128 + signal>". It stops
 * at the first step that fails. The commands' own standard output goes to standard error.
 *
 * This is a small static program, not a script, for two reasons. wait4(2) counts into a child's peak what its parent
 * held when the child was cloned, so a Python parent would be all that is measured; and starting a process from it costs
 * the same few microseconds every time. It is a subreaper, as containerd's shim is: a container's first process becomes
 * its child, and is reaped before the container is deleted. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void die(const char *what)
{
    fprintf(stderr, "steps: %s: %s\n", what, strerror(errno));
    exit(2);
}

static long long now(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0)
        die("clock_gettime");
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int code_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The program may end as it likes: what counts is that it has. */
static int wait_for_end(const char *file)
{
    int pid = 0, status;
    FILE *in = fopen(file, "re");
    if (in == NULL)
        die(file);
    if (fscanf(in, "%d", &pid) != 1 || pid <= 0) {
        errno = EINVAL;
        die(file);
    }
    fclose(in);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            die("wait for the container's process");
    return 0;
}

static int run(char **argv, long *peak)
{
    struct rusage usage;
    int status;
    pid_t pid;
    errno = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
    if (errno != 0)
        die(argv[0]);
    while (wait4(pid, &status, 0, &usage) < 0)
        if (errno != EINTR)
            die("wait4");
    *peak = usage.ru_maxrss;
    return code_of(status);
}

int main(int argc, char **argv)
{
    int results = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    if (results < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        die("set up the output");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        die("become a subreaper");
    for (int at = 1; at < argc;) {
        int end = at;
        while (end < argc && strcmp(argv[end], ";") != 0)
            end++;
        if (end == at) {
            errno = EINVAL;
            die("an empty step");
        }
        argv[end] = NULL;
        long peak = 0;
        long long start = now();
        int code = strcmp(argv[at], "@ended") == 0 && end == at + 2 ? wait_for_end(argv[at + 1]) : run(argv + at, &peak);
        long long took = now() - start;
        if (dprintf(results, "%lld %ld %d\n", took, peak, code) < 0)
            die("report");
        if (code != 0)
            return 1;
        at = end + 1;
    }
    return 0;
}
