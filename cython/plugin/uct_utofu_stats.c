/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters of an interface in words, for UCX_UTOFU_STATS.
 *
 * UCX shows objects of transports in a file system of its own (ucs_vfs), but only
 * where FUSE and its daemon are there; a line at the end works everywhere.
 */
#include "uct_utofu.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

void uct_utofu_stats_print(tofu_iface_t *iface)
{
    tofu_iface_stats_t stats;

    tofu_iface_get_stats(iface, &stats);
    fprintf(stderr,
            "utofu: process %d: messages %" PRIu64 " sent %" PRIu64
            " received, credit messages %" PRIu64 " sent %" PRIu64
            " received, notices %" PRIu64 " (at most %" PRIu64
            " in one poll), polls %" PRIu64 ", operations %" PRIu64
            ", send completions %" PRIu64 ", dropped %" PRIu64
            ", VCQs %" PRIu64 ", kept in place %" PRIu64
            ", received without a notice %" PRIu64
            ", packed in place %" PRIu64 "\n",
            (int)getpid(), stats.am_tx, stats.am_rx, stats.credit_tx,
            stats.credit_rx, stats.notices, stats.mrq_peak, stats.polls,
            stats.posts, stats.tcq_entries, stats.dropped, stats.vcqs,
            stats.am_kept, stats.am_polled, stats.am_in_place);
}
