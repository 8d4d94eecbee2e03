# SPDX-License-Identifier: BSD-3-Clause
"""The mirrored structures against the debug information of the installed libuct."""
import re
import shutil
import subprocess

import pytest

from plugin_support import SOURCE

# In our header -> in libuct.  The two names differ where the type is anonymous
# in UCX.
TYPES = {
    "struct uct_component": "struct uct_component",
    "uct_tl_t": "uct_tl_t",
    "uct_tl_device_resource_t": "uct_tl_device_resource_t",
    "struct uct_md": "struct uct_md",
    "struct uct_md_ops": "struct uct_md_ops",
    "uct_md_attr_v2_t": "uct_md_attr_v2_t",
    "uct_md_mem_reg_params_t": "uct_md_mem_reg_params_t",
    "uct_md_mem_dereg_params_t": "uct_md_mem_dereg_params_t",
    "uct_md_mkey_pack_params_t": "uct_md_mkey_pack_params_t",
    "uct_rkey_unpack_params_t": "uct_rkey_unpack_params_t",
    "uct_rkey_compare_params_t": "uct_rkey_compare_params_t",
    "struct uct_iface_config": "struct uct_iface_config",
    "uct_iface_attr_v2_t": "uct_iface_attr_v2_t",
    "uct_perf_attr_t": "uct_perf_attr_t",
    "uct_iface_is_reachable_params_t": "uct_iface_is_reachable_params_t",
    "uct_ep_is_connected_params_t": "uct_ep_is_connected_params_t",
    "uct_ep_attr_t": "uct_ep_attr_t",
    "uct_iface_internal_ops_t": "uct_iface_internal_ops_t",
    "uct_am_handler_t": "uct_am_handler_t",
    "uct_worker_progress_t": "uct_worker_progress_t",
    "uct_priv_worker_t": "uct_priv_worker_t",
    "uct_base_iface_t": "uct_base_iface_t",
    "uct_base_ep_t": "uct_base_ep_t",
}

ENUMS = [
    "uct_ep_operation_t", "uct_iface_reachability_scope_t",
]

# Named constants of anonymous enums, asked for by value.
CONSTANTS = [
    "UCT_MD_MEM_REG_FIELD_FLAGS", "UCT_MD_MEM_REG_FIELD_DMABUF_FD",
    "UCT_MD_MEM_REG_FIELD_MEM_TYPE", "UCT_MD_MEM_DEREG_FIELD_MEMH",
    "UCT_MD_MEM_DEREG_FIELD_FLAGS", "UCT_MD_MEM_DEREG_FIELD_COMPLETION",
    "UCT_MD_MEM_DEREG_FLAG_INVALIDATE",
    "UCT_IFACE_ATTR_FIELD_MAX_PUT_SGL_ZCOPY_COUNT",
    "UCT_IFACE_ATTR_FIELD_CAP_FLAGS", "UCT_IFACE_ATTR_FIELD_TX_TOKEN_LENGTH",
    "UCT_IFACE_ATTR_FIELD_RX_TOKEN_LENGTH",
    "UCT_PERF_ATTR_FIELD_OPERATION", "UCT_PERF_ATTR_FIELD_SEND_PRE_OVERHEAD",
    "UCT_PERF_ATTR_FIELD_SEND_POST_OVERHEAD",
    "UCT_PERF_ATTR_FIELD_RECV_OVERHEAD", "UCT_PERF_ATTR_FIELD_BANDWIDTH",
    "UCT_PERF_ATTR_FIELD_PATH_BANDWIDTH", "UCT_PERF_ATTR_FIELD_LATENCY",
    "UCT_PERF_ATTR_FIELD_MAX_INFLIGHT_EPS", "UCT_PERF_ATTR_FIELD_FLAGS",
    "UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR",
    "UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR",
    "UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING",
    "UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING_LENGTH",
    "UCT_IFACE_IS_REACHABLE_FIELD_SCOPE",
    "UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR_LENGTH",
    "UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR_LENGTH",
    "UCT_EP_IS_CONNECTED_FIELD_DEVICE_ADDR",
    "UCT_EP_IS_CONNECTED_FIELD_IFACE_ADDR",
]

MEMBER = re.compile(r"^/\*\s*(\d+)(?:: *\d+)?\s*\|\s*(\d+)\s*\*/\s+(.*)$")
NAME = re.compile(r"\(\*(\w+)\)|(\w+)(?:\[\d+\])*;")
TOTAL = re.compile(r"total size(?: \(bytes\))?:\s*(\d+)")


def layout(text):
    """(offset, size, name) of every member, in order, and the total size."""
    members = []
    for match in filter(None, map(MEMBER.match, text.splitlines())):
        name = NAME.search(match[3]) # None: the start of a nested structure
        name = name and (name[1] or name[2]).strip("_")
        members.append((int(match[1]), int(match[2]), name))
    totals = TOTAL.findall(text)
    assert totals, text
    return members, int(totals[-1])


def gdb(binary, commands):
    """Output of each command; a marker separates them."""
    args = ["gdb", "-batch", "-nx", "-ex", "set print type nested-type-limit unlimited"]
    for command in commands:
        args += ["-ex", "echo @@@\\n", "-ex", command]
    done = subprocess.run([*args, str(binary)], capture_output=True, text=True,
                          timeout=120)
    parts = done.stdout.split("@@@\n")[1:]
    assert len(parts) == len(commands), done.stdout + done.stderr
    return dict(zip(commands, parts)), done.stderr


@pytest.fixture(scope="module")
def ours(ucx, tmp_path_factory):
    """An object file with debug information of our header."""
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed: layouts can't be read from libuct")
    directory = tmp_path_factory.mktemp("layout")
    source = directory / "layout.c"
    uses = "\n".join(f"{name} *use_{i};" for i, name in enumerate([*TYPES, *ENUMS]))
    constants = "\n".join(f"unsigned long use_{name} = {name};" for name in CONSTANTS)
    source.write_text(f'#include "uct_utofu_compat.h"\n{uses}\n{constants}\n')
    target = directory / "layout.o"
    subprocess.run(["cc", "-std=gnu11", "-D_GNU_SOURCE", "-g3", "-c",
                    f"-I{SOURCE / 'plugin'}", "-isystem", str(ucx / "include"),
                    str(source), "-o", str(target)], check=True)
    return target


def test_layouts(ucx, ours):
    here, _ = gdb(ours, [f"ptype /o {name}" for name in TYPES])
    there, err = gdb(ucx / "lib" / "libuct.so.0",
                     [f"ptype /o {name}" for name in TYPES.values()])
    different = {}
    for mine, theirs in TYPES.items():
        text = there[f"ptype /o {theirs}"]
        assert TOTAL.search(text), f"libuct has no {theirs}: {text}{err}"
        a, b = layout(here[f"ptype /o {mine}"]), layout(text)
        assert a[1] > 0
        if a != b:
            different[mine] = (here[f"ptype /o {mine}"], text)
    assert not different, "\n".join(f"{k}:\n{a}\n{b}"
                                    for k, (a, b) in different.items())


def test_enums(ucx, ours):
    members = [line.split("=")[0].strip() for line in
               re.findall(r"^    (UCT_EP_OP_\w+)", (SOURCE / "plugin" /
                          "uct_utofu_compat.h").read_text(), re.M)]
    assert "UCT_EP_OP_LAST" in members
    commands = [f"print (long){name}" for name in [*CONSTANTS, *members,
                "UCT_IFACE_REACHABILITY_SCOPE_DEVICE",
                "UCT_IFACE_REACHABILITY_SCOPE_NETWORK"]]
    here, _ = gdb(ours, commands)
    there, err = gdb(ucx / "lib" / "libuct.so.0", commands)
    value = re.compile(r"= (-?\d+)")
    for command in commands:
        mine, theirs = value.search(here[command]), value.search(there[command])
        assert mine and theirs, f"{command}: {here[command]} {there[command]} {err}"
        assert mine[1] == theirs[1], command
