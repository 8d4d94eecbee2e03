# SPDX-License-Identifier: BSD-3-Clause
"""Programs of ours on libuct: content, order, guard zones, bad input, failures."""
import pytest

from plugin_support import SOURCE

HERE = SOURCE.parent / "tests" / "plugin" / "c"
FLAGS = [f"-I{SOURCE / 'plugin'}", f"-I{HERE}"]


@pytest.fixture
def program(build, run, env):
    def function(name, *args, timeout=60, **variables):
        process = run([build(HERE / f"{name}.c", flags=FLAGS), *args],
                      {**env, **variables}, timeout)
        assert process.out.splitlines()[-1:] == ["ok"], str(process)
        return process

    return function


@pytest.mark.parametrize("memory", ["md", "malloc"])
@pytest.mark.parametrize("where", ["local", "pair"])
def test_rma(program, where, memory):
    program("uct_rma", where, memory)


@pytest.mark.parametrize("where", ["local", "loopback", "pair"])
def test_am(program, where):
    program("uct_am", where)


@pytest.mark.parametrize("where", ["local", "pair"])
def test_am_few_resources(program, where):
    """The smallest queues: everything goes through the pending queue."""
    program("uct_am", where, UCX_UTOFU_RX_SLOTS="8", UCX_UTOFU_RX_SHORT_SLOTS="8",
            UCX_UTOFU_TX_BOUNCE="2", UCX_UTOFU_TX_NOTIFIED="2",
            UTOFU_NUM_MRQ_ENTRIES="2048")


def test_am_seg_size(program):
    program("uct_am", "pair", UCX_UTOFU_AM_SEG_SIZE="1k")
    program("uct_am", "pair", UCX_UTOFU_AM_SEG_SIZE="32k", UCX_UTOFU_RX_SLOTS="16")


@pytest.mark.parametrize(
    ("headroom", "alignment", "offset", "offered"),
    [(0, 1, 0, 1), (80, 8, 0, 1), (500, 64, 48, 1), (80, 64, 0, 1), (80, 512, 8, 0)],
)
def test_am_kept(program, headroom, alignment, offset, offered):
    """Messages that the callback keeps, and those that it can't have aligned."""
    process = program("uct_desc", str(headroom), str(alignment), str(offset),
                      str(offered))
    assert "kept" not in process.out + process.err, str(process)


def test_pending_purged(program):
    program("uct_pending")


def test_no_limit_of_cqs(program):
    program("uct_pending", UCX_UTOFU_MAX_CQS="inf")


def test_flush_of_an_interface(program):
    program("uct_flush")


@pytest.mark.parametrize("own", ["0", "8"])
def test_successor_behind_another(program, own):
    program("uct_restarted", UCX_UTOFU_MAX_VCQS=own)


@pytest.mark.parametrize("own", ["0", "8"])
def test_successor_is_silent(program, own):
    program("uct_restarted", "silent", UCX_UTOFU_MAX_VCQS=own)


def test_movable(program):
    program("uct_movable")


def test_address(program):
    program("uct_address")


def test_estimates(program):
    """Figures per operation, by which UCP chooses its protocols."""
    program("uct_address", "timed", UTOFU_EMU_TIMING="tofud")
    program("uct_address", "told", UCX_UTOFU_OVERHEAD="1us",
            UCX_UTOFU_BANDWIDTH="2000000000Bps")


def test_invalidate(program):
    program("uct_invalidate")


@pytest.mark.parametrize("what", ["put", "get", "am", "check"])
def test_peer_killed(program, what):
    process = program("uct_failure", what)
    # How much of it is shown is for UCX_UTOFU_FAILURE to say.
    assert "peer failed" not in process.out + process.err, str(process)


def test_peer_killed_is_logged(program):
    process = program("uct_failure", "put", UCX_UTOFU_FAILURE="warn")
    assert (process.out + process.err).count("peer failed") == 1, str(process)


def test_list_is_the_programs(build, run, env):
    """A program has libuct's list of components itself: the one of libuct is none."""
    program = build(HERE / "uct_copied.c", libs=("uct", "ucs", "dl"),
                    flags=["-fno-pic", "-no-pie"])  # fmt: skip
    process = run([program], env, 30)
    assert process.out.splitlines()[-1:] == ["ok"], str(process)


@pytest.mark.parametrize(("name", "where", "words"), [
    ("uct_rma", "local", ["PUT_SHORT", "PUT_BCOPY", "PUT_ZCOPY", "GET_BCOPY", "GET_ZCOPY"]),
    ("uct_am", "pair", ["TX: AM_SHORT", "TX: AM_BCOPY", "TX: AM_ZCOPY", "RX: AM"]),
])  # fmt: skip
def test_traced(program, tmp_path, name, where, words):
    """With the level "data" each operation is a line, and does what it does without."""
    log = tmp_path / "log"
    args = [where, "md"] if name == "uct_rma" else [where]
    program(name, *args, UCX_LOG_LEVEL="data", UCX_LOG_FILE=f"{log}.%p")
    text = "".join(path.read_text() for path in tmp_path.glob("log.*"))
    for word in words:
        assert f"{word} [" in text
    quiet = program(name, *args, UCX_LOG_LEVEL="req")
    assert "AM_SHORT [" not in quiet.out + quiet.err
