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


# what is said of regions and of errors; tests for which a region has to end to the byte are skipped
REGIONS = [case for case in CASES if case.section.startswith(("3.1.2", "3.6"))]


@pytest.mark.parametrize("case", REGIONS, ids=lambda case: case.name)
def test_regions_by_pages(case, conformance_program, run_program, utofu_library):
    """With UTOFU_EMU_BOUNDS=page, as the machine seems to have them."""
    if utofu_library.machine:
        pytest.skip("a mode of the emulator")
    check(case, conformance_program, run_program, utofu_library, UTOFU_EMU_BOUNDS="page")
