// thief: a process of a container that tries to write to the memory of other processes of its user, for instance those
// of `agentbox verify`. It opens each new process's memory as early as possible, and records its successes. It ends
// after a minute.
//
//   thief FILE    appends a line "program argument" to FILE for each process to whose memory it wrote

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// How many pids beyond the newest one it looks for.
enum { AHEAD = 6 };

static int file_of(int pid, const char *name, int flags) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return open(path, flags | O_CLOEXEC);
}

// Writes one byte of the process's writable memory back.
static int write_to(int mem, int maps) {
    char line[512], mode[8];
    unsigned long begin;
    char byte;
    FILE *text = fdopen(maps, "r");
    int won = 0;
    while (text && !won && fgets(line, sizeof line, text))
        if (sscanf(line, "%lx-%*x %7s", &begin, mode) == 2 && mode[1] == 'w')
            won = pread(mem, &byte, 1, (off_t)begin) == 1 && pwrite(mem, &byte, 1, (off_t)begin) == 1;
    if (text)
        fclose(text);
    else
        close(maps);
    return won;
}

static int try(int pid, const char *out) {
    int mem = file_of(pid, "mem", O_RDWR);
    if (mem < 0)
        return 0;
    int maps = file_of(pid, "maps", O_RDONLY);
    if (maps < 0) {
        close(mem);
        return 0;
    }
    // By now the process has hidden itself, if it ever does.
    usleep(20000);
    int won = write_to(mem, maps);
    close(mem);
    char words[256] = "";
    int cmdline = file_of(pid, "cmdline", O_RDONLY);
    ssize_t length = cmdline < 0 ? 0 : read(cmdline, words, sizeof words - 1);
    if (cmdline >= 0)
        close(cmdline);
    for (ssize_t i = 0; i + 1 < length; i++)
        if (!words[i])
            words[i] = ' ';
    FILE *to = fopen(out, "a");
    if (won && to)
        fprintf(to, "%s\n", words);
    if (to)
        fclose(to);
    return won;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

// The newest process in this namespace (proc_loadavg(5)).
static int newest(void) {
    int pid = 0;
    FILE *text = fopen("/proc/loadavg", "re");
    if (!text)
        return 0;
    if (fscanf(text, "%*s %*s %*s %*s %d", &pid) != 1)
        pid = 0;
    fclose(text);
    return pid;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    alarm(60);
    int done = getpid();
    for (;;) {
        int last = newest();
        for (int pid = last > done ? last : done + 1; pid <= last + AHEAD; pid++) {
            char path[32];
            snprintf(path, sizeof path, "/proc/%d", pid);
            if (access(path, F_OK))
                continue;
            // Goes on once this one is gone, was written to, or has been tried for a second.
            double end = now() + 1;
            while (now() < end && !try(pid, argv[1]) && !access(path, F_OK))
                ;
            done = pid;
        }
    }
}
