/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_in_place.c - messages that are packed where the receiver reads them.
 *
 * An am_bcopy packs into a bounce buffer, and a put copies that into the slot.  When the
 * receiver is a process of this host its slots can be mapped here, and the bounce buffer
 * of a message can be the very slot that it goes to: it is packed there, and put from there
 * to there.  What the put says, takes and reports is as ever; there is just nothing to
 * copy for a library that sees that (the emulator does).
 *
 * A slot is written, here as by a put, only by who was lent it.  The file of the slots holds
 * nothing but them and the request table (tofu_am_open), so a mapping that outlives the
 * iface leads to memory of nobody.  Who can't map it, or finds something else there, goes
 * on with bounce buffers.
 */
#include "tofu_internal.h"
#include "tofu_am.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOFU_WHERE(pid, fd) (((uint64_t)(uint32_t)(pid) << 32) | (uint32_t)(fd))

int tofu_in_place_wanted(const tofu_iface_t *iface)
{
    return (iface->config.am_in_place < 0) ? iface->md->backend->in_place :
                                             iface->config.am_in_place;
}

uint64_t tofu_in_place_where(const tofu_am_t *am)
{
    int fd = tofu_arena_own_fd(am->arena);

    return (fd < 0) ? 0 : TOFU_WHERE(getpid(), fd);
}

/* Bytes of the file, by what the peer's address says of the slots. */
static size_t tofu_in_place_length(const tofu_chan_t *chan, size_t *slots_p)
{
    const tofu_geometry_t *geometry = chan->peer->geometry;
    const tofu_md_t       *md       = chan->peer->iface->md;
    size_t                slots;

    slots    = tofu_am_slots_bytes(geometry, md->page_size);
    *slots_p = slots;
    return slots + tofu_am_table_bytes(md->page_size);
}

/* The file of that descriptor of the peer; -1: there is no such, or it is not one that we
 * can map for good. */
static int tofu_in_place_open(uint64_t where, size_t length)
{
    char        path[64];
    struct stat st, opened;
    int         fd, seals;

    snprintf(path, sizeof(path), "/proc/%u/fd/%u", (unsigned)(where >> 32),
             (unsigned)where);
    /* looked at before: to open what is no file could block, or do something */
    if ((stat(path, &st) != 0) || !S_ISREG(st.st_mode) || (st.st_uid != geteuid()) ||
        ((size_t)st.st_size != length)) {
        return -1;
    }
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return -1;
    }
    seals = fcntl(fd, F_GET_SEALS);
    if ((fstat(fd, &opened) != 0) || (opened.st_dev != st.st_dev) ||
        (opened.st_ino != st.st_ino) || ((size_t)opened.st_size != length) ||
        (seals < 0) || !(seals & F_SEAL_SHRINK)) {
        close(fd); /* one that gets shorter would be a bus error */
        return -1;
    }
    return fd;
}

void tofu_in_place_try(tofu_chan_t *chan)
{
    tofu_iface_t       *iface = chan->peer->iface;
    uint64_t           where  = chan->where;
    tofu_mapped_t      *mapped;
    const tofu_entry_t *table;
    size_t             slots, length = tofu_in_place_length(chan, &slots);
    int                fd, ret;

    chan->where = 0; /* it is tried once in a loan */
    if ((where == 0) || !tofu_in_place_wanted(iface) ||
        (iface->am->num_mapped >= TOFU_AM_MAX_MAPPED)) {
        return;
    }
    fd = tofu_in_place_open(where, length);
    if (fd < 0) {
        tofu_debug("the receive slots of VCQ %#llx can't be mapped",
                   (unsigned long long)chan->vcq_id);
        return;
    }
    mapped = calloc(1, sizeof(*mapped));
    if (mapped == NULL) {
        goto err_close;
    }
    mapped->where  = where;
    mapped->length = length;
    mapped->base   = mmap(NULL, length, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (mapped->base == MAP_FAILED) {
        goto err_free;
    }
    madvise(mapped->base, length, MADV_DONTDUMP); /* the owner's to dump */
    table = (const tofu_entry_t *)(const void *)(mapped->base + slots);
    if (atomic_load(&table[0].identity) != tofu_identity(chan->peer->incarnation)) {
        goto err_unmap; /* a file that has the descriptor's number by now */
    }
    ret = iface->fn.reg_mem(iface->vcq, mapped->base, slots,
                            UTOFU_REG_MEM_FLAG_READ_ONLY, &mapped->stadd);
    if (ret != UTOFU_SUCCESS) {
        tofu_debug("utofu_reg_mem(slots of VCQ %#llx, %zu bytes): %s",
                   (unsigned long long)chan->vcq_id, slots, tofu_code_name(ret));
        goto err_unmap;
    }
    close(fd);
    chan->mapped = mapped;
    ++iface->am->num_mapped;
    return;

err_unmap:
    munmap(mapped->base, length);
err_free:
    free(mapped);
err_close:
    close(fd);
}

void tofu_in_place_drop(tofu_chan_t *chan)
{
    tofu_iface_t  *iface  = chan->peer->iface;
    tofu_mapped_t *mapped = chan->mapped;

    if (mapped == NULL) {
        return;
    }
    chan->mapped = NULL;
    --iface->am->num_mapped;
    iface->fn.dereg_mem(iface->vcq, mapped->stadd, 0);
    munmap(mapped->base, mapped->length);
    free(mapped);
}

void tofu_in_place_granted(tofu_chan_t *chan, uint64_t where)
{
    if ((chan->mapped != NULL) && (chan->mapped->where != where)) {
        tofu_in_place_drop(chan);
    }
    chan->where = (chan->mapped == NULL) ? where : 0;
    chan->longs = 0;
}

void tofu_in_place_close(tofu_iface_t *iface)
{
    size_t i;

    for (i = 0; i < iface->max_peers; ++i) {
        if ((iface->peers[i] != NULL) && (iface->peers[i]->chan != NULL)) {
            tofu_in_place_drop(iface->peers[i]->chan);
        }
    }
}
