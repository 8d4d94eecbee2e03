# SPDX-License-Identifier: BSD-3-Clause
"""The conformance tests once more, with private memory left where it is.

The emulator makes a mapping of a memfd of private memory that is registered, where it
can (docs/emulator.md, Private memory).  Here it is told not to, so that what the tests
check is also checked of memory that only the kernel can reach.
"""

import pytest
from test_conformance import CASES, check

@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_by_the_kernel(conformance_program, run_program, utofu_library, case):
    if utofu_library.machine:
        pytest.skip("a machine has no such choice")
    check(case, conformance_program, run_program, utofu_library, UTOFU_EMU_REHOME="0")
