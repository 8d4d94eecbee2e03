# SPDX-License-Identifier: BSD-3-Clause
"""Data through stock UCP on this transport alone, checked byte by byte."""
import re

import pytest

from plugin_support import SOURCE

PROGRAM = SOURCE.parent / "tests" / "plugin" / "c" / "ucp_check.c"


@pytest.fixture
def check(build, run, env):
    def function(mode, timeout=90, **variables):
        process = run([build(PROGRAM, libs=("ucp", "ucs")), mode],
                      {**env, "UCX_TLS": "utofu", **variables}, timeout)
        assert process.out.endswith("ok\n"), str(process)
        assert not re.search(r"ERROR|WARN (?!.* transport 'utofu' is not available)",
                             process.out + process.err), str(process)
        return process

    return function


def test_content(check):
    check("none")


def test_content_with_error_handling(check):
    """Also with many questions whether the peer is there in between."""
    process = check("peer", UCX_KEEPALIVE_INTERVAL="50ms", UCX_LOG_LEVEL="diag")
    assert "keepalive failed" not in process.out + process.err


def test_peer_killed(check):
    """An endpoint that is idle learns of it by UCP's keepalive."""
    check("killed", UCX_KEEPALIVE_INTERVAL="100ms")


@pytest.mark.parametrize("what", ["rndv", "put", "get", "am"])
def test_peer_killed_at_work(build, run, env, what):
    """In the middle of large operations, beside a peer that stays."""
    program = build(PROGRAM.with_name("ucp_killed.c"), libs=("ucp", "ucs"))
    process = run([program, what], {**env, "UCX_TLS": "utofu",
                                    "UCX_KEEPALIVE_INTERVAL": "200ms"}, 150)
    assert process.out.endswith("ok\n"), str(process)


def test_lanes_with_error_handling(check):
    """Endpoints that handle errors send large messages without copies too."""
    text = check("peer", UCX_PROTO_INFO="y").out
    rows = [line for line in text.splitlines() if "zero-copy" in line]
    assert any("rendezvous" in row and "utofu/tofu0" in row for row in rows), text


@pytest.mark.parametrize("scheme", ["put_zcopy", "get_zcopy", "am"])
def test_rendezvous(check, scheme):
    check("none", UCX_RNDV_SCHEME=scheme, UCX_RNDV_THRESH="1k")


def test_lanes(check):
    """UCP takes zero-copy put and get of this transport for large messages, and
    its short messages for small ones."""
    text = check("none", UCX_PROTO_INFO="y").out
    assert "utofu/tofu0" in text, text
    used = set(re.findall(r"(\w+)/(?:\w+)\s*\|?", text))
    assert "tcp" not in used and "posix" not in used
    rows = [line for line in text.splitlines() if "utofu/tofu0" in line]
    assert any("short" in row for row in rows), text
    assert any("zero-copy" in row for row in rows), text


def test_counters(check):
    """UCX_UTOFU_STATS: messages, credit, notices and polls of each interface."""
    lines = re.findall(
        r"utofu: process \d+: messages (\d+) sent (\d+) received, credit messages "
        r"(\d+) sent (\d+) received, notices (\d+) .*?, polls (\d+),"
        r".*, received without a notice (\d+)",
        check("none", UCX_UTOFU_STATS="y").err)
    assert lines
    rows = [[int(n) for n in line] for line in lines]
    assert sum(r[0] for r in rows) == sum(r[1] for r in rows) > 0
    assert all(r[5] > 0 for r in rows)
    assert sum(r[4] + r[6] for r in rows) >= sum(r[1] for r in rows)
    assert "utofu: process" not in check("none").err


def test_with_other_transports(check):
    """Beside others the transport does not get in the way."""
    check("none", UCX_TLS="all")


def test_fallback(check):
    """Without a backend the same program runs on what else is there, and UCX says
    that it was asked for a transport that it does not have."""
    text = check("none", UCX_TLS="utofu,tcp", UCX_UTOFU_BACKEND="tofu").out
    assert "transport 'utofu' is not available" in text


@pytest.mark.parametrize("mode", ["fast", "strict", "timed"])
@pytest.mark.parametrize("test", ["tag_lat", "ucp_am_lat", "ucp_put_bw", "tag_bw"])
def test_sleep(perftest, env, mode, test):
    """Workers that sleep between messages (UCP_FEATURE_WAKEUP), on utofu alone."""
    modes = {"fast": {}, "strict": {"UTOFU_EMU_STRICT": "1"},
             "timed": {"UTOFU_EMU_TIMING": "tofud"}}
    perftest(["-E", "sleep", "-w", 10],
             [["-t", test, "-s", size, "-n", count]
              for size, count in ((8, 500), (8192, 200), (100000, 20))],
             {**env, **modes[mode], "UCX_TLS": "utofu"})


@pytest.mark.parametrize("value", ["0", "200ms"])
def test_wakeup_timer_out_of_range(start, env, ucx, value):
    process = start([ucx / "bin" / "ucx_perftest", "-l", "-x", "utofu", "-d", "tofu0",
                     "-t", "am_lat", "-n", 10], {**env, "UCX_UTOFU_WAKEUP_TIMER": value})
    assert process.wait(30) != 0
    assert "UCX_UTOFU_WAKEUP_TIMER" in process.out + process.err


@pytest.mark.parametrize(
    ("name", "value"),
    [("BANDWIDTH", "-5GBps"), ("OVERHEAD", "inf"), ("LATENCY", "inf")],
)
def test_figures_out_of_range(start, env, ucx, name, value):
    process = start([ucx / "bin" / "ucx_perftest", "-l", "-x", "utofu", "-d", "tofu0",
                     "-t", "am_lat", "-n", 10], {**env, f"UCX_UTOFU_{name}": value})
    assert process.wait(30) != 0
    assert f"UCX_UTOFU_{name}" in process.out + process.err


def test_am_polled_out_of_range(start, env, ucx):
    """More senders without notices than there can be; 0 is none, and works."""
    for value, works in (("9", False), ("0", True)):
        process = start([ucx / "bin" / "ucx_perftest", "-l", "-x", "utofu", "-d",
                         "tofu0", "-t", "am_lat", "-n", 10],
                        {**env, "UCX_UTOFU_AM_POLLED": value})
        assert (process.wait(60) == 0) == works
        named = "UCX_UTOFU_AM_POLLED" in process.out + process.err
        assert named != works


def test_allocated_memory(build, run, env):
    """What UCP's cache registered of memory from the transport does not outlive it."""
    process = run([build(PROGRAM.parent / "ucp_alloc.c", libs=("ucp", "ucs"))],
                  {**env, "UCX_TLS": "utofu"}, 60)  # fmt: skip
    assert process.out == "ok\n", str(process)
    assert not re.search("ERROR|WARN", process.err), str(process)
