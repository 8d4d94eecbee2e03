/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_fault.c - a peer may cut off a file that we have mapped.
 *
 * A store or load beyond the new end raises SIGBUS here, in the process that has
 * done nothing wrong.  For such an address, and no other, the page is replaced by
 * an anonymous one so that the access ends, and the operation fails with
 * MRQ_RMT_MEMORY.  Any other SIGBUS goes to whoever handled it before.  Files that
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

#define MAX_RANGES 1024u /* mappings beyond them are not guarded */

static struct {
    _Atomic uintptr_t base; /* 0: free */
    _Atomic uintptr_t end;
} ranges[MAX_RANGES];

static struct sigaction previous;
static uintptr_t        page_size;

__thread int emu_fault_seen __attribute__((tls_model("initial-exec")));

static bool guarded(uintptr_t addr)
{
    for (unsigned i = 0; i < MAX_RANGES; i++) {
        uintptr_t base = atomic_load(&ranges[i].base);
        if ((base != 0) && (addr >= base) && (addr < atomic_load(&ranges[i].end))) {
            return true;
        }
    }
    return false;
}

/* Only system calls and atomics: this may run at any point of the program */
static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    uintptr_t addr = (uintptr_t)info->si_addr;

    if ((info->si_code > 0) && guarded(addr) && /* nobody sent it: there is an address */
        (mmap((void *)(addr & ~(page_size - 1)), page_size, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)) {
        emu_fault_seen = 1;
        return;
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

void emu_fault_guard(int fd, void *base, uint64_t size)
{
    static bool installed;

    if (emu_memfd_stays(fd)) {
        return;
    }
    if (!installed) {
        struct sigaction sa = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK};

        page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
        sigemptyset(&sa.sa_mask);
        if (sigaction(SIGBUS, &sa, &previous)) {
            return;
        }
        installed = true;
    }
    for (unsigned i = 0; i < MAX_RANGES; i++) {
        if (atomic_load(&ranges[i].base) == 0) {
            atomic_store(&ranges[i].end, (uintptr_t)base + size);
            atomic_store(&ranges[i].base, (uintptr_t)base);
            return;
        }
    }
}

void emu_fault_unguard(void *base)
{
    for (unsigned i = 0; i < MAX_RANGES; i++) {
        if (atomic_load(&ranges[i].base) == (uintptr_t)base) {
            atomic_store(&ranges[i].base, 0);
        }
    }
}
