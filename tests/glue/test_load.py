# SPDX-License-Identifier: BSD-3-Clause
"""Which UCX the objects use, and what they say when it is not the right one."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

import ucp_glue
from ucp_glue import errors
from uct_tofu import _paths

MAPPED = """
def mapped(name):
    with open("/proc/self/maps") as maps:
        return {line.split()[-1] for line in maps if f"/{name}.so" in line}
"""


def test_import_loads_nothing(script):
    script(
        MAPPED
        + """
assert not mapped("libucs") and not mapped("libucp") and not mapped("libtofucom")
ucp_glue.Context
assert len(mapped("libucp")) == len(mapped("libucs")) == 1
assert "UCX_PLUGIN_PATH" in os.environ
ctx = ucp_glue.Context()
assert ctx.transports == ["utofu/tofu0"]
assert ucp_glue.ucx_version()[:2] == (1, 22)
ctx.close()
"""
    )


@pytest.mark.parametrize("first", ["libucx", "ucp_glue"])
def test_one_copy_in_either_order(script, first):
    """libucx.load_library is what ucxx does: by path, as libucs.so, RTLD_LOCAL."""
    output = script(
        f"first = {first!r}"
        + MAPPED
        + """
import libucx
keep = []
for step in (first, {"libucx": "ucp_glue", "ucp_glue": "libucx"}[first]):
    if step == "libucx":
        keep.append(libucx.load_library())
    else:
        ctx, worker, ep = loop()
assert {t.split("/")[0] for t in ep.transports} == {"utofu"}
request = worker.tag_recv(bytearray(3), 1)
ep.tag_send(b"one", 1)
assert request.wait(PATIENCE) == 3
print("copies", len(mapped("libucp")))
ctx.close()
"""
    )
    assert "copies 1" in output, output


def test_asks_for_utofu_in_vain(script):
    output = script(
        """
text = raises(RuntimeError, ucp_glue.Context)
assert "asks for utofu" in text and "nonsense" in text, text
text = raises(RuntimeError, ucp_glue.Context, config={"TLS": "tcp,utofu"})
assert "tcp,utofu" in text
for tls in ("tcp", "^utofu", "all"):
    with ucp_glue.Context(config={"UCX_TLS": tls}) as ctx:
        assert ctx.transports and "utofu/tofu0" not in ctx.transports
with ucp_glue.Context(config={"TLS": "tcp,utofu"}, utofu=False) as ctx:
    assert "utofu/tofu0" not in ctx.transports
""",
        "tcp,utofu",
        UCT_TOFU_BACKEND="nonsense",
    )
    assert "Traceback" not in output


def test_a_setting_is_why(script):
    """The reason is looked for with the settings of the context."""
    output = script(
        """
text = raises(ucp_glue.UcpUnreachableError, ucp_glue.Context,
              config={"TLS": "utofu", "UTOFU_TNI": "99"})
assert "UCX_UTOFU_TNI" in text and "99" in text, text
"""
    )
    assert "Traceback" not in output


def test_settings(script):
    """config wins over the environment; what is wrong is named."""
    script(
        """
with ucp_glue.Context(config={"TLS": "tcp"}) as ctx:
    assert {t.split("/")[0] for t in ctx.transports} == {"tcp"}, ctx.transports
with ucp_glue.Context(config={"RNDV_THRESH": 100, "UCX_TLS": "utofu"}) as ctx:
    worker = ctx.worker()
    ep = worker.connect(worker.address)
    inbox = worker.am_messages(1)
    ep.am_send(1, bytes(200))
    assert inbox.get(PATIENCE).rendezvous
assert "UCX_NONSENSE" in raises(ucp_glue.UcpCallerError, ucp_glue.Context,
                                config={"NONSENSE": "1"})
assert "UCX_RNDV_THRESH=x y" in raises(ucp_glue.UcpCallerError, ucp_glue.Context,
                                       config={"RNDV_THRESH": "x y"})
assert "'gpu'" in raises(ValueError, ucp_glue.Context, ["tag", "gpu"])
raises(TypeError, ucp_glue.Context, "tag")
ctx = ucp_glue.Context(["tag"], name="mine")
assert ctx.features == {"tag"}
worker = ctx.worker()
assert worker.event_fd is None
raises(ucp_glue.UcpCallerError, worker.arm)
raises(RuntimeError, ctx.__init__)
raises(RuntimeError, worker.__init__, ctx)
for kind in (ucp_glue.Memory, ucp_glue.Request, ucp_glue.AmMessage):
    raises(TypeError, kind)
raises(TypeError, ucp_glue.Worker, None)
raises(TypeError, ucp_glue.Endpoint, None, b"")
ctx.close()
""",
        UCX_LOG_LEVEL="fatal",
    )


def test_old_ucx_is_refused(script, cc, tmp_path):
    """A library that another package brought: same name, older version."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    extension = next(
        path
        for path in (Path(p) / f"_ucp{suffix}" for p in ucp_glue.__path__)
        if path.exists()
    )
    names = subprocess.run(
        ["nm", "-D", "--undefined-only", extension],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    source = "".join(
        f"void {name}(void) {{}}\n"
        for name in re.findall(r"U (ucp_\w+)", names)
        if name not in ("ucp_get_version", "ucp_get_version_string")
    )
    source += """
    void ucp_get_version(unsigned *a, unsigned *b, unsigned *c)
    { *a = 1; *b = 20; *c = 1; }
    const char *ucp_get_version_string(void) { return "1.20.1"; }
    """
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "old.c").write_text(source)
    subprocess.run(
        [*cc, "-shared", "-fPIC", "-w", "-Wl,-soname,libucp.so.0", "-o"]
        + [folder / "libucp.so.0", folder / "old.c"],
        check=True,
    )
    output = script(
        """
text = raises(RuntimeError, ucp_glue.Context)
assert "1.20.1" in text and "/old/libucp.so.0" in text and "1.22" in text, text
""",
        LD_LIBRARY_PATH=str(folder),
    )
    assert "Traceback" not in output


def test_every_status_has_a_class():
    header = (_paths.ucx_dir() / "include/ucs/type/status.h").read_text()
    found = dict(re.findall(r"^\s*(UCS_\w+)\s*=\s*(-?\d+)", header, re.MULTILINE))
    found = {int(value): name for name, value in found.items() if name != "UCS_ERR_LAST"}
    assert len(found) > 25
    assert found == errors.STATUS_NAMES
    for status in found:
        if status < 0:
            error = errors.status_error("ucp_call", status, "what")
            assert isinstance(error, errors.UcpError)
            assert type(error) is not errors.UcpError
            assert (error.status, error.name) == (status, found[status])
            assert str(error) == f"ucp_call: {found[status]} ({status}): what"
    assert type(errors.status_error("call", -99)) is errors.UcpError
