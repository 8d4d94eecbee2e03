# SPDX-License-Identifier: BSD-3-Clause
"""UCP programs of our own on this transport: peers that die, threads, connections
by socket address.  The programs check all data and all statuses themselves."""
import json

import pytest

from plugin_support import SOURCE

PROGRAMS = SOURCE.parent / "tests" / "plugin" / "c"


@pytest.fixture
def program(build, run, env):
    def function(name, *arguments, **variables):
        process = run([build(PROGRAMS / f"{name}.c", libs=("ucp", "ucs")), *arguments],
                      {**env, "UCX_TLS": "utofu", **variables}, 110)
        assert process.out.endswith("ok\n"), str(process)
        assert "ERROR" not in process.out + process.err, str(process)
        return process

    return function


@pytest.mark.parametrize("mode", ["shared", "own"])
def test_threads(program, mode):
    """Two threads on one worker, and with a worker each on one context."""
    program("ucp_threads", mode)


@pytest.mark.parametrize("scheme", ["auto", "am"])
def test_errors(program, scheme):
    """A peer is killed with requests in flight; endpoints are closed by force."""
    program("ucp_errors", UCX_KEEPALIVE_INTERVAL="100ms", UCX_RNDV_SCHEME=scheme)


@pytest.mark.parametrize("name,arguments", [("ucp_threads", ["own"]), ("ucp_errors", [])])
def test_on_shared_vcqs(program, name, arguments):
    """The same when no worker has a VCQ of its own."""
    program(name, *arguments, UCX_UTOFU_MAX_VCQS="0", UCX_LOG_LEVEL="error",
            UCX_KEEPALIVE_INTERVAL="100ms")


@pytest.mark.parametrize("size", ["3000", "20000", "1000000"])
@pytest.mark.parametrize("scheme", ["get_zcopy", "put_zcopy", "am"])
@pytest.mark.parametrize("strict", ["0", "1"])
def test_read_only(program, size, scheme, strict):
    """Memory that can't be written can be sent from, though UCP asks for every access."""
    program("ucp_read_only", size, UCX_RNDV_SCHEME=scheme, UCX_RNDV_THRESH="10000",
            UTOFU_EMU_STRICT=strict)


@pytest.mark.parametrize("mode", ["closed", "killed"])
def test_sockaddr(program, mode, tmp_path):
    """The tcp connection manager connects; the messages go over this transport, as
    the emulator's counts of each process say."""
    counts = tmp_path / "counts.json"
    process = program("ucp_sockaddr", mode, UCX_TLS="utofu,tcp",
                      UCX_KEEPALIVE_INTERVAL="100ms", UTOFU_EMU_STATS=f"json:{counts}")
    assert process.out.count("lane utofu/tofu0") >= 4, str(process)
    moved = {}
    for line in counts.read_text().splitlines():
        entry = json.loads(line)
        moved[entry["pid"]] = (moved.get(entry["pid"], 0) + entry["put_bytes"] +
                               entry["get_bytes"])
    # a killed process tells no counts
    assert len(moved) == (2 if mode == "killed" else 3), moved
    assert min(moved.values()) > 1000000, moved


@pytest.mark.parametrize("strict", ["0", "1"])
@pytest.mark.parametrize("operation,size,rndv", [
    ("tag", "8", "auto"), ("tag", "5000", "auto"), ("tag", "60000", "1000"),
    ("put", "8", "auto"), ("put", "5000", "auto"), ("get", "8", "auto"), ("get", "5000", "auto"),
])
def test_successor(program, operation, size, rndv, strict):
    """Another process takes a killed server's place unnoticed: it gets nothing of what was
    meant for the one before it, and whose endpoint it was hears of it."""
    program("ucp_successor", operation, size, UCX_RNDV_THRESH=rndv, UTOFU_EMU_STRICT=strict)


@pytest.mark.parametrize("tls", ["utofu", "utofu,tcp"])
@pytest.mark.parametrize("mode", ["windows", "messages"])
@pytest.mark.parametrize("strict", [False, True])
def test_windows(program, mode, tls, strict, tmp_path):
    """Memory of malloc that is mapped for peers (ucp_mem_map) is moved to where they map it,
    and the program can't tell; what UCP registers for a message stays where it is, and all
    does in the strict mode.  With tcp there is a thread of UCX beside the program's own."""
    moved = 0
    for seed in range(5):
        counts = tmp_path / f"counts-{seed}.json"
        program("ucp_windows", mode, str(seed), *(["nofork"] if strict else []), UCX_TLS=tls,
                UTOFU_EMU_STRICT=str(int(strict)), UTOFU_EMU_STATS=f"json:{counts}")
        moved += sum(json.loads(line)["reg_moved"] for line in counts.read_text().splitlines())
    if strict or mode == "messages":
        assert moved == 0
    elif tls == "utofu":  # beside threads it needs userfaultfd or ptrace
        assert moved > 100
