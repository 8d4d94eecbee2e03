# SPDX-License-Identifier: BSD-3-Clause
"""Stock ucx_perftest between two processes: every test and layout it has for what
the transport advertises.  The numbers only have to be there and be plausible;
test_uct.py and test_ucp.py look at the data."""
import pytest

from plugin_support import free_port, parse_csv, wait_listening

UCT = ["-x", "utofu", "-d", "tofu0", "-w", 20]


def sane(rows):
    """iterations, three latencies (us), two bandwidths (MB/s), two rates."""
    for row in rows:
        assert row[0] >= 1
        assert all(value >= 0 for value in row)
        # bytes or messages per second: a rate below one half is printed as 0
        assert (row[-3] > 0) or (row[-1] > 0)
        assert row[-1] < 1e9
    return rows


def iterations(size):
    return 2000 if size <= 8192 else 100 if size <= 1 << 20 else 4


def lines(test, layouts):
    """Every size of every layout."""
    return [["-t", test, "-D", layout, "-s", size, "-n", iterations(size)]
            for layout, sizes in layouts.items() for size in sizes]


PUT = {"short": [1, 8, 32], "bcopy": [1, 8, 100, 4096, 8192],
       "zcopy": [1, 8, 4096, 65536, 1 << 20, 64 << 20]}
GET = {layout: PUT[layout] for layout in ("bcopy", "zcopy")}
AM = {"short": [8, 16, 32], "shortiov": [8, 16, 32], "bcopy": [8, 64, 1024, 8192],
      "zcopy": [8, 64, 1024, 8192]}


@pytest.mark.parametrize("test", ["put_lat", "put_bw"])
def test_put(perftest, env, test):
    sane(perftest(UCT, lines(test, PUT), env))


@pytest.mark.parametrize("test", ["get", "get_bw"])
def test_get(perftest, env, test):
    sane(perftest(UCT, lines(test, GET), env))


@pytest.mark.parametrize("test", ["am_lat", "am_bw"])
def test_am(perftest, env, test):
    sane(perftest(UCT, lines(test, AM), env))


def test_atomics(perftest, env):
    sane(perftest(UCT, [["-t", test, "-s", size, "-n", 2000] for size in (4, 8)
                        for test in ("add_lat", "add_mr", "fadd", "swap", "cswap")],
                  env))


def test_malloc_memory(perftest, env):
    """Memory that is not the md's own."""
    sane(perftest(UCT, lines("put_lat", PUT) + lines("get", GET),
                  {**env, "UCX_UTOFU_ALLOC": "heap"}))


def test_passive_target(perftest, env):
    """-o: the target does not progress, and operations go on all the same."""
    sane(perftest([*UCT, "-o"], [["-t", test, "-D", layout, "-s", 4096, "-n", 500]
                                 for test, layout in (("put_lat", "zcopy"),
                                                      ("put_bw", "bcopy"),
                                                      ("get", "zcopy"))], env))


def test_iov(perftest, env):
    sane(perftest(UCT, [["-t", "put_bw", "-D", "zcopy", "-s", "16,48,8192,14", "-n", 500],
                        ["-t", "get", "-D", "zcopy", "-s", "16,48,8192,14", "-n", 500],
                        ["-t", "am_bw", "-D", "zcopy", "-s", "16,48,192,14", "-n", 500]],
                  env))


@pytest.mark.parametrize("mode", ["thread_spinlock", "thread_mutex", "signal"])
def test_async_modes(perftest, env, mode):
    sane(perftest([*UCT, "-A", mode], [["-t", "am_lat", "-n", 1000]], env))


def test_loopback(ucx, run, env):
    """-l: an endpoint to the interface itself."""
    for test, layout in [("put_lat", "short"), ("put_bw", "zcopy"), ("am_lat", "short"),
                         ("am_bw", "bcopy"), ("get", "bcopy"), ("fadd", "short")]:
        process = run([ucx / "bin" / "ucx_perftest", *UCT, "-l", "-f", "-v", "-t", test,
                       "-D", layout, "-s", 8, "-n", 2000], env)
        assert "ERROR" not in process.out + process.err, str(process)
        sane(parse_csv(process.out))


def test_shared_vcq_is_told(ucx, run, env):
    """A worker without a VCQ of its own works, and UCX's log says why it is slow."""
    process = run([ucx / "bin" / "ucx_perftest", *UCT, "-l", "-f", "-v", "-t", "am_lat",
                   "-s", 8, "-n", 2000], {**env, "UCX_UTOFU_MAX_VCQS": "0"})
    assert "ERROR" not in process.out + process.err, str(process)
    assert (process.out + process.err).count("shares VCQ") == 1, str(process)
    sane(parse_csv(process.out))


UCP_SIZES = [1, 8, 1000, 8192, 100000, 1 << 20, 64 << 20]


@pytest.mark.parametrize("test", [
    "tag_lat", "tag_bw", "tag_sync_lat", "tag_sync_bw", "stream_lat", "stream_bw",
    "ucp_am_lat", "ucp_am_bw", "ucp_put_lat", "ucp_put_bw", "ucp_get"])
def test_ucp(perftest, env, test):
    sane(perftest(["-t", test, "-w", 5],
                  [["-s", size, "-n", max(2, iterations(size) // 10)]
                   for size in UCP_SIZES], {**env, "UCX_TLS": "utofu"}))


def test_ucp_atomics(perftest, env):
    for test in ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"):
        sane(perftest(["-t", test, "-w", 5], [["-s", 4, "-n", 1000],
                                              ["-s", 8, "-n", 1000]],
                      {**env, "UCX_TLS": "utofu"}))


@pytest.mark.parametrize("options", [
    ["-t", "tag_lat", "-e"], ["-t", "tag_lat", "-U"], ["-t", "tag_lat", "-C"],
    ["-t", "tag_lat", "-D", "iov,iov", "-s", "100,2000,30"],
    ["-t", "tag_bw", "-z", "-s", 1 << 20], ["-t", "tag_bw", "-O", 64],
    ["-t", "ucp_am_lat", "-H", 24, "-e"], ["-t", "stream_lat", "-r", "recv_data"]])
def test_ucp_options(perftest, env, options):
    sane(perftest(["-w", 5, *options], [["-n", 200]], {**env, "UCX_TLS": "utofu"}))


UCP_TESTS = ["tag_lat", "tag_bw", "tag_sync_lat", "tag_sync_bw", "stream_lat",
             "stream_bw", "ucp_am_lat", "ucp_am_bw", "ucp_put_lat", "ucp_put_bw",
             "ucp_get"]


@pytest.mark.parametrize("test", UCP_TESTS)
def test_ucp_threads(perftest, env, test):
    """Two threads a side; short, one slot, and rendezvous."""
    sane(perftest(["-t", test, "-T", 2, "-M", "multi", "-w", 5],
                  [["-s", size, "-n", 30] for size in (8, 8192, 300000)],
                  {**env, "UCX_TLS": "utofu"}))


@pytest.mark.parametrize("test", ["ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"])
def test_ucp_threads_atomics(perftest, env, test):
    sane(perftest(["-t", test, "-T", 2, "-M", "multi", "-w", 5],
                  [["-s", size, "-n", 300] for size in (4, 8)],
                  {**env, "UCX_TLS": "utofu"}))


@pytest.mark.parametrize("test", UCP_TESTS)
def test_ucp_error_handling(perftest, env, test):
    """-e: endpoints in UCP_ERR_HANDLING_MODE_PEER."""
    sane(perftest(["-t", test, "-e", "-w", 5],
                  [["-s", size, "-n", 10] for size in (8, 8192, 300000, 4 << 20)],
                  {**env, "UCX_TLS": "utofu"}))


def test_jobs_side_by_side(ucx, start, env):
    """Two pairs in networks of their own, and two in the same network."""
    clients = []
    for job in ("a", "b", "c", "c"):
        variables = {**env, "UTOFU_EMU_JOB": env["UTOFU_EMU_JOB"] + job}
        port = free_port()
        command = [ucx / "bin" / "ucx_perftest", *UCT, "-t", "am_lat", "-D", "bcopy",
                   "-s", 1000, "-n", 3000, "-f", "-v", "-p", port]
        server = start(command, variables)
        wait_listening(port, server)
        clients.append((server, command, variables))
    clients = [(server, start([command[0], "127.0.0.1", *command[1:]], variables))
               for server, command, variables in clients]
    for server, client in clients:
        sane(parse_csv(client.check(90).out))
        server.check(90)
