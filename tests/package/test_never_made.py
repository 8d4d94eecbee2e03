# SPDX-License-Identifier: BSD-3-Clause
"""Objects from ``__new__`` alone, on which __init__ never ran: errors, no crash."""

import sys

import pytest

PROGRAM = """
import faulthandler, importlib, inspect, sys
faulthandler.enable()
module = importlib.import_module(sys.argv[1])
ARGUMENTS = [(), (b"x",), (1,), (1, b"x"), (b"x", 1), (None,), (b"x", None), (1, 1, 1)]
# object's own, which do not look at the members
SKIP = set(dir(object)) - {"__repr__", "__reduce__"}
if sys.argv[1] == "uct_tofu":
    module.Backend.load()
for name in module.__all__:
    cls = getattr(module, name)
    if not inspect.isclass(cls) or "." not in getattr(cls, "__module__", ""):
        continue
    if issubclass(cls, (BaseException, tuple, int)) or "._" not in cls.__module__:
        continue
    if inspect.isfunction(cls.__init__):
        continue        # of Python: it cannot crash
    names = [m for m in dir(cls) if m not in SKIP and not m.startswith("__set")]
    print(name, len(names), flush=True)
    for member in names:
        print(" ", name, member, flush=True)
        for arguments in ARGUMENTS:
            try:
                item = cls.__new__(cls)
                value = getattr(item, member)
                if callable(value):
                    value(*arguments)
            except Exception:
                pass
print("no crash")
"""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("package", ["uct_tofu", "ucp_glue"])
def test_no_crash(processes, tmp_path, package):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    code, output = processes.run(
        [sys.executable, "-W", "ignore", str(program), package], timeout=300
    )
    assert code == 0 and "no crash" in output, output[-2000:]
    for name in ("Endpoint", "Memory", "RemoteKey", "Request"):
        assert f"\n  {name} " in output
