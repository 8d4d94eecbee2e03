# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for uct_tofu.perf.runner: takes what it is asked, and gives records.

Times are those that the published figures lead to, so that a test can tell whether
a line asks for the right thing.
"""

import types

import samples

CALLS = []


def _one_way(size, hops, layout, profile):
    if profile == "tofud:best":
        return 490e-9 if layout == "short" else 750e-9
    time = 980e-9 + 75e-9 * (hops - 1) + 0.1575e-9 * size
    if layout == "short":
        time -= 260e-9
    return time + (250e-9 if size >= 256 else 0)


def run(
    test,
    *,
    layer,
    transport="utofu",
    sizes=None,
    repeats=5,
    seconds=0.3,
    mode="fast",
    profile=None,
    threads=1,
    window=None,
    hops=1,
    layout=None,
    params=None,
    progress=None,
    cpus=None,
    iterations=None,
    warmup=None,
):
    """Records as the real runner's, without a measurement."""
    CALLS.append((test, layer, transport, mode, profile))
    tnis = (params or {}).get("tnis", 1)
    if transport != "utofu" and mode == "timed":
        raise ValueError(f"{transport} has no timed mode")
    backend = {**samples.EMULATOR} if transport == "utofu" else None
    if backend and mode == "timed":
        backend.update(mode="timed", profile=profile or "tofud")
    scale = 1 if mode == "timed" else 0.1
    byte = 0.1575e-9
    if profile and profile.endswith(".profile"):
        with open(profile) as file:
            byte = float(file.read().split("=")[1]) * 1e-9
    elif tnis > 1:
        byte *= 3  # as if the host could not copy so fast
    result = []
    for size in sizes:
        common = {
            "layer": layer,
            "transport": transport,
            "backend": backend,
            "size": size,
            "layout": layout,
            "window": window,
            "repeats": repeats,
            "threads": threads,
            "params": {"hops": hops, **(params or {})},
        }
        if test.endswith("_bw"):
            time = max(293e-9, size * byte) / tnis
            result.append(
                samples.record(
                    test, p50=None, rate=1 / time, bandwidth=size / time, **common
                )
            )
            continue
        time = {
            "get_lat": 1.345e-6 + 150e-9 * hops,
            "fadd": 1.185e-6 + 150e-9 * hops,
        }.get(test) or _one_way(size, hops, layout, profile)
        time *= {"utofu": 1, "uct": 1.05, "libuct": 1.1}.get(layer, 1.5) * scale
        if test == "pingpong_flag":
            time *= 1.2
        result.append(samples.record(test, p50=time, **common))
    return result


def module(**changes):
    """The stand-in as a module; keyword arguments take the place of its functions."""
    fake = types.ModuleType("uct_tofu.perf.runner")
    fake.run = run
    for name, value in changes.items():
        setattr(fake, name, value)
    return fake
