# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures for all tests: paths, a C compiler, processes that never stay."""

import contextlib
import gc
import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import uct_tofu
from uct_tofu import _paths

TESTS = Path(__file__).resolve().parent

# What "import ucxx" needs apart from NumPy and UCX.
UCXX_PACKAGES = (
    "ucxx-cu12",
    "libucxx-cu12",
    "librmm-cu12",
    "rmm-cu12",
    "rapids-logger",
    "cuda-bindings<13",
    "cuda-core<2",
    "cuda-pathfinder",
    "nvidia-ml-py",
)


@pytest.fixture(scope="session")
def include_dir():
    """Directory of the installed utofu.h."""
    return Path(uct_tofu.include_dir())


@pytest.fixture(scope="session")
def lib_dir():
    """Directory of the installed libtofucom.so."""
    return Path(uct_tofu.lib_dir())


@pytest.fixture(scope="session")
def plugin_dir():
    """Directory of the installed UCX plugin."""
    return Path(uct_tofu.plugin_dir())


@pytest.fixture(scope="session")
def ucx_dir():
    """Directory of the libucx wheel."""
    return _paths.ucx_dir()


@pytest.fixture(scope="module", autouse=True)
def _few_objects_to_collect():
    """What pytest has of 4000 tests is not looked at by each gc.collect() of a test:
    those that call it often took ten times as long."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def cc():
    """The C compiler as a list of words."""
    words = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(words[0]) is None:
        pytest.fail(f"no C compiler: {words[0]} (README names the package)")
    return words


@pytest.fixture(scope="session")
def compile_c(cc, include_dir, lib_dir, tmp_path_factory):
    """compile_c(sources, *flags, name=...) -> path of a linked program.

    Sources are paths or one str of C text; it links libtofucom by rpath.
    """
    folder = tmp_path_factory.mktemp("cc")

    def build(sources, *flags, name="program", link=True):
        output = folder / f"{name}-{len(list(folder.iterdir()))}"
        if isinstance(sources, str):
            source = output.with_suffix(".c")
            source.write_text(sources)
            sources = [source]
        command = [*cc, "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
        command += [f"-I{include_dir}", *map(str, sources), "-o", str(output)]
        if link:
            command += [f"-L{lib_dir}", "-ltofucom", f"-Wl,-rpath,{lib_dir}"]
        command += [*flags, "-lpthread", "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stderr}"
        return output

    return build


@pytest.fixture(scope="session")
def ucxx_path(tmp_path_factory):
    """Folder to put into the path for ucxx; "" when it is installed."""
    if importlib.util.find_spec("ucxx") is not None:
        return ""
    folder = tmp_path_factory.mktemp("ucxx")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:"]
    done = subprocess.run(
        [*command, "--target", str(folder), *UCXX_PACKAGES],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    if done.returncode != 0:
        last = done.stdout.strip().splitlines()[-1:]
        pytest.skip(f"ucxx is not installed and pip can't fetch it: {last}")
    return str(folder)


def _default_sigint():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Processes:
    """Starts processes in groups of their own and ends them all."""

    def __init__(self):
        self.started = []

    def start(self, command, **kwargs):
        """As subprocess.Popen, with text pipes for stdout and stderr."""
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.STDOUT)
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        kwargs.setdefault("text", True)
        # A shell's background job ignores SIGINT, and so would all it starts.
        kwargs.setdefault("preexec_fn", _default_sigint)
        process = subprocess.Popen(command, start_new_session=True, **kwargs)
        self.started.append(process)
        return process

    def run(self, command, timeout=60, **kwargs):
        """Run to the end; returns (exit code, output)."""
        process = self.start(command, **kwargs)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.stop(process)
            output, _ = process.communicate()
            pytest.fail(f"{command} did not end within {timeout} s:\n{output}")
        return process.returncode, output

    def stop(self, process):
        """Kill the process and all it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGCONT)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr, process.stdin):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def stop_all(self):
        """Kill everything that was started here."""
        for process in self.started:
            self.stop(process)


@pytest.fixture
def processes():
    """A Processes object; what it started is gone after the test."""
    manager = Processes()
    yield manager
    manager.stop_all()


@pytest.fixture
def job(monkeypatch):
    """An emulator job of the test's own, in this process' environment."""
    name = f"test-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("UTOFU_EMU_JOB", name)
    return name


def _children():
    """Process ids and names of the living children of this process."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            text = (entry / "stat").read_text()
            name, fields = text.rsplit(")", 1)
            state, parent = fields.split()[:2]
            # Python keeps this one for multiprocessing until it ends itself.
            command = (entry / "cmdline").read_bytes()
            if b"multiprocessing.resource_tracker" in command:
                continue
            if int(parent) == os.getpid() and state != "Z":
                found.append(f"{entry.name} {name.split('(', 1)[1]}")
    return found


def _shared_files():
    """Files of this project in shared memory, of this user."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path("/dev/shm").iterdir():
            with contextlib.suppress(OSError):
                if "tofu" in entry.name and entry.stat().st_uid == os.getuid():
                    found.add(str(entry))
    return found


@pytest.fixture(scope="session", autouse=True)
def nothing_left():
    """After all tests: no child lives, and shared memory is as it was before."""
    before = _shared_files()
    yield
    deadline = time.monotonic() + 5
    while True:
        children, files = _children(), _shared_files() - before
        if not children and not files:
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    pytest.fail(f"left after the tests: children {children}, files {sorted(files)}")
