// A hostile init process, for the test of P08: it stops the next process of its pid namespace, which it does not know
// yet, and prints what /proc shows of that one and of itself.
//
//   hold ROUNDS FILE...   each FILE is below /proc/PID; a line is FILE, "own" or "other", and a line of the file
//
// A round ends with "end", "round", and whether the process is still stopped. It gives up after a minute.
//
//   hold ROUNDS kill      kills the second next process, and in every other round the third
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { AHEAD = 16, BYTES = 1 << 16 };

// The number of a process that has just begun and ended.
static pid_t last(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    return child;
}

static size_t read_file(const char *process, const char *name, char *text) {
    char path[256];
    snprintf(path, sizeof path, "/proc/%s/%s", process, name);
    int fd = open(path, O_RDONLY);
    size_t length = 0;
    for (ssize_t more; fd >= 0 && length < BYTES - 1 && (more = read(fd, text + length, BYTES - 1 - length)) > 0;)
        length += (size_t)more;
    close(fd);
    for (size_t i = 0; i < length; i++)
        text[i] = text[i] ? text[i] : ' ';
    text[length] = 0;
    return length;
}

static void print_file(const char *process, const char *who, const char *name) {
    static char text[BYTES];
    read_file(process, name, text);
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        if (*line)
            printf("%s\t%s\t%s\n", name, who, line);
}

static int is_stopped(const char *process) {
    static char text[BYTES];
    read_file(process, "stat", text);
    char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' && name_end[2] == 'T';
}

// Signals the first process that begins with one of these numbers.
static pid_t catch_one(pid_t first, int signal, time_t end) {
    while (time(NULL) < end)
        for (pid_t next = first; next < first + AHEAD; next++)
            if (kill(next, signal) == 0)
                return next;
    return 0;
}

int main(int argc, char *argv[]) {
    int rounds = argc > 1 ? atoi(argv[1]) : 0;
    time_t end = time(NULL) + 60;
    if (argc > 2 && !strcmp(argv[2], "kill")) {
        for (int round = 0; round < rounds; round++)
            catch_one(last() + 2 + round % 2, SIGKILL, end);
        pause();
    }
    for (int round = 0; round < rounds; round++) {
        pid_t before = last();
        pid_t found = catch_one(before + 1, SIGSTOP, end);
        if (!found)
            break;
        char process[16];
        snprintf(process, sizeof process, "%d", found);
        while (!is_stopped(process) && time(NULL) < end && kill(found, 0) == 0)
            usleep(100);
        print_file(process, "other", "comm");
        for (int i = 2; i < argc; i++) {
            print_file("self", "own", argv[i]);
            print_file(process, "other", argv[i]);
        }
        printf("end\tround\t%s\n", is_stopped(process) ? "stopped" : "gone");
        fflush(stdout);
        // Every process, since the one found may be a thread that has ended when its process executed the program.
        kill(-1, SIGCONT);
        // The caller waits for the process.
        for (int i = 0; i < 1000 && kill(found, 0) == 0; i++)
            usleep(1000);
    }
    pause();
}
