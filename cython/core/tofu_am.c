/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am.c - the memory of active messages: slots, request table, mailboxes.
 */
#include "tofu_internal.h"
#include "tofu_am.h"
#include "tofu_take.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* In front of the place of a large slot, so that its message has the alignment that
 * the user asked for, if slots can have it, and 64 bytes if that agrees with it: a copy
 * between addresses that are not aligned alike takes up to twice as long. */
static uint32_t tofu_am_lead(const tofu_iface_t *iface)
{
    const uint32_t usual   = TOFU_AM_PAYLOAD_ALIGN - TOFU_AM_FRONT;
    const uint32_t units[] = {TOFU_AM_PAYLOAD_ALIGN, sizeof(uint64_t)};
    uint32_t       i, lead;

    for (i = 0; i < 2; ++i) {
        for (lead = usual % units[i]; lead < TOFU_AM_SLOT_ALIGN; lead += units[i]) {
            if ((TOFU_AM_SLOT_ALIGN % iface->config.am_alignment == 0) &&
                ((lead + TOFU_AM_FRONT + iface->config.am_align_offset) %
                         iface->config.am_alignment == 0)) {
                return lead;
            }
        }
    }
    return usual; /* no message, or few, will be where the user wants them */
}

/* In front of that; lead and front are headroom too by the time it is offered. */
static uint32_t tofu_am_headroom(const tofu_iface_t *iface)
{
    size_t need = iface->config.rx_headroom + sizeof(iface->config.rx_desc);
    size_t have = tofu_am_lead(iface) + TOFU_AM_FRONT;

    if ((iface->config.rx_desc == NULL) || (need <= have)) {
        return 0;
    }
    return (uint32_t)tofu_am_round(need - have, TOFU_AM_SLOT_ALIGN);
}

static uint32_t tofu_am_large_size(const tofu_iface_t *iface)
{
    return tofu_am_headroom(iface) +
           (uint32_t)TOFU_AM_MESSAGE_SIZE(tofu_am_lead(iface),
                                          iface->config.am_seg_size);
}

void tofu_am_geometry(const tofu_iface_t *iface, tofu_address_t *address)
{
    address->vcq_id      = iface->vcq_id;
    address->geometry.small_count = iface->config.rx_short_slots;
    address->geometry.small_size  = TOFU_AM_SMALL_SIZE;
    address->geometry.large_count = iface->config.rx_slots;
    address->geometry.large_size  = tofu_am_large_size(iface);
    address->geometry.large_lead  = tofu_am_lead(iface);
    address->geometry.seg_size    = (uint32_t)iface->config.am_seg_size;
    address->incarnation = iface->am->incarnation;
    address->port        = (uint8_t)iface->port;
}

static tofu_status_t tofu_am_reg(tofu_iface_t *iface, unsigned stag,
                                 void *address, size_t length,
                                 utofu_stadd_t *stadd_p)
{
    int ret = iface->fn.reg_mem_with_stag(iface->vcq, address, length, stag, 0,
                                          stadd_p);

    if (ret != UTOFU_SUCCESS) {
        tofu_error("utofu_reg_mem_with_stag(%zu bytes, STag %u) on VCQ %#llx: "
                   "%s", length, stag, (unsigned long long)iface->vcq_id,
                   tofu_code_name(ret));
        return tofu_status_from_code(ret);
    }
    return TOFU_OK;
}

/* ------------------------------------------------------------ mailboxes */

/* Segments that the iface at a port may have. */
static uint32_t tofu_mailbox_segments(const tofu_iface_t *iface, unsigned port)
{
    return ((port == 0) ? (uint32_t)iface->md->caps.num_reserved_stags :
                          TOFU_PORT_STAGS) - TOFU_STAG_MAILBOX -
           tofu_slots_stags(iface, port);
}

tofu_status_t tofu_mailbox_stadd(tofu_iface_t *iface, utofu_vcq_id_t vcq_id,
                                 unsigned port, uint32_t index,
                                 utofu_stadd_t *stadd_p)
{
    uint32_t      segment = index / TOFU_MAILBOX_SEGMENT;
    utofu_stadd_t stadd;
    int           ret;

    if (segment >= tofu_mailbox_segments(iface, port)) {
        return TOFU_ERR_OUT_OF_RANGE;
    }
    ret = tofu_peer_stadd(iface, vcq_id, port, TOFU_STAG_MAILBOX + segment, &stadd);
    if (ret != UTOFU_SUCCESS) {
        return tofu_status_from_code(ret);
    }
    *stadd_p = stadd + (index % TOFU_MAILBOX_SEGMENT) * sizeof(tofu_mailbox_t);
    return TOFU_OK;
}

/* Add a segment of mailboxes; they are never given back, only used again. */
static tofu_status_t tofu_mailbox_grow(tofu_am_t *am)
{
    tofu_iface_t  *iface = am->iface;
    tofu_md_t     *md    = iface->md;
    unsigned      n      = am->num_segments;
    size_t        length = tofu_am_round(TOFU_MAILBOX_SEGMENT *
                                                 sizeof(tofu_mailbox_t),
                                         md->page_size);
    void          *segments, *arenas, *stack, *address;
    tofu_arena_t  *arena;
    tofu_status_t status;
    utofu_stadd_t stadd;
    uint32_t      i;

    if (n >= tofu_mailbox_segments(iface, iface->port)) {
        return TOFU_ERR_EXCEEDS_LIMIT;
    }
    segments = realloc(am->segments, (n + 1) * sizeof(*am->segments));
    if (segments == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    am->segments = segments;
    arenas = realloc(am->segment_arenas, (n + 1) * sizeof(*am->segment_arenas));
    if (arenas == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    am->segment_arenas = arenas;
    stack = realloc(am->free_mailboxes, (n + 1) * TOFU_MAILBOX_SEGMENT *
                                                sizeof(*am->free_mailboxes));
    if (stack == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    am->free_mailboxes = stack;

    status = tofu_arena_get(md, length, &address, &arena);
    if (status != TOFU_OK) {
        return status;
    }
    status = tofu_am_reg(iface, TOFU_STAG_MAILBOX + n, address, length, &stadd);
    if (status != TOFU_OK) {
        tofu_arena_put(md, arena, address, length);
        return status;
    }
    am->segments[n]       = address;
    am->segment_arenas[n] = arena;
    am->num_segments      = n + 1;
    /* An iface begins elsewhere than the one that had its VCQ before: for that a word may be on
     * its way to a mailbox. */
    for (i = TOFU_MAILBOX_SEGMENT; i > 0; --i) {
        am->free_mailboxes[am->num_free_mailboxes++] =
                n * TOFU_MAILBOX_SEGMENT +
                (i - 1 + (am->incarnation >> 7)) % TOFU_MAILBOX_SEGMENT;
    }
    return TOFU_OK;
}

tofu_status_t tofu_mailbox_get(tofu_am_t *am, uint32_t *index_p,
                               tofu_mailbox_t **mailbox_p)
{
    tofu_status_t status;
    uint32_t      index;

    if (am->num_free_mailboxes == 0) {
        status = tofu_mailbox_grow(am);
        if (status != TOFU_OK) {
            return status;
        }
    }
    index      = am->free_mailboxes[--am->num_free_mailboxes];
    *index_p   = index;
    *mailbox_p = &am->segments[index / TOFU_MAILBOX_SEGMENT]
                              [index % TOFU_MAILBOX_SEGMENT];
    return TOFU_OK;
}

void tofu_mailbox_put(tofu_am_t *am, uint32_t index)
{
    am->free_mailboxes[am->num_free_mailboxes++] = index;
}

/* ------------------------------------------------------------ open, close */

static tofu_status_t tofu_pool_init(tofu_pool_t *pool, uint32_t size,
                                    uint32_t count, uint32_t max_window,
                                    char *base)
{
    pool->owner = calloc(count, sizeof(*pool->owner));
    if (pool->owner == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    pool->base       = base;
    pool->bytes      = (uint64_t)size * count;
    pool->size       = size;
    pool->count      = count;
    pool->free       = count;
    pool->max_window = max_window;
    return TOFU_OK;
}

static void tofu_am_free(tofu_iface_t *iface)
{
    tofu_am_t *am = iface->am;
    tofu_md_t *md = iface->md;
    size_t    length;
    unsigned  i;

    length = tofu_am_round(TOFU_MAILBOX_SEGMENT * sizeof(tofu_mailbox_t),
                           md->page_size);
    for (i = 0; i < am->num_segments; ++i) {
        tofu_arena_put(md, am->segment_arenas[i], am->segments[i], length);
    }
    free(am->segments);
    free(am->segment_arenas);
    free(am->free_mailboxes);
    free(am->pool[TOFU_AM_SMALL].owner);
    free(am->pool[TOFU_AM_LARGE].owner);
    if (am->block != NULL) {
        tofu_arena_put(md, am->arena, am->block, am->block_size);
    }
    free(am);
    iface->am = NULL;
}

/* Ifaces of an md whose slots are a file of their own: descriptors are few. */
#define TOFU_AM_OWN_FILES 16u

/* Another for each iface of the process, and ahead of those of a process before it. */
static uint32_t tofu_slots_step(const struct timespec *now)
{
    static _Atomic uint32_t last;
    uint32_t                by_time = (uint32_t)now->tv_sec * (1000000000 / TOFU_SLOTS_STEP) +
                       (uint32_t)(now->tv_nsec / TOFU_SLOTS_STEP);
    uint32_t                before  = atomic_load(&last), step;

    do {
        step = ((int32_t)(by_time - before) > 0) ? by_time : before + 1;
    } while (!atomic_compare_exchange_weak(&last, &before, step));
    return step;
}

tofu_status_t tofu_am_open(tofu_iface_t *iface)
{
    tofu_md_t       *md = iface->md;
    size_t          small_bytes, slots_bytes, front;
    tofu_address_t  address;
    struct timespec now;
    tofu_status_t   status;
    utofu_stadd_t   stadd;
    tofu_am_t       *am;
    void            *block;

    am = calloc(1, sizeof(*am));
    if (am == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    iface->am = am;
    am->iface = iface;
    am->orphan.dead = 1;
    am->small_in_place = (uint8_t)tofu_in_place_small_wanted(iface);
    am->takes_ahead    = (iface->config.am_ahead < 0) ? tofu_takes_lines :
                                                        (iface->config.am_ahead != 0);
    if (iface->config.am_alignment == 0) {
        iface->config.am_alignment = 1;
    }
    tofu_list_init(&am->jobs);
    tofu_list_init(&am->lenders);
    tofu_list_init(&am->due);
    tofu_list_init(&am->gone);
    tofu_list_init(&am->waiting);
    tofu_list_init(&am->chans);
    /* differs from that of an earlier process with the same VCQ */
    clock_gettime(CLOCK_REALTIME, &now);
    am->nonce = (uint32_t)((uint64_t)now.tv_nsec * 2654435761u) ^
                ((uint32_t)getpid() << 16) ^ (uint32_t)now.tv_sec;
    am->nonce      |= 1;
    am->incarnation = tofu_incarnation(am->nonce, tofu_slots_step(&now));
    if (getrandom(&am->random, sizeof(am->random), GRND_NONBLOCK) !=
        (ssize_t)sizeof(am->random)) {
        am->random = ((uint64_t)am->nonce << 32) ^ (uint64_t)now.tv_nsec;
    }

    tofu_am_geometry(iface, &address);
    small_bytes    = tofu_am_small_bytes(&address.geometry);
    slots_bytes    = tofu_am_slots_bytes(&address.geometry, md->page_size);
    am->block_size = slots_bytes + tofu_am_table_bytes(md->page_size);
    /* a file of its own: senders may map all of it (tofu_in_place.c) */
    status = tofu_in_place_wanted(iface) && (iface->index < TOFU_AM_OWN_FILES) ?
                     tofu_arena_get_own(am->block_size, &block, &am->arena) :
                     TOFU_ERR_UNSUPPORTED;
    if (status != TOFU_OK) {
        status = tofu_arena_get(md, am->block_size, &block, &am->arena);
    }
    if (status != TOFU_OK) {
        goto err_free;
    }
    am->block = block;
    status    = tofu_am_reg(iface,
                            tofu_slots_stag(iface, iface->port, am->incarnation),
                            block, slots_bytes, &stadd);
    if (status != TOFU_OK) {
        goto err_free;
    }
    am->table = (tofu_entry_t *)(am->block + slots_bytes);
    status    = tofu_am_reg(iface, TOFU_STAG_REQUEST, am->table,
                            am->block_size - slots_bytes, &am->table_stadd);
    if (status != TOFU_OK) {
        goto err_free;
    }
    /* who asks finds here whether it is the iface that he knows (tofu_identity_ask) */
    tofu_am_keep_identity(am);
    status = tofu_pool_init(&am->pool[TOFU_AM_SMALL], TOFU_AM_SMALL_SIZE,
                            iface->config.rx_short_slots, TOFU_AM_MAX_SMALL,
                            am->block);
    if (status == TOFU_OK) {
        status = tofu_pool_init(&am->pool[TOFU_AM_LARGE],
                                tofu_am_large_size(iface),
                                iface->config.rx_slots, TOFU_AM_MAX_LARGE,
                                am->block + small_bytes);
    }
    /* base is where the message of slot 0 is */
    front                          = tofu_am_headroom(iface) + tofu_am_lead(iface);
    am->pool[TOFU_AM_LARGE].base  += front;
    am->pool[TOFU_AM_LARGE].bytes -= front;
    if (status != TOFU_OK) {
        goto err_free;
    }
    am->pool[TOFU_AM_SMALL].stadd = stadd;
    am->pool[TOFU_AM_LARGE].stadd = stadd + small_bytes + front;
    return TOFU_OK;

err_free:
    /* what was registered goes with the VCQ, which the caller frees first */
    return status;
}

/* The VCQ is freed: nobody writes here any more. */
void tofu_am_close(tofu_iface_t *iface)
{
    tofu_am_t *am = iface->am;

    if (am->num_kept > 0) {
        tofu_warn("iface of VCQ %#llx is closed while %u messages are kept",
                  (unsigned long long)iface->vcq_id, am->num_kept);
    }
    while (!tofu_list_empty(&am->lenders)) {
        tofu_lender_t *lender = tofu_container(am->lenders.next, tofu_lender_t,
                                               link);
        tofu_list_del(&lender->link);
        free(lender);
    }
    tofu_am_free(iface);
}
