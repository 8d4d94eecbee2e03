/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_lane.c - several TNIs behind one iface.
 *
 * AM, atomics and whatever is small go by the iface's own VCQ.  A large put or get
 * may go by lanes: VCQs on other TNIs, opened when the first operation wants one.
 *
 *   which lane     An ep prefers one lane for its large operations: of those that
 *                  the fewest eps prefer, the first from the number of the link on
 *                  which the way to the peer begins.  So eps to different
 *                  neighbours use different TNIs.
 *   how many       As many as there are shortest ways to the peer's node that
 *                  begin with different links: a link carries as much as a TNI, so
 *                  more lanes over one link gain nothing (one neighbour: 1).
 *   which path     Lane i takes way i modulo their number, always, so that what it
 *                  sends to one VCQ stays in order (2.2.10).
 *
 * The way is: to the A, B, C of the path, then X, Y, Z, then the A, B, C of the node
 * (2.4).  Each axis of A, B, C that differs may be the first leg (those before it
 * are left to the end); or X, Y, Z begin, when all of A, B, C are left to the end.
 */
#include "tofu_internal.h"

#include <stdlib.h>

#define TOFU_MAX_LINKS 4u /* A, B, C, or the first of X, Y, Z */
#define TOFU_NODE_LINKS 10u

/* The ways to the node of vcq_id: A, B, C of the path of each.  The first is the
 * default path.  *link_p: the number of its first link, 0 for the own node. */
static unsigned tofu_lane_ways(tofu_md_t *md, utofu_vcq_id_t vcq_id,
                               uint8_t path[TOFU_MAX_LINKS][3],
                               unsigned *link_p)
{
    const uint8_t  *here = md->coords;
    uint8_t        there[6];
    utofu_tni_id_t tni;
    utofu_cq_id_t  cq;
    uint16_t       extra;
    unsigned       count = 0, axis, i;

    *link_p = 0;
    memset(path, 0, TOFU_MAX_LINKS * 3);
    if (md->fn.query_vcq_info(vcq_id, there, &tni, &cq, &extra) !=
        UTOFU_SUCCESS) {
        return 1;
    }
    for (axis = 3; axis < 6; ++axis) {
        if (here[axis] == there[axis]) {
            continue;
        }
        for (i = 3; i < 6; ++i) {
            path[count][i - 3] = (i < axis) ? here[i] : there[i];
        }
        *link_p = (count == 0) ? axis * 2 - 1 + (there[axis] > here[axis]) :
                                 *link_p;
        ++count;
    }
    for (axis = 0; (axis < 3) && (here[axis] == there[axis]); ++axis) {
    }
    if (axis < 3) {
        *link_p = (count == 0) ? axis * 2 + (there[axis] > here[axis]) : *link_p;
        memcpy(path[count++], here + 3, 3);
    }
    *link_p %= TOFU_NODE_LINKS;
    return (count > 0) ? count : 1;
}

unsigned tofu_lane_links(tofu_md_t *md, utofu_vcq_id_t vcq_id)
{
    uint8_t  path[TOFU_MAX_LINKS][3];
    unsigned link;

    return tofu_lane_ways(md, vcq_id, path, &link);
}

utofu_vcq_id_t tofu_lane_path(tofu_iface_t *lane, utofu_vcq_id_t vcq_id)
{
    uint8_t        path[TOFU_MAX_LINKS][3];
    utofu_vcq_id_t id = vcq_id;
    unsigned       link, ways;

    ways = tofu_lane_ways(lane->md, vcq_id, path, &link);
    if ((lane->lane_index % ways == 0) ||
        (lane->fn.set_vcq_id_path(&id, path[lane->lane_index % ways]) !=
         UTOFU_SUCCESS)) {
        return vcq_id;
    }
    return id;
}

void tofu_lane_choose(tofu_ep_t *ep)
{
    tofu_iface_t *iface = ep->iface;
    unsigned     n      = (iface->shared != NULL) ? 1 : iface->md->num_tnis;
    unsigned     best   = 0, start, i;
    uint8_t      path[TOFU_MAX_LINKS][3];

    if (n > 1) {
        tofu_lane_ways(iface->md, ep->peer->vcq_id, path, &start);
        best = start % n;
        for (i = 1; i < n; ++i) {
            if (iface->lane_eps[(start + i) % n] < iface->lane_eps[best]) {
                best = (start + i) % n;
            }
        }
    }
    ep->lane = (uint8_t)best;
    ++iface->lane_eps[best];
}

void tofu_lane_release(tofu_ep_t *ep)
{
    --ep->iface->lane_eps[ep->lane];
}

static tofu_iface_t *tofu_lane_open(tofu_iface_t *iface, unsigned index)
{
    tofu_md_t    *md   = iface->md;
    tofu_iface_t *lane = tofu_iface_new(md, &iface->config);
    unsigned     base;

    if (lane == NULL) {
        return NULL;
    }
    lane->owner      = iface;
    lane->lane[0]    = NULL;
    lane->lane_index = (uint8_t)index;
    lane->am         = iface->am;
    /* of those on which the process shares a CQ */
    base             = (iface->first_tni < md->num_tnis) ? iface->first_tni : 0;
    lane->first_tni  = (base + index) % md->num_tnis;
    if (tofu_iface_open_vcq(lane, 1) != TOFU_OK) {
        goto err_free;
    }
    if (tofu_iface_set_limits(lane) != TOFU_OK) {
        tofu_iface_free_vcq(lane);
        goto err_free;
    }
    return lane;

err_free:
    tofu_log(2, "iface of VCQ %#llx: no VCQ is left on TNI %u; large transfers "
             "go by fewer TNIs", (unsigned long long)iface->vcq_id,
             md->tnis[lane->first_tni]);
    free(lane);
    return NULL;
}

tofu_iface_t *tofu_lane_get(tofu_iface_t *iface, unsigned index)
{
    if (TOFU_UNLIKELY((iface->lane[index] == NULL) &&
                      !(iface->no_lane & (1u << index)))) {
        iface->lane[index] = tofu_lane_open(iface, index);
        if (iface->lane[index] == NULL) {
            iface->no_lane |= (uint8_t)(1u << index);
        }
    }
    return iface->lane[index];
}

int tofu_lanes_room(const tofu_iface_t *iface)
{
    unsigned i;

    for (i = 0; i < TOFU_MAX_TNIS; ++i) {
        if ((iface->lane[i] != NULL) && !tofu_op_room(iface->lane[i], 1)) {
            return 0;
        }
    }
    return 1;
}

void tofu_lanes_close(tofu_iface_t *iface)
{
    tofu_iface_t *lane;
    unsigned     i;

    for (i = 1; i < TOFU_MAX_TNIS; ++i) {
        lane = iface->lane[i];
        if (lane == NULL) {
            continue;
        }
        tofu_ops_cancel(lane);
        tofu_iface_delist(lane);
        tofu_iface_free_vcq(lane);
        tofu_peers_free(lane);
        tofu_ops_free(lane);
        free(lane->kept.data);
        free(lane->dereg);
        free(lane);
        iface->lane[i] = NULL;
    }
}
