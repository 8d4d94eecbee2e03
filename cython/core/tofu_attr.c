/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_attr.c - what the core says about itself: performance figures, limits,
 * and the bound on notices.
 */
#include "tofu_internal.h"
#include "tofu_am.h"
#include "tofu_hub.h"

#include <stdlib.h>
#include <strings.h>

/* Seconds, and bytes per second.  The only table of such figures.  The emulator
 * has two rows: what it takes in the timed mode is the machine's time, but for
 * registration. */
enum { TOFU_PERF_TOFU, TOFU_PERF_TIMED, TOFU_PERF_FAST };

static const struct tofu_attr_perf {
    double latency, bandwidth, overhead, recv_overhead;
    double rma_overhead, rma_bandwidth; /* memory that the program brought */
    double put_bcopy_overhead, get_bcopy_overhead; /* the same, of copies */
    double am_bandwidth, am_zcopy_overhead;
    double post_overhead, rma_post_overhead; /* later, of messages; of puts and gets */
    double in_place_overhead; /* of an am_zcopy that is copied into a mapped slot */
    double reg_overhead, reg_growth;
} tofu_attr_perf[] = {
    [TOFU_PERF_TOFU] = {
        .latency       = 0.49e-6,  /* put of 8 bytes, best case: CLUSTER 2018 */
        .bandwidth     = 6.35e9,   /* plateau of one link, uTofu and IMB */
        .overhead      = 0.15e-6,  /* one post: UTF's raw output */
        .recv_overhead = 0.4e-6,   /* a message, with its steps in UCP: assumed */
        .rma_overhead  = 0.15e-6,  /* all memory is the same to a TNI */
        .rma_bandwidth = 6.35e9,
        .put_bcopy_overhead = 0.15e-6,
        .get_bcopy_overhead = 0.15e-6,
        .am_bandwidth  = 6.35e9,
        .am_zcopy_overhead = 0.3e-6, /* two posts */
        .post_overhead     = 0.3e-6, /* assumed, as are the next: those of the timed mode */
        .rma_post_overhead = 4e-6,
        .in_place_overhead = 0.3e-6, /* what it saves is registration */
        .reg_overhead  = 31e-6,    /* first registration: UTF's raw output */
        .reg_growth    = 34e-12    /* 604 us seen for 16 MiB: the same */
    },
    /* The same, but that registering is a system call.  A stream is limited by the link however
     * it is sent, and then UCP takes rendezvous; so it has to be told that its steps take
     * longer than small messages are on the link. */
    [TOFU_PERF_TIMED] = {
        .latency       = 0.49e-6,
        .bandwidth     = 6.35e9,
        .overhead      = 0.15e-6,
        .recv_overhead = 0.4e-6,   /* with it a stream of segments is limited by CPUs */
        .rma_overhead  = 0.15e-6,
        .rma_bandwidth = 6.35e9,
        .put_bcopy_overhead = 0.15e-6,
        .get_bcopy_overhead = 0.15e-6,
        .am_bandwidth  = 6.35e9,
        .am_zcopy_overhead = 0.3e-6,
        .post_overhead     = 0.3e-6, /* UCP's steps: 0.3 to 0.6 us a message */
        .rma_post_overhead = 4e-6,   /* rendezvous, as above: pays from 26 KiB */
        .in_place_overhead = 0.3e-6,
        .reg_overhead  = 3.7e-6,
        .reg_growth    = 0
    },
    [TOFU_PERF_FAST] = { /* x86-64 virtual machine, 2 cores of Zen 5 */
        .latency       = 55e-9,    /* perf/speed_table.py: put_lat 8 B */
        .bandwidth     = 70e9,     /* perf/speed_table.py: put_bw 1 MiB */
        .overhead      = 11e-9,    /* perf/speed_table.py: put_bw 8 B */
        .recv_overhead = 9e-9,     /* stream of notices read by utofu_poll_mrq */
        .rma_overhead  = 8.9e-6,   /* by the kernel, with UCP's steps: rendezvous pays from 64 KiB */
        .rma_bandwidth = 30e9,     /* the kernel's copy: perf/protocol_sweep.py */
        /* less, as a copy is faster than UCP's 7 GB/s: zcopy pays above 600 bytes, 1.5 KiB */
        .put_bcopy_overhead = 8.87e-6,
        .get_bcopy_overhead = 8.75e-6,
        .am_bandwidth  = 30e9,     /* perf/am_table.py: am_bw 8 KiB, where CPUs are near */
        .am_zcopy_overhead = 350e-9, /* header, data, a completion: protocol_sweep.py */
        .in_place_overhead = 1.05e-6, /* an am_bcopy, but for UCP's steps: the same */
        .reg_overhead  = 3.7e-6,   /* utofu_reg_mem + dereg, 4 KiB .. 16 MiB */
        .reg_growth    = 0
    }
};

/* Messages are written to memory that the receiver has read, and read from there: where a line
 * takes long from CPU to CPU, it does so several times.  Rendezvous by get takes it once, and
 * pays from 20 KiB on rather than from 64. */
#define TOFU_FAR       90e-9 /* seconds for a line */
#define TOFU_FAR_SAVES 6.3e-6

static const struct tofu_attr_perf *tofu_attr_row(const tofu_md_t *md)
{
    return &tofu_attr_perf[(md->backend->kind == TOFU_BACKEND_TOFU) ?
                                   TOFU_PERF_TOFU :
                           md->backend->timed ? TOFU_PERF_TIMED :
                                                TOFU_PERF_FAST];
}

void tofu_attr_md(const tofu_md_t *md, tofu_md_attr_t *attr)
{
    attr->backend          = md->backend;
    attr->rkey_packed_size = tofu_rkey_packed_size(md);
    attr->max_alloc        = TOFU_MAX_ZCOPY;
    attr->max_reg          = TOFU_MAX_ZCOPY;
    attr->reg_overhead     = tofu_attr_row(md)->reg_overhead;
    attr->reg_growth       = tofu_attr_row(md)->reg_growth;
}

void tofu_attr_iface(const tofu_iface_t *iface, tofu_iface_attr_t *attr)
{
    const struct tofu_attr_perf *perf = tofu_attr_row(iface->md);

    memset(attr, 0, sizeof(*attr));
    attr->max_put_short   = TOFU_MAX_SHORT;
    attr->max_put_bcopy   = iface->config.am_seg_size;
    attr->max_put_zcopy   = TOFU_MAX_ZCOPY;
    attr->put_max_iov     = TOFU_MAX_IOV;
    attr->max_get_bcopy   = iface->config.am_seg_size;
    attr->max_get_zcopy   = TOFU_MAX_ZCOPY;
    attr->get_max_iov     = TOFU_MAX_IOV;
    attr->max_am_short    = tofu_am_max_short(iface);
    attr->max_am_bcopy    = iface->config.am_seg_size;
    attr->max_am_zcopy    = iface->config.am_seg_size;
    attr->max_am_hdr      = TOFU_AM_MAX_HEADER(iface->config.am_seg_size);
    attr->am_max_iov      = TOFU_MAX_IOV;
    attr->iface_addr_len  = TOFU_ADDRESS_SIZE;
    attr->device_addr_len = TOFU_DEVICE_SIZE;
    attr->latency         = perf->latency;
    attr->latency_per_ep  = 0;
    attr->bandwidth       = perf->bandwidth;
    attr->overhead        = perf->overhead;
    attr->recv_overhead   = perf->recv_overhead;
    attr->rma_overhead    = perf->rma_overhead;
    attr->rma_bandwidth   = perf->rma_bandwidth;
    attr->put_bcopy_overhead = perf->put_bcopy_overhead;
    attr->get_bcopy_overhead = perf->get_bcopy_overhead;
    attr->am_bandwidth    = perf->am_bandwidth;
    attr->post_overhead     = perf->post_overhead;
    attr->rma_post_overhead = perf->rma_post_overhead;
    attr->am_zcopy_overhead = tofu_in_place_wanted(iface) ? perf->in_place_overhead :
                                                            perf->am_zcopy_overhead;
    if ((perf == &tofu_attr_perf[TOFU_PERF_FAST]) && (tofu_distance() > TOFU_FAR)) {
        attr->rma_overhead       -= TOFU_FAR_SAVES;
        attr->put_bcopy_overhead -= TOFU_FAR_SAVES;
        attr->get_bcopy_overhead -= TOFU_FAR_SAVES;
    }
    attr->mrq_entries     = iface->mrq_entries;
    attr->max_notices     = iface->max_notices;
}

unsigned tofu_attr_mrq_entries(void)
{
    static const struct {
        const char *name;
        long       entries;
    } sizes[] = {
        {"2Ki", 2048},     {"8Ki", 8192},     {"32Ki", 32768},
        {"128Ki", 131072}, {"512Ki", 524288}, {"2Mi", 2097152}
    };
    const char *text = getenv("UTOFU_NUM_MRQ_ENTRIES");
    long       value, best = 131072, distance, best_distance = -1;
    char       *end;
    size_t     i;

    if ((text == NULL) || (text[0] == '\0')) {
        return (unsigned)best;
    }
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        if (!strcasecmp(text, sizes[i].name)) {
            return (unsigned)sizes[i].entries;
        }
    }
    value = strtol(text, &end, 10);
    if ((end == text) || (*end != '\0')) {
        /* Not a number and not a name.  The guide says "the nearest value" of
         * what is not listed; of text there is none, so assume the least. */
        return (unsigned)sizes[0].entries;
    }
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        distance = labs(value / 2 - sizes[i].entries / 2); /* no overflow */
        if ((best_distance < 0) || (distance <= best_distance)) {
            best          = sizes[i].entries; /* of two nearest, the larger */
            best_distance = distance;
        }
    }
    return (unsigned)best;
}

/* More than the TOQ holds is of no use. */
#define TOFU_MAX_POST_BUDGET 8192u

static unsigned tofu_attr_min(unsigned a, unsigned b)
{
    return (a < b) ? a : b;
}

/*
 * What can be in the MRQ of an iface at one time:
 *   entries of the request table   one notice each, until the entry is freed,
 *                                  which happens after its notice was read
 *   small slots + large slots      one notice each, until the slot is given back,
 *                                  which happens after its notice was read
 *   tx_notified                    local notices of users' operations
 *   TOFU_INTERNAL_NOTICES          of the core's own (claims, probes)
 *   post_budget                    errors of operations without a notice, users'
 *                                  and the core's own (credit, answers), posted
 *                                  since the MRQ was last seen empty
 * Together at most mrq_entries, whatever peers do.  With the least MRQ, 2048
 * entries, and the defaults: 64 + 1024 + 512 + 256 + 16 = 1872, budget 176.
 *
 * The MRQ belongs to the CQ, not to the VCQ (2.2.1).  When other VCQs may share
 * the CQ (8 at most), each takes an eighth.  Ifaces that share a VCQ divide that.
 */
void tofu_attr_bound(tofu_iface_t *iface)
{
    tofu_iface_config_t *c   = &iface->config;
    unsigned            mine = (iface->shared != NULL) ?
                                       tofu_port_notices(iface->shared) :
                                       iface->mrq_entries /
                                               (iface->shared_vcq ? TOFU_CQ_VCQS : 1);
    unsigned            fixed, room;

    c->tx_notified = tofu_attr_min(c->tx_notified, mine / 4);
    fixed = TOFU_REQUEST_ENTRIES + c->tx_notified + TOFU_INTERNAL_NOTICES +
            mine / 16;
    room  = mine - fixed; /* at least mine * 11 / 16 - 80 > 0 for 256 entries */
    if ((uint64_t)c->rx_short_slots + c->rx_slots > room) {
        /* keep the proportion */
        uint64_t sum = (uint64_t)c->rx_short_slots + c->rx_slots;
        c->rx_slots       = (unsigned)((uint64_t)c->rx_slots * room / sum);
        c->rx_short_slots = room - c->rx_slots;
        if (c->rx_slots < TOFU_AM_MIN_WINDOW) {
            c->rx_slots       = TOFU_AM_MIN_WINDOW;
            c->rx_short_slots = room - c->rx_slots;
        } else if (c->rx_short_slots < TOFU_AM_MIN_WINDOW) {
            c->rx_short_slots = TOFU_AM_MIN_WINDOW;
            c->rx_slots       = room - c->rx_short_slots;
        }
    }
    iface->max_notices = TOFU_REQUEST_ENTRIES + c->rx_short_slots +
                         c->rx_slots + c->tx_notified + TOFU_INTERNAL_NOTICES;
    iface->post_budget = tofu_attr_min(mine - iface->max_notices,
                                       TOFU_MAX_POST_BUDGET);
    iface->max_notices += iface->post_budget;
}
