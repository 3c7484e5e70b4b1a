// A hostile agent in a container, for the tests of F-H1: it delays every process that it can see.
//
//   agent MODE [FILE...]   repeats this forever
//     stop    SIGSTOP to every process but itself
//     lease   a write lease on each FILE: opening or executing it waits until the lease is given back (fcntl(2))
//     trace   PTRACE_ATTACH to every process but itself, then SIGSTOP
//     all     all of these
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <unistd.h>

enum { HIGHEST = 400 };

static void stop(void) {
    pid_t own = getpid();
    for (pid_t pid = 1; pid < HIGHEST; pid++)
        if (pid != own)
            kill(pid, SIGSTOP);
}

static void trace(void) {
    pid_t own = getpid();
    for (pid_t pid = 2; pid < HIGHEST; pid++)
        if (pid != own)
            ptrace(PTRACE_ATTACH, pid, NULL, NULL);
    stop();
}

static void lease(char *const files[]) {
    static int held[64];
    for (int i = 0; files[i] && i < 64; i++) {
        if (held[i] > 0)
            continue;
        held[i] = open(files[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (held[i] > 0 && fcntl(held[i], F_SETLEASE, F_WRLCK) != 0) {
            close(held[i]);
            held[i] = 0;
        }
    }
}

int main(int argc, char *argv[]) {
    if (argc < 2)
        return 2;
    const char *mode = argv[1];
    // Opening a leased file sends SIGIO here, which would end this process. The lease is never given back.
    signal(SIGIO, SIG_IGN);
    int all = !strcmp(mode, "all");
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        if (all || !strcmp(mode, "stop"))
            stop();
        if (all || !strcmp(mode, "trace"))
            trace();
        if (all || !strcmp(mode, "lease"))
            lease(argv + 2);
        usleep(all || !strcmp(mode, "lease") ? 2000 : 50);
    }
}
