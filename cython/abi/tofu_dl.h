/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_dl.h - finds and loads a libtofucom, the machine's or the emulator.
 *
 * This is the only place that decides which library is below utofu.h.  What is
 * above it uses the function table of a struct tofu_backend and never asks
 * which library it is, except to report it and to choose attributes.
 */
#ifndef TOFU_DL_H
#define TOFU_DL_H

#include <utofu.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every function of utofu.h as a member of the same name without the prefix
 * "utofu_".  Written once, in tofu_dl_functions.h, as X(ret, name, args). */
struct tofu_functions {
#define X(ret, name, args) ret (*name) args;
#include "tofu_dl_functions.h"
#undef X
};

enum tofu_backend_kind {
    TOFU_BACKEND_TOFU     = 0, /* the machine's libtofucom */
    TOFU_BACKEND_EMULATOR = 1  /* the libtofucom of this package */
};

struct tofu_backend {
    enum tofu_backend_kind kind;
    char                   path[4096];   /* file that was loaded */
    char                   reason[512];  /* why this one, in words */
    uint64_t               network_id;   /* equal for processes that can
                                            communicate (same machine network,
                                            or same host, user and job) */
    size_t                 num_tnis;     /* usable for one-sided operations */
    int                    unordered;    /* cache lines in order cost time: say
                                            of each VCQ that none is polled
                                            (tofu_vcq.h) */
    int                    in_place;     /* a put whose source is its target copies
                                            nothing */
    int                    timed;        /* the emulator was asked to take the
                                            machine's time: for figures that
                                            are told to others, no more */
    struct tofu_functions  fn;
};

/*
 * Load the backend that `choice` names: "auto", "tofu" or "emulator"; NULL
 * means the environment variable UCT_TOFU_BACKEND, and "auto" when it is unset.
 * "auto" takes the machine's library when it loads and reports at least one
 * TNI, else the emulator.  The result is made once per process and lives until
 * the process ends; later calls return it, or fail when they ask for another.
 *
 * Returns 0 and sets *backend_p, or -1 and writes to err (NUL-terminated, at
 * most err_size bytes) every attempt that was made and why it failed.
 * Thread-safe.  May read files; does not block.
 */
int tofu_backend_load(const char *choice,
                      const struct tofu_backend **backend_p, char *err,
                      size_t err_size);

/* Name of a return code of utofu.h, e.g. "UTOFU_ERR_BUSY"; never NULL. */
const char *tofu_code_name(int code);

#ifdef __cplusplus
}
#endif

#endif /* TOFU_DL_H */
