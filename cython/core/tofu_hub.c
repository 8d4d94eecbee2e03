/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_hub.c - VCQs that several ifaces share, when no other is left: places on them,
 * and memory.
 *
 * A node has 432 VCQs.  An iface that finds none becomes a port of a hub: a VCQ that
 * was put aside for this, or that of the md, which posts nothing itself.  The rest of
 * the core does not notice: a port has a table of uTofu functions of its own, which
 * take the port in place of a VCQ handle, and call the library with the hub's VCQ
 * under the hub's lock.  What the library tells of a VCQ is sorted by port:
 *
 *   remote notices  by the STADD that was written: STags of a port are its own
 *   local notices   those of one remote VCQ come in post order (2.2.10), so a queue
 *                   of who posted tells; the EDATA is the hub's count, which checks
 *                   it, and the port gets the one it gave
 *   errors of a user's operations without a notice
 *                   by the EDATA, which names the port (but that the VCQ is gone is
 *                   for all)
 *   errors of the core's own without a local notice
 *                   to every port that posted such to that VCQ; each finds out by
 *                   probes what it means (tofu_peer.c)
 *   TCQ entries     by the upper 16 bits of the callback data, which pointers of
 *                   programs leave free
 *
 * Who polls takes what is there for all and puts what is others' into their queues, so
 * that users are called by their own threads, as always.  Posts are in
 * tofu_port_post.c, polls in tofu_port_poll.c.  A port has a part of the hub's receive
 * notices (tofu_attr_bound), no lanes, no messages without notices, and is woken by its
 * timer.
 */
#include "tofu_hub.h"
#include "tofu_port.h"

#include <time.h>

#define TOFU_HUB_NOTICES  512u  /* of a port, or all that there are */
#define TOFU_HUB_LEAVE_MS 1000u /* a port that goes waits so long for notices */

/* ----------------------------------------------------------------- memory */

static int tofu_port_reg_mem_with_stag(utofu_vcq_hdl_t vcq, void *address,
                                       size_t length, unsigned stag,
                                       unsigned long flags,
                                       utofu_stadd_t *stadd)
{
    tofu_port_t *port = (tofu_port_t *)vcq;
    tofu_hub_t  *hub  = port->hub;
    int         ret;

    if ((stag >= TOFU_PORT_STAGS) || (port->ranges == TOFU_PORT_STAGS)) {
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    ret = hub->md->fn.reg_mem_with_stag(hub->vcq, address, length,
                                        port->index * TOFU_PORT_STAGS + stag,
                                        flags, stadd);
    if (ret == UTOFU_SUCCESS) {
        pthread_mutex_lock(&hub->lock);
        port->range[port->ranges].begin = *stadd;
        port->range[port->ranges].end   = *stadd + length;
        ++port->ranges;
        pthread_mutex_unlock(&hub->lock);
    }
    return ret;
}

static int tofu_port_reg_mem(utofu_vcq_hdl_t vcq, void *address, size_t length,
                             unsigned long flags, utofu_stadd_t *stadd)
{
    tofu_port_t   *port = (tofu_port_t *)vcq;
    tofu_hub_t    *hub  = port->hub;
    size_t        max   = (port->max_regs > 0) ? port->max_regs * 2 : 16;
    utofu_stadd_t *regs;
    int           ret;

    if (port->num_regs == port->max_regs) {
        regs = realloc(port->regs, max * sizeof(*regs));
        if (regs == NULL) {
            return UTOFU_ERR_OUT_OF_MEMORY;
        }
        port->regs     = regs;
        port->max_regs = max;
    }
    ret = hub->md->fn.reg_mem(hub->vcq, address, length, flags, stadd);
    if (ret == UTOFU_SUCCESS) {
        port->regs[port->num_regs++] = *stadd;
    }
    return ret;
}

static int tofu_port_dereg_mem(utofu_vcq_hdl_t vcq, utofu_stadd_t stadd,
                               unsigned long flags)
{
    tofu_port_t *port = (tofu_port_t *)vcq;
    size_t      i;

    for (i = 0; i < port->num_regs; ++i) {
        if (port->regs[i] == stadd) {
            port->regs[i] = port->regs[--port->num_regs];
            break;
        }
    }
    return port->hub->md->fn.dereg_mem(port->hub->vcq, stadd, flags);
}

/* ------------------------------------------------------------ join, leave */

static tofu_hub_t *tofu_hub_new(tofu_md_t *md, utofu_vcq_hdl_t vcq,
                                utofu_vcq_id_t vcq_id)
{
    unsigned   notices = tofu_attr_mrq_entries() / TOFU_CQ_VCQS;
    unsigned   stags   = (unsigned)md->caps.num_reserved_stags / TOFU_PORT_STAGS;
    tofu_hub_t *hub    = calloc(1, sizeof(*hub));

    if (hub == NULL) {
        return NULL;
    }
    hub->md        = md;
    hub->vcq       = vcq;
    hub->vcq_id    = vcq_id;
    hub->max_ports = (notices > TOFU_HUB_NOTICES) ? notices / TOFU_HUB_NOTICES : 1;
    if (hub->max_ports > stags - 1) {
        hub->max_ports = stags - 1;
    }
    if (hub->max_ports > TOFU_HUB_SILENT_PORTS) {
        hub->max_ports = TOFU_HUB_SILENT_PORTS;
    }
    hub->notices = notices / hub->max_ports;
    pthread_mutex_init(&hub->lock, NULL);
    hub->next = md->hubs;
    md->hubs  = hub;
    return hub;
}

void tofu_hub_reserve(tofu_md_t *md)
{
    utofu_vcq_hdl_t vcq;
    utofu_vcq_id_t  vcq_id;
    unsigned        due, i;

    pthread_mutex_lock(&md->lock);
    due = (++md->sharing / TOFU_HUB_RESERVE > md->reserved);
    for (i = 0; due && (i < md->num_tnis); ++i) {
        if (tofu_vcq_open(md, md->tnis[i], UTOFU_VCQ_FLAG_THREAD_SAFE, &vcq,
                          &vcq_id) == TOFU_OK) {
            if (tofu_hub_new(md, vcq, vcq_id) == NULL) {
                md->fn.free_vcq(vcq);
            } else {
                ++md->reserved;
            }
            break;
        }
    }
    pthread_mutex_unlock(&md->lock);
}

void tofu_hub_unreserve(tofu_md_t *md)
{
    pthread_mutex_lock(&md->lock);
    --md->sharing;
    pthread_mutex_unlock(&md->lock);
}

/* A place on the hub; NULL: it is full, or there is no memory. */
static tofu_port_t *tofu_port_open(tofu_hub_t *hub)
{
    tofu_port_t *port = calloc(1, sizeof(*port));
    unsigned    index = hub->last, i;

    if (port == NULL) {
        return NULL;
    }
    port->hub            = hub;
    port->mrq.entry_size = sizeof(tofu_mrq_entry_t);
    port->tcq.entry_size = sizeof(tofu_tcq_entry_t);
    pthread_mutex_lock(&hub->lock);
    for (i = 0; i < hub->max_ports; ++i) {
        index = index % hub->max_ports + 1;
        if (hub->port[index] == NULL) {
            hub->port[index] = port;
            hub->last        = index;
            port->index      = index;
            break;
        }
    }
    pthread_mutex_unlock(&hub->lock);
    if (port->index == 0) {
        free(port);
        return NULL;
    }
    return port;
}

/* That of the VCQ with which memory is registered is the last resort: it is busy with
 * what peers put and get. */
static tofu_port_t *tofu_hub_place(tofu_md_t *md)
{
    tofu_port_t *port = NULL;
    tofu_hub_t  *hub;

    pthread_mutex_lock(&md->lock);
    for (hub = md->hubs; (hub != NULL) && (port == NULL); hub = hub->next) {
        if (hub->vcq != md->vcq) {
            port = tofu_port_open(hub);
        }
    }
    for (hub = md->hubs; (hub != NULL) && (hub->vcq != md->vcq);
         hub = hub->next) {
    }
    if ((port == NULL) && (hub == NULL)) {
        hub = tofu_hub_new(md, md->vcq, md->vcq_id);
    }
    if ((port == NULL) && (hub != NULL)) {
        port = tofu_port_open(hub);
    }
    pthread_mutex_unlock(&md->lock);
    return port;
}

tofu_status_t tofu_hub_join(tofu_iface_t *iface)
{
    static _Atomic int told; /* once is enough in a process */
    tofu_md_t          *md   = iface->md;
    tofu_port_t        *port = tofu_hub_place(md);
    unsigned           own;

    if (port == NULL) {
        return TOFU_ERR_NO_DEVICE;
    }
    iface->shared = port;
    iface->port   = port->index;
    iface->vcq    = (utofu_vcq_hdl_t)port;
    iface->vcq_id = port->hub->vcq_id;

    iface->config.am_polled = 0; /* their answers do not tell who gives them */

    tofu_port_post_functions(&iface->fn);
    tofu_port_poll_functions(&iface->fn);
    iface->fn.reg_mem           = tofu_port_reg_mem;
    iface->fn.reg_mem_with_stag = tofu_port_reg_mem_with_stag;
    iface->fn.dereg_mem         = tofu_port_dereg_mem;

    pthread_mutex_lock(&md->lock);
    own = md->own_vcqs;
    pthread_mutex_unlock(&md->lock);
    tofu_log(atomic_exchange(&told, 1) ? 3 : 1,
             "no VCQ is left for an iface of its own (it has %u): this one shares VCQ "
             "%#llx with up to %u others, which costs locks and most of the receive "
             "slots, and a timer wakes it", own,
             (unsigned long long)iface->vcq_id, port->hub->max_ports - 1);
    return TOFU_OK;
}

unsigned tofu_port_notices(const tofu_port_t *port)
{
    return port->hub->notices;
}

int tofu_port_of_md(const tofu_port_t *port)
{
    return port->hub->vcq == port->hub->md->vcq;
}

/* Until nothing of the port is on its way any more: its memory is given back then. */
static void tofu_port_drain(tofu_port_t *port)
{
    const struct timespec pause = {.tv_nsec = 100000};
    tofu_hub_t            *hub  = port->hub;
    unsigned              i, left;

    for (i = 0; i < TOFU_HUB_LEAVE_MS * 10; ++i) {
        pthread_mutex_lock(&hub->lock);
        tofu_hub_read_tcq(hub);
        tofu_hub_read_mrq(port);
        left = port->inflight;
        pthread_mutex_unlock(&hub->lock);
        if (left == 0) {
            return;
        }
        nanosleep(&pause, NULL);
    }
    tofu_warn("port %u of VCQ %#llx is closed with %u operations in flight",
              port->index, (unsigned long long)hub->vcq_id, left);
}

void tofu_hub_leave(tofu_iface_t *iface)
{
    tofu_port_t *port = iface->shared;
    tofu_hub_t  *hub  = port->hub;
    tofu_md_t   *md   = hub->md;
    size_t      i;

    tofu_port_drain(port);
    for (i = 0; i < port->ranges; ++i) {
        md->fn.dereg_mem(hub->vcq, port->range[i].begin, 0);
    }
    for (i = 0; i < port->num_regs; ++i) {
        md->fn.dereg_mem(hub->vcq, port->regs[i], 0);
    }
    pthread_mutex_lock(&hub->lock);
    hub->port[port->index] = NULL;
    hub->gen[port->index]  = (hub->gen[port->index] + 1) & TOFU_HUB_GENS;
    for (i = 0; i < hub->max_lines; ++i) {
        if (hub->lines[i] != NULL) {
            hub->lines[i]->silent &= ~(1ull << port->index);
        }
    }
    pthread_mutex_unlock(&hub->lock);
    free(port->mrq.data);
    free(port->tcq.data);
    free(port->regs);
    free(port);
    iface->shared = NULL;
}

void tofu_hubs_close(tofu_md_t *md)
{
    tofu_hub_t *hub;
    size_t     i;

    while ((hub = md->hubs) != NULL) {
        md->hubs = hub->next;
        if (hub->vcq != md->vcq) {
            md->fn.free_vcq(hub->vcq);
        }
        for (i = 0; i < hub->max_lines; ++i) {
            if (hub->lines[i] != NULL) {
                free(hub->lines[i]->tickets.data);
                free(hub->lines[i]);
            }
        }
        free(hub->lines);
        pthread_mutex_destroy(&hub->lock);
        free(hub);
    }
}
