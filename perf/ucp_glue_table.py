#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares tag messages of ucp_glue with those of ucxx, over the same transport.

A ping-pong between two processes that connect by socket address; ucp_glue and ucxx
take turns in each round.  "wait": progress in the calling thread until a request is
over; "await": asyncio.  Prints microseconds of half a round trip and the ratio of the
medians; the exit code is 0 when ucp_glue is at least as fast.  Without ucxx
(PyPI: ucxx-cu12, no GPU needed) it says so and prints ucp_glue alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time

BOUND = 1.0
TIMEOUT = 120


# ------------------------------------------------------------------- programs
# Each is role(size, iterations) -> seconds of all, run in a process of its own.  The
# server prints its port first.  The recv of the next round is posted before the
# send, by both libraries.
def glue_wait(is_server, port, size, warmup, iterations):
    import numpy as np

    import ucp_glue

    context = ucp_glue.Context(["tag", "wakeup"])
    worker = context.worker()
    if is_server:
        listener = worker.listen(0, "127.0.0.1")
        print(listener.port, flush=True)
        ep = listener.accept(TIMEOUT)
    else:
        ep = worker.connect(("127.0.0.1", port))
    out, back = np.ones(size, np.uint8), np.empty(size, np.uint8)
    begin = 0
    for i in range(warmup + iterations):
        if i == warmup:
            begin = time.perf_counter()
        request = worker.tag_recv(back, int(not is_server))
        if is_server:
            request.wait()
            ep.tag_send(out, 1).wait()
        else:
            ep.tag_send(out, 0).wait()
            request.wait()
    return time.perf_counter() - begin, ep.transports


async def glue_await(is_server, port, size, warmup, iterations):
    import numpy as np

    import ucp_glue

    context = ucp_glue.Context(["tag", "wakeup"])
    worker = context.worker()
    if is_server:
        listener = worker.listen(0, "127.0.0.1")
        print(listener.port, flush=True)
        ep = await listener.accept_async()
    else:
        ep = worker.connect(("127.0.0.1", port))
    out, back = np.ones(size, np.uint8), np.empty(size, np.uint8)
    begin = 0
    for i in range(warmup + iterations):
        if i == warmup:
            begin = time.perf_counter()
        request = worker.tag_recv(back, int(not is_server))
        if is_server:
            await request
            await ep.tag_send(out, 1)
        else:
            await ep.tag_send(out, 0)
            await request
    return time.perf_counter() - begin, ep.transports


def ucxx_wait(is_server, port, size, warmup, iterations):
    import numpy as np
    import ucxx._lib.libucxx as api
    from ucxx._lib.arr import Array

    context = api.UCXContext(feature_flags=(api.Feature.TAG, api.Feature.WAKEUP))
    worker = api.UCXWorker(context)
    worker.init_blocking_progress_mode()
    if is_server:
        eps = []
        listener = api.UCXListener.create(
            worker=worker,
            port=0,
            cb_func=lambda request: eps.append(
                listener.create_endpoint_from_conn_request(
                    request, endpoint_error_handling=True
                )
            ),
        )
        print(listener.port, flush=True)
        while not eps:
            worker.progress()
        ep = eps[0]
    else:
        ep = api.UCXEndpoint.create(
            worker, "127.0.0.1", port, endpoint_error_handling=True
        )
    out, back = Array(np.ones(size, np.uint8)), Array(np.empty(size, np.uint8))
    tags = [api.UCXXTag(0), api.UCXXTag(1)]

    def wait(request):
        while not request.completed:
            worker.progress()
        request.check_error()

    begin = 0
    for i in range(warmup + iterations):
        if i == warmup:
            begin = time.perf_counter()
        request = ep.tag_recv(back, tag=tags[not is_server])
        if is_server:
            wait(request)
            wait(ep.tag_send(out, tag=tags[1]))
        else:
            wait(ep.tag_send(out, tag=tags[0]))
            wait(request)
    return time.perf_counter() - begin, []


async def ucxx_await(is_server, port, size, warmup, iterations):
    import numpy as np
    import ucxx

    if is_server:
        arrived = asyncio.get_running_loop().create_future()

        async def accept(ep):
            arrived.set_result(ep)

        listener = ucxx.create_listener(accept, port=0)
        print(listener.port, flush=True)
        ep = await arrived
    else:
        ep = await ucxx.create_endpoint("127.0.0.1", port)
    out, back = np.ones(size, np.uint8), np.empty(size, np.uint8)
    begin = 0
    for i in range(warmup + iterations):
        if i == warmup:
            begin = time.perf_counter()
        if is_server:
            await ep.recv(back)
            await ep.send(out)
        else:
            await ep.send(out)
            await ep.recv(back)
    return time.perf_counter() - begin, []


PROGRAMS = {
    "ucp_glue": {"wait": glue_wait, "await": glue_await},
    "ucxx": {"wait": ucxx_wait, "await": ucxx_await},
}


def child(options):
    library, how, role, port, cpu, size, warmup, iterations = options
    if int(cpu) >= 0:
        os.sched_setaffinity(0, {int(cpu)})
    run = PROGRAMS[library][how](
        role == "server", int(port), int(size), int(warmup), int(iterations)
    )
    seconds, transports = asyncio.run(run) if asyncio.iscoroutine(run) else run
    each = seconds / int(iterations) / 2
    print(json.dumps({"seconds": each, "transports": transports}), flush=True)
    # ucxx may wait for its peer while it is torn down; the numbers are there
    sys.stdin.readline()
    os._exit(0)


# ---------------------------------------------------------------------- table
def wanted(process, fits, failure):
    """The first line that fits; UCX may log to the same stream before."""
    seen = []
    for line in process.stdout:
        if fits(line.strip()):
            return line.strip()
        seen.append(line)
    raise RuntimeError(f"{failure}: {''.join(seen)}")


def measure(python, library, how, size, iterations, env, cpus):
    """Seconds of half a round trip, and the transports if they are known."""

    def start(role, port, cpu):
        command = [python, __file__, "--child", library, how, role, str(port)]
        command += [str(cpu), str(size), str(max(iterations // 10, 100))]
        return subprocess.Popen(
            [*command, str(iterations)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    processes = [start("server", 0, cpus[0])]
    try:
        port = wanted(processes[0], str.isdigit, f"{library}: no port")
        processes.append(start("client", port, cpus[1]))
        result = json.loads(
            wanted(processes[1], lambda line: line[:1] == "{", f"{library}: no result")
        )
        for process in processes:
            process.communicate("end\n", timeout=TIMEOUT)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return result["seconds"], result["transports"]


def main():
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
    import ucp_glue
    from table_common import count_of
    from uct_tofu import perftest

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tls", default="utofu,tcp", help="UCX_TLS, with tcp")
    parser.add_argument("--size", type=int, default=8, help="bytes of a message")
    parser.add_argument("--rounds", type=count_of, default=5)
    parser.add_argument("--iterations", type=int, default=20000)
    parser.add_argument("--quick", action="store_true", help="2 short rounds")
    parser.add_argument("--ucxx-python", default=sys.executable, metavar="FILE",
                        help="a Python that has ucxx; default: this one")
    options = parser.parse_args()
    rounds = 2 if options.quick else options.rounds
    iterations = 1000 if options.quick else options.iterations
    env = ucp_glue.environment(tls=None)
    env["UCX_TLS"] = options.tls
    env["UCX_WARN_UNUSED_ENV_VARS"] = "n"
    env.setdefault("UTOFU_EMU_JOB", f"ucp_glue_table-{os.getpid()}")
    found = subprocess.run(
        [options.ucxx_python, "-c", "import ucxx; print(ucxx.__version__)"],
        env=env,
        capture_output=True,
        text=True,
    )
    libraries = {"ucp_glue": sys.executable}
    if found.returncode == 0:
        libraries["ucxx"] = options.ucxx_python
        print(f"ucxx {found.stdout.strip()}", end=", ")
    else:
        reason = (found.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"ucxx is not there to compare with ({reason})", end=", ")
    print(f"UCX_TLS={options.tls}, {options.size} B, {rounds} rounds of {iterations}")
    cpus = perftest.choose_cpus()
    ok = True
    for how in ("wait", "await"):
        samples = {library: [] for library in libraries}
        transports = []
        for number in range(rounds):
            order = list(libraries)
            for library in order if number % 2 == 0 else reversed(order):
                seconds, used = measure(
                    libraries[library],
                    library,
                    how,
                    options.size,
                    iterations if how == "wait" else max(iterations // 4, 100),
                    env,
                    cpus,
                )
                samples[library].append(seconds)
                transports = used or transports
        medians = {name: statistics.median(values) for name, values in samples.items()}
        text = ", ".join(f"{name} {value * 1e6:.2f} us"
                         for name, value in medians.items())
        if "ucxx" in medians:
            ratio = medians["ucp_glue"] / medians["ucxx"]
            holds = ratio <= BOUND
            ok = ok and holds
            text += (f", ratio {ratio:.2f} (bound <= {BOUND:.2f}: "
                     f"{'holds' if holds else 'DOES NOT HOLD'})")
        print(f"{how:>6}: {text}; lanes {' '.join(sorted(set(transports)))}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
