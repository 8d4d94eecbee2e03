/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_iface.c - opening and closing an iface.
 */
#include "tofu_internal.h"
#include "tofu_am.h"
#include "tofu_hub.h"

#include <stdio.h>
#include <stdlib.h>

static _Atomic uint64_t tofu_iface_generation; /* never 0 of an iface */

void tofu_iface_config_default(tofu_iface_config_t *config)
{
    memset(config, 0, sizeof(*config));
    config->am_seg_size    = 8256; /* 8 KiB with a header in front */
    config->rx_slots       = 512;
    config->rx_short_slots = 1024;
    config->tx_bounce      = 128;
    config->tx_notified    = 256;
    config->am_polled      = TOFU_AM_POLLED;
    config->am_in_place    = -1;
    config->rndv_split     = 0;
    config->strong_order   = 0;
    config->early_complete = 1;
    config->wakeup_timer_us = 1000;
}

static tofu_status_t tofu_iface_check_config(const tofu_iface_config_t *c)
{
    if ((c->am_seg_size < 64) || (c->am_seg_size > TOFU_AM_MAX_SEG_SIZE)) {
        tofu_error("am_seg_size %zu: it can be 64 to %u bytes", c->am_seg_size,
                   TOFU_AM_MAX_SEG_SIZE);
        return TOFU_ERR_INVALID_PARAM;
    }
    if ((c->rx_slots < TOFU_AM_MIN_WINDOW) || (c->rx_slots > 65536) ||
        (c->rx_short_slots < TOFU_AM_MIN_WINDOW) ||
        (c->rx_short_slots > 1048576)) {
        tofu_error("%u large and %u small receive slots: there can be %u to "
                   "65536 and %u to 1048576", c->rx_slots, c->rx_short_slots,
                   TOFU_AM_MIN_WINDOW, TOFU_AM_MIN_WINDOW);
        return TOFU_ERR_INVALID_PARAM;
    }
    if (c->am_polled > TOFU_AM_MAX_POLLED) {
        tofu_error("am_polled %u: it can be at most %u", c->am_polled,
                   TOFU_AM_MAX_POLLED);
        return TOFU_ERR_INVALID_PARAM;
    }
    if (c->rx_headroom > TOFU_AM_MAX_HEADROOM) {
        tofu_error("rx_headroom %zu: it can be at most %u bytes",
                   c->rx_headroom, TOFU_AM_MAX_HEADROOM);
        return TOFU_ERR_INVALID_PARAM;
    }
    if ((c->am_alignment & (c->am_alignment - 1)) != 0) {
        tofu_error("am_alignment %zu is not a power of two", c->am_alignment);
        return TOFU_ERR_INVALID_PARAM;
    }
    /* a slot's offset is computed in 32 bits */
    if ((uint64_t)c->rx_slots * (c->am_seg_size + 1024 + c->rx_headroom) >
        0xffffffffu) {
        tofu_error("%u receive slots of %zu bytes are more than 4 GiB",
                   c->rx_slots, c->am_seg_size);
        return TOFU_ERR_INVALID_PARAM;
    }
    if ((c->wakeup_timer_us == 0) || (c->wakeup_timer_us > 100000)) {
        tofu_error("wakeup_timer_us %u: it can be 1 to 100000",
                   c->wakeup_timer_us);
        return TOFU_ERR_INVALID_PARAM;
    }
    if ((c->tx_bounce == 0) || (c->tx_bounce > 65536) ||
        (c->tx_notified == 0) || (c->tx_notified > 65536)) {
        tofu_error("%u bounce buffers and %u notified operations: there can be "
                   "1 to 65536 of each", c->tx_bounce, c->tx_notified);
        return TOFU_ERR_INVALID_PARAM;
    }
    return TOFU_OK;
}

static _Atomic int tofu_exclusive_cqs; /* that ifaces of this process have */

/* A VCQ on a CQ of its own, if the process may take one more (tofu_md.c). */
static tofu_status_t tofu_iface_open_exclusive(tofu_iface_t *iface,
                                               utofu_tni_id_t tni)
{
    tofu_md_t     *md = iface->md;
    tofu_status_t status;

    if (atomic_fetch_add(&tofu_exclusive_cqs, 1) >= (int)md->exclusive_cqs) {
        status = TOFU_ERR_NO_DEVICE;
    } else {
        status = tofu_vcq_open(md, tni, UTOFU_VCQ_FLAG_EXCLUSIVE, &iface->vcq,
                               &iface->vcq_id);
    }
    if (status != TOFU_OK) {
        atomic_fetch_sub(&tofu_exclusive_cqs, 1);
    }
    iface->exclusive = (status == TOFU_OK);
    return status;
}

/* One more VCQ of an iface of its own, or one less; 0: it may not be. */
static int tofu_iface_count_vcq(tofu_md_t *md, int change)
{
    int allowed;

    pthread_mutex_lock(&md->lock);
    allowed = (change < 0) || (md->own_vcqs < md->max_vcqs);
    if (allowed) {
        md->own_vcqs += (unsigned)change;
    }
    pthread_mutex_unlock(&md->lock);
    return allowed;
}

void tofu_iface_free_vcq(tofu_iface_t *iface)
{
    int ret;

    if (iface->shared != NULL) {
        tofu_hub_leave(iface);
        return;
    }
    if (iface->owner == iface) {
        tofu_iface_count_vcq(iface->md, -1);
        if (iface->shared_vcq) {
            tofu_hub_unreserve(iface->md);
        }
    }
    ret = iface->fn.free_vcq(iface->vcq);
    if (ret != UTOFU_SUCCESS) {
        tofu_error("utofu_free_vcq(%#llx): %s",
                   (unsigned long long)iface->vcq_id, tofu_code_name(ret));
    }
    if (iface->exclusive) {
        atomic_fetch_sub(&tofu_exclusive_cqs, 1);
    }
}

tofu_status_t tofu_iface_open_vcq(tofu_iface_t *iface, unsigned tnis)
{
    tofu_md_t     *md    = iface->md;
    tofu_status_t status = TOFU_ERR_NO_DEVICE;
    unsigned      i, tni = 0;

    if ((iface->owner == iface) && !tofu_iface_count_vcq(md, 1)) {
        return tofu_hub_join(iface);
    }
    /* A CQ of one's own: no lock in the library, an MRQ of one's own.  There are
     * few, so lanes do without; a shared one must be thread-safe, for other VCQs
     * of the CQ may be other threads'. */
    for (i = 0; (i < tnis) && (iface->owner == iface) &&
                (status == TOFU_ERR_NO_DEVICE); ++i) {
        tni    = (iface->first_tni + i) % md->all_tnis;
        status = tofu_iface_open_exclusive(iface, md->tnis[tni]);
    }
    /* the CQs that the process shares already come first: each is one process's */
    for (i = 0; (i < tnis) && (status == TOFU_ERR_NO_DEVICE); ++i) {
        tni = (iface->owner != iface) ? iface->first_tni :
              (i < md->num_tnis)      ? (iface->first_tni + i) % md->num_tnis :
                                        i;
        status = tofu_vcq_open(md, md->tnis[tni], UTOFU_VCQ_FLAG_THREAD_SAFE,
                               &iface->vcq, &iface->vcq_id);
        iface->shared_vcq = (status == TOFU_OK);
    }
    iface->first_tni = tni;
    if ((iface->owner == iface) && iface->shared_vcq) {
        tofu_hub_reserve(md);
    }
    if ((iface->owner == iface) && (status != TOFU_OK)) {
        tofu_iface_count_vcq(md, -1);
        if (status == TOFU_ERR_NO_DEVICE) {
            status = tofu_hub_join(iface);
        }
    }
    return status;
}

/* An index in md->ifaces, by which memory handles keep STADDs. */
static tofu_status_t tofu_iface_enlist(tofu_iface_t *iface)
{
    tofu_md_t    *md = iface->md;
    tofu_iface_t **ifaces;
    unsigned     i;

    iface->generation = atomic_fetch_add(&tofu_iface_generation, 1) + 1;
    pthread_mutex_lock(&md->lock);
    for (i = 0; (i < md->num_ifaces) && (md->ifaces[i] != NULL); ++i) {
    }
    if (i == md->num_ifaces) {
        ifaces = realloc(md->ifaces, (i + 1) * sizeof(*ifaces));
        if (ifaces == NULL) {
            pthread_mutex_unlock(&md->lock);
            return TOFU_ERR_NO_MEMORY;
        }
        md->ifaces     = ifaces;
        md->num_ifaces = i + 1;
    }
    md->ifaces[i] = iface;
    iface->index  = i;
    pthread_mutex_unlock(&md->lock);
    return TOFU_OK;
}

/* The rules of 4.3.2 and of tofu_attr_bound, and a place in the md. */
tofu_status_t tofu_iface_set_limits(tofu_iface_t *iface)
{
    const tofu_iface_config_t *config = &iface->config;

    iface->max_put     = iface->md->caps.max_putget_size;
    iface->zcopy_flags = config->strong_order ?
                                 UTOFU_ONESIDED_FLAG_STRONG_ORDER :
                                 0;
    if ((config->rndv_split > 0) && (config->rndv_split < iface->max_put)) {
        iface->max_put = config->rndv_split;
    }
    iface->mrq_entries = tofu_attr_mrq_entries();
    tofu_attr_bound(iface);
    iface->posts_limit = iface->post_budget;
    iface->early_skip  = config->early_complete ? 0 : UINT32_MAX; /* never */
    return tofu_iface_enlist(iface);
}

tofu_iface_t *tofu_iface_new(tofu_md_t *md, const tofu_iface_config_t *config)
{
    /* cache lines of its own: ifaces of other threads are neighbours */
    tofu_iface_t *iface = aligned_alloc(256, (sizeof(*iface) + 255) / 256 *
                                                     256);

    if (iface == NULL) {
        return NULL;
    }
    memset(iface, 0, sizeof(*iface));
    iface->md      = md;
    iface->fn      = md->fn;
    iface->config  = *config;
    iface->owner   = iface;
    iface->lane[0] = iface;
    iface->kept.entry_size = sizeof(tofu_mrq_entry_t);
    tofu_list_init(&iface->eps);
    tofu_list_init(&iface->used);
    tofu_list_init(&iface->turns);
    tofu_list_init(&iface->checks);
    iface->turn_next = &iface->turns;
    tofu_list_init(&iface->failed);
    tofu_list_init(&iface->done);
    tofu_list_init(&iface->waiters);
    return iface;
}

void tofu_iface_delist(tofu_iface_t *iface)
{
    tofu_md_t *md = iface->md;

    pthread_mutex_lock(&md->lock);
    md->ifaces[iface->index] = NULL;
    pthread_mutex_unlock(&md->lock);
}

static tofu_status_t tofu_iface_open_bounces(tofu_iface_t *iface)
{
    size_t        size   = (iface->config.am_seg_size + TOFU_BOUNCE_PAGE - 1) /
                  TOFU_BOUNCE_PAGE * TOFU_BOUNCE_PAGE;
    size_t        length = size * iface->config.tx_bounce + tofu_bounce_offset;
    utofu_stadd_t stadd;
    tofu_status_t status;
    void          *address;
    unsigned      i;

    iface->bounce_array = calloc(iface->config.tx_bounce,
                                 sizeof(*iface->bounce_array));
    if (iface->bounce_array == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    status = tofu_mem_alloc_flags(iface->md, &length, TOFU_MEM_OWN, &address,
                                  &iface->bounce_mem);
    if (status != TOFU_OK) {
        return status;
    }
    status = tofu_mem_stadd(iface->bounce_mem, iface, address, length, &stadd);
    if (status != TOFU_OK) {
        return status;
    }
    for (i = iface->config.tx_bounce; i > 0; --i) {
        tofu_bounce_t *bounce = &iface->bounce_array[i - 1];
        bounce->buffer = (char *)address + (i - 1) * size + tofu_bounce_offset;
        bounce->stadd  = stadd + (i - 1) * size + tofu_bounce_offset;
        bounce->next   = iface->bounces;
        iface->bounces = bounce;
    }
    return TOFU_OK;
}

/* Release what open made; the VCQ goes first, so that nobody writes into memory
 * that is given back. */
static void tofu_iface_release(tofu_iface_t *iface)
{
    tofu_md_t *md = iface->md;

    tofu_iface_delist(iface); /* from here on nobody adds to iface->dereg */
    tofu_in_place_close(iface);
    tofu_iface_free_vcq(iface);
    tofu_wakeup_close(iface);
    if (iface->am != NULL) {
        tofu_am_close(iface);
    }
    if (iface->bounce_mem != NULL) {
        tofu_mem_free(iface->bounce_mem);
    }
    free(iface->bounce_array);
    if (iface->scratch != NULL) {
        tofu_arena_put(md, iface->scratch_arena, iface->scratch, md->page_size);
    }
    tofu_peers_free(iface);
    tofu_ops_free(iface);
    free(iface->kept.data);
    free(iface->dereg);
}

tofu_status_t tofu_iface_open(tofu_md_t *md, const tofu_iface_config_t *config,
                              tofu_iface_t **iface_p)
{
    tofu_iface_config_t defaults;
    tofu_status_t       status;
    tofu_iface_t        *iface;

    if (config == NULL) {
        tofu_iface_config_default(&defaults);
        config = &defaults;
    }
    status = tofu_iface_check_config(config);
    if (status != TOFU_OK) {
        return status;
    }
    iface = tofu_iface_new(md, config);
    if (iface == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    /* ifaces of one md, which are different threads' as a rule, spread */
    pthread_mutex_lock(&md->lock);
    iface->first_tni = md->opened++ % md->all_tnis;
    pthread_mutex_unlock(&md->lock);
    status = tofu_iface_open_vcq(iface, md->all_tnis);
    if (status != TOFU_OK) {
        tofu_error("no VCQ for an iface, nor a place on one, is left on %u TNIs of "
                   "this node: %s", md->all_tnis, tofu_status_string(status));
        goto err_free;
    }
    if (iface->shared_vcq) {
        static _Atomic int told; /* once is enough in a process */

        /* nobody is to be warned of what comes of the number of processes on the node */
        tofu_log((atomic_exchange(&told, 1) || md->has_share) ? 3 : 1,
                 "the process has its %u CQs for ifaces of their own, or the node no "
                 "more: VCQ %#llx shares one with others, which costs locks and seven "
                 "eighths of the receive slots", md->exclusive_cqs,
                 (unsigned long long)iface->vcq_id);
    }
    iface->stripe_thresh = ((md->num_tnis > 1) && (iface->shared == NULL)) ?
                                   md->stripe_thresh :
                                   SIZE_MAX;
    status               = tofu_iface_set_limits(iface);
    if (status != TOFU_OK) {
        goto err_free_vcq;
    }
    status = tofu_scratch_open(md, &iface->fn, iface->vcq, &iface->scratch,
                               &iface->scratch_arena);
    if (status == TOFU_OK) {
        tofu_iface_read_clock(iface);
        status = tofu_am_open(iface);
    }
    if (status == TOFU_OK) {
        status = tofu_iface_open_bounces(iface);
    }
    if (status != TOFU_OK) {
        tofu_iface_release(iface);
        goto err_free;
    }
    *iface_p = iface;
    return TOFU_OK;

err_free_vcq:
    tofu_iface_free_vcq(iface);
err_free:
    free(iface);
    return status;
}

void tofu_iface_close(tofu_iface_t *iface)
{
    int warned = 0;

    while (!tofu_list_empty(&iface->eps)) {
        tofu_ep_t *ep = tofu_container(iface->eps.next, tofu_ep_t, eps);

        if (!warned && !(ep->flags & TOFU_EP_ORPHAN)) {
            tofu_warn("iface of VCQ %#llx is closed with endpoints",
                      (unsigned long long)iface->vcq_id);
            warned = 1;
        }
        tofu_ep_destroy(ep); /* one that becomes an orphan comes again */
    }
    tofu_lanes_close(iface);
    tofu_ops_cancel(iface);
    tofu_iface_release(iface);
    free(iface);
}

void tofu_iface_query(tofu_iface_t *iface, tofu_iface_attr_t *attr)
{
    tofu_attr_iface(iface, attr);
}

void tofu_iface_get_stats(tofu_iface_t *iface, tofu_iface_stats_t *stats)
{
    unsigned i;

    *stats         = iface->stats;
    stats->am_held = iface->am->num_kept;
    stats->polls   = iface->calls;
    stats->posts   = 0;
    for (i = 0; i < TOFU_MAX_TNIS; ++i) {
        if (iface->lane[i] != NULL) {
            stats->posts += iface->lane[i]->posts;
            if (i > 0) {
                stats->notices     += iface->lane[i]->stats.notices;
                stats->tcq_entries += iface->lane[i]->stats.tcq_entries;
            }
            ++stats->vcqs;
        }
    }
}

void tofu_iface_get_address(tofu_iface_t *iface, void *buffer)
{
    tofu_address_t address;

    tofu_am_geometry(iface, &address);
    tofu_wire_pack_address(buffer, &address);
}

tofu_status_t tofu_iface_check_address(tofu_iface_t *iface, const void *buffer,
                                       size_t size, tofu_address_t *address_p,
                                       char *reason, size_t reason_size)
{
    const tofu_geometry_t *g;
    utofu_stadd_t         stadd;
    tofu_address_t        a;
    tofu_status_t         status;

    status = tofu_wire_unpack_address(buffer, size, &a, reason, reason_size);
    if (status != TOFU_OK) {
        return status;
    }
    if (a.port >= TOFU_MAX_PORTS) {
        snprintf(reason, reason_size, "the iface address names port %u of a VCQ: they "
                 "are less than %u", a.port, TOFU_MAX_PORTS);
        return TOFU_ERR_INVALID_PARAM;
    }
    if ((a.vcq_id == TOFU_NO_VCQ) ||
        (tofu_peer_stadd(iface, a.vcq_id, a.port, TOFU_STAG_SLOTS, &stadd) !=
         UTOFU_SUCCESS)) {
        snprintf(reason, reason_size,
                 "the iface address names %#llx, which is no VCQ ID",
                 (unsigned long long)a.vcq_id);
        return TOFU_ERR_INVALID_PARAM;
    }
    /* The node gives VCQs again.  That another process has the one of a dead peer by
     * now can't be seen from here, but that this one has it can. */
    if ((a.vcq_id == iface->vcq_id) && (a.port == iface->port) &&
        (a.incarnation != iface->am->incarnation)) {
        snprintf(reason, reason_size,
                 "the iface of that address is gone: its VCQ %#llx is this "
                 "iface's now", (unsigned long long)a.vcq_id);
        return TOFU_ERR_UNREACHABLE;
    }
    g = &a.geometry;
    if ((g->small_size != TOFU_AM_SMALL_SIZE) ||
        (g->large_size < TOFU_AM_MESSAGE_SIZE(g->large_lead, g->seg_size)) ||
        (g->small_count < TOFU_AM_MIN_WINDOW) ||
        (g->large_count < TOFU_AM_MIN_WINDOW)) {
        snprintf(reason, reason_size,
                 "the iface address describes receive slots that can't be");
        return TOFU_ERR_INVALID_PARAM;
    }
    if (g->seg_size < iface->config.am_seg_size) {
        snprintf(reason, reason_size,
                 "the peer takes messages of %u bytes, this side sends up to "
                 "%zu: both need the same am_seg_size", g->seg_size,
                 iface->config.am_seg_size);
        return TOFU_ERR_UNREACHABLE;
    }
    *address_p = a;
    return TOFU_OK;
}
