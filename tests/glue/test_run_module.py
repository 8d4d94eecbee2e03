# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp_glue``: programs over utofu, or in words why not."""

import json
import os
import signal
import sys

import pytest

import ucp_glue
from ucp_glue import plugin

pytestmark = pytest.mark.timeout(300)

SHOW = (
    "import json, os, sys; print(json.dumps([sys.argv, os.getpid(), dict(os.environ)]))"
)


def clean(**extra):
    """This environment without what the module is to set."""
    names = ("UCX_", "UCT_TOFU_", "LD_LIBRARY_PATH")
    env = {k: v for k, v in os.environ.items() if not k.startswith(names)}
    return {**env, **extra}


@pytest.fixture
def glue(processes, job):
    """glue(*words, **env) -> (exit code, output)."""

    def run(*words, **env):
        command = [sys.executable, "-m", "ucp_glue", *map(str, words)]
        return processes.run(command, timeout=200, env=clean(**env))

    return run


def shown(output):
    return json.loads(output.splitlines()[-1])


def test_script_gets_environment_and_words(glue, tmp_path):
    script = tmp_path / "a script.py"
    script.write_text(SHOW)
    code, output = glue("--", script, "--tls", "x", "-v", "--", "a b")
    assert code == 0, output
    argv, _, env = shown(output)
    assert argv == [str(script), "--tls", "x", "-v", "--", "a b"]
    expected = ucp_glue.environment(clean())
    for name in ("UCX_PLUGIN_PATH", "LD_LIBRARY_PATH", "UCX_TLS"):
        assert env[name] == expected[name]


@pytest.mark.parametrize("separated", [False, True])
def test_module_code_and_program(glue, tmp_path, separated):
    (tmp_path / "shows.py").write_text(SHOW)
    before = ["--"] if separated else []
    path = str(tmp_path)
    code, output = glue(*before, "-m", "shows", "-h", PYTHONPATH=path)
    assert code == 0 and shown(output)[0][1:] == ["-h"], output
    code, output = glue(*before, "-c", SHOW, "-v")
    assert code == 0 and shown(output)[0] == ["-c", "-v"], output
    code, output = glue(*before, "sh", "-c", 'echo "$UCX_TLS $0"', "--tls")
    assert (code, output) == (0, f"{plugin.SUGGESTED_TLS} --tls\n")


@pytest.mark.parametrize(
    ("options", "env", "tls"),
    [
        (["--sockaddr"], {}, plugin.SOCKADDR_TLS),
        (["--sockaddr"], {"UCX_TLS": "tcp"}, plugin.SOCKADDR_TLS),
        (["--tls", "utofu"], {"UCX_TLS": "tcp"}, "utofu"),
        ([], {"UCX_TLS": "tcp,utofu"}, "tcp,utofu"),
        ([], {"UCX_TLS": ""}, plugin.SUGGESTED_TLS),
    ],
)
def test_which_tls(glue, options, env, tls):
    code, output = glue(*options, "-c", SHOW, **env)
    assert code == 0 and shown(output)[2]["UCX_TLS"] == tls, output


def test_a_program_of_ucx_uses_it(glue, ucx_dir):
    code, output = glue("-v", ucx_dir / "bin" / "ucx_info", "-u", "t", "-e")
    assert code == 0 and "utofu/tofu0" in output, output
    assert "UCP chose" in output and "utofu on tofu0" in output


@pytest.mark.parametrize("number", [0, 1, 7, 255])
def test_exit_code(glue, number):
    assert glue("--no-verify", "-c", f"raise SystemExit({number})") == (number, "")


def test_death_by_signal(glue):
    code, _ = glue("--no-verify", "sh", "-c", "kill -SEGV $$")
    assert code == -signal.SIGSEGV


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_program(processes, number):
    """It is the process that was started, not a child of it."""
    program = (
        "import os, signal, sys\n"
        f"signal.signal({int(number)}, lambda *a: sys.exit(40))\n"
        "print(os.getpid(), flush=True)\nsignal.pause()"
    )
    command = [sys.executable, "-m", "ucp_glue", "--no-verify", "-c", program]
    process = processes.start(command, env=clean())
    assert int(process.stdout.readline()) == process.pid
    process.send_signal(number)
    assert process.wait(100) == 40


def test_why_not(glue):
    code, output = glue("-c", "print('it ' 'ran')", UCX_TLS="tcp")
    assert code == 1 and "UCX_TLS=tcp makes UCP use tcp" in output
    code, output = glue("-c", "print('it ' 'ran')", UCT_TOFU_BACKEND="nonsense")
    assert code == 1 and "nonsense" in output
    assert "it ran" not in output and "Traceback" not in output
    code, output = glue("--no-verify", "-c", "print('it ' 'ran')", UCX_TLS="tcp")
    assert (code, output) == (0, "it ran\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "PROGRAM"),
        (["no-such-file.py"], "no file no-such-file.py"),
        (["no-such-program"], "no program no-such-program"),
        (["-m"], "-m needs a module"),
        (["/"], "no program /"),
        (["--sockaddr", "--tls", "utofu", "true"], "exclude each other"),
    ],
)
def test_bad_words(glue, words, said):
    code, output = glue(*words)
    assert code == 2 and said in output, output


def test_a_file_that_the_kernel_refuses(glue, tmp_path):
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF nonsense")
    program.chmod(0o755)
    code, output = glue("--no-verify", program)
    assert code == 1 and str(program) in output and "Traceback" not in output
