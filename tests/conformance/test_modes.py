# SPDX-License-Identifier: BSD-3-Clause
"""The whole conformance suite in the emulator's other modes.

They take their time and use every freedom that the guide gives, and do nothing that
it forbids.
"""

import pytest
from test_conformance import CASES, check

MODES = {"strict": {"UTOFU_EMU_STRICT": "1"}, "timed": {"UTOFU_EMU_TIMING": "tofud"}}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_mode(case, mode, conformance_program, run_program, utofu_library):
    if utofu_library.machine:
        pytest.skip("a mode of the emulator")
    check(
        case,
        conformance_program,
        run_program,
        utofu_library,
        timeout=600,
        CONF_PATIENCE="6",  # the thread of the strict mode needs a CPU, too
        **MODES[mode],
    )
