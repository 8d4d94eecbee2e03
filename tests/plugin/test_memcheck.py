# SPDX-License-Identifier: BSD-3-Clause
"""Programs of UCX run under valgrind's memcheck, to their end, where it looks for leaks in all
that they map."""

import shutil

import pytest
from plugin_support import free_port, wait_listening

OPTIONS = {
    "uct": ["-x", "utofu", "-d", "tofu0", "-t", "am_lat", "-D", "bcopy"],
    "ucp": ["-t", "ucp_am_lat"],
}


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind here")
@pytest.mark.parametrize("layer", OPTIONS)
def test_memcheck(ucx, start, env, layer):
    port = free_port()
    command = [ucx / "bin" / "ucx_perftest", *OPTIONS[layer], "-s", 3000, "-n", 200, "-w", 5]
    env = {**env, "UCX_TLS": "utofu"}
    memcheck = ["valgrind", "-q", "--error-limit=no", "--num-callers=30"]
    server = start([*memcheck, *command, "-p", port], env)
    wait_listening(port, server)
    client = start([*memcheck, command[0], "127.0.0.1", *command[1:], "-p", port], env)
    for side in (client, server):
        side.check(100)
        # it has something to say of ucx_perftest itself
        reports = side.err.split("== \n")
        ours = [report for report in reports if "libtofucom" in report or "libuct_utofu" in report]
        assert not ours, str(side)
