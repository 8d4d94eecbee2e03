# SPDX-License-Identifier: BSD-3-Clause
"""What a simulation says: records in the common format, and a table."""

from __future__ import annotations

import datetime
import json
import os
import platform

from rich.box import SIMPLE_HEAD
from rich.table import Table

import uct_tofu
from uct_tofu.perf.scale.memory import MRQ_ENTRIES, mrq_bound, queues
from uct_tofu.perf.scale.network import Network
from uct_tofu.perf.scale.workloads import PROBES, SMALL_MAX, Outcome

SCHEMA = "uct-tofu-perf/1"
NS = 1e-9


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def counters(outcome: Outcome, processes_per_node: int = 1) -> dict:
    """Numbers of one receiving process; bytes and queues are those of its node.

    Parameters
    ----------
    outcome : Outcome
    processes_per_node : int
        1 to 54; others raise ``ValueError``.

    Returns
    -------
    dict of str to number

    Source: docs/scale.md, What a record says.
    """
    counts, peaks, messages = outcome.counts, outcome.peaks, outcome.messages
    seconds = outcome.time * NS
    found = {
        "senders": outcome.senders,
        "messages": messages,
        "credits": counts.get("credit", 0),
        "credits_per_message": counts.get("credit", 0) / messages,
        "control_per_message": outcome.control / messages,
        "notices": counts["notices"] + counts.get("recall", 0),
        "claims": counts["claim"],
        "claims_per_second": counts["claim"] / seconds,
        "requests": counts["request"],
        "grants": counts.get("answer_grant", 0),
        "recalls": counts.get("recall", 0),
        "released_recalled": counts.get("released_recalled", 0),
        "released_idle": counts.get("released_idle", 0),
        "probes": sum(counts.get(name, 0) for name in PROBES),
        "mrq_peak": peaks["mrq"],
        "mrq_bound": mrq_bound(),
        "mrq_entries": MRQ_ENTRIES,
        "slots_peak": peaks["slots_lent"],
        "loans_peak": peaks["loans"],
        "waiting_peak": peaks.get("parked", 0),
        "channels_peak": peaks.get("channels", 0),
        "receiver_busy": outcome.busy,
        "seconds": seconds,
    }
    for name, size in outcome.memory.items():
        found[f"bytes_{name}"] = size * processes_per_node
    found["bytes_node"] = sum(outcome.memory.values()) * processes_per_node
    found.update(queues(processes_per_node))
    return {name: round(value, 9) for name, value in found.items()}


def record(outcome: Outcome, processes_per_node: int = 1) -> dict:
    """One record of the schema uct-tofu-perf/1.

    Parameters
    ----------
    outcome : Outcome
    processes_per_node : int
        As of ``counters``.

    Source: docs/scale.md, What a record says.
    """
    case, rate = outcome.case, outcome.messages / (outcome.time * NS)
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "schema": SCHEMA,
        "time": now.isoformat(timespec="seconds"),
        "test": "scale_" + case.workload.replace("-", "_"),
        "layer": "uct",
        "transport": "utofu",
        "backend": None,
        "versions": {"uct_tofu": uct_tofu.__version__},
        "host": {
            "system": f"{platform.system()} {platform.release()}",
            "machine": platform.machine(),
            "cpu": _cpu(),
            "cores": os.cpu_count() or 1,
        },
        "pinning": None,
        "processes": case.nodes,
        "threads": 1,
        "layout": "short" if case.size <= SMALL_MAX else "bcopy",
        "size": case.size,
        "window": None,
        "iterations": case.messages,
        "warmup": 0,
        "repeats": 1,
        "latency": None,
        "bandwidth": rate * case.size,
        "rate": rate,
        "spread": {"values": [rate], "relative": 0},
        "counters": counters(outcome, processes_per_node),
        "params": {
            "nodes": case.nodes,
            "shape": list(Network(case.nodes).shape),
            "profile": case.profile,
            "handler_s": case.handler * NS,
            "processes_per_node": processes_per_node,
            "extrapolated": bool(outcome.based_on),
            "simulated_nodes": list(outcome.based_on) or [case.nodes],
        },
        "clock": "model",
    }


def dump(records) -> str:
    """The records as JSON Lines.

    Source: docs/scale.md, What a record says.
    """
    return "".join(json.dumps(one) + "\n" for one in records)


def _seconds(value: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def _number(value: float) -> str:
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if value >= factor:
            return f"{value / (1e3 if unit == 'k' else factor):.3g} {unit}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def table(workload: str, records) -> Table:
    """A table of the records of one workload, for the terminal.

    Source: docs/scale.md, What a record says.
    """
    made = Table(title=f"{workload}: one receiving process", box=SIMPLE_HEAD)
    names = ("nodes", "time", "msg/s", "cred/msg", "ctl/msg", "MRQ", "slots", "loans",
             "recalls", "claims/s", "MiB")  # fmt: skip
    for name in names:
        made.add_column(name, justify="right")
    for one in records:
        c = one["counters"]
        mark = "~" if one["params"]["extrapolated"] else ""
        made.add_row(
            f"{mark}{one['params']['nodes']:,}", _seconds(c["seconds"]),
            _number(one["rate"]), f"{c['credits_per_message']:.3f}",
            _number(c["control_per_message"]), _number(c["mrq_peak"]),
            _number(c["slots_peak"]), _number(c["loans_peak"]),
            _number(c["recalls"]), _number(c["claims_per_second"]),
            f"{c['bytes_node'] / (1 << 20):.3g}",
        )  # fmt: skip
    return made
