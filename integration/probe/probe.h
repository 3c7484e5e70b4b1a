// What the parts of the probe share.
#ifndef PROBE_H
#define PROBE_H

#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// What a step found: one word that the tests compare, and what a reader may want to know besides.
struct answer {
    char word[32];
    char detail[480];
};

// A step runs in a child process of its own, so it may change and break whatever belongs to that process.
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

// A step that needs arguments from the command line; false if it does not know the name or their number is wrong.
bool run_with_arguments(int argc, char **argv, struct answer *answer);

// "ok" if the result of a system call is not -1, else the name of errno.
void answer_result(struct answer *answer, long result);
// Any other word.
void answer_word(struct answer *answer, const char *word);

#endif
