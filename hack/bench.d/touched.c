/* touched: runs a command and lists the functions of one program that its processes enter, in their order.
 *
 *   touched PROGRAM LIST COMMAND ARG...
 *
 * PROGRAM is a static ELF file with symbols. Every process that executes it gets a breakpoint at each function; the first
 * to come by one writes the address to LIST, and takes it out for itself. Returns when all processes have ended, with the
 * exit code of COMMAND. ptrace(2). */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 1024, BREAKPOINT = 0xcc, TRACED = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC };

struct process {
    pid_t pid;
    unsigned long base; /* where the program is; 0 while it executes another one */
};

static struct {
    unsigned char *image;
    struct stat file;
    const Elf64_Phdr *text;
} program;
static unsigned long *functions;
static char *entered;
static size_t function_count;
static struct process processes[PROCESSES];
static size_t process_count;

static void die(const char *what)
{
    fprintf(stderr, "touched: %s: %s\n", what, strerror(errno));
    exit(2);
}

static int by_address(const void *a, const void *b)
{
    unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;
    return (x > y) - (x < y);
}

static void read_functions(const Elf64_Shdr *section)
{
    const Elf64_Sym *symbols = (const void *)(program.image + section->sh_offset);
    size_t count = section->sh_size / sizeof *symbols;
    functions = calloc(count, sizeof *functions);
    entered = calloc(count, 1);
    if (functions == NULL || entered == NULL)
        die("memory");
    for (size_t i = 0; i < count; i++)
        if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_size > 0)
            functions[function_count++] = symbols[i].st_value;
    qsort(functions, function_count, sizeof *functions, by_address);
}

static void read_program(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &program.file) != 0)
        die(path);
    program.image = mmap(NULL, program.file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (program.image == MAP_FAILED)
        die(path);
    close(fd);
    const Elf64_Ehdr *head = (const void *)program.image;
    const Elf64_Phdr *segments = (const void *)(program.image + head->e_phoff);
    for (int i = 0; i < head->e_phnum; i++)
        if (segments[i].p_type == PT_LOAD && (segments[i].p_flags & PF_X) != 0)
            program.text = &segments[i];
    const Elf64_Shdr *sections = (const void *)(program.image + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++)
        if (sections[i].sh_type == SHT_SYMTAB)
            read_functions(&sections[i]);
    errno = ENOEXEC;
    if (program.text == NULL || function_count == 0)
        die(path);
}

/* By its code: the runtime may execute a copy in memory. */
static int executes_the_program(pid_t pid)
{
    unsigned char there[4096];
    char path[64];
    struct stat file;
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    int same = fstat(fd, &file) == 0 && file.st_size == program.file.st_size &&
               pread(fd, there, sizeof there, program.text->p_offset) == (ssize_t)sizeof there &&
               memcmp(there, program.image + program.text->p_offset, sizeof there) == 0;
    close(fd);
    return same;
}

/* What is added to an address of the file, by the mapping of its code. */
static unsigned long find_base(pid_t pid)
{
    char line[512];
    unsigned long from, to, offset, base = 0;
    char rights[8];
    snprintf(line, sizeof line, "/proc/%d/maps", pid);
    FILE *maps = fopen(line, "re");
    if (maps == NULL)
        return 0;
    while (base == 0 && fgets(line, sizeof line, maps) != NULL)
        if (sscanf(line, "%lx-%lx %7s %lx", &from, &to, rights, &offset) == 4 && rights[2] == 'x' &&
            offset == (program.text->p_offset & ~4095UL))
            base = from - (program.text->p_vaddr & ~4095UL);
    fclose(maps);
    return base;
}

static struct process *process_of(pid_t pid)
{
    for (size_t i = 0; i < process_count; i++)
        if (processes[i].pid == pid)
            return &processes[i];
    errno = ENOMEM;
    if (process_count == PROCESSES)
        die("processes");
    processes[process_count] = (struct process){.pid = pid};
    return &processes[process_count++];
}

static void set_breakpoints(struct process *process)
{
    process->base = 0;
    if (!executes_the_program(process->pid))
        return;
    unsigned long base = find_base(process->pid);
    size_t size = program.text->p_filesz, done = 0;
    unsigned char *code = malloc(size);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", process->pid);
    int memory = open(path, O_RDWR | O_CLOEXEC);
    if (base == 0 || code == NULL || memory < 0)
        die(path);
    memcpy(code, program.image + program.text->p_offset, size);
    for (size_t i = 0; i < function_count; i++)
        if (functions[i] - program.text->p_vaddr < size)
            code[functions[i] - program.text->p_vaddr] = BREAKPOINT;
    while (done < size) {
        ssize_t written = pwrite(memory, code + done, size - done, base + program.text->p_vaddr + done);
        if (written <= 0)
            die(path);
        done += written;
    }
    free(code);
    close(memory);
    process->base = base;
}

/* Whether the process stopped at a breakpoint of ours, which it then has no more. */
static int take_breakpoint(const struct process *process, FILE *list)
{
    struct user_regs_struct registers;
    if (process->base == 0 || ptrace(PTRACE_GETREGS, process->pid, NULL, &registers) != 0)
        return 0;
    unsigned long place = registers.rip - 1, address = place - process->base;
    unsigned long *found = bsearch(&address, functions, function_count, sizeof *functions, by_address);
    if (found == NULL)
        return 0;
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, process->pid, place, NULL);
    if (errno != 0)
        return 0;
    word = (word & ~0xffL) | program.image[program.text->p_offset + (address - program.text->p_vaddr)];
    registers.rip = place;
    if (ptrace(PTRACE_POKETEXT, process->pid, place, word) != 0 || ptrace(PTRACE_SETREGS, process->pid, NULL, &registers) != 0)
        die("ptrace");
    if (!entered[found - functions])
        fprintf(list, "%lx\n", address);
    entered[found - functions] = 1;
    return 1;
}

/* The signal that a stopped process gets. */
static int look_at(struct process *process, int status, FILE *list)
{
    unsigned long child;
    int signal = WSTOPSIG(status);
    switch (status >> 16) {
    case PTRACE_EVENT_EXEC:
        set_breakpoints(process);
        return 0;
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_CLONE:
        if (ptrace(PTRACE_GETEVENTMSG, process->pid, NULL, &child) == 0)
            process_of(child)->base = process->base;
        return 0;
    default:
        break;
    }
    if (signal == SIGTRAP) {
        /* A child may come before its parent's event. */
        if (process->base == 0 && executes_the_program(process->pid))
            process->base = find_base(process->pid);
        return take_breakpoint(process, list) ? 0 : signal;
    }
    return signal == SIGSTOP ? 0 : signal;
}

int main(int argc, char **argv)
{
    int status, code = 2;
    if (argc < 4) {
        fprintf(stderr, "usage: touched PROGRAM LIST COMMAND ARG...\n");
        return 2;
    }
    read_program(argv[1]);
    FILE *list = fopen(argv[2], "we");
    if (list == NULL)
        die(argv[2]);
    pid_t first = fork();
    if (first == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        execvp(argv[3], argv + 3);
        die(argv[3]);
    }
    if (first < 0 || waitpid(first, &status, 0) != first || ptrace(PTRACE_SETOPTIONS, first, NULL, TRACED) != 0)
        die("ptrace");
    ptrace(PTRACE_CONT, first, NULL, 0);
    for (;;) {
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0)
            break;
        struct process *process = process_of(pid);
        if (!WIFSTOPPED(status)) {
            if (pid == first)
                code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            *process = processes[--process_count];
            continue;
        }
        ptrace(PTRACE_CONT, pid, NULL, look_at(process, status, list));
    }
    return fclose(list) == 0 ? code : 2;
}
