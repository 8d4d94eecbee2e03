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
 * A small message that goes without a notice is written there as well, and what is put is its
 * tail, which the receiver looks at.  Up to 24 bytes a piggyback that has both is faster.
 *
 * A slot is written, here as by a put, only by who was lent it.  The file of the slots holds
 * nothing but them and the request table (tofu_am_open), so a mapping that outlives the
 * iface leads to memory of nobody.  Who can't map it, or finds something else there, goes
 * on with bounce buffers.
 */
#include "tofu_internal.h"
#include "tofu_am.h"
#include "tofu_am_bounce.h"

#include <tofu_cpu.h>

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

int tofu_in_place_small_wanted(const tofu_iface_t *iface)
{
    /* a put of the tail takes less than one of the message: not where that is modelled */
    return tofu_in_place_wanted(iface) && !iface->md->backend->timed;
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

    if (iface->am->num_mapped >= TOFU_AM_MAX_MAPPED) {
        chan->longs = 0; /* after as many messages it is tried again */
        return;
    }
    chan->where = 0; /* it is tried once in a loan */
    if ((where == 0) || !tofu_in_place_wanted(iface)) {
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

void tofu_in_place_yield(tofu_chan_t *chan)
{
    uint64_t where = chan->mapped->where;

    tofu_in_place_drop(chan);
    chan->where = where;
    chan->longs = 0;
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

/* ------------------------------------------------------------------ sending */

/* Where the next message is to be. */
static inline char *tofu_in_place_next(const tofu_chan_t *chan)
{
    return chan->mapped->base + (chan->cls[TOFU_AM_LARGE].next - chan->slots) +
           TOFU_AM_FRONT;
}

/* The receiver has read what was in the next slot.  Its first lines come back while the
 * caller does something else.  By these addresses: fetched by the library's own mapping they
 * are in the way (2 KiB, where a line takes 160 ns: 315 ns a message so, 166). */
static inline void tofu_in_place_fetch(const tofu_chan_t *chan)
{
    uintptr_t slot = (uintptr_t)tofu_in_place_next(chan);
    unsigned  i;

    for (i = 0; i < TOFU_IN_PLACE_FETCH; ++i) {
        tofu_fetch_line(slot + i * TOFU_LINE);
    }
}

/* Put what is in the next slot from there to there.  The next message is written elsewhere,
 * so nobody waits for a TCQ entry. */
static TOFU_ALWAYS_INLINE tofu_status_t tofu_in_place_post(tofu_ep_t *ep, uint8_t id,
                                                           size_t length)
{
    tofu_iface_t  *iface = ep->iface;
    tofu_chan_t   *chan  = ep->chan;
    utofu_stadd_t remote = chan->cls[TOFU_AM_LARGE].next + TOFU_AM_FRONT;
    size_t        front  = TOFU_LIKELY(length > 0) ? 0 : TOFU_AM_FRONT;
    tofu_status_t status;

    status = tofu_post(iface, "utofu_put", chan->vcq_id, length,
                       iface->fn.put(iface->vcq, chan->vcq_id,
                                     chan->mapped->stadd + (remote - chan->slots) -
                                             front,
                                     remote - front, front + length,
                                     TOFU_EDATA(TOFU_KIND_AM_LARGE, id),
                                     UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                                       UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE,
                                     tofu_cbdata(chan->peer, TOFU_CB_PEER)));
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return (status == TOFU_ERR_NO_RESOURCE) ?
                       tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                       status;
    }
    tofu_am_sent_large(ep);
    ++iface->stats.am_in_place;
    tofu_in_place_fetch(chan);
    return TOFU_OK;
}

/* One that is shorter than was expected goes in the same way. */
intptr_t tofu_in_place_bcopy(tofu_ep_t *ep, uint8_t id, tofu_pack_cb_t pack, void *arg)
{
    tofu_chan_t   *chan = ep->chan;
    tofu_status_t status;
    size_t        length;

    if (TOFU_UNLIKELY(id >= TOFU_AM_ID_MAX)) {
        return tofu_am_id_error(id);
    }
    status = tofu_am_enter(ep, TOFU_AM_LARGE);
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return tofu_am_early_bcopy(ep, status, id, pack, arg);
    }
    length = pack(tofu_in_place_next(chan), arg);
    if (TOFU_UNLIKELY(length > ep->iface->config.am_seg_size)) {
        return tofu_am_packed_too_much(ep, length);
    }
    status = tofu_in_place_post(ep, id, length);
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return (intptr_t)status;
    }
    chan->is_long = (length >= TOFU_IN_PLACE_MIN);
    return (intptr_t)length;
}

tofu_status_t tofu_in_place_zcopy(tofu_ep_t *ep, uint8_t id, const void *header,
                                  unsigned header_length, const tofu_iov_t *iov,
                                  size_t iovcnt)
{
    tofu_status_t status;
    char          *place, *end;

    if (TOFU_UNLIKELY(id >= TOFU_AM_ID_MAX)) {
        return tofu_am_id_error(id);
    }
    status = tofu_am_enter(ep, TOFU_AM_LARGE);
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return tofu_am_early_iov(ep, status, id, header, header_length, iov, iovcnt,
                                 NULL);
    }
    place = tofu_in_place_next(ep->chan);
    end   = place;
    if (header_length > 0) {
        end = (char *)memcpy(end, header, header_length) + header_length;
    }
    end = tofu_am_iov_copy(end, iov, iovcnt);
    return tofu_in_place_post(ep, id, (size_t)(end - place));
}

/* ----------------------------------------------------- small ones, without a notice */

/* Where the next one is to be.  What is left of its last word is cleared. */
static inline char *tofu_in_place_small(const tofu_chan_t *chan, unsigned length)
{
    unsigned words = tofu_am_words(length);
    char     *end  = chan->mapped->base + (chan->cls[TOFU_AM_SMALL].next - chan->slots) +
                TOFU_POLLED_TAIL;

    if (words != length) {
        memset(end - sizeof(uint64_t), 0, sizeof(uint64_t));
    }
    return end - words;
}

/* Put the tail of what was written there.  STRONG_ORDER: it is seen last. */
static TOFU_ALWAYS_INLINE tofu_status_t
tofu_in_place_post_small(tofu_ep_t *ep, uint8_t id, unsigned length)
{
    tofu_iface_t      *iface = ep->iface;
    tofu_chan_t       *chan  = ep->chan;
    tofu_chan_class_t *cls   = &chan->cls[TOFU_AM_SMALL];
    tofu_status_t     status;

    status = tofu_post(iface, "utofu_put_piggyback8", chan->vcq_id, length,
                       iface->fn.put_piggyback8(
                               iface->vcq, chan->vcq_id,
                               tofu_am_tail_word(chan, id, length),
                               cls->next + TOFU_POLLED_TAIL, sizeof(uint64_t),
                               TOFU_EDATA(TOFU_KIND_AM_SMALL, id),
                               UTOFU_ONESIDED_FLAG_STRONG_ORDER,
                               tofu_cbdata(chan->peer, TOFU_CB_PEER)));
    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return (status == TOFU_ERR_NO_RESOURCE) ?
                       tofu_ep_starve(ep, TOFU_STARVED_TOQ) :
                       status;
    }
    tofu_am_sent(ep, cls);
    ++iface->stats.am_in_place;
    return TOFU_OK;
}

tofu_status_t tofu_in_place_short(tofu_ep_t *ep, uint8_t id, uint64_t header,
                                  const void *payload, unsigned length)
{
    tofu_status_t status = tofu_am_enter(ep, TOFU_AM_SMALL);
    unsigned      total  = (unsigned)sizeof(header) + length;
    char          *place;

    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return tofu_am_early_short(ep, status, id, header, payload, length);
    }
    if (TOFU_UNLIKELY(id >= TOFU_AM_ID_MAX)) {
        return tofu_am_id_error(id);
    }
    place = tofu_in_place_small(ep->chan, total);
    memcpy(place, &header, sizeof(header));
    memcpy(place + sizeof(header), payload, length);
    return tofu_in_place_post_small(ep, id, total);
}

tofu_status_t tofu_in_place_short_iov(tofu_ep_t *ep, uint8_t id, const tofu_iov_t *iov,
                                      size_t iovcnt, unsigned total)
{
    tofu_status_t status = tofu_am_enter(ep, TOFU_AM_SMALL);

    if (TOFU_UNLIKELY(status != TOFU_OK)) {
        return tofu_am_early_iov(ep, status, id, NULL, 0, iov, iovcnt, NULL);
    }
    if (TOFU_UNLIKELY(id >= TOFU_AM_ID_MAX)) {
        return tofu_am_id_error(id);
    }
    tofu_am_iov_copy(tofu_in_place_small(ep->chan, total), iov, iovcnt);
    return tofu_in_place_post_small(ep, id, total);
}
