# SPDX-License-Identifier: BSD-3-Clause
"""UCP programs of our own on this transport: peers that die, threads, connections
by socket address.  The programs check all data and all statuses themselves."""
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
