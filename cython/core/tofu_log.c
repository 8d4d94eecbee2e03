/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_log.c - log lines of the core.
 */
#include "tofu_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic(tofu_log_cb_t) tofu_log_cb;

void tofu_set_log(tofu_log_cb_t cb)
{
    atomic_store(&tofu_log_cb, cb);
}

void tofu_log(int level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    tofu_log_cb_t            cb      = atomic_load(&tofu_log_cb);
    char                     text[512];
    va_list                  ap;

    if ((cb == NULL) && (level > 1)) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (cb != NULL) {
        cb(level, text);
    } else {
        fprintf(stderr, "tofu[%d] %s: %s\n", (int)getpid(), names[level], text);
    }
}
