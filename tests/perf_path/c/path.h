/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * path.h - the post path of the core in one process: an iface that posts, one that
 * receives, and the operations that are looked at.
 *
 * The receiver is a second iface of the same process: what the core and the
 * queues do is the same, and one process can be traced to the last instruction.
 */
#ifndef PATH_H
#define PATH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tofu.h>
#include <tofu_dl.h>

#define PATH_AM_ID 5
#define PATH_CHECK(_ok, ...) \
    do { \
        if (!(_ok)) { \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, "\n"); \
            exit(3); \
        } \
    } while (0)

struct path {
    tofu_md_t     *md;
    tofu_iface_t  *tx, *rx;
    tofu_ep_t     *ep;
    tofu_mem_t    *memh;
    tofu_rkey_t   *rkey;
    uint64_t      target, arrived;
    unsigned      made; /* endpoints, by "ep_create" */
};

void path_open(struct path *path);
void path_close(struct path *path);
/* One operation of the kind; 0 when there was no room.  Kinds: "put_short",
 * "am_short", "progress" (empty: both ifaces have nothing to do), "am_receive"
 * (what was sent before by am_short), "ep_create" (each to another node; needs a shape of
 * 24 x 23 x 24). */
typedef int (*path_op_t)(struct path *path);
path_op_t path_find(const char *name);
/* Receive all, drive both sides until nothing is left to do. */
void path_settle(struct path *path);
/* Messages or puts that fit without progress. */
#define PATH_BURST 16

#endif
