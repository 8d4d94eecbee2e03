# SPDX-License-Identifier: BSD-3-Clause
"""The type stubs of the extension modules agree with the modules."""

import subprocess
import sys
from pathlib import Path

import pytest

import uct_tofu

PACKAGE = Path(uct_tofu.lib_dir()).parent
STUBS = sorted(path.stem for path in PACKAGE.glob("*.pyi"))
#: What Cython adds by itself, names of the stubs' own, and classes whose objects
#: cannot be made by a call.
ALLOWED = (
    r"uct_tofu\._\w+\.(.*\.)?(__test__|__(reduce|setstate)_cython__|__buffer__)",
    r"uct_tofu\._\w+\.(_Buffer|_Local)",
    r"uct_tofu\._\w+\.(Backend|RegisteredMemory|Memory|Request)\.__init__",
)


def mypy(module, *arguments, cwd):
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


def test_package_is_typed():
    assert (PACKAGE / "py.typed").is_file()
    assert "_utofu" in STUBS


@pytest.mark.timeout(400)
@pytest.mark.parametrize("module", STUBS)
def test_stub_agrees(module, tmp_path):
    """Names, parameters, defaults, kinds of attributes: what can be seen."""
    allowed = tmp_path / "allowed"
    allowed.write_text("\n".join(ALLOWED))
    code, output = mypy(
        "mypy.stubtest",
        f"uct_tofu.{module}",
        "--concise",
        "--ignore-disjoint-bases",
        f"--allowlist={allowed}",
        "--ignore-unused-allowlist",
        cwd=tmp_path,
    )
    assert code == 0, output


@pytest.mark.timeout(400)
def test_types_of_a_program(tmp_path):
    """A checker accepts right calls, and tells the lines of wrong ones."""
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\n"
        "from uct_tofu._utofu import Backend, Descriptors, OnesidedFlag, ReduceOp\n"
        "from uct_tofu._utofu import Vbg, VbgSetting, Vcq\n"
        "backend = Backend.load()\n"
        "with Vcq(backend, backend.onesided_tnis()[0]) as vcq:\n"
        "    with vcq.reg_mem(np.zeros(8)) as mem, vcq.reg_mem(bytearray(8)):\n"
        "        flags = OnesidedFlag.TCQ_NOTICE | OnesidedFlag.path(1)\n"
        "        vcq.put(vcq.id, mem.stadd, mem.stadd_at(8), 8, flags=flags)\n"
        "        batch = Descriptors(vcq)\n"
        "        batch.put_piggyback(vcq.id, b'x', mem.stadd)\n"
        "        vcq.post_toq(batch, cbdata=3)\n"
        "        notice = vcq.poll_mrq()\n"
        "        print(notice.edata if notice is not None else vcq.wait_tcq(1.5))\n"
        "with Vbg(backend, 0) as vbg:\n"
        "    vbg.set([VbgSetting(vbg.ids[0]), (1, 2, None)])\n"
        "    vbg.reduce_uint64(ReduceOp.SUM, np.array([1], np.uint64))\n"
        "    vbg.reduce_double(ReduceOp.BFPSUM, [1, 2.5])\n"
        "    print(vbg.wait_reduce_double().sum())\n"
        "vcq.put(vcq.id, 1.5, 2, 8)\n"  # line 19
        "vcq.reg_mem('text')\n"
        "vcq.wait_mrq('soon')\n"
        "vcq.poll_mrq().edata\n"
        "vbg.reduce_uint64(ReduceOp.SUM, [1.5])\n"
        "vbg.no_such_method()\n"
    )
    code, output = mypy("mypy", "--strict", "program.py", cwd=tmp_path)
    lines = {
        int(line.split(":")[1]) for line in output.splitlines() if ": error" in line
    }
    assert code == 1 and lines == {19, 20, 21, 22, 23, 24}, output
