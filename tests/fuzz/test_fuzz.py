# SPDX-License-Identifier: BSD-3-Clause
"""Random calls, lying shared memory and racing threads, under sanitizers.

All of it is seeded; a failure prints the command that repeats it.  In a usual test
run each test takes a few fixed seeds.  For a long run with new ones:

    python -m pytest tests/fuzz --fuzz-seconds=600

What is checked: every return value is a code of utofu.h; a call with an argument
that can't be right does not succeed; guard zones around memory and read-only memory
never change; no sanitizer has anything to say; and after all of it a correct program
still works, in and between all processes that are left.
"""

import os
import re
import shutil
import subprocess
import time

import pytest

API = ("fuzz_main.c", "fuzz_world.c", "fuzz_calls.c")

#: What the library can be told to be, beside its plain self.
MODES = {
    "plain": {},
    "strict": {"UTOFU_EMU_STRICT": "1"},
    "timed": {"UTOFU_EMU_TIMING": "tofud"},
    "stats": {"UTOFU_EMU_STATS": "json:/dev/null"},
}

#: Calls of a run: in timed mode each one takes its time.
CALLS = {"plain": 30000, "strict": 30000, "timed": 1500, "stats": 30000}

BARRIER = (
    "query_barrier_caps alloc_vbg free_vbg set_vbg query_vbg_info barrier "
    "reduce_uint64 reduce_double poll_barrier poll_reduce_uint64 poll_reduce_double"
).split()
#: Random circuits seldom complete a reduction, random reads seldom find notices.
SELDOM = {"utofu_poll_barrier", "utofu_poll_reduce_uint64", "utofu_poll_reduce_double"}


def run(program, *args, timeout=100, **extra):
    """Output of a program in a job of its own; fails on anything unexpected."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("UTOFU_")}
    env["UTOFU_EMU_JOB"] = f"fuzz-{os.getpid()}-{time.monotonic_ns()}"
    # processes that are killed leak by nature; a report ends the process
    env["ASAN_OPTIONS"] = "detect_leaks=0"
    env["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
    env["TSAN_OPTIONS"] = "exitcode=66:second_deadlock_stack=1"
    env.update(extra)
    command = [str(program), *map(str, args)]
    how = " ".join([*(f"{k}={v}" for k, v in extra.items()), *command])
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=timeout
    )
    if "unexpected memory mapping" in done.stderr and shutil.which("setarch"):
        # TSan and an address space that is randomised more than it knows
        done = subprocess.run(
            ["setarch", "-R", *command],
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    text = done.stdout + done.stderr
    assert done.returncode == 0, f"{how}\nreturned {done.returncode}\n{text[-8000:]}"
    assert "runtime error" not in text and "WARNING: ThreadSan" not in text, text
    return done.stdout


def seeds(fixed, seconds, share):
    """The fixed seeds, and then new ones until this test's share of time is over."""
    until = time.monotonic() + (seconds or 0) * share
    yield from fixed
    seed = time.time_ns() % 10**9
    while seconds is not None and time.monotonic() < until:
        yield seed
        seed += 1


def test_every_function_alone(asan, fuzz_seconds):
    """One process that calls everything, towards itself."""
    program = asan.program("fuzz_api", *API)
    succeeded = {}
    for seed in seeds([1, 2, 3, 4], fuzz_seconds, 0.15):
        out = run(program, seed, 50000)
        for name, count in re.findall(r"^  (utofu_\w+) (\d+)$", out, re.MULTILINE):
            succeeded[name] = succeeded.get(name, 0) + int(count)
    assert len(succeeded) == 65
    if "barrier 0" in out:  # not in this library
        missing = {f"utofu_{name}" for name in BARRIER}
    else:
        missing = set()
    never = {n for n, count in succeeded.items() if not count} - SELDOM - missing
    assert not never, "calls that never had right arguments test little"


@pytest.mark.parametrize("mode", [m for m in MODES if m != "plain"])
def test_modes_alone(asan, fuzz_seconds, mode):
    program = asan.program("fuzz_api", *API)
    for seed in seeds([5, 6], fuzz_seconds, 0.08):
        run(program, seed, CALLS[mode], UTOFU_EMU_SEED=str(seed), **MODES[mode])


@pytest.mark.parametrize("mode", MODES)
def test_nothing_from_nowhere(asan, mode):
    """Operations of length 0, with no data at all."""
    program = asan.program("fuzz_zero", "fuzz_zero.c")
    assert int(re.search(r"posted (\d+)", run(program, **MODES[mode]))[1]) > 0


@pytest.mark.parametrize("mode", MODES)
def test_group(asan, fuzz_seconds, mode):
    """Three processes towards each other; one is stopped, one killed, repeatedly."""
    program = asan.program("fuzz_api", *API)
    kills = stops = 0
    for seed in seeds([7] if mode == "timed" else [7, 8], fuzz_seconds, 0.1):
        out = run(
            program, seed, CALLS[mode], 3, UTOFU_EMU_SEED=str(seed), **MODES[mode]
        )
        kills += int(re.search(r"kills (\d+)", out)[1])
        stops += int(re.search(r"stops (\d+)", out)[1])
    assert stops > 0
    assert kills > 0 or mode != "plain"


def test_lying_segment(asan, fuzz_seconds):
    """A peer's process segment is overwritten at random while others use it."""
    program = asan.program("fuzz_hostile", "fuzz_hostile.c")
    for seed in seeds([1, 3, 5], fuzz_seconds, 0.15):
        out = run(program, seed, 40)
        assert int(re.search(r"writes (\d+)", out)[1]) > 50


@pytest.mark.parametrize("mode", MODES)
def test_threads(tsan, fuzz_seconds, mode):
    """Threads in every combination that the guide allows: no data race, no loss."""
    program = tsan.program("fuzz_threads", "fuzz_threads.c")
    rounds = 200 if mode == "plain" else 50
    for _ in seeds([None], fuzz_seconds, 0.05):
        out = run(program, rounds, **MODES[mode])
        assert int(re.search(r"posted (\d+)", out)[1]) > 5 * rounds
