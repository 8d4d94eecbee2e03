# SPDX-License-Identifier: BSD-3-Clause
"""Records without a measurement: the same numbers each time, from a formula."""

import copy

SIZES = (8, 64, 512, 4096, 32768, 262144, 2097152)

HOST = {"system": "Linux 6.1", "machine": "x86_64", "cpu": "Some CPU", "cores": 2}
EMULATOR = {
    "kind": "emulator",
    "mode": "fast",
    "profile": None,
    "utofu_version": "2.1",
    "library": "libtofucom.so",
}
TIMED = {**EMULATOR, "mode": "timed", "profile": "tofud"}
MACHINE = {**EMULATOR, "kind": "tofu"}


def latency(p50):
    """Percentiles around a median, seconds."""
    factors = {"p50": 1, "p90": 1.05, "p99": 1.2, "p99.9": 2.5}
    factors.update({"mean": 1.03, "min": 0.95, "max": 30})
    return {name: p50 * factor for name, factor in factors.items()}


def record(test="put_lat", *, p50=1e-6, bandwidth=None, rate=None, **changes):
    """One good record; p50=None leaves the latency out."""
    repeats = changes.get("repeats", 3)
    value = p50 if p50 is not None else rate or bandwidth
    values = [value * (1 + 0.02 * (number % 3 - 1)) for number in range(repeats)]
    data = {
        "schema": "uct-tofu-perf/1",
        "time": "2026-01-02T03:04:05Z",
        "test": test,
        "layer": "utofu",
        "transport": "utofu",
        "backend": EMULATOR,
        "versions": {"uct_tofu": "0.1.0", "ucx": "1.22.0"},
        "host": HOST,
        "pinning": [0, 1],
        "processes": 2,
        "threads": 1,
        "layout": None,
        "size": 8,
        "window": None,
        "iterations": 1000,
        "warmup": 100,
        "repeats": repeats,
        "latency": None if p50 is None else latency(p50),
        "bandwidth": bandwidth,
        "rate": rate,
        "spread": {
            "values": values,
            "relative": (max(values) - min(values)) / sorted(values)[repeats // 2],
        },
        "counters": {},
        "params": {},
        "clock": "wall",
    }
    data.update(changes)
    return copy.deepcopy(data)


def sweep(test, start, per_byte, sizes=SIZES, **changes):
    """A ping-pong over sizes: start + size * per_byte seconds one way."""
    return [
        record(test, p50=start + size * per_byte, size=size, **changes)
        for size in sizes
    ]


def stream(test, start, per_byte, sizes=SIZES, **changes):
    """A stream over sizes."""
    result = []
    for size in sizes:
        time = max(start, size * per_byte)
        result.append(
            record(
                test,
                p50=None,
                rate=1 / time,
                bandwidth=size / time,
                size=size,
                window=16,
                **changes,
            )
        )
    return result


def threads(test, each, loss, counts=(1, 2, 4, 8), **changes):
    """Operations per second of all threads together."""
    return [
        record(
            test, p50=None, rate=each * n / (1 + loss * (n - 1)), threads=n, **changes
        )
        for n in counts
    ]


def laptop():
    """What a run on one host may leave: four layers and two peers."""
    data = []
    for mode, add in ((EMULATOR, 0), (TIMED, 0.9e-6)):
        slow = 0.03e-9 if mode is EMULATOR else 0.1575e-9
        for test in ("put_lat", "pingpong_flag"):
            more = 2 if test == "pingpong_flag" else 1
            data += sweep(test, add + 0.08e-6 * more, slow, backend=mode)
            data += sweep(
                test, add + 0.10e-6 * more, slow * 1.02, backend=mode, layer="uct"
            )
        data += sweep("tag_lat", add + 0.35e-6, slow * 1.5, backend=mode, layer="ucp")
        data += stream("put_bw", 0.05e-6 + add / 3, slow, backend=mode)
        data += stream("put_bw", 0.06e-6 + add / 3, slow, backend=mode, layer="uct")
        data += threads("gups", 8e6, 0.05, backend=mode)
        data += threads("gups", 7e6, 0.4, backend=mode, layer="ucp")
    peer = {"backend": None, "layer": "libuct", "transport": "sysv"}
    data += sweep("put_lat", 0.07e-6, 0.03e-9, **peer)
    tcp = {"backend": None, "layer": "ucp", "transport": "tcp"}
    data += sweep("tag_lat", 8e-6, 0.4e-9, **tcp)
    mpi = {"backend": None, "layer": "mpi", "transport": "mpi"}
    data += sweep("tag_lat", 0.6e-6, 0.05e-9, **mpi)
    return data


def machine():
    """What the same run may leave on the machine."""
    data = sweep("put_lat", 0.98e-6, 0.1575e-9, backend=MACHINE)
    data += sweep("put_lat", 1.05e-6, 0.16e-9, backend=MACHINE, layer="uct")
    data += stream("put_bw", 0.29e-6, 0.1575e-9, backend=MACHINE)
    return data
