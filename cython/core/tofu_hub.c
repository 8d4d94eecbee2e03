/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_hub.c - VCQs that several ifaces share, when no other is left.
 *
 * A node has 432 VCQs.  An iface that finds none becomes a port of a hub: a VCQ that
 * was put aside for this, or that of the md, which posts nothing itself.  The rest of
 * the core does not notice: a port has a table of uTofu functions of its own, which
 * take the port in place of a VCQ handle, and call the library with the hub's VCQ
 * under the hub's lock.  What the library tells of a VCQ is sorted by port here:
 *
 *   remote notices  by the STADD that was written: STags of a port are its own
 *   local notices   those of one remote VCQ come in post order (2.2.10), so a queue
 *                   of who posted tells; the EDATA is the hub's count, which checks
 *                   it, and the port gets the one it gave
 *   errors of operations without a local notice
 *                   to every port that posted such to that VCQ; each finds out by
 *                   probes what it means (tofu_peer.c)
 *   TCQ entries     by the upper 16 bits of the callback data, which pointers of
 *                   programs leave free
 *
 * Who polls takes what is there for all and puts what is others' into their queues,
 * so that users are called by their own threads, as always.  A port has a part of the
 * hub's receive notices (tofu_attr_bound), no lanes, no messages without notices,
 * and is woken by its timer.
 */
#include "tofu_hub.h"

#include <stdlib.h>
#include <time.h>

#define TOFU_HUB_NOTICES   512u  /* of a port, or all that there are */
#define TOFU_HUB_QUEUE_MIN 64u   /* entries of a queue at first */
#define TOFU_HUB_LINES_MIN 64u
#define TOFU_HUB_LEAVE_MS  1000u /* a port that goes waits so long for notices */

/* Callback data as the library sees it. */
#define TOFU_HUB_PORT_SHIFT 56 /* index of the port */
#define TOFU_HUB_COUNTED    (1ull << 55) /* a TCQ entry was asked for */
#define TOFU_HUB_GEN_SHIFT  48
#define TOFU_HUB_GENS       0x7fu
#define TOFU_HUB_POINTER    ((1ull << TOFU_HUB_GEN_SHIFT) - 1)

typedef struct tofu_queue { /* a ring that grows */
    char   *data;
    size_t entry_size, size; /* size: entries, a power of two */
    size_t head, tail;
} tofu_queue_t;

typedef struct tofu_mrq_entry {
    struct utofu_mrq_notice notice;
    int                     code;
} tofu_mrq_entry_t;

typedef struct tofu_tcq_entry {
    void *cbdata;
    int  code;
} tofu_tcq_entry_t;

typedef struct tofu_ticket { /* a local notice to come */
    uint64_t cbdata; /* as the library sees it: with port and generation */
    uint8_t  edata;  /* of the hub */
    uint8_t  given;  /* by the port */
} tofu_ticket_t;

typedef struct tofu_hub_line { /* a remote VCQ */
    utofu_vcq_id_t vcq_id;
    uint64_t       silent;  /* bits of ports that posted without a notice */
    tofu_queue_t   tickets;
    uint8_t        count;   /* EDATA of the next */
} tofu_hub_line_t;

struct tofu_port {
    tofu_hub_t    *hub;
    unsigned      index;
    uint32_t      inflight;   /* local notices and TCQ entries to come */
    int           broken;     /* something for it was lost: no memory */
    tofu_queue_t  mrq, tcq;   /* what others found */
    struct {
        utofu_stadd_t begin, end;
    }             range[TOFU_PORT_STAGS]; /* of its STags */
    unsigned      ranges;
    utofu_stadd_t *regs;      /* memory of its own; its thread's only */
    size_t        num_regs, max_regs;
};

struct tofu_hub {
    tofu_hub_t      *next;    /* of the md */
    tofu_md_t       *md;
    utofu_vcq_hdl_t vcq;
    utofu_vcq_id_t  vcq_id;
    unsigned        max_ports, notices; /* notices: of a port */
    pthread_mutex_t lock;     /* all below */
    unsigned        last;     /* index given last: a freed one rests for long */
    tofu_port_t     *port[TOFU_MAX_PORTS]; /* [0] unused */
    uint8_t         gen[TOFU_MAX_PORTS];   /* counts those that had an index */
    tofu_hub_line_t **lines;  /* hash table */
    size_t          num_lines, max_lines;
};

/* ----------------------------------------------------------------- queues */

static size_t tofu_queue_length(const tofu_queue_t *queue)
{
    return queue->tail - queue->head;
}

static void *tofu_queue_at(const tofu_queue_t *queue, size_t i)
{
    return queue->data + ((queue->head + i) & (queue->size - 1)) *
                                 queue->entry_size;
}

/* Room for one more; 0: no memory. */
static int tofu_queue_room(tofu_queue_t *queue)
{
    size_t size = (queue->size > 0) ? queue->size * 2 : TOFU_HUB_QUEUE_MIN;
    size_t length = tofu_queue_length(queue), i;
    char   *data;

    if (length < queue->size) {
        return 1;
    }
    data = malloc(size * queue->entry_size);
    if (data == NULL) {
        return 0;
    }
    for (i = 0; i < length; ++i) {
        memcpy(data + i * queue->entry_size, tofu_queue_at(queue, i),
               queue->entry_size);
    }
    free(queue->data);
    queue->data = data;
    queue->size = size;
    queue->head = 0;
    queue->tail = length;
    return 1;
}

static void tofu_queue_push(tofu_queue_t *queue, const void *entry)
{
    memcpy(tofu_queue_at(queue, queue->tail++ - queue->head), entry,
           queue->entry_size);
}

static int tofu_queue_pop(tofu_queue_t *queue, void *entry)
{
    if (queue->head == queue->tail) {
        return 0;
    }
    memcpy(entry, tofu_queue_at(queue, 0), queue->entry_size);
    ++queue->head;
    return 1;
}

/* ------------------------------------------------------------------ lines */

static size_t tofu_hub_slot(const tofu_hub_t *hub, utofu_vcq_id_t vcq_id)
{
    size_t i = (size_t)((vcq_id * 0x9e3779b97f4a7c15ull) >> 32);

    for (i &= hub->max_lines - 1;
         (hub->lines[i] != NULL) && (hub->lines[i]->vcq_id != vcq_id);
         i = (i + 1) & (hub->max_lines - 1)) {
    }
    return i;
}

static tofu_hub_line_t *tofu_hub_find(const tofu_hub_t *hub,
                                      utofu_vcq_id_t vcq_id)
{
    return (hub->max_lines == 0) ? NULL :
                                   hub->lines[tofu_hub_slot(hub, vcq_id)];
}

/* Find or make; NULL: no memory. */
static tofu_hub_line_t *tofu_hub_line(tofu_hub_t *hub, utofu_vcq_id_t vcq_id)
{
    tofu_hub_line_t *line = tofu_hub_find(hub, vcq_id);
    tofu_hub_line_t **old = hub->lines;
    size_t          size  = hub->max_lines, i;

    if (line != NULL) {
        return line;
    }
    if (hub->num_lines * 2 >= hub->max_lines) {
        hub->max_lines = (size > 0) ? size * 2 : TOFU_HUB_LINES_MIN;
        hub->lines     = calloc(hub->max_lines, sizeof(*hub->lines));
        if (hub->lines == NULL) {
            hub->lines     = old;
            hub->max_lines = size;
            return NULL;
        }
        for (i = 0; i < size; ++i) {
            if (old[i] != NULL) {
                hub->lines[tofu_hub_slot(hub, old[i]->vcq_id)] = old[i];
            }
        }
        free(old);
    }
    line = calloc(1, sizeof(*line));
    if (line == NULL) {
        return NULL;
    }
    line->vcq_id             = vcq_id;
    line->tickets.entry_size = sizeof(tofu_ticket_t);
    hub->lines[tofu_hub_slot(hub, vcq_id)] = line;
    ++hub->num_lines;
    return line;
}

/* ------------------------------------------------------------------ posts */

/* The port that callback data names, if it is still the one that posted. */
static tofu_port_t *tofu_hub_poster(const tofu_hub_t *hub, uint64_t cbdata)
{
    unsigned index = (unsigned)(cbdata >> TOFU_HUB_PORT_SHIFT);

    return ((index < TOFU_MAX_PORTS) && (hub->port[index] != NULL) &&
            (((cbdata >> TOFU_HUB_GEN_SHIFT) & TOFU_HUB_GENS) ==
             hub->gen[index])) ?
                   hub->port[index] :
                   NULL;
}

/* What a post of a port becomes; under the lock.  A code: it can't be posted. */
static int tofu_hub_before(tofu_port_t *port, utofu_vcq_id_t vcq_id,
                           unsigned long flags, tofu_hub_line_t **line_p,
                           uint64_t *edata, void **cbdata)
{
    tofu_hub_t      *hub  = port->hub;
    tofu_hub_line_t *line = tofu_hub_line(hub, vcq_id);
    uint64_t        value = (uintptr_t)*cbdata;

    if ((line == NULL) || !tofu_queue_room(&line->tickets)) {
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    if (value & ~TOFU_HUB_POINTER) {
        return UTOFU_ERR_NOT_SUPPORTED; /* pointers of more than 48 bits */
    }
    value |= ((uint64_t)port->index << TOFU_HUB_PORT_SHIFT) |
             ((uint64_t)hub->gen[port->index] << TOFU_HUB_GEN_SHIFT) |
             ((flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE) ? TOFU_HUB_COUNTED : 0);
    if (flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) {
        *edata = TOFU_EDATA_OP | (line->count & 0x7f);
    }
    *cbdata = (void *)(uintptr_t)value;
    *line_p = line;
    return UTOFU_SUCCESS;
}

static void tofu_hub_posted(tofu_port_t *port, tofu_hub_line_t *line,
                            unsigned long flags, uint64_t given, void *cbdata)
{
    tofu_ticket_t ticket = {.cbdata = (uintptr_t)cbdata,
                            .edata  = TOFU_EDATA_OP | (line->count & 0x7f),
                            .given  = (uint8_t)given};

    if (flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) {
        tofu_queue_push(&line->tickets, &ticket);
        ++line->count;
        ++port->inflight;
    } else {
        line->silent |= 1ull << port->index;
    }
    if (flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE) {
        ++port->inflight;
    }
}

/* name(vcq, rmt, ..., edata, flags, cbdata) of the library, from the hub's VCQ. */
#define TOFU_HUB_POST(name, ...) \
    do { \
        tofu_port_t     *port = (tofu_port_t *)vcq; \
        tofu_hub_t      *hub  = port->hub; \
        tofu_hub_line_t *line = NULL; \
        uint64_t        given = edata; \
        int             ret; \
        \
        pthread_mutex_lock(&hub->lock); \
        ret = tofu_hub_before(port, rmt, flags, &line, &edata, &cbdata); \
        if (ret == UTOFU_SUCCESS) { \
            ret = hub->md->fn.name(hub->vcq, rmt, __VA_ARGS__, edata, flags, \
                                   cbdata); \
        } \
        if (ret == UTOFU_SUCCESS) { \
            tofu_hub_posted(port, line, flags, given, cbdata); \
        } \
        pthread_mutex_unlock(&hub->lock); \
        return ret; \
    } while (0)

static int tofu_hub_put(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                        utofu_stadd_t local, utofu_stadd_t remote,
                        size_t length, uint64_t edata, unsigned long flags,
                        void *cbdata)
{
    TOFU_HUB_POST(put, local, remote, length);
}

static int tofu_hub_get(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                        utofu_stadd_t local, utofu_stadd_t remote,
                        size_t length, uint64_t edata, unsigned long flags,
                        void *cbdata)
{
    TOFU_HUB_POST(get, local, remote, length);
}

static int tofu_hub_piggyback(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                              void *data, utofu_stadd_t remote, size_t length,
                              uint64_t edata, unsigned long flags, void *cbdata)
{
    TOFU_HUB_POST(put_piggyback, data, remote, length);
}

static int tofu_hub_piggyback8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                               uint64_t data, utofu_stadd_t remote,
                               size_t length, uint64_t edata,
                               unsigned long flags, void *cbdata)
{
    TOFU_HUB_POST(put_piggyback8, data, remote, length);
}

static int tofu_hub_armw4(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                          enum utofu_armw_op op, uint32_t value,
                          utofu_stadd_t remote, uint64_t edata,
                          unsigned long flags, void *cbdata)
{
    TOFU_HUB_POST(armw4, op, value, remote);
}

static int tofu_hub_armw8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                          enum utofu_armw_op op, uint64_t value,
                          utofu_stadd_t remote, uint64_t edata,
                          unsigned long flags, void *cbdata)
{
    TOFU_HUB_POST(armw8, op, value, remote);
}

static int tofu_hub_cswap4(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                           uint32_t old_value, uint32_t new_value,
                           utofu_stadd_t remote, uint64_t edata,
                           unsigned long flags, void *cbdata)
{
    TOFU_HUB_POST(cswap4, old_value, new_value, remote);
}

static int tofu_hub_cswap8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                           uint64_t old_value, uint64_t new_value,
                           utofu_stadd_t remote, uint64_t edata,
                           unsigned long flags, void *cbdata)
{
    TOFU_HUB_POST(cswap8, old_value, new_value, remote);
}

/* -------------------------------------------------------------- the queues */

static void tofu_port_notice(tofu_port_t *port,
                             const struct utofu_mrq_notice *notice, int code)
{
    tofu_mrq_entry_t entry = {.notice = *notice, .code = code};

    if (tofu_queue_room(&port->mrq)) {
        tofu_queue_push(&port->mrq, &entry);
    } else {
        port->broken = 1;
    }
}

/* An error of the TCQ takes the place of the local notice, if there was to be one. */
static void tofu_hub_untick(tofu_hub_t *hub, uint64_t cbdata)
{
    size_t i, k, n;

    for (i = 0; i < hub->max_lines; ++i) {
        tofu_queue_t *tickets;

        if (hub->lines[i] == NULL) {
            continue;
        }
        tickets = &hub->lines[i]->tickets;
        n       = tofu_queue_length(tickets);
        for (k = 0; k < n; ++k) {
            tofu_ticket_t *ticket = tofu_queue_at(tickets, k);
            if (ticket->cbdata != cbdata) {
                continue;
            }
            for (; k > 0; --k) {
                memcpy(tofu_queue_at(tickets, k), tofu_queue_at(tickets, k - 1),
                       sizeof(*ticket));
            }
            ++tickets->head;
            --hub->port[cbdata >> TOFU_HUB_PORT_SHIFT]->inflight;
            return;
        }
    }
}

static int tofu_hub_read_tcq(tofu_hub_t *hub)
{
    tofu_tcq_entry_t entry;
    tofu_port_t      *port;
    uint64_t         value;

    for (;;) {
        entry.code = hub->md->fn.poll_tcq(hub->vcq, 0, &entry.cbdata);
        if ((entry.code != UTOFU_SUCCESS) &&
            ((entry.code > UTOFU_ERR_TCQ_OTHER) ||
             (entry.code < UTOFU_ERR_TCQ_LENGTH))) {
            return entry.code;
        }
        value = (uintptr_t)entry.cbdata;
        port  = tofu_hub_poster(hub, value);
        if (port == NULL) {
            continue;
        }
        if (value & TOFU_HUB_COUNTED) {
            --port->inflight;
        }
        if (entry.code != UTOFU_SUCCESS) {
            tofu_hub_untick(hub, value);
        }
        entry.cbdata = (void *)(uintptr_t)(value & TOFU_HUB_POINTER);
        if (tofu_queue_room(&port->tcq)) {
            tofu_queue_push(&port->tcq, &entry);
        } else {
            port->broken = 1;
        }
    }
}

/* A local notice of an operation that asked for one. */
static void tofu_hub_ticket(tofu_hub_t *hub, tofu_port_t *poller,
                            tofu_hub_line_t *line,
                            struct utofu_mrq_notice *notice, int code)
{
    tofu_ticket_t ticket;
    tofu_port_t   *port;

    if ((tofu_queue_length(&line->tickets) == 0) ||
        (((tofu_ticket_t *)tofu_queue_at(&line->tickets, 0))->edata !=
         notice->edata)) {
        tofu_hub_read_tcq(hub); /* those before it may have ended there */
    }
    /* In order; what is passed over was lost by the library, and its port will
     * find that the next notice is not the one that it waits for. */
    while (tofu_queue_pop(&line->tickets, &ticket)) {
        port = tofu_hub_poster(hub, ticket.cbdata);
        if (port != NULL) {
            --port->inflight;
        }
        if (ticket.edata == notice->edata) {
            if (port != NULL) {
                notice->edata = ticket.given;
                tofu_port_notice(port, notice, code);
            }
            return;
        }
    }
    tofu_port_notice(poller, notice, code); /* fits nothing: so it will find */
}

static void tofu_hub_local(tofu_hub_t *hub, tofu_port_t *poller,
                           struct utofu_mrq_notice *notice, int code)
{
    tofu_hub_line_t *line = tofu_hub_find(hub, notice->vcq_id);
    unsigned        i;

    if (line == NULL) {
        tofu_port_notice(poller, notice, code); /* of nobody's: it will complain */
    } else if (notice->edata & TOFU_EDATA_OP) {
        tofu_hub_ticket(hub, poller, line, notice, code);
    } else {
        for (i = 1; i < TOFU_MAX_PORTS; ++i) {
            if ((line->silent & (1ull << i)) && (hub->port[i] != NULL)) {
                tofu_port_notice(hub->port[i], notice, code);
            }
        }
    }
}

static void tofu_hub_remote(tofu_hub_t *hub, tofu_port_t *poller,
                            const struct utofu_mrq_notice *notice, int code)
{
    utofu_stadd_t end = notice->rmt_stadd;
    unsigned      i, k;

    for (i = 1; i <= hub->max_ports; ++i) {
        tofu_port_t *port = hub->port[i];
        for (k = 0; (port != NULL) && (k < port->ranges); ++k) {
            if ((end > port->range[k].begin) && (end <= port->range[k].end)) {
                tofu_port_notice(port, notice, code);
                return;
            }
        }
    }
    /* For an iface that was closed, or for nobody: to whom it comes first counts and
     * drops it. */
    tofu_port_notice(poller, notice, code);
}

/* Sort what is in the MRQ, for all.  NOT_FOUND, or what is wrong with the VCQ. */
static int tofu_hub_read_mrq(tofu_port_t *poller)
{
    tofu_hub_t              *hub = poller->hub;
    struct utofu_mrq_notice notice;
    int                     code;

    for (;;) {
        code = hub->md->fn.poll_mrq(hub->vcq, 0, &notice);
        if ((code != UTOFU_SUCCESS) && ((code > UTOFU_ERR_MRQ_OTHER) ||
                                        (code < UTOFU_ERR_MRQ_RMT_LENGTH))) {
            return code;
        }
        switch (notice.notice_type) {
        case UTOFU_MRQ_TYPE_LCL_PUT:
        case UTOFU_MRQ_TYPE_LCL_GET:
        case UTOFU_MRQ_TYPE_LCL_ARMW:
            tofu_hub_local(hub, poller, &notice, code);
            break;
        default:
            tofu_hub_remote(hub, poller, &notice, code);
        }
    }
}

static int tofu_hub_poll_mrq(utofu_vcq_hdl_t vcq, unsigned long flags,
                             struct utofu_mrq_notice *notice)
{
    tofu_port_t      *port = (tofu_port_t *)vcq;
    tofu_hub_t       *hub  = port->hub;
    int              code  = UTOFU_ERR_NOT_FOUND;
    tofu_mrq_entry_t entry;

    (void)flags;
    pthread_mutex_lock(&hub->lock);
    if (tofu_queue_length(&port->mrq) == 0) {
        code = port->broken ? UTOFU_ERR_OUT_OF_MEMORY : tofu_hub_read_mrq(port);
    }
    if (tofu_queue_pop(&port->mrq, &entry)) {
        *notice = entry.notice;
        code    = entry.code;
    }
    pthread_mutex_unlock(&hub->lock);
    return code;
}

static int tofu_hub_poll_tcq(utofu_vcq_hdl_t vcq, unsigned long flags,
                             void **cbdata)
{
    tofu_port_t      *port = (tofu_port_t *)vcq;
    tofu_hub_t       *hub  = port->hub;
    int              code  = UTOFU_ERR_NOT_FOUND;
    tofu_tcq_entry_t entry;

    (void)flags;
    pthread_mutex_lock(&hub->lock);
    if (tofu_queue_length(&port->tcq) == 0) {
        code = port->broken ? UTOFU_ERR_OUT_OF_MEMORY : tofu_hub_read_tcq(hub);
    }
    if (tofu_queue_pop(&port->tcq, &entry)) {
        *cbdata = entry.cbdata;
        code    = entry.code;
    }
    pthread_mutex_unlock(&hub->lock);
    return code;
}

/* ----------------------------------------------------------------- memory */

static int tofu_hub_reg_mem_with_stag(utofu_vcq_hdl_t vcq, void *address,
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

static int tofu_hub_reg_mem(utofu_vcq_hdl_t vcq, void *address, size_t length,
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

static int tofu_hub_dereg_mem(utofu_vcq_hdl_t vcq, utofu_stadd_t stadd,
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
    if (hub->max_ports > TOFU_MAX_PORTS - 1) {
        hub->max_ports = TOFU_MAX_PORTS - 1;
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
    tofu_md_t   *md   = iface->md;
    tofu_port_t *port = tofu_hub_place(md);
    unsigned    own;

    if (port == NULL) {
        return TOFU_ERR_NO_DEVICE;
    }
    iface->shared = port;
    iface->port   = port->index;
    iface->vcq    = (utofu_vcq_hdl_t)port;
    iface->vcq_id = port->hub->vcq_id;

    iface->config.am_polled = 0; /* their answers do not tell who gives them */

    iface->fn.put               = tofu_hub_put;
    iface->fn.get               = tofu_hub_get;
    iface->fn.put_piggyback     = tofu_hub_piggyback;
    iface->fn.put_piggyback8    = tofu_hub_piggyback8;
    iface->fn.armw4             = tofu_hub_armw4;
    iface->fn.armw8             = tofu_hub_armw8;
    iface->fn.cswap4            = tofu_hub_cswap4;
    iface->fn.cswap8            = tofu_hub_cswap8;
    iface->fn.poll_mrq          = tofu_hub_poll_mrq;
    iface->fn.poll_tcq          = tofu_hub_poll_tcq;
    iface->fn.reg_mem           = tofu_hub_reg_mem;
    iface->fn.reg_mem_with_stag = tofu_hub_reg_mem_with_stag;
    iface->fn.dereg_mem         = tofu_hub_dereg_mem;

    pthread_mutex_lock(&md->lock);
    own = md->own_vcqs;
    pthread_mutex_unlock(&md->lock);
    tofu_log(atomic_exchange(&md->told_port, 1) ? 3 : 1,
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
