/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_port_poll.c - what the library tells of a VCQ that ifaces share, sorted by port
 * (tofu_hub.c).
 */
#include "tofu_notice.h"
#include "tofu_port.h"

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

int tofu_hub_read_tcq(tofu_hub_t *hub)
{
    tofu_tcq_entry_t entry;
    tofu_port_t      *port;
    uint64_t         value;

    for (;;) {
        entry.code = hub->md->fn.poll_tcq(hub->vcq, 0, &entry.cbdata);
        if (!tofu_is_tcq_result(entry.code)) {
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
    unsigned        i     = tofu_hub_silent_port(notice->edata);

    if (line == NULL) {
        tofu_port_notice(poller, notice, code); /* of nobody's: it will complain */
        return;
    }
    if (notice->edata & TOFU_EDATA_OP) {
        tofu_hub_ticket(hub, poller, line, notice, code);
        return;
    }
    if (i != 0) {
        notice->edata = TOFU_EDATA_USER;
    }
    if ((i != 0) && (code != UTOFU_ERR_MRQ_PEER)) {
        if ((i < TOFU_MAX_PORTS) && (hub->port[i] != NULL)) {
            tofu_port_notice(hub->port[i], notice, code);
        }
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

int tofu_hub_read_mrq(tofu_port_t *poller)
{
    tofu_hub_t              *hub = poller->hub;
    struct utofu_mrq_notice notice;
    int                     code;

    for (;;) {
        code = hub->md->fn.poll_mrq(hub->vcq, 0, &notice);
        if (!tofu_is_mrq_result(code)) {
            return code;
        }
        if (tofu_is_local_notice(&notice)) {
            tofu_hub_local(hub, poller, &notice, code);
        } else {
            tofu_hub_remote(hub, poller, &notice, code);
        }
    }
}

static int tofu_port_poll_mrq(utofu_vcq_hdl_t vcq, unsigned long flags,
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

static int tofu_port_poll_tcq(utofu_vcq_hdl_t vcq, unsigned long flags,
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

void tofu_port_poll_functions(struct tofu_functions *fn)
{
    fn->poll_mrq = tofu_port_poll_mrq;
    fn->poll_tcq = tofu_port_poll_tcq;
}
