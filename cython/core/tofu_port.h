/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_port.h - the inside of VCQs that ifaces share: hubs, their ports, and what is in
 * flight.  Who reads it: tofu_hub.c (places and memory), tofu_port_post.c,
 * tofu_port_poll.c.
 */
#ifndef TOFU_PORT_H
#define TOFU_PORT_H

#include "tofu_internal.h"

#pragma GCC visibility push(hidden)

/* Callback data as the library sees it. */
#define TOFU_HUB_PORT_SHIFT 56 /* index of the port */
#define TOFU_HUB_COUNTED    (1ull << 55) /* a TCQ entry was asked for */
#define TOFU_HUB_GEN_SHIFT  48
#define TOFU_HUB_GENS       0x7fu
#define TOFU_HUB_POINTER    ((1ull << TOFU_HUB_GEN_SHIFT) - 1)

/*
 * EDATA, as the library sees it, of what a user posts without any notice: it comes back in an
 * error only, and says whose it was.  Taken from what the core does not use (tofu_internal.h):
 * AM ids of requests, from 1, and what is silent for no reason known.
 */
#define TOFU_HUB_SILENT_PORTS 60u /* the most that can be named */
static inline uint64_t tofu_hub_silent_edata(unsigned port)
{
    return (port < 32) ? TOFU_EDATA(TOFU_KIND_REQUEST, port) :
                         TOFU_EDATA(TOFU_KIND_SILENT, port - 29);
}

/* 0: it names none */
static inline unsigned tofu_hub_silent_port(uint64_t edata)
{
    if ((edata > TOFU_EDATA(TOFU_KIND_REQUEST, 0)) &&
        (edata < TOFU_EDATA(TOFU_KIND_SILENT, 0))) {
        return (unsigned)edata - TOFU_EDATA(TOFU_KIND_REQUEST, 0);
    }
    return ((edata >= TOFU_EDATA(TOFU_KIND_SILENT, 3)) && (edata < TOFU_EDATA_OP)) ?
                   (unsigned)edata - TOFU_EDATA(TOFU_KIND_SILENT, 0) + 29 :
                   0;
}

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

typedef struct tofu_tcq_entry {
    void *cbdata;
    int  code;
} tofu_tcq_entry_t;

/* tofu_port_post.c */

/* The functions that post, of an iface with a port; called with the port as VCQ. */
void tofu_port_post_functions(struct tofu_functions *fn);
/* What was posted to that VCQ; NULL: nothing yet.  Under the lock. */
tofu_hub_line_t *tofu_hub_find(const tofu_hub_t *hub, utofu_vcq_id_t vcq_id);
/* The port that callback data names, if it is still the one that posted.  Under the
 * lock. */
tofu_port_t *tofu_hub_poster(const tofu_hub_t *hub, uint64_t cbdata);

/* tofu_port_poll.c */

/* The functions that poll, likewise. */
void tofu_port_poll_functions(struct tofu_functions *fn);
/* Sort what is in the TCQ, or MRQ, for all; under the lock.  NOT_FOUND, or what is
 * wrong with the VCQ.  poller: gets what is nobody's. */
int tofu_hub_read_tcq(tofu_hub_t *hub);
int tofu_hub_read_mrq(tofu_port_t *poller);

#pragma GCC visibility pop

#endif /* TOFU_PORT_H */
