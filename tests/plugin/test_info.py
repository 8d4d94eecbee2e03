# SPDX-License-Identifier: BSD-3-Clause
"""What stock ucx_info says about the transport."""
import re

import pytest


def attributes(text):
    """The lines "# key: value" of one transport."""
    return {key.strip(): value.strip()
            for key, value in re.findall(r"^#\s+([^:#]+):(.*)$", text, re.M)}


def utofu_part(text):
    parts = [part for part in re.split(r"^#\n# Memory domain: ", text, flags=re.M)
             if part.startswith("utofu\n")]
    assert len(parts) == 1, text
    return parts[0]


@pytest.fixture
def info(ucx, run, env):
    def function(*args, **variables):
        return run([ucx / "bin" / "ucx_info", *args], {**env, **variables})

    return function


def test_listed(info):
    process = info("-d")
    text = utofu_part(process.out)
    attrs = attributes(text)
    assert attrs["Transport"] == "utofu" and attrs["Device"] == "tofu0"
    assert attrs["Type"] == "network" and attrs["connection"] == "to iface"
    assert "failed" not in text
    assert process.err == "", str(process)


def test_capabilities(info):
    """Each advertised operation is one that test_perftest.py runs."""
    attrs = attributes(utofu_part(info("-d").out))
    for name in ("put_short", "put_bcopy", "put_zcopy", "get_bcopy", "get_zcopy",
                 "am_short", "am_bcopy", "am_zcopy"):
        assert name in attrs, f"{name} in {attrs}"
    for name in ("add", "and", "or", "xor", "fadd", "fand", "for", "fxor", "swap",
                 "cswap"):
        assert attrs[f"atomic_{name}"] == "32, 64 bit"
    assert attrs["domain"] == "cpu"
    assert "get_short" not in attrs and "event" not in " ".join(attrs)
    assert int(attrs["remote key"].split()[0]) <= 255
    assert attrs["memory types"] == "host (access,alloc,reg,cache)"


def test_configuration(info):
    text = info("-cf").out
    for name, value in [("BACKEND", ""), ("TNI", "auto"), ("TNIS", "all"), ("MAX_CQS", "auto"),
                        ("MAX_VCQS", "auto"),
                        ("STRIPE_THRESH", "auto"), ("ALLOC", "md,thp,mmap,heap"),
                        ("AM_SEG_SIZE", "auto"), ("RX_SLOTS", "auto"),
                        ("RX_SHORT_SLOTS", "auto"), ("TX_BOUNCE", "auto"),
                        ("TX_NOTIFIED", "auto"), ("STRONG_ORDER", "n"),
                        ("STATS", "n"),
                        ("BANDWIDTH", "auto"), ("LATENCY", "auto"),
                        ("OVERHEAD", "auto")]:
        match = re.search(rf"((?:^#.*\n)+)\nUCX_UTOFU_{name}=(.*)$|"
                          rf"((?:^#.*\n)+)UCX_UTOFU_{name}=(.*)$", text, re.M)
        assert match, f"UCX_UTOFU_{name} in {text}"
        assert (match[2] if match[1] else match[4]) == value
        doc = re.sub(r"[#\s]+|syntax:.*", " ", match[1] or match[3]).strip()
        assert len(doc) > 20, f"UCX_UTOFU_{name} has no documentation"


def test_overrides(info):
    attrs = attributes(utofu_part(info(
        "-d", UCX_UTOFU_LATENCY="3us", UCX_UTOFU_OVERHEAD="250ns",
        UCX_UTOFU_BANDWIDTH="2097152000Bps").out))
    assert attrs["latency"] == "3000 nsec" and attrs["overhead"] == "250 nsec"
    assert "2000.00 MB/sec" in attrs["bandwidth"]


@pytest.mark.parametrize("name,value", [
    ("LATENCY", "fast"), ("LATENCY", "-1us"), ("OVERHEAD", "1"[:0] + "x"),
    ("BANDWIDTH", "12"), ("RX_SLOTS", "many"), ("AM_SEG_SIZE", "-"),
    ("STRONG_ORDER", "maybe"), ("TNI", "x"), ("MAX_VCQS", "x"), ("STRIPE_THRESH", "x")])
def test_bad_value(ucx, start, env, name, value):
    """A value that can't be read is named, and nothing crashes."""
    process = start([ucx / "bin" / "ucx_info", "-d"],
                    {**env, f"UCX_UTOFU_{name}": value})
    assert process.wait(60) >= 0, str(process)
    assert name in process.out + process.err, str(process)


@pytest.mark.parametrize("name", ["RX_SLOTS", "RX_SHORT_SLOTS", "TX_BOUNCE",
                                  "TX_NOTIFIED"])
@pytest.mark.parametrize("value", ["0", "inf", "99999999999"])
def test_impossible_count(ucx, start, env, name, value):
    process = start([ucx / "bin" / "ucx_info", "-d", "-t", "utofu"],
                    {**env, f"UCX_UTOFU_{name}": value})
    assert process.wait(60) >= 0, str(process)
    assert f"UCX_UTOFU_{name}" in process.out + process.err, str(process)
    assert "failed to open interface" in process.out


def test_no_tni(ucx, start, env):
    process = start([ucx / "bin" / "ucx_info", "-d", "-t", "utofu"],
                    {**env, "UCX_UTOFU_TNI": "1000"})
    assert process.wait(60) >= 0, str(process)
    assert "TNI 1000" in process.out + process.err, str(process)


def test_no_backend(info):
    """Without the machine's library there is no such transport, and no noise."""
    process = info("-d", UCX_UTOFU_BACKEND="tofu")
    assert "utofu" not in process.out and process.err == "", str(process)
    assert "Transport: tcp" in process.out
    process = info("-d", UCX_UTOFU_BACKEND="tofu", UCX_LOG_LEVEL="diag")
    lines = [line for line in (process.out + process.err).splitlines()
             if "no uTofu library" in line]
    assert len(lines) == 1 and "libtofucom" in lines[0], str(process)


def test_unknown_backend(info):
    process = info("-d", UCX_UTOFU_BACKEND="ib", UCX_LOG_LEVEL="diag")
    lines = [line for line in (process.out + process.err).splitlines()
             if "no uTofu library" in line]
    assert len(lines) == 1 and "ib" in lines[0], str(process)


def test_backend_variable(info):
    """UCX's variable wins over the package's, and either is enough."""
    process = info("-d", UCT_TOFU_BACKEND="tofu", UCX_UTOFU_BACKEND="emulator")
    assert "Transport: utofu" in process.out
    assert "Transport: utofu" not in info("-d", UCT_TOFU_BACKEND="tofu").out


def test_disabled(info):
    assert "utofu" not in info("-d", UCX_MODULES="^utofu").out


def test_ucx_conf(ucx, run, env, plugin_dir, tmp_path):
    """The plugin's folder and its variables may also come from a file."""
    del env["UCX_PLUGIN_PATH"]
    (tmp_path / "ucx.conf").write_text(f"UCX_PLUGIN_PATH={plugin_dir}\n"
                                       "UCX_UTOFU_LATENCY=7us\n")
    process = run([ucx / "bin" / "ucx_info", "-d", "-t", "utofu"],
                  {**env, "UCX_CONFIG_DIR": str(tmp_path)})
    assert "7000 nsec" in process.out, str(process)


def test_context(ucx, run, env):
    """UCP alone on the transport: it has what every feature asks for."""
    process = run([ucx / "bin" / "ucx_info", "-e", "-u", "tarmse"],
                  {**env, "UCX_TLS": "utofu"})
    assert "utofu/tofu0" in process.out and process.err == "", str(process)
