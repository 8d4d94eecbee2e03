/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_message.c - what the library says on stderr, and how it ends the process (chapter 7).
 */
#include "emu_internal.h"
#include "emu_modes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

void emu_message(const char *fmt, ...)
{
    char    line[512];
    va_list ap;
    int     n, k;

    n = snprintf(line, sizeof(line), "utofu: ");
    va_start(ap, fmt);
    k = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
    va_end(ap);
    n += (k < 0) ? 0 : k;
    if ((size_t)n > sizeof(line) - 2) {
        n = sizeof(line) - 2;
    }
    line[n] = '\n';
    /* one write, so that lines of several processes do not mix */
    (void)!syscall(SYS_write, STDERR_FILENO, line, (size_t)n + 1); /* no cancellation point: there may be a lock */
}

static _Atomic bool ending;

bool emu_ending(void)
{
    return atomic_load(&ending);
}

void emu_async_error(const char *what, const struct emu_vcq *vcq)
{
    emu_message("asynchronous error: %s on TNI %u CQ %u", what, vcq->tni, vcq->cq);
    emu_stats_print();
    atomic_store(&ending, true); /* a handler of SIGABRT may call exit, and this VCQ is locked */
    abort();
}
