/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_hub.h - ifaces that share a VCQ.
 */
#ifndef TOFU_HUB_H
#define TOFU_HUB_H

#include "tofu_internal.h"

#pragma GCC visibility push(hidden)

#define TOFU_HUB_RESERVE 32u /* of so many VCQs on shared CQs one is put aside */

/* An iface has got a VCQ on a shared CQ: put aside one now and then, for ifaces to
 * share that find none.  Any thread. */
void tofu_hub_reserve(tofu_md_t *md);
/* It has given it back.  What was put aside stays so while the md is open. */
void tofu_hub_unreserve(tofu_md_t *md);
/* Give the iface, which has no VCQ, a part of one: vcq, vcq_id, port, fn.
 * NO_DEVICE: all places are taken. */
tofu_status_t tofu_hub_join(tofu_iface_t *iface);
/* The counterpart.  Waits, a second at most, for what is in flight. */
void tofu_hub_leave(tofu_iface_t *iface);
/* The most that may be in the MRQ on behalf of the port. */
unsigned tofu_port_notices(const tofu_port_t *port);
/* Is it the VCQ with which the md's memory is registered anyway? */
int tofu_port_of_md(const tofu_port_t *port);
/* Before the md's VCQ is freed; no iface is left. */
void tofu_hubs_close(tofu_md_t *md);

#pragma GCC visibility pop

#endif /* TOFU_HUB_H */
