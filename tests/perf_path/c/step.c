/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * step.c - executes the post path one instruction at a time (x86-64) and counts,
 * per library and kind, what was executed.
 *
 * A child runs the operations between two breakpoint instructions; the parent
 * single-steps it in between.  Printed is one line per library:
 *   <file> instructions <n> atomic <n> syscall <n>
 * for all operations together; atomic is an instruction with a lock prefix, or
 * xchg with memory (which locks without one).  With "trace", the place of each
 * instruction is printed too, as "at <file> <offset>", or "atomic ..." for those.
 *
 * Usage: step put_short|am_short|progress|am_receive <operations>
 *             [trace|atomic|syscall]
 * (the last two: do one on purpose); exit code 77: can't trace here.
 */
#define _GNU_SOURCE
#include "path.h"

#if defined(__x86_64__)

#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES_MAX 256
#define MARK()    __asm__ volatile("int3" ::: "memory")

struct file {
    unsigned long begin, end, base;
    char          name[256];
    unsigned long instructions, atomics, calls;
};

static struct file files[FILES_MAX];
static int         num_files;

static void child(const char *name, long count, const char *fault)
{
    static int  word;
    struct path path;
    path_op_t   op = path_find(name), before = path_find("am_short");
    long        i;

    path_open(&path);
    for (i = 0; i < 2000; ++i) { /* what is made on first use is made */
        op(&path);
        before(&path);
        tofu_iface_progress(path.rx);
        tofu_iface_progress(path.tx);
    }
    path_settle(&path);
    if (!strcmp(name, "am_receive")) {
        for (i = 0; i < count; ++i) {
            before(&path);
        }
    }
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        _exit(77);
    }
    raise(SIGSTOP);
    MARK();
    for (i = 0; i < count; ++i) {
        PATH_CHECK(op(&path), "%s: no room", name);
    }
    if (!strcmp(fault, "atomic")) {
        __atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
    } else if (!strcmp(fault, "syscall")) {
        syscall(SYS_getppid);
    }
    MARK();
    path_close(&path);
    exit(0);
}

static void read_maps(pid_t pid)
{
    char         text[64], line[1024], *name;
    unsigned long begin, end, base = 0;
    char         last[256] = "";
    FILE         *maps;

    snprintf(text, sizeof(text), "/proc/%d/maps", (int)pid);
    maps = fopen(text, "r");
    PATH_CHECK(maps != NULL, "%s: %s", text, strerror(errno));
    while (fgets(line, sizeof(line), maps) && (num_files < FILES_MAX)) {
        char flags[8] = "";

        line[strcspn(line, "\n")] = '\0';
        name = strrchr(line, '/');
        name = (name == NULL) ? strchr(line, '[') : name + 1;
        if ((sscanf(line, "%lx-%lx %7s", &begin, &end, flags) != 3) ||
            (name == NULL)) {
            continue;
        }
        if (strcmp(last, name)) {
            snprintf(last, sizeof(last), "%s", name);
            base = begin;
        }
        if (flags[2] == 'x') {
            files[num_files].begin = begin;
            files[num_files].end   = end;
            files[num_files].base  = base;
            snprintf(files[num_files].name, sizeof(files[0].name), "%s", name);
            ++num_files;
        }
    }
    fclose(maps);
}

static struct file *file_of(unsigned long address)
{
    for (int i = 0; i < num_files; ++i) {
        if ((address >= files[i].begin) && (address < files[i].end)) {
            return &files[i];
        }
    }
    PATH_CHECK(0, "an instruction at %#lx, in no file", address);
    return NULL;
}

/* What the bytes of an instruction are. */
static int is_atomic(const unsigned char *code)
{
    int i = 0;

    for (;; ++i) {
        if (code[i] == 0xf0) {
            return 1;
        } else if ((code[i] != 0x66) && (code[i] != 0x67) &&
                   (code[i] != 0xf2) && (code[i] != 0xf3) &&
                   (code[i] != 0x2e) && (code[i] != 0x3e) &&
                   (code[i] != 0x64) && (code[i] != 0x65)) {
            break;
        }
    }
    i += ((code[i] & 0xf0) == 0x40); /* REX */
    return ((code[i] == 0x86) || (code[i] == 0x87)) &&
           ((code[i + 1] & 0xc0) != 0xc0);
}

static void fetch(pid_t pid, unsigned long address, unsigned char *code)
{
    unsigned long word;
    int           i;

    for (i = 0; i < 2; ++i) {
        errno = 0;
        word  = (unsigned long)ptrace(PTRACE_PEEKTEXT, pid, address + 8 * i, 0);
        if (errno != 0) {
            word = 0; /* the end of a mapping */
        }
        memcpy(code + 8 * i, &word, 8);
    }
}

static void next_stop(pid_t pid, int request, int wanted)
{
    int status;

    PATH_CHECK(ptrace(request, pid, 0, 0) == 0, "ptrace: %s", strerror(errno));
    PATH_CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    PATH_CHECK(WIFSTOPPED(status) && (WSTOPSIG(status) == wanted),
               "the child: status %#x", status);
}

static void step_through(pid_t pid, int trace)
{
    struct user_regs_struct regs;
    unsigned char           code[16];
    struct file             *file;
    int                     atomic;

    for (;;) {
        PATH_CHECK(ptrace(PTRACE_GETREGS, pid, 0, &regs) == 0, "ptrace");
        fetch(pid, regs.rip, code);
        if (code[0] == 0xcc) {
            return;
        }
        file = file_of(regs.rip);
        ++file->instructions;
        file->calls += (code[0] == 0x0f) && (code[1] == 0x05);
        atomic = is_atomic(code);
        file->atomics += atomic;
        if (trace) {
            printf("%s %s %#lx\n", atomic ? "atomic" : "at", file->name,
                   (unsigned long)regs.rip - file->base);
        }
        next_stop(pid, PTRACE_SINGLESTEP, SIGTRAP);
    }
}

int main(int argc, char **argv)
{
    int   status, i, trace;
    pid_t pid;
    long  count;

    PATH_CHECK(argc >= 3, "usage: %s operation operations "
               "[trace|atomic|syscall]", argv[0]);
    count = atol(argv[2]);
    trace = (argc > 3) && !strcmp(argv[3], "trace");
    setenv("LD_BIND_NOW", "1", 1); /* for the libraries that are loaded late */
    pid = fork();
    PATH_CHECK(pid >= 0, "fork");
    if (pid == 0) {
        alarm(100);
        child(argv[1], count, (argc > 3) ? argv[3] : "");
    }
    PATH_CHECK(waitpid(pid, &status, WUNTRACED) == pid, "waitpid");
    if (WIFEXITED(status)) {
        return WEXITSTATUS(status) ? WEXITSTATUS(status) : 4;
    }
    read_maps(pid);
    next_stop(pid, PTRACE_CONT, SIGTRAP);
    step_through(pid, trace);
    for (i = 0; i < num_files; ++i) {
        if (files[i].instructions > 0) {
            printf("%s instructions %lu atomic %lu syscall %lu\n",
                   files[i].name, files[i].instructions, files[i].atomics,
                   files[i].calls);
        }
    }
    /* past the second mark, to the end */
    PATH_CHECK(ptrace(PTRACE_CONT, pid, 0, 0) == 0, "ptrace");
    waitpid(pid, &status, 0);
    if (WIFSTOPPED(status)) { /* the mark itself */
        ptrace(PTRACE_CONT, pid, 0, 0);
        waitpid(pid, &status, 0);
    }
    PATH_CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0),
               "the child ended with status %#x", status);
    return 0;
}

#else

int main(void)
{
    fputs("single steps are understood on x86-64 only\n", stderr);
    return 77;
}

#endif
