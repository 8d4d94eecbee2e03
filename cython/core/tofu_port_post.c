/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_port_post.c - posts of ifaces that share a VCQ, and tickets for what is to come
 * of them (tofu_hub.c).
 */
#include "tofu_port.h"

#define TOFU_HUB_LINES_MIN 64u

static size_t tofu_hub_slot(const tofu_hub_t *hub, utofu_vcq_id_t vcq_id)
{
    size_t i = (size_t)((vcq_id * 0x9e3779b97f4a7c15ull) >> 32);

    for (i &= hub->max_lines - 1;
         (hub->lines[i] != NULL) && (hub->lines[i]->vcq_id != vcq_id);
         i = (i + 1) & (hub->max_lines - 1)) {
    }
    return i;
}

tofu_hub_line_t *tofu_hub_find(const tofu_hub_t *hub, utofu_vcq_id_t vcq_id)
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

tofu_port_t *tofu_hub_poster(const tofu_hub_t *hub, uint64_t cbdata)
{
    unsigned index = (unsigned)(cbdata >> TOFU_HUB_PORT_SHIFT);

    return ((index < TOFU_MAX_PORTS) && (hub->port[index] != NULL) &&
            (((cbdata >> TOFU_HUB_GEN_SHIFT) & TOFU_HUB_GENS) ==
             hub->gen[index])) ?
                   hub->port[index] :
                   NULL;
}

/* What a post of a port becomes; under the lock.  A code: it can't be posted. */
static int tofu_port_before(tofu_port_t *port, utofu_vcq_id_t vcq_id,
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
    } else if ((*edata == TOFU_EDATA_USER) &&
               !(flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE)) {
        *edata = tofu_hub_silent_edata(port->index);
    }
    *cbdata = (void *)(uintptr_t)value;
    *line_p = line;
    return UTOFU_SUCCESS;
}

static void tofu_port_posted(tofu_port_t *port, tofu_hub_line_t *line,
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
#define TOFU_PORT_POST(name, ...) \
    do { \
        tofu_port_t     *port = (tofu_port_t *)vcq; \
        tofu_hub_t      *hub  = port->hub; \
        tofu_hub_line_t *line = NULL; \
        uint64_t        given = edata; \
        int             ret; \
        \
        pthread_mutex_lock(&hub->lock); \
        ret = tofu_port_before(port, rmt, flags, &line, &edata, &cbdata); \
        if (ret == UTOFU_SUCCESS) { \
            ret = hub->md->fn.name(hub->vcq, rmt, __VA_ARGS__, edata, flags, \
                                   cbdata); \
        } \
        if (ret == UTOFU_SUCCESS) { \
            tofu_port_posted(port, line, flags, given, cbdata); \
        } \
        pthread_mutex_unlock(&hub->lock); \
        return ret; \
    } while (0)

static int tofu_port_put(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                         utofu_stadd_t local, utofu_stadd_t remote,
                         size_t length, uint64_t edata, unsigned long flags,
                         void *cbdata)
{
    TOFU_PORT_POST(put, local, remote, length);
}

static int tofu_port_get(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                         utofu_stadd_t local, utofu_stadd_t remote,
                         size_t length, uint64_t edata, unsigned long flags,
                         void *cbdata)
{
    TOFU_PORT_POST(get, local, remote, length);
}

static int tofu_port_piggyback(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                               void *data, utofu_stadd_t remote, size_t length,
                               uint64_t edata, unsigned long flags, void *cbdata)
{
    TOFU_PORT_POST(put_piggyback, data, remote, length);
}

static int tofu_port_piggyback8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                                uint64_t data, utofu_stadd_t remote,
                                size_t length, uint64_t edata,
                                unsigned long flags, void *cbdata)
{
    TOFU_PORT_POST(put_piggyback8, data, remote, length);
}

static int tofu_port_armw4(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                           enum utofu_armw_op op, uint32_t value,
                           utofu_stadd_t remote, uint64_t edata,
                           unsigned long flags, void *cbdata)
{
    TOFU_PORT_POST(armw4, op, value, remote);
}

static int tofu_port_armw8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                           enum utofu_armw_op op, uint64_t value,
                           utofu_stadd_t remote, uint64_t edata,
                           unsigned long flags, void *cbdata)
{
    TOFU_PORT_POST(armw8, op, value, remote);
}

static int tofu_port_cswap4(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                            uint32_t old_value, uint32_t new_value,
                            utofu_stadd_t remote, uint64_t edata,
                            unsigned long flags, void *cbdata)
{
    TOFU_PORT_POST(cswap4, old_value, new_value, remote);
}

static int tofu_port_cswap8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t rmt,
                            uint64_t old_value, uint64_t new_value,
                            utofu_stadd_t remote, uint64_t edata,
                            unsigned long flags, void *cbdata)
{
    TOFU_PORT_POST(cswap8, old_value, new_value, remote);
}

void tofu_port_post_functions(struct tofu_functions *fn)
{
    fn->put            = tofu_port_put;
    fn->get            = tofu_port_get;
    fn->put_piggyback  = tofu_port_piggyback;
    fn->put_piggyback8 = tofu_port_piggyback8;
    fn->armw4          = tofu_port_armw4;
    fn->armw8          = tofu_port_armw8;
    fn->cswap4         = tofu_port_cswap4;
    fn->cswap8         = tofu_port_cswap8;
}
