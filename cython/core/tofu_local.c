/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_local.c - pointers to memory that a key leads to, where it is our own.
 *
 * A key can become a pointer only when its memory is this process's.  Memory of
 * another process could be mapped where it is a file of ours (tofu_arena.c), but a
 * mapping that was given away can't be taken back: the key could not be invalidated
 * any more, and the pages would be given to the next allocation under the eyes of
 * the one who still has them mapped.
 */
#include "tofu_internal.h"

#include <unistd.h>

static pthread_mutex_t tofu_local_lock = PTHREAD_MUTEX_INITIALIZER;
static tofu_md_t       *tofu_local_mds; /* under the lock */

void tofu_local_add(tofu_md_t *md)
{
    md->pid = getpid();
    pthread_mutex_lock(&tofu_local_lock);
    md->next       = tofu_local_mds;
    tofu_local_mds = md;
    pthread_mutex_unlock(&tofu_local_lock);
}

void tofu_local_remove(tofu_md_t *md)
{
    tofu_md_t **link = &tofu_local_mds;

    pthread_mutex_lock(&tofu_local_lock);
    while (*link != md) {
        link = &(*link)->next;
    }
    *link = md->next;
    pthread_mutex_unlock(&tofu_local_lock);
}

tofu_status_t tofu_rkey_ptr(const tofu_rkey_t *rkey, uint64_t remote_addr,
                            void **address_p)
{
    tofu_status_t status = TOFU_ERR_UNREACHABLE;
    int           pid    = getpid();
    tofu_md_t     *md;

    if (!tofu_range_ok(remote_addr - rkey->base, 1, rkey->length)) {
        return TOFU_ERR_INVALID_ADDR;
    }
    pthread_mutex_lock(&tofu_local_lock);
    for (md = tofu_local_mds; md != NULL; md = md->next) {
        /* a child has its parent's list, but not its memory */
        if ((md->vcq_id != rkey->vcq_id) || (md->pid != pid)) {
            continue;
        }
        pthread_mutex_lock(&md->lock);
        if (tofu_reg_of_key(md, rkey) != NULL) {
            *address_p = (void *)(uintptr_t)remote_addr;
            status     = TOFU_OK;
        }
        pthread_mutex_unlock(&md->lock);
        break;
    }
    pthread_mutex_unlock(&tofu_local_lock);
    return status;
}
