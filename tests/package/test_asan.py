# SPDX-License-Identifier: BSD-3-Clause
"""The Python objects with everything below them built with sanitizers.

The extensions, the core and the emulator are compiled with AddressSanitizer and
UndefinedBehaviorSanitizer into a folder that looks like the installed package, and
tests of the objects run on it in another interpreter.  Leaks are not looked for:
the interpreter itself has them; test_fuzz_raw.py counts objects and files.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from parallel_cc import run_cc

import uct_tofu

HERE = Path(__file__).resolve().parent
CYTHON = HERE.parents[1] / "cython"

#: What runs on it; those that are about other things than the objects are not here.
TESTS = [
    "test_fuzz_raw.py",
    "test_onesided_objects.py",
    "test_vbg_objects.py",
    "test_utofu.py",
    "test_objects.py",
    "test_buffers.py",
    "test_messages.py",
    "test_requests.py",
    "test_lifetimes.py",
    "test_stateful.py",
]
#: They give the loader a library of their own, compare its path, or take long.
EXCEPT = "not packaged and not missing and not full_node"

#: What is said of an allocation that is too large, which is no error here.
REFUSED = "WARNING: AddressSanitizer failed to allocate"

FLAGS = [
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-fno-omit-frame-pointer",
    "-D_GNU_SOURCE",
    "-g1",
    "-shared",
    "-fPIC",
    "-pthread",
]


def run(command, **kwargs):
    command = list(map(str, command))
    done = subprocess.run(command, capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stderr[-8000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def libasan(cc):
    """The runtime, to be loaded before the interpreter's own libraries."""
    if shutil.which(cc[0]) is None:
        pytest.skip("no C compiler")
    path = run([*cc, "-print-file-name=libasan.so"]).strip()
    if not os.path.isabs(path):
        pytest.skip("the compiler has no libasan (Debian: libasan8; Fedora: libasan)")
    return os.path.realpath(path)


@pytest.fixture(scope="session")
def package(cc, libasan, tmp_path_factory):
    """Folder with a package uct_tofu whose native parts are sanitized."""
    top = tmp_path_factory.mktemp("asan")
    package = top / "uct_tofu"
    installed = Path(uct_tofu.lib_dir()).parent
    shutil.copytree(
        installed,
        package,
        ignore=shutil.ignore_patterns("*.so", "__pycache__", "ucx", "model"),
    )
    lib = package / "lib"
    abi, core, emu = CYTHON / "abi", CYTHON / "core", CYTHON / "emu"
    shutil.copytree(uct_tofu.plugin_dir(), lib / "ucx")
    run_cc(
        [*cc, "-std=gnu11", "-O0", *FLAGS, f"-I{abi}", "-fvisibility=hidden"]
        + ["-Wl,-soname,libtofucom.so", f"-Wl,--version-script={emu}/libtofucom.map"]
        + [*sorted(emu.glob("*.c")), "-o", lib / "libtofucom.so"]
    )
    run_cc(
        [*cc, "-std=gnu11", "-O0", *FLAGS, f"-I{abi}", f"-I{core}"]
        + [f"-Wl,--version-script={CYTHON}/libtofu_core.map", "-ldl"]
        + [*sorted(abi.glob("*.c")), *sorted(core.glob("*.c"))]
        + ["-o", lib / "libtofu_core.so"]
    )
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for name in ("_utofu", "_core"):
        c_file = top / f"{name}.c"
        run(
            [sys.executable, "-m", "cython", "-3", "-I", CYTHON, "-o", c_file]
            + [CYTHON / "uct_tofu" / f"{name}.pyx"]
        )
        run(
            [*cc, "-O0", *FLAGS, "-w", f"-I{abi}", f"-I{core}"]
            + [f"-I{sysconfig.get_paths()['include']}", c_file, f"-L{lib}"]
            + ["-ltofu_core", "-Wl,-rpath,$ORIGIN/lib"]
            + ["-o", package / f"{name}{suffix}"]
        )
    return top


def environment(package, libasan, reports):
    env = {k: v for k, v in os.environ.items() if not k.startswith("UTOFU_")}
    options = [f"log_path={reports}", "exitcode=77"]
    env.update(
        PYTHONPATH=str(package),
        LD_PRELOAD=libasan,
        PYTHONMALLOC="malloc",
        UTOFU_EMU_JOB=f"asan-{os.getpid()}",
        # a refused allocation is a result: MemoryError
        ASAN_OPTIONS=":".join(
            [*options, "detect_leaks=0", "allocator_may_return_null=1"]
            + ["quarantine_size_mb=32", "malloc_context_size=6"]
        ),
        UBSAN_OPTIONS=":".join([*options, "print_stacktrace=1"]),
    )
    return env


@pytest.mark.timeout(900)
def test_objects_under_sanitizers(package, libasan, tmp_path, processes):
    reports = tmp_path / "report"
    env = environment(package, libasan, reports)
    env.setdefault("UCT_TOFU_FUZZ_EXAMPLES", "10")
    tests = [HERE / name for name in TESTS if (HERE / name).exists()]
    code, output = processes.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        + ["-k", EXCEPT, *map(str, tests)],
        env=env,
        cwd=tmp_path,
        timeout=800,
    )
    lines = [
        line
        for path in sorted(tmp_path.glob("report.*"))
        for line in path.read_text().splitlines()
        if REFUSED not in line
    ]
    found = "\n".join(lines)
    assert not found, found[:8000]
    assert code == 0, output[-8000:]
    assert " passed" in output


def test_the_sanitized_package_is_used(package, libasan, tmp_path):
    """And a wrong access in it is reported: otherwise the test above is worth
    nothing."""
    env = environment(package, libasan, tmp_path / "report")
    where = run(
        [
            sys.executable,
            "-c",
            "import uct_tofu as u, uct_tofu._utofu as r, uct_tofu._core as c\n"
            "print(u.Backend.load('emulator').path, r.__file__, c.__file__)",
        ],
        env=env,
        cwd=tmp_path,
    ).split()
    assert all(Path(path).is_relative_to(package) for path in where), where
    # a descriptor array of one word where the library may write max_toq_desc_size
    code = (
        "import ctypes, sys\n"
        "from uct_tofu import Backend, Vcq\n"
        "b = Backend.load('emulator'); v = Vcq(b, 0)\n"
        "lib = ctypes.CDLL(b.path); libc = ctypes.CDLL(None)\n"
        "libc.malloc.restype = ctypes.c_void_p\n"
        "hdl = ctypes.c_size_t(0)\n"
        "assert lib.utofu_create_vcq(0, ctypes.c_ulong(0), ctypes.byref(hdl)) == 0\n"
        "lib.utofu_prepare_nop(hdl, ctypes.c_ulong(0),\n"
        "                      ctypes.c_void_p(libc.malloc(1)),\n"
        "                      ctypes.byref(ctypes.c_size_t()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=tmp_path)
    reports = "".join(p.read_text() for p in tmp_path.glob("report.*"))
    assert done.returncode == 77 and "heap-buffer-overflow" in reports
