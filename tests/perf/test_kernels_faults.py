# SPDX-License-Identifier: BSD-3-Clause
"""What the emulator is told to do wrong, the kernels find and name."""

import pytest

from uct_tofu.perf import kernels


def run(layer, test, fault, *words):
    env = kernels.environment(layer, "utofu") | {"UTOFU_EMU_FAULT": fault}
    command = [*kernels.kernel(layer), f"--test={test}", "--iterations=200", *words]
    return kernels.execute(
        [*command, "--limit=90"], env, 100, what=f"{test} of the layer {layer}"
    )


@pytest.mark.parametrize(
    ("layer", "test", "fault", "said"),
    [
        ("utofu", "put_bw", "put:after=50:count=1:error=MRQ_PEER", "MRQ_PEER"),
        ("utofu", "put_bw", "put:after=50:count=1:error=TCQ_MEMORY", "TCQ_MEMORY"),
        ("utofu", "get_lat", "get:after=50:error=MRQ_RMT_STADD", "MRQ_RMT_STADD"),
        ("utofu", "fadd", "armw:after=50:error=MRQ_RMT_MEMORY", "MRQ_RMT_MEMORY"),
        ("utofu", "put_lat", "vcq:error=FULL", "create_vcq.*UTOFU_ERR_FULL"),
        ("utofu", "reg_mem", "reg:after=9:error=OUT_OF_MEMORY", "reg_mem.*OUT_OF_MEM"),
        ("uct", "put_bw", "put:after=50:count=1:error=MRQ_RMT_STADD", "tofu_iface|put"),
        ("uct", "get_bw", "get:after=50:error=MRQ_PEER", "perf_uct get_bw"),
    ],
)
def test_a_fault_is_named(layer, test, fault, said):
    with pytest.raises(kernels.KernelError, match=said) as raised:
        run(layer, test, fault)
    assert test in str(raised.value) and f"perf_{layer}" in str(raised.value)


@pytest.mark.parametrize("fault", ["any:every=3:busy", "any:every=9:delay=50", "toq=4"])
@pytest.mark.parametrize(
    ("layer", "test"),
    [("utofu", "put_bw"), ("utofu", "put_rate"), ("utofu", "gups"), ("uct", "put_lat")],
)
def test_full_queues_and_delays_are_survived(layer, test, fault):
    (result,) = run(layer, test, fault)
    assert result["iterations"] == 200
