/* calls: what four system calls cost under the filter that this process was given. Run as a container's process.
 *
 *   calls          measures, and ends
 *   calls work     a fixed number of allowed calls, and ends
 *   calls denied   makes a denied call again and again, until it is killed; "calls allowed" one that is allowed
 *
 * Prints "call <name> <nanoseconds> <errno of the call, 0 if it succeeded>" for each: the best of many batches, because
 * whatever else the machine does can only make a batch slower. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 60, CALLS = 5000, WORK = 1500000 };

static int zero;
static char byte;

static long getppid_(void) { return syscall(SYS_getppid); }
static long read_(void) { return syscall(SYS_read, zero, &byte, 1); }
/* Both filters look at its argument: 0xffffffff asks and changes nothing. */
static long personality_(void) { return syscall(SYS_personality, 0xffffffffUL); }
/* Not one of the flags: where no filter is, the kernel refuses it too. */
static long kexec_(void) { return syscall(SYS_kexec_load, 0UL, 0UL, NULL, ~0UL); }

static const struct {
    const char *name;
    long (*call)(void);
} calls[] = {{"getppid", getppid_}, {"read", read_}, {"personality", personality_}, {"kexec_load", kexec_}};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Bounded, in case it is not killed. */
static void for_long(long (*call)(void))
{
    for (double end = now() + 120e9; now() < end;)
        for (int n = 0; n < CALLS; n++)
            call();
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        if (strcmp(argv[1], "work") == 0)
            for (int n = 0; n < WORK; n++)
                getppid_();
        else
            for_long(strcmp(argv[1], "denied") == 0 ? kexec_ : getppid_);
        return 0;
    }
    double best[4] = {1e18, 1e18, 1e18, 1e18};
    int error[4];
    zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    if (zero < 0) {
        perror("/dev/zero");
        return 1;
    }
    /* Batches of the four take turns, so that a slow moment of the machine hits all alike. */
    for (int batch = 0; batch < BATCHES; batch++) {
        for (int i = 0; i < 4; i++) {
            errno = 0;
            error[i] = calls[i].call() < 0 ? errno : 0;
            double start = now();
            for (int n = 0; n < CALLS; n++)
                calls[i].call();
            double took = (now() - start) / CALLS;
            if (took < best[i])
                best[i] = took;
        }
    }
    for (int i = 0; i < 4; i++)
        printf("call %s %.2f %d\n", calls[i].name, best[i], error[i]);
    return 0;
}
