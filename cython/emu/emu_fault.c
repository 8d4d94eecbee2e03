/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_fault.c - a peer may cut off a file that we have mapped.
 *
 * A store or load beyond the new end raises SIGBUS here, in the process that has
 * done nothing wrong.  For such an address, and no other, the page is replaced by
 * an anonymous one so that the access ends; the operation fails with MRQ_RMT_MEMORY, and
 * from that page on the mapping becomes one of an empty file, so that what comes there by
 * another registration fails as well.  Any other SIGBUS goes to whoever handled it before.  Files that
 * are sealed against shrinking (the transport core's are) cannot get here, and the
 * handler is not installed for them.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_vma.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_RANGES 1024u
#define FAULTS     2u /* an operation reads one mapping and writes another */

struct range {
    _Atomic uintptr_t base; /* 0: free */
    _Atomic uintptr_t end, page;
};

static struct range ranges[MAX_RANGES];

static struct sigaction previous;

__thread volatile int              emu_fault_seen __attribute__((tls_model("initial-exec")));
static __thread volatile uintptr_t fault_at[FAULTS] __attribute__((tls_model("initial-exec"))); /* 0: none */

static struct range *range_of(uintptr_t addr)
{
    for (unsigned i = 0; i < MAX_RANGES; i++) {
        uintptr_t base = atomic_load(&ranges[i].base);
        if ((base != 0) && (addr >= base) && (addr < atomic_load(&ranges[i].end))) {
            return &ranges[i];
        }
    }
    return NULL;
}

/* The first page of each mapping is kept. */
static void note(const struct range *r, uintptr_t page)
{
    for (unsigned i = 0; i < FAULTS; i++) {
        if ((fault_at[i] == 0) || ((fault_at[i] >= atomic_load(&r->base)) && (fault_at[i] < atomic_load(&r->end)))) {
            fault_at[i] = ((fault_at[i] == 0) || (page < fault_at[i])) ? page : fault_at[i];
            break;
        }
    }
    emu_fault_seen = 1;
}

/* Only system calls and atomics: this may run at any point of the program */
static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    uintptr_t     addr = (uintptr_t)info->si_addr, page;
    struct range *r    = (info->si_code > 0) ? range_of(addr) : NULL; /* nobody sent it: there is an address */

    if (r != NULL) {
        page = atomic_load(&r->page);
        addr &= ~(page - 1);
        if (mmap((void *)addr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
            MAP_FAILED) {
            note(r, addr);
            return;
        }
    }
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(sig, info, context);
    } else if ((previous.sa_handler != SIG_DFL) && (previous.sa_handler != SIG_IGN)) {
        previous.sa_handler(sig);
    } else if (info->si_code > 0) {
        signal(sig, SIG_DFL); /* it happens again and ends the process, as ever */
    } else if (previous.sa_handler == SIG_DFL) { /* somebody sent it */
        signal(sig, SIG_DFL);
        syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), sig); /* when this handler returns */
    }
}

bool emu_fault_guard(int fd, void *base, uint64_t size)
{
    static bool     installed;
    const uintptr_t huge = emu_memfd_huge(fd);

    if (emu_memfd_stays(fd)) {
        return true;
    }
    if (!installed) {
        struct sigaction sa = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK};

        sigemptyset(&sa.sa_mask);
        if (sigaction(SIGBUS, &sa, &previous)) {
            return false;
        }
        installed = true;
    }
    for (unsigned i = 0; i < MAX_RANGES; i++) {
        if (atomic_load(&ranges[i].base) == 0) {
            /* a page of its mapping is replaced as a whole */
            atomic_store(&ranges[i].page, huge ? huge : (uintptr_t)sysconf(_SC_PAGESIZE));
            atomic_store(&ranges[i].end, (uintptr_t)base + size);
            atomic_store(&ranges[i].base, (uintptr_t)base);
            return true;
        }
    }
    return false;
}

/* Without a descriptor for it the anonymous pages stay: what else comes there is lost. */
static void map_nothing(uintptr_t from, uintptr_t end)
{
    int empty = emu_memfd("utofu-emu-cut-off", 0);

    if (empty >= 0) {
        (void)!mmap((void *)from, end - from, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, empty, 0);
        close(empty);
    }
}

void *emu_fault_take(void)
{
    emu_fault_seen = 0;
    for (unsigned i = 0; i < FAULTS; i++) {
        uintptr_t     at = fault_at[i];
        struct range *r  = (at != 0) ? range_of(at) : NULL; /* it may have been unmapped since */

        fault_at[i] = 0;
        if (r != NULL) {
            map_nothing(at, atomic_load(&r->end));
            return (void *)atomic_load(&r->base);
        }
    }
    return NULL;
}

void emu_fault_unguard(void *base)
{
    for (unsigned i = 0; i < MAX_RANGES; i++) {
        if (atomic_load(&ranges[i].base) == (uintptr_t)base) {
            atomic_store(&ranges[i].base, 0);
        }
    }
}
