// probe: tries, inside a container, what a policy must forbid, and prints the kernel's answers.
//
//   probe all              every step that needs no arguments
//   probe NAME...          those steps
//   probe with STEP ARG... one step that needs arguments (see network.c and files.c)
//   probe list             the names
//
// Prints one line per step: its name, a tab, the answer ("ok", an errno such as EPERM, "killed:SIGSYS", "hangs", or the
// step's own word), and for some a tab and a detail. The exit status is 0 if every step could be tried. The probe
// itself judges nothing: the tests compare the answers behind the walls with those without them.

#include "probe.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

// musl has no strerrorname_np().
#define NAMED(error) {error, #error}
static const struct {
    int number;
    const char *name;
} ERRORS[] = {
    NAMED(EPERM),        NAMED(ENOENT),       NAMED(ESRCH),          NAMED(EINTR),           NAMED(EIO),
    NAMED(ENXIO),        NAMED(E2BIG),        NAMED(ENOEXEC),        NAMED(EBADF),           NAMED(ECHILD),
    NAMED(EAGAIN),       NAMED(ENOMEM),       NAMED(EACCES),         NAMED(EFAULT),          NAMED(EBUSY),
    NAMED(EEXIST),       NAMED(EXDEV),        NAMED(ENODEV),         NAMED(ENOTDIR),         NAMED(EISDIR),
    NAMED(EINVAL),       NAMED(EMFILE),       NAMED(ENOTTY),         NAMED(ETXTBSY),         NAMED(ENOSPC),
    NAMED(EROFS),        NAMED(EPIPE),        NAMED(ERANGE),         NAMED(ENAMETOOLONG),    NAMED(ENOSYS),
    NAMED(ELOOP),        NAMED(ENODATA),      NAMED(EOVERFLOW),      NAMED(EUSERS),          NAMED(ENOTSOCK),
    NAMED(EMSGSIZE),     NAMED(EPROTOTYPE),   NAMED(ENOPROTOOPT),    NAMED(EPROTONOSUPPORT), NAMED(ESOCKTNOSUPPORT),
    NAMED(EOPNOTSUPP),   NAMED(EAFNOSUPPORT), NAMED(EADDRINUSE),     NAMED(EADDRNOTAVAIL),   NAMED(ENETDOWN),
    NAMED(ENETUNREACH),  NAMED(ECONNABORTED), NAMED(ECONNRESET),     NAMED(ENOTCONN),        NAMED(ETIMEDOUT),
    NAMED(ECONNREFUSED), NAMED(EHOSTUNREACH), NAMED(EINPROGRESS),    NAMED(ENOKEY),          NAMED(EDESTADDRREQ),
};

static void answer_errno(struct answer *answer, int number) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (ERRORS[i].number == number) {
            answer_word(answer, ERRORS[i].name);
            return;
        }
    snprintf(answer->word, sizeof answer->word, "errno:%d", number);
}

static void answer_signal(struct answer *answer, int number) {
    const char *name = number == SIGSYS ? "SIGSYS" : number == SIGSEGV ? "SIGSEGV" : NULL;
    if (name)
        snprintf(answer->word, sizeof answer->word, "killed:%s", name);
    else
        snprintf(answer->word, sizeof answer->word, "killed:%d", number);
}

void answer_word(struct answer *answer, const char *word) {
    snprintf(answer->word, sizeof answer->word, "%s", word);
}

void answer_result(struct answer *answer, long result) {
    if (result == -1)
        answer_errno(answer, errno);
    else
        answer_word(answer, "ok");
}

static void print(const char *name, const struct answer *answer) {
    printf("%s\t%s", name, answer->word);
    if (answer->detail[0])
        printf("\t%s", answer->detail);
    printf("\n");
}

// Runs `body` in a child and prints its answer. It has fifteen seconds: some steps take four, and longer on a busy machine.
static void try_step(const char *name, void (*body)(const void *, struct answer *), const void *argument) {
    struct answer answer = {0};
    int channel[2], status;

    if (pipe(channel) != 0) {
        perror("probe: pipe");
        exit(125);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == -1) {
        perror("probe: fork");
        exit(125);
    }
    if (child == 0) {
        close(channel[0]);
        // The probe's own descriptors must not look like leaks of the runtime.
        if (dup2(channel[1], 1000) != 1000)
            _exit(125);
        close(channel[1]);
        body(argument, &answer);
        _exit(write(1000, &answer, sizeof answer) == sizeof answer ? 0 : 125);
    }
    close(channel[1]);
    struct pollfd ready = {.fd = channel[0], .events = POLLIN};
    bool answered = poll(&ready, 1, 15000) == 1 && read(channel[0], &answer, sizeof answer) == sizeof answer;
    close(channel[0]);
    bool hangs = !answered && ready.revents == 0;
    if (hangs)
        kill(child, SIGKILL);
    waitpid(child, &status, 0);
    if (hangs) {
        answer_word(&answer, "hangs");
    } else if (!answered) {
        if (WIFSIGNALED(status))
            answer_signal(&answer, WTERMSIG(status));
        else
            snprintf(answer.word, sizeof answer.word, "exited:%d", WEXITSTATUS(status));
    }
    print(name, &answer);
}

static void run_call(const void *argument, struct answer *answer) {
    const struct call *call = argument;
    const unsigned long *a = call->arguments;
    answer_result(answer, syscall(call->number, a[0], a[1], a[2], a[3], a[4], a[5]));
}

static void run_step(const void *argument, struct answer *answer) {
    const struct step *step = argument;
    step->run(answer);
}

struct command_line {
    int argc;
    char **argv;
};

static void run_command_line(const void *argument, struct answer *answer) {
    const struct command_line *line = argument;
    if (!run_with_arguments(line->argc, line->argv, answer))
        answer_word(answer, "no-such-step");
}

static const struct step *const STEPS[] = {SYSCALL_STEPS, NETWORK_STEPS, FILE_STEPS};

// Tries all steps, or those with this name. Returns their number.
static int try_named(const char *wanted) {
    int found = 0;
    for (const struct call *call = CALLS; call->name; call++)
        if (!wanted || strcmp(wanted, call->name) == 0) {
            try_step(call->name, run_call, call);
            found++;
        }
    for (size_t list = 0; list < sizeof STEPS / sizeof *STEPS; list++)
        for (const struct step *step = STEPS[list]; step->name; step++)
            if (!wanted || strcmp(wanted, step->name) == 0) {
                try_step(step->name, run_step, step);
                found++;
            }
    return found;
}

static void list_names(void) {
    for (const struct call *call = CALLS; call->name; call++)
        puts(call->name);
    for (size_t list = 0; list < sizeof STEPS / sizeof *STEPS; list++)
        for (const struct step *step = STEPS[list]; step->name; step++)
            puts(step->name);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fputs("usage: probe all | probe list | probe NAME... | probe with STEP ARG...\n", stderr);
        return 2;
    }
    if (strcmp(argv[1], "list") == 0) {
        list_names();
    } else if (strcmp(argv[1], "all") == 0) {
        try_named(NULL);
    } else if (strcmp(argv[1], "with") == 0 && argc > 2) {
        struct command_line line = {argc - 2, argv + 2};
        try_step(argv[2], run_command_line, &line);
    } else {
        for (int i = 1; i < argc; i++)
            if (try_named(argv[i]) == 0) {
                fprintf(stderr, "probe: no step '%s'\n", argv[i]);
                return 2;
            }
    }
    return 0;
}
