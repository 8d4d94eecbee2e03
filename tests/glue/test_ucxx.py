# SPDX-License-Identifier: BSD-3-Clause
"""ucxx over utofu: ``ucp_glue.ucxx`` and ``python -m ucp_glue.ucxx``.

ucxx pins a UCX that is older than the one of this package, so plain pip can't put
both into one environment in one step.  Where it is not installed, the fixture ucxx_path
puts it into a folder of its own.
"""

import importlib
import importlib.util
import os
import re
import sys

import pytest

import ucp_glue
import ucp_glue.ucxx

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def env(ucxx_path, job):
    """Environment in which ucxx can be imported, without any of UCX's settings."""
    names = ("UCX_", "UCT_TOFU_", "LD_LIBRARY_PATH", "RAPIDS_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(names)}
    path = [ucxx_path, env.get("PYTHONPATH")]
    env["PYTHONPATH"] = os.pathsep.join(part for part in path if part)
    env["UCX_WARN_UNUSED_ENV_VARS"] = "n"
    return env


@pytest.fixture
def here(ucxx_path, monkeypatch):
    """ucxx can be found (not: is imported) in this process."""
    if ucxx_path:
        monkeypatch.syspath_prepend(ucxx_path)


def messages(output, what="sent"):
    """What each interface says that it sent or received, UCX_UTOFU_STATS."""
    lines = re.findall(r"utofu: process \d+: messages (\d+) sent (\d+) rec", output)
    return [int(line[what == "received"]) for line in lines]


def python(processes, env, *words):
    code, output = processes.run([sys.executable, *words], timeout=300, env=env)
    assert code == 0, output
    return output


def test_verify(here, env):
    """What ucxx sends goes over utofu, though tcp is there too."""
    found = ucp_glue.ucxx.verify(ucp_glue.environment(env, tls="utofu,tcp"))
    assert found, found.reasons
    assert found.lanes == ["utofu"] and found.ucx_version.startswith("1.22")
    assert "ucxx" not in sys.modules


def test_verify_sees_that_it_was_something_else(here, env):
    found = ucp_glue.ucxx.verify(ucp_glue.environment(env, tls="tcp"))
    assert not found
    assert found.reasons == [
        "ucxx sent data with UCX_TLS=tcp, but utofu carried 0 of 32 messages"
    ]


def test_verify_says_when_ucxx_fails(here, env):
    """Without tcp nothing makes connections by address and port.

    ucxx raises then, or (one time in four here) waits for the connection for ever.
    """
    found = ucp_glue.ucxx.verify(ucp_glue.environment(env, tls="utofu"))
    assert not found and "a transfer with ucxx" in found.reasons[0]
    assert "failed" in found.reasons[0] or "did not end in" in found.reasons[0]


# Peers have 5 s to introduce themselves, if it is not said otherwise: on a busy
# machine that is not enough.  The client then gets UCXConnectionResetError, but a
# server only logs it: its handler is not called, and it waits for ever.
SERVER = """
import asyncio, sys
import numpy as np
import ucxx

async def main():
    served = asyncio.Event()

    async def serve(endpoint):
        for size in SIZES:
            data = np.empty(size, dtype=np.int64)
            await endpoint.recv(data)
            await endpoint.send(data + 1)
        for _ in SIZES:  # eager, and by rendezvous
            message = np.asarray(await endpoint.am_recv()).view(np.uint8)
            await endpoint.am_send(message[::-1].copy())
        await endpoint.close()
        served.set()

    listener = ucxx.create_listener(serve, connect_timeout=200)
    print(listener.port, flush=True)
    await asyncio.wait_for(served.wait(), 250)
    listener.close()

SIZES = (1, 100, 1000, 50_000, 1_000_000)
asyncio.run(main())
"""

CLIENT = """
import asyncio, sys
import numpy as np
import ucxx

async def main():
    endpoint = await ucxx.create_endpoint("127.0.0.1", int(sys.argv[1]),
                                          connect_timeout=200)
    for size in SIZES:
        data = np.arange(size, dtype=np.int64)
        back = np.zeros_like(data)
        await endpoint.send(data)
        await endpoint.recv(back)
        assert (back == data + 1).all(), size
    for size in SIZES:
        message = np.arange(size).astype(np.uint8)
        await endpoint.am_send(message)
        back = np.asarray(await endpoint.am_recv()).view(np.uint8)
        assert (back[::-1] == message).all(), size
    await endpoint.close()

SIZES = (1, 100, 1000, 50_000, 1_000_000)
asyncio.run(main())
print("all came back")
"""


def test_programs_unchanged(processes, env, tmp_path):
    """Two processes that know nothing of this package."""
    for name, text in (("server.py", SERVER), ("client.py", CLIENT)):
        (tmp_path / name).write_text(text)
    env["UCX_UTOFU_STATS"] = "y"
    command = [sys.executable, "-m", "ucp_glue.ucxx"]
    server = processes.start([*command, str(tmp_path / "server.py")], env=env)
    port = server.stdout.readline().strip()
    assert port.isdigit(), port + server.communicate(timeout=300)[0]
    client = processes.start([*command, str(tmp_path / "client.py"), port], env=env)
    outputs = [process.communicate(timeout=300)[0] for process in (client, server)]
    assert client.returncode == 0 and "all came back" in outputs[0], outputs
    assert server.returncode == 0, outputs
    for output in outputs:
        assert sum(messages(output)) >= 6, output


@pytest.mark.parametrize(
    ("backend", "size"), [("ucxx-core", "8"), ("ucxx-async", "1000000")]
)
def test_benchmark(processes, env, backend, size):
    """ucxx' own; it starts its processes by itself.

    It does not stop ucxx' progress thread.  Where that happens to hold the last
    reference to the worker, the process ends without destroying it, and its interface
    says nothing: then the other side's line tells what both did.
    """
    env["UCX_UTOFU_STATS"] = "y"
    output = python(
        processes,
        env,
        *("-m", "ucp_glue.ucxx", "-m", "ucxx.benchmarks.send_recv"),
        *("--backend", backend, "-o", "numpy", "-n", size),
        *("--n-iter", "30", "--n-warmup-iter", "2", "--no-detailed-report"),
        *("--server-address", "127.0.0.1"),
    )
    assert "Roundtrip benchmark" in output, output
    sent, received = messages(output), messages(output, "received")
    assert 1 <= len(sent) <= 2 and min(sent + received) >= 30, output


# Prints what enable() said, then the number of messages over utofu at the end.
ENABLED = """
import asyncio
import numpy as np
import ucp_glue.ucxx
{before}
print(ucp_glue.ucxx.enable())
import ucxx
async def main():
    endpoints = []
    async def serve(endpoint):
        endpoints.append(endpoint)
        await endpoint.send(np.arange(10))
    listener = ucxx.create_listener(serve, connect_timeout=200)
    endpoint = await ucxx.create_endpoint("127.0.0.1", listener.port,
                                          connect_timeout=200)
    data = np.zeros(10, dtype=np.int64)
    await endpoint.recv(data)
    print(data.sum())
    await endpoint.close()
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("before", "said"),
    [("", "environment"), ("import ucxx", "registered")],
)
def test_enable(processes, env, before, said):
    """Before ucxx is imported, and afterwards."""
    env["UCX_UTOFU_STATS"] = "y"
    output = python(processes, env, "-c", ENABLED.format(before=before))
    lines = output.splitlines()
    assert said in lines and "45" in lines, output
    assert sum(messages(output)) >= 1, output


@pytest.mark.parametrize("tls", ["utofu,self", "utofu,tcp", "^sysv", "all"])
def test_enable_says_that_tcp_is_missing(processes, env, tls):
    """Else the first connection ends with a bare TimeoutError after seconds."""
    env["UCX_TLS"] = tls
    code = "import ucp_glue.ucxx\nucp_glue.ucxx.enable(check=False)"
    output = python(processes, env, "-c", code)
    if tls == "utofu,self":
        assert "<string>:2: RuntimeWarning: UCX_TLS=utofu,self has no tcp" in output
    else:
        assert "Warning" not in output


def test_enable_is_too_late(processes, env):
    output = python(
        processes,
        env,
        "-c",
        "import ucxx, ucp_glue.ucxx\nucxx.init()\n"
        "try:\n    ucp_glue.ucxx.enable()\n"
        "except RuntimeError as error:\n    print(error)\n"
        "ucxx.reset()\nprint(ucp_glue.ucxx.enable())",
    )
    assert "ucxx has made its UCP context already" in output, output
    assert "registered" in output.splitlines()


def test_check_from_the_shell(processes, env):
    output = python(processes, env, "-m", "ucp_glue.ucxx", "--check")
    assert "ucxx sends over utofu, UCX 1.22" in output
    command = [sys.executable, "-m", "ucp_glue.ucxx", "--tls", "tcp", "--check"]
    code, output = processes.run(command, timeout=300, env=env)
    assert code == 1 and "UCX_TLS=tcp makes UCP use tcp" in output


@pytest.mark.parametrize(
    ("module", "package", "advice"),
    [
        ("ucxx", "ucxx", "pip install ucxx-cu12"),
        ("ucxpy", "ucp", "docs/ucxx.md"),
    ],
)
def test_not_installed(monkeypatch, processes, module, package, advice):
    """Said by the functions and in the shell; no network, no package needed."""
    adapter = importlib.import_module(f"ucp_glue.{module}")
    real = importlib.util.find_spec

    def find_spec(name, *args):
        return None if name == package else real(name, *args)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    for function in (adapter.enable, adapter.verify):
        with pytest.raises(ImportError, match=f"{package} is not installed") as caught:
            function()
        assert advice in str(caught.value)
    if real(package) is None:
        command = [sys.executable, "-m", f"ucp_glue.{module}", "-c", "print('it ran')"]
        code, output = processes.run(command)
        assert code == 1 and advice in output and "Traceback" not in output
        assert "it ran" not in output


def test_ucx_py(job):
    """Where ucx-py is installed; PyPI has no wheel of it."""
    if importlib.util.find_spec("ucp") is None:
        pytest.skip("ucx-py is not installed (docs/ucxx.md says how to get it)")
    import ucp_glue.ucxpy

    found = ucp_glue.ucxpy.verify()
    assert found and found.lanes == ["utofu"], found.reasons
    found = ucp_glue.ucxpy.verify(ucp_glue.environment(tls="tcp"))
    assert not found and "utofu carried 0 of 32" in found.reasons[0]
