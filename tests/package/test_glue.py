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
        timeout=100,
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


@pytest.mark.parametrize(
    ("tls", "excluded"),
    [
        (None, False),
        ("", False),
        ("utofu", False),
        ("tcp,utofu", False),
        ("all", False),
        ("^tcp", False),
        ("^all", False),
        ("tcp", True),
        ("utofus", True),
        ("^utofu", True),
        ("^tcp,utofu", True),
    ],
)
def test_which_tls_keep_the_transport_out(tls, excluded):
    """As UCP itself has it."""
    assert ucp_glue.plugin.tls_excludes(tls) is excluded
    env = ucp_glue.environment({**os.environ, "UCX_TLS": tls or ""}, tls=None)
    if not tls:
        del env["UCX_TLS"]
    found = ucp_glue.verify(env, ucp=True)
    assert found.ok is not excluded, found
    assert ("utofu" in found.lanes) is not excluded
    if excluded:
        assert f"UCX_TLS={tls}" in found.reasons[0]


def test_verify_names_a_ucx_that_is_too_old(monkeypatch):
    """What pip installs for packages that pin UCX below 1.22."""
    monkeypatch.setattr(ucp_glue.plugin._paths, "ucx_version", lambda: "1.21.0")
    env = ucp_glue.environment(tls=None)
    assert ucp_glue.verify(env)  # what counts is what UCX lists
    found = ucp_glue.verify({**env, "UCX_PLUGIN_PATH": ""})
    assert "1.21.0" in found.reasons[0] and "pip install" in found.reasons[0]


def test_enable_sets_what_connections_need():
    lines = python(
        "import os, ucp_glue\nucp_glue.enable()\nprint(os.environ['UCX_TLS'])\n"
        "os.environ['UCX_TLS'] = 'utofu'\n"
        "ucp_glue.enable()\nprint(os.environ['UCX_TLS'])\n"
        "del os.environ['UCX_TLS']\n"
        "ucp_glue.enable(tls=None)\nprint(os.environ.get('UCX_TLS'))"
    )
    assert lines == [ucp_glue.plugin.SOCKADDR_TLS, "utofu", "None"]


def test_enable_warns_when_tls_excludes_the_transport():
    lines = python(
        "import os, ucp_glue, warnings\nos.environ['UCX_TLS'] = 'tcp'\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n    ucp_glue.enable()\n"
        "print([str(w.message) for w in caught], caught[0].category.__name__)"
    )
    assert "UCX_TLS=tcp keeps utofu out" in lines[0] and "RuntimeWarning" in lines[0]


@pytest.mark.parametrize("loaded", [False, True])
def test_enable_says_why_not(loaded):
    """In this process when UCX is loaded, else in a child; not when told not to."""
    lines = python(
        "import os, ucp_glue\nos.environ['UCT_TOFU_BACKEND'] = 'nonsense'\n"
        + ("import libucx; libucx.load_library()\n" if loaded else "")
        + "try:\n    ucp_glue.enable()\n"
        "except RuntimeError as error:\n    print(error)\n"
        "print(ucp_glue.enable(check=False))"
    )
    assert "does not list the transport utofu" in lines[0] and "nonsense" in lines[0]
    assert lines[1] == ("registered" if loaded else "environment")


def test_enable_looks_once():
    """A process that calls it often starts ucx_info once per environment."""
    lines = python(
        "import os, ucp_glue\nruns = []\nreal = ucp_glue.plugin.verify\n"
        "ucp_glue.plugin.verify = lambda *a, **k: runs.append(1) or real(*a, **k)\n"
        "for _ in range(3):\n    ucp_glue.enable()\nprint(len(runs))\n"
        "os.environ['UCT_TOFU_BACKEND'] = 'emulator'\nucp_glue.enable()\n"
        "print(len(runs))"
    )
    assert lines == ["1", "2"]


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
