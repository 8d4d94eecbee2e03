# SPDX-License-Identifier: BSD-3-Clause
"""Bytes, VCQs and CQs of a process and of a node: the numbers of the core."""

from __future__ import annotations

from uct_tofu.model.sizes import CONSTANTS

SMALL_SLOT = 320  # bytes
SLOT_HEADER = 16
SLOT_ALIGN = 256
TABLE_ENTRY = 64
MAILBOX = 64
MAILBOX_SEGMENT = 1024  # mailboxes that are added at a time
PAGE = 4096
# Upper bounds of structures of the core; tests/perf/test_scale_core.py asks it.
PEER = 128
HASH_ENTRY = 32  # of a peer, in a table that is a quarter full or more
ENDPOINT = 256
CHANNEL = 264
LOAN = 208
CONFIG = {  # defaults of tofu_iface_config_t
    "am_seg_size": 8256,
    "rx_slots": 512,
    "rx_short_slots": 1024,
    "tx_bounce": 128,
    "tx_notified": 256,
}
MRQ_ENTRIES = 131072  # UTOFU_NUM_MRQ_ENTRIES by default
MAX_POST_BUDGET = 8192  # TOFU_MAX_POST_BUDGET
TNIS, CQS_PER_TNI = 6, 9


def _round(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def receive_bytes() -> int:
    """Bytes of the slots and the request table of one iface.

    Source: cython/core/tofu_am.c, tofu_am_open.
    """
    large = _round(SLOT_HEADER + CONFIG["am_seg_size"], SLOT_ALIGN)
    slots = (
        _round(CONFIG["rx_short_slots"] * SMALL_SLOT, SLOT_ALIGN)
        + CONFIG["rx_slots"] * large
    )
    table = CONSTANTS["TOFU_REQUEST_ENTRIES"] * TABLE_ENTRY
    return _round(slots, PAGE) + _round(table, PAGE)


def mrq_bound() -> int:
    """Notices that can be in the MRQ of an iface at one time.

    Source: cython/core/tofu_attr.c, tofu_attr_bound.
    """
    fixed = (
        CONSTANTS["TOFU_REQUEST_ENTRIES"]
        + CONFIG["rx_short_slots"]
        + CONFIG["rx_slots"]
        + CONFIG["tx_notified"]
        + CONSTANTS["TOFU_INTERNAL_NOTICES"]
    )
    return fixed + min(MRQ_ENTRIES - fixed, MAX_POST_BUDGET)


def process_bytes(endpoints: int, sent_to: int, known: int, open_: int, loans: int):
    """What one process with one iface needs for active messages, by part.

    Parameters
    ----------
    endpoints : int
        That it has.
    sent_to, known : int
        Peers that it ever sent to, and all that it knows: those that sent to it, too.
    open_, loans : int
        Channels that hold or want slots, and senders that it lends slots, at a time.

    Returns
    -------
    dict of str to int
        bytes; those of structures are upper bounds.

    Source: docs/active-messages.md, Memory.
    """
    segments = -(-open_ // MAILBOX_SEGMENT)
    return {
        "receive": receive_bytes(),
        "bounce": CONFIG["tx_bounce"] * _round(CONFIG["am_seg_size"], PAGE),
        "mailboxes": segments * MAILBOX_SEGMENT * MAILBOX,
        "peers": known * (PEER + HASH_ENTRY),
        "endpoints": endpoints * ENDPOINT,
        "channels": sent_to * CHANNEL,
        "loans": loans * LOAN,
    }


def queues(processes_per_node: int) -> dict:
    """VCQs and CQs that the processes of a node take, each with one iface.

    Parameters
    ----------
    processes_per_node : int
        1 to 54; others raise ``ValueError``: a CQ is one process's.

    Returns
    -------
    dict of str to int
        ``vcqs`` and ``cqs`` with small messages only, ``vcqs_most`` and ``cqs_most``
        when large blocks go over all TNIs that the process may use; ``iface_cq``: 1
        when the iface has a CQ of its own.  Of 432 VCQs and 54 CQs of a node.

    Source: cython/core/tofu_md.c, tofu_md_share_cqs.
    """
    most = TNIS * CQS_PER_TNI
    if not 1 <= processes_per_node <= most:
        raise ValueError(
            f"a node has CQs for 1 to {most} processes, not {processes_per_node}"
        )
    share = most // processes_per_node
    tnis = min(TNIS, max(1, share - 1))
    own = share > tnis
    # the domain and the iface; then a rail and a lane on each further TNI
    return {
        "vcqs": 2 * processes_per_node,
        "vcqs_most": 2 * tnis * processes_per_node,
        "cqs": (1 + own) * processes_per_node,
        "cqs_most": (tnis + own) * processes_per_node,
        "iface_cq": int(own),
    }
