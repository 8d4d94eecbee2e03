# SPDX-License-Identifier: BSD-3-Clause
"""perf/fugaku/cross.sh: all native parts for aarch64, and what runs under qemu.

UCT_TOFU_AARCH64_UCX may name an unpacked aarch64 wheel of libucx 1.22 (the folder that
holds include and lib): then the kernels on UCX are linked, and run with the plugin.
Without it plugin and kernels are compiled with the headers of this host's libucx.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from uct_tofu import _paths

TOP = Path(__file__).resolve().parents[2]
CYTHON = TOP / "cython"
CC = "aarch64-linux-gnu-gcc"
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
SYSROOT = Path("/usr/aarch64-linux-gnu")
UCX = os.environ.get("UCT_TOFU_AARCH64_UCX")
MODULES = sorted(CYTHON.glob("*/*.pyx"))

pytestmark = [
    pytest.mark.skipif(shutil.which(CC) is None, reason=f"no {CC}"),
    pytest.mark.timeout(1800),  # a minute on an idle machine
]
needs_qemu = pytest.mark.skipif(
    QEMU is None or not SYSROOT.exists(), reason="no user-mode qemu"
)


@pytest.fixture(scope="module")
def headers(tmp_path_factory):
    """UCX's headers without libraries beside them, which are those of this host."""
    folder = tmp_path_factory.mktemp("ucx")
    (folder / "include").symlink_to(_paths.ucx_dir() / "include")
    return folder / "include"


@pytest.fixture(scope="module")
def built(tmp_path_factory, headers):
    """What cross.sh makes: the folder of the build."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if shutil.which("cmake", path=path) is None:
        pytest.skip("no cmake")
    out = tmp_path_factory.mktemp("cross") / "build"
    env = {**os.environ, "PATH": path, "UCT_TOFU_CC": CC}
    env["UCX_INCLUDE_DIR"] = f"{UCX}/include" if UCX else str(headers)
    done = subprocess.run(
        ["sh", "cross.sh", str(out), "-DUCT_TOFU_LTO=OFF"],
        check=False,
        cwd=TOP / "perf" / "fugaku",
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return out


def test_all_native_parts_are_for_aarch64(built):
    names = ["lib/libtofucom.so", "lib/libtofu_core.so", "lib/ucx/libuct_utofu.so.0"]
    names += ["libexec/emu_info", "libexec/perf_utofu", "libexec/perf_uct"]
    names += ["libexec/perf_libuct", "libexec/perf_ucp"] if UCX else []
    for name in names:
        head = (built / name).read_bytes()[:20]
        assert head[:4] == b"\x7fELF" and head[18:20] == b"\xb7\x00", name  # EM_AARCH64


def compiled(sources, tmp_path, *flags):
    command = [CC, "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-c", "-fPIC", *flags]
    command += [f"-I{CYTHON / 'abi'}", f"-I{CYTHON / 'core'}", *map(str, sources)]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for source in sources:
        assert (tmp_path / source.with_suffix(".o").name).stat().st_size > 0


def test_kernels_on_ucx_compile(headers, tmp_path):
    sources = [CYTHON / "perf" / f"perf_{layer}.c" for layer in ("libuct", "ucp")]
    compiled(sources, tmp_path, "-Wall", "-Wextra", "-Werror", f"-isystem{headers}")


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_extensions_compile(module, headers, tmp_path):
    """To objects: Python's headers are those of this host, also of 64 bits."""
    pytest.importorskip("Cython")
    include = Path(sysconfig.get_paths()["include"])
    if not (include / "Python.h").exists():
        pytest.skip("no headers of Python")
    flags = [f"-I{include}", f"-I{module.parent}", f"-isystem{headers}", "-w"]
    # Debian has a pyconfig.h for each architecture: only that of this host is there
    for path in Path("/usr/include").glob(f"*/{include.name}/pyconfig.h"):
        other = tmp_path / "include" / "aarch64-linux-gnu" / include.name
        other.mkdir(parents=True)
        (other / "pyconfig.h").symlink_to(path)
        flags.append(f"-I{tmp_path / 'include'}")
        break
    source = tmp_path / f"{module.stem}.c"
    subprocess.run(
        [sys.executable, "-m", "cython", "-3", "-I", str(CYTHON)]
        + ["-o", str(source), str(module)],
        check=True,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
        timeout=600,
    )
    compiled([source], tmp_path, *flags)


def kernel(processes, built, layer, test, *options, env=()):
    words = [QEMU, "-L", str(SYSROOT)]
    for name, value in dict(env).items():
        words += ["-E", f"{name}={value}"]
    words += [str(built / "libexec" / f"perf_{layer}"), f"--test={test}", *options]
    own = {k: v for k, v in os.environ.items() if not k.startswith("UTOFU_")}
    own |= {"UTOFU_EMU_JOB": f"cross-{os.getpid()}-{layer}-{test}"}
    own |= {"UCT_TOFU_BACKEND": "emulator"}
    words += ["--iterations=20", "--limit=90"]
    code, output = processes.run(words, env=own, timeout=110)
    assert code == 0, output
    record = json.loads(output.splitlines()[-1])
    assert record["iterations"] == 20
    return record


@needs_qemu
@pytest.mark.parametrize(
    ("layer", "test"),
    [("utofu", "put_lat"), ("utofu", "reduce"), ("uct", "am_lat"), ("uct", "get_bw")],
)
def test_kernels_run(processes, built, layer, test):
    record = kernel(processes, built, layer, test, "--layout=zcopy")
    assert record["backend"]["library"] == "libtofucom.so"


@needs_qemu
@pytest.mark.skipif(not UCX, reason="no UCX of aarch64: UCT_TOFU_AARCH64_UCX")
@pytest.mark.parametrize(
    ("layer", "test", "layout"),
    [
        ("libuct", "put_lat", "short"),
        ("libuct", "am_bw", "bcopy"),
        ("ucp", "tag_lat", "contig"),
    ],
)
def test_stock_ucx_runs_with_the_plugin(processes, built, layer, test, layout):
    env = {"LD_LIBRARY_PATH": f"{UCX}/lib", "UCX_PLUGIN_PATH": built / "lib" / "ucx"}
    env |= {"UCX_TLS": "utofu"} if layer == "ucp" else {}
    kernel(processes, built, layer, test, f"--layout={layout}", env=env)
