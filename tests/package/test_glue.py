# SPDX-License-Identifier: BSD-3-Clause
"""ucp_glue: environment, enable, verify."""

import os
import subprocess
import sys

import pytest

import ucp_glue
import uct_tofu

# Asks the libucs and libuct of this process, through ctypes, for the components.
LIST_COMPONENTS = """
import ctypes, libucx
ucs, _, uct, ucp = libucx.load_library()
def components():
    pointer, count = ctypes.c_void_p(), ctypes.c_uint()
    assert uct.uct_query_components(ctypes.byref(pointer), ctypes.byref(count)) == 0
    array = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_void_p))
    # a component starts with its name, char[16]
    return [ctypes.string_at(array[i]).decode() for i in range(count.value)]
"""


def python(code):
    env = {k: v for k, v in os.environ.items() if not k.startswith("UCX_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_environment_is_a_copy():
    base = {"UCX_PLUGIN_PATH": "mine", "LD_LIBRARY_PATH": "", "UCX_TLS": "tcp"}
    env = ucp_glue.environment(base)
    assert base["UCX_PLUGIN_PATH"] == "mine"
    assert env["UCX_PLUGIN_PATH"] == uct_tofu.plugin_dir() + ":mine"
    assert env["LD_LIBRARY_PATH"].endswith("libucx/lib")
    assert env["UCX_TLS"] == "tcp"
    assert ucp_glue.environment(env) == env
    assert ucp_glue.environment({})["UCX_TLS"] == ucp_glue.plugin.SUGGESTED_TLS
    assert "UCX_TLS" not in ucp_glue.environment({}, tls=None)


def test_verify_finds_the_transport():
    found = ucp_glue.verify()
    assert found, found.reasons
    assert found.devices == ["tofu0"] and "utofu" in found.transports
    assert found.ucx_version.startswith("1.22")


def test_verify_says_why_not():
    env = ucp_glue.environment(tls=None)
    found = ucp_glue.verify({**env, "UCX_PLUGIN_PATH": ""})
    assert not found and found.reasons
    found = ucp_glue.verify({**env, "UCT_TOFU_BACKEND": "nonsense"})
    assert not found and any("nonsense" in reason for reason in found.reasons)


def test_enable_before_ucx_is_loaded():
    lines = python(
        "import ucp_glue\nprint(ucp_glue.enable())\nprint(ucp_glue.enable())\n"
        + LIST_COMPONENTS
        + "print(components().count('utofu'))"
    )
    assert lines == ["environment", "environment", "1"]


@pytest.mark.parametrize("queried", [False, True])
def test_enable_after_ucx_is_loaded(queried):
    """Also when UCX has looked for its modules already."""
    lines = python(
        LIST_COMPONENTS
        + ("before = components()\nassert 'utofu' not in before\n" if queried else "")
        + "import ucp_glue\nprint(ucp_glue.enable())\nprint(ucp_glue.enable())\n"
        "print(components().count('utofu'))"
    )
    assert lines == ["registered", "registered", "1"]
