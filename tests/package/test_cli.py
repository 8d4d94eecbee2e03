# SPDX-License-Identifier: BSD-3-Clause
"""The command uct-tofu, and what it tells shells and build systems."""

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import uct_tofu.cli
from uct_tofu import _paths, perftest

COMMAND = str(Path(sys.executable).with_name("uct-tofu"))


@pytest.fixture
def cli(processes, tmp_path):
    """cli(*arguments) -> (exit code, output), in an empty directory."""

    def run(*arguments, env=None, timeout=100):
        return processes.run(
            [COMMAND, *arguments],
            cwd=tmp_path,
            timeout=timeout,
            env={**os.environ, **(env or {})},
        )

    return run


def test_help_names_every_command(cli):
    code, output = cli("--help")
    assert code == 0
    for name in ("cflags", "env", "info", "libs", "perftest", "plugin-dir", "run"):
        assert re.search(rf"^  {name}\b", output, re.M)
        assert cli(name, "--help")[0] == 0


def test_version(cli):
    code, output = cli("--version")
    assert code == 0 and uct_tofu.__version__ in output


def test_as_a_module(processes):
    """Where the command is in no path, a notebook for example."""
    code, output = processes.run([sys.executable, "-m", "uct_tofu", "--version"])
    assert code == 0 and output.startswith(f"uct-tofu, version {uct_tofu.__version__}")


@pytest.mark.parametrize("arguments", [("plugin-dir",), ("emu", "ls"), ("env",), ("-h",), ("--version",)]
)
def test_output_that_cannot_be_written(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    # (emu ls may have told of emulators of other versions before)
    assert done.stderr.splitlines()[-1] == "Error: standard output: No space left on device"


def _interrupted(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "arguments, function",
    [
        ("perftest", "uct_tofu.perftest.run_calibrated"),
        ("perf run", "uct_tofu.perf.runner.Job.measure"),
        ("perf scale", "uct_tofu.perf.cli_scale.run_workload"),
        ("perf paper folder", "uct_tofu.perf.paper.measure_all"),
        ("perf predict", "uct_tofu.perf.predict.predict"),
    ],
)
def test_interrupted(monkeypatch, tmp_path, arguments, function):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(function, _interrupted)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # SIGTERM stays pytest's
    done = CliRunner().invoke(uct_tofu.cli.main, arguments.split())
    assert done.exit_code == 130 and done.stderr == "interrupted\n"


SHORT = {
    "perftest": "perftest --test put_lat --size 8 --iters 100",
    "perf run": "perf run -t put_lat -s 8 -n 10 -r 1",
}


@pytest.mark.parametrize("command", SHORT)
def test_a_closed_pipe_is_no_error_of_a_measurement(processes, command):
    words = [COMMAND, *SHORT[command].split()]
    process = processes.start(words, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait(timeout=60) == 1


@pytest.mark.parametrize("command", SHORT)
def test_a_full_disk_is_named(processes, command):
    words = [COMMAND, *SHORT[command].split()]
    with open("/dev/full", "w") as full:
        process = processes.start(words, stdout=full, stderr=subprocess.PIPE)
        _, errors = process.communicate(timeout=60)
    said = "No space left on device\n"
    assert (process.returncode, errors) == (1, f"Error: standard output: {said}")
    words += ["--json" if command == "perftest" else "-o", "/dev/full"]
    process = processes.start(words, stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (1, f"uct-tofu {command}: /dev/full: {said}")


def test_plugin_dir_holds_the_plugin(cli):
    code, output = cli("plugin-dir")
    folder = Path(output.strip())
    assert code == 0 and folder == Path(uct_tofu.plugin_dir())
    for suffix in (".so", ".so.0", ".so.0.0.0"):
        assert (folder / f"libuct_utofu{suffix}").is_file()


def test_info_in_words(cli):
    code, output = cli("info", env={"UCT_TOFU_BACKEND": "emulator"})
    assert code == 0, output
    assert "emulator" in output and uct_tofu.emulator_path() in output
    assert "UCX lists utofu on tofu0" in output
    assert "16777215" in output


def test_info_as_json(cli):
    code, output = cli("info", "--json", env={"UCT_TOFU_BACKEND": "emulator"})
    data = json.loads(output)
    assert code == 0
    assert data["backend"]["kind"] == "emulator"
    assert data["backend"]["onesided_tnis"]
    assert len(data["backend"]["coords"]) == 6
    assert data["transport"] == {"listed": True, "devices": ["tofu0"], "reasons": []}
    assert data["ucx"]["version"].startswith("1.22")


def test_info_says_why_not(cli):
    """A backend that cannot be loaded is told in words, with exit code 1."""
    code, output = cli("info", env={"UCT_TOFU_BACKEND": "nonsense"})
    assert code == 1
    assert "UCX does not list utofu" in output and "nonsense" in output
    code, output = cli("info", "--json", env={"UCX_MODULES": "^utofu"})
    data = json.loads(output)
    assert code == 1 and not data["transport"]["listed"]
    assert any("UCX_MODULES" in reason for reason in data["transport"]["reasons"])


@pytest.mark.parametrize(
    "variable, value, said",
    [
        ("UCX_UTOFU_TNI", "9", "TNI number 9"),
        ("UCX_UTOFU_TNI", "x", "Invalid value for TNI"),
        ("UCX_UTOFU_STRIPE_THRESH", "x", "Invalid value for STRIPE_THRESH"),
        ("UCX_UTOFU_BACKEND", "tofu", "no uTofu library"),
    ],
)
def test_info_says_what_the_plugin_said(cli, variable, value, said):
    code, output = cli("info", env={variable: value})
    assert code == 1 and said in output and "no cause" not in output
    assert f"{variable}={value}" in output and output.count(said) == 1


def test_version_of_a_wheel_without_the_file(tmp_path, monkeypatch):
    """Older ones have another; then it is the package's."""
    monkeypatch.setattr(_paths, "ucx_dir", lambda: tmp_path)
    assert _paths.ucx_version() == importlib.metadata.version("libucx-cu12")


def test_flags_build_a_utofu_program(cli, cc, tmp_path, processes):
    source = tmp_path / "coords.c"
    source.write_text(
        "#include <stdio.h>\n#include <utofu.h>\n"
        "int main(void)\n{\n    uint8_t c[6];\n"
        "    if (utofu_query_my_coords(c) != UTOFU_SUCCESS) return 1;\n"
        '    printf("%d %d %d %d %d %d\\n", c[0], c[1], c[2], c[3], c[4], c[5]);\n'
        "    return 0;\n}\n"
    )
    program = tmp_path / "coords"
    flags = shlex.split(cli("cflags")[1])
    libs = shlex.split(cli("libs")[1])
    subprocess.run([*cc, *flags, str(source), "-o", str(program), *libs], check=True)
    code, output = processes.run([str(program)])
    assert code == 0 and len(output.split()) == 6


@pytest.mark.parametrize(
    "folder, word",
    [
        ("/opt/me/lib", "-L/opt/me/lib"),
        ("/opt/jürgen/lib", "-L/opt/jürgen/lib"),  # $(...) would keep quotes
        ("/opt/a b/lib", "'-L/opt/a b/lib'"),
        ("/opt/$(x)/lib", "'-L/opt/$(x)/lib'"),
    ],
)
def test_flags_are_quoted_only_where_they_have_to_be(monkeypatch, folder, word):
    monkeypatch.setattr(uct_tofu, "lib_dir", lambda: folder)
    output = CliRunner().invoke(uct_tofu.cli.main, ["libs"]).output
    assert output.startswith(f"{word} -ltofucom ")


def test_pkg_config(tmp_path):
    tool = shutil.which("pkg-config")
    if tool is None:
        pytest.skip("pkg-config is not installed")
    env = {**os.environ, "PKG_CONFIG_PATH": uct_tofu.lib_dir() + "/pkgconfig"}
    output = subprocess.run(
        [tool, "--cflags", "--libs", "utofu"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    include = next(word[2:] for word in output if word.startswith("-I"))
    lib = next(word[2:] for word in output if word.startswith("-L"))
    assert (Path(include) / "utofu.h").is_file()
    assert (Path(lib) / "libtofucom.so").is_file() and "-ltofucom" in output


def test_env_is_for_a_shell(cli, processes):
    """After eval, stock ucx_info finds the transport."""
    exports = cli("env", "--tls", "utofu,self")[1]
    script = f'{exports}\nucx_info -d\necho "tls=$UCX_TLS"\n'
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    code, output = processes.run(["sh", "-euc", script], env=env)
    assert code == 0, output
    assert "Transport: utofu" in output and "tls=utofu,self" in output


def test_perftest_prints_table_and_verdict(cli, tmp_path):
    code, output = cli(
        "perftest", "--size", "8,4K", "--iters", "2000", "--json", "result.json"
    )
    assert code == 0, output
    assert re.search(r"^put_lat +short +8 B +2000 ", output, re.M)
    assert re.search(r"^put_bw +zcopy +4 KiB +2000 ", output, re.M)
    assert re.search(
        r"^utofu on (emulator|tofu) \(.*\): put 8 B [\d.]+ us, "
        r"put peak [\d.]+ GB/s at ",
        output,
        re.M,
    )
    results = json.loads((tmp_path / "result.json").read_text())["results"]
    assert [(r["test"], r["size"]) for r in results] == [
        ("put_lat", 8),
        ("put_lat", 4096),
        ("put_bw", 8),
        ("put_bw", 4096),
    ]
    assert all(0 < r["latency"] < 1 and r["bandwidth"] > 0 for r in results)


@pytest.mark.parametrize("path", ["no/folder/x", ""])
def test_perftest_looks_at_its_output_before(cli, path):
    code, output = cli("perftest", "--size", "8", "--iters", "100", "--json", path)
    assert code == 2 and "No such file" in output and "put_lat" not in output


@pytest.mark.parametrize("option", ["--seconds", "--timeout"])
def test_perftest_takes_no_nan(cli, option):
    code, output = cli("perftest", "--size", "8", option, "nan")
    assert code == 2 and "is not a number" in output


@pytest.mark.parametrize("test", ["am_lat", "fadd", "tag_lat", "ucp_put_lat"])
def test_perftest_other_tests(cli, test):
    code, output = cli("perftest", "--test", test, "--size", "8", "--iters", "1000")
    assert code == 0, output
    assert f"{test.removesuffix('_lat')} 8 B" in output


@pytest.mark.parametrize(
    "test, said",
    [
        ("nonsense", "no test 'nonsense'; there are am_lat, put_lat, "),
        ("get_lat", "no test 'get_lat' (ucx_perftest calls it get); there are "),
        ("ucp_add_mr", "(ucx_perftest calls it ucp_add)"),
    ],
)
def test_perftest_without_such_a_test(cli, test, said):
    code, output = cli("perftest", "--test", "put_lat", "--test", test)
    assert code == 2 and said in output and "p50" not in output
    assert len([line for line in output.splitlines() if "tag_lat" in line]) == 1


def test_perftest_takes_another_port(monkeypatch):
    """A port that somebody took after it was found free."""
    look, ports = perftest._free_port, []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))

        def free_port():
            ports.append(look() if ports else other.getsockname()[1])
            return ports[-1]

        monkeypatch.setattr(perftest, "_free_port", free_port)
        row = perftest.run("put_lat", "sysv", 8, iterations=100)
    assert row.iterations == 100 and len(ports) == 2


def test_perftest_over_stock_transport(cli):
    code, output = cli(
        "perftest",
        "--transport",
        "sysv",
        "--test",
        "put_lat",
        "--size",
        "8",
        "--iters",
        "1000",
    )
    assert code == 0, output
    assert output.splitlines()[-1].startswith("sysv: put 8 B ")


def test_perftest_reports_the_tools_error(cli):
    code, output = cli("perftest", "--transport", "nosuch", "--size", "8")
    assert code == 1
    assert "Transport nosuch was not found" in output
    code, output = cli("perftest", "--size", "8x")
    assert code == 2 and "'8x' is not a size" in output
    code, output = cli("perftest", "--transport", "sysv", "--size", "9" * 20)
    assert code == 1 and "and the host has" in output


def _descendants(pid):
    found, todo = set(), [pid]
    while todo:
        parent = todo.pop()
        for entry in Path("/proc").iterdir():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (OSError, IndexError):
                continue
            if int(fields[1]) == parent:
                found.add(int(entry.name))
                todo.append(int(entry.name))
    return found


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_perftest_leaves_no_child_behind(processes, sent, tmp_path):
    """However it ends, both ucx_perftest end with it."""
    process = processes.start(
        [
            COMMAND,
            "perftest",
            "--test",
            "put_lat",
            "--size",
            "8",
            "--iters",
            "2000000000",
        ],
        cwd=tmp_path,
    )
    deadline = time.monotonic() + 20
    children = set()
    while len(children) < 2 and time.monotonic() < deadline:
        children = _descendants(process.pid)
        time.sleep(0.05)
    assert len(children) == 2
    process.send_signal(sent)
    assert process.wait(20) != 0
    deadline = time.monotonic() + 10
    alive = children
    while alive and time.monotonic() < deadline:
        alive = {pid for pid in children if _runs(pid)}
        time.sleep(0.05)
    assert not alive


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_cpus_are_two_when_there_are_two():
    first, second = perftest.choose_cpus()
    allowed = os.sched_getaffinity(0)
    assert {first, second} <= allowed
    assert (first != second) == (len(allowed) > 1)
