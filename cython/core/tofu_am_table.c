/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_am_table.c - the request table: entries that senders claim and write requests to,
 * and what becomes of those whose sender died.
 */
#include "tofu_internal.h"
#include "tofu_am.h"

void tofu_am_entry_free(tofu_am_t *am, uint32_t entry)
{
    tofu_job_t *job = &am->job[entry];

    if (job->type != 0) {
        job->type = 0;
        tofu_list_del(&job->link);
    }
    am->claim_seen[entry]    = 0;
    am->claim_settled[entry] = 0;
    am->claim_probed[entry]  = 0;
    /* an atomic instruction, not a store: only those are atomic against the
     * compare-and-swap of others (2.2.5) */
    atomic_exchange_explicit(&am->table[entry].claim, 0, memory_order_release);
}

/* A sender has one request at a time.  What it claimed before this one was left by
 * who had its VCQ before and died, or by itself when it gave up a channel.  But not
 * every other claim is older: this may be the request of who died. */
static void tofu_am_free_older(tofu_am_t *am, uint64_t claim, uint32_t entry)
{
    uint32_t i;

    for (i = 0; i < TOFU_REQUEST_ENTRIES; ++i) {
        if ((i != entry) &&
            ((am->job[i].type != 0) || am->claim_settled[i]) &&
            (atomic_load_explicit(&am->table[i].claim, memory_order_relaxed) ==
             claim)) {
            tofu_am_entry_free(am, i);
        }
    }
}

void tofu_am_request(tofu_iface_t *iface, const struct utofu_mrq_notice *notice)
{
    tofu_am_t     *am    = iface->am;
    uint64_t      offset = notice->rmt_stadd - am->table_stadd;
    uint64_t      entry  = offset / sizeof(tofu_entry_t);
    tofu_entry_t  *e;
    tofu_job_t    *job;
    tofu_peer_t   *peer;
    utofu_stadd_t mailbox;
    uint64_t      claim, magic, who, vcq_id, asked;
    unsigned      type, port;

    if ((entry >= TOFU_REQUEST_ENTRIES) ||
        (offset % sizeof(tofu_entry_t) !=
         offsetof(tofu_entry_t, magic) + TOFU_REQUEST_BYTES)) {
        goto drop;
    }
    e = &am->table[entry];
    claim = atomic_load_explicit(&e->claim, memory_order_acquire);
    magic = e->magic;
    who   = e->who;
    port  = (unsigned)(who >> TOFU_WHO_PORT_SHIFT);
    if (claim != tofu_claim(notice->vcq_id, port)) {
        goto drop; /* the entry is another's: leave it to him */
    }
    vcq_id = e->vcq_id;
    asked  = e->check ^ magic ^ who ^ vcq_id; /* whom: his incarnation */
    type   = (unsigned)(magic & 0xffffu);
    if ((((magic >> 16) & 0xffffu) != TOFU_REQUEST_MAGIC) || (vcq_id != notice->vcq_id) ||
        (asked > UINT32_MAX) ||
        ((type != TOFU_REQUEST_GRANT) && (type != TOFU_REQUEST_RELEASE)) ||
        ((type == TOFU_REQUEST_GRANT) != (entry < TOFU_GRANT_ENTRIES)) ||
        ((who & 0xffff) == 0) || (port >= TOFU_MAX_PORTS) ||
        (tofu_peer_get(iface, vcq_id, port, &peer) != TOFU_OK) ||
        (tofu_mailbox_stadd(iface, vcq_id, port,
                            (uint32_t)(who >> 32) & TOFU_WHO_MAILBOX,
                            &mailbox) != TOFU_OK)) {
        tofu_am_entry_free(am, (uint32_t)entry);
        goto drop;
    }
    ++iface->stats.credit_rx;
    tofu_am_free_older(am, claim, (uint32_t)entry);
    job = &am->job[entry];
    if (job->type != 0) { /* its predecessor on that VCQ died in the queue */
        tofu_list_del(&job->link);
    }
    job->type    = (uint8_t)((asked == am->incarnation) ? type :
                                                          TOFU_REQUEST_STALE);
    job->nonce   = (uint32_t)who;
    job->incarnation = (uint32_t)(magic >> 32);
    job->peer    = peer;
    job->mailbox = mailbox;
    tofu_list_add(&am->jobs, &job->link);
    am->short_of_slots = 0;
    iface->work       |= TOFU_WORK_AM;
    return;

drop:
    tofu_iface_drop(iface, TOFU_LOGGED_REQUEST,
                    "a request for slots that is not in order",
                    notice->vcq_id);
}

void tofu_am_keep_identity(tofu_am_t *am)
{
    _Atomic uint64_t *word = &am->table[0].identity;
    uint64_t         mine  = tofu_identity(am->incarnation);

    if (TOFU_UNLIKELY(atomic_load_explicit(word, memory_order_relaxed) !=
                      mine)) {
        /* an atomic instruction, as in tofu_am_entry_free */
        atomic_exchange_explicit(word, mine, memory_order_release);
    }
}

/* Who wrote a claim; NULL: nobody that could be. */
static tofu_peer_t *tofu_am_claimant(tofu_iface_t *iface, uint64_t claim)
{
    tofu_peer_t *peer;
    unsigned    port;

    for (port = 0; port < TOFU_MAX_PORTS; ++port) {
        peer = tofu_peer_find(iface, tofu_claim_vcq(claim, port), port);
        if (peer != NULL) {
            return peer;
        }
    }
    /* Of what is no VCQ ID the library says so. */
    for (port = 0; port < TOFU_MAX_PORTS; ++port) {
        utofu_vcq_id_t vcq_id = tofu_claim_vcq(claim, port);
        utofu_stadd_t  stadd;

        if (tofu_peer_stadd(iface, vcq_id, port, TOFU_STAG_SCRATCH, &stadd) ==
            UTOFU_SUCCESS) {
            return (tofu_peer_get(iface, vcq_id, port, &peer) == TOFU_OK) ? peer :
                                                                           NULL;
        }
    }
    return NULL;
}

void tofu_am_check_claims(tofu_am_t *am, int mrq_empty)
{
    tofu_iface_t *iface = am->iface;
    tofu_peer_t  *peer;
    uint64_t     claim;
    uint32_t     i;

    for (i = 0; i < TOFU_REQUEST_ENTRIES; ++i) {
        claim = atomic_load_explicit(&am->table[i].claim, memory_order_relaxed);
        if ((claim == 0) || (claim != am->claim_seen[i])) {
            am->claim_seen[i]     = claim;
            am->claim_settled[i]  = 0;
            am->claim_since_ms[i] = iface->now_ms;
            continue;
        }
        am->claim_settled[i] |= (mrq_empty != 0);
        if (iface->now_ms - am->claim_since_ms[i] < TOFU_AM_PROBE_MS) {
            continue;
        }
        am->claim_since_ms[i] = iface->now_ms;
        peer = tofu_am_claimant(iface, claim);
        if (peer == NULL) {
            tofu_am_entry_free(am, i); /* not a VCQ ID: garbage was written here */
            tofu_iface_drop(iface, TOFU_LOGGED_REQUEST,
                            "a request for slots that is not in order", claim);
        } else {
            am->claim_probed[i] =
                    !peer->probing &&
                    (tofu_am_probe(peer, peer->scratch, 0, i, 1) == TOFU_OK);
        }
    }
}
