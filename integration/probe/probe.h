// Declarations that the parts of the probe share.
#ifndef PROBE_H
#define PROBE_H

#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A step's result: one word that the tests compare, and details for readers.
struct answer {
    char word[32];
    char detail[480];
};

// A step runs in its own child process, so it may change and break everything of that process.
struct step {
    const char *name;
    void (*run)(struct answer *answer);
};

// A step that is one system call. Its arguments are chosen so that, if the call is allowed, nothing harmful happens:
// bad descriptors and pointers, empty requests, or an effect that ends with the child.
struct call {
    const char *name;
    long number;
    unsigned long arguments[6];
};

// Lists end with an entry without a name.
extern const struct call CALLS[];
extern const struct step SYSCALL_STEPS[];
extern const struct step NETWORK_STEPS[];
extern const struct step FILE_STEPS[];

// A step with arguments from the command line; false if the name or the number of arguments is unknown.
bool run_with_arguments(int argc, char **argv, struct answer *answer);

// "ok" if the result of a system call is not -1, else the name of errno.
void answer_result(struct answer *answer, long result);
// Any other word.
void answer_word(struct answer *answer, const char *word);

#endif
