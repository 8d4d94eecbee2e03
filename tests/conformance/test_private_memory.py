# SPDX-License-Identifier: BSD-3-Clause
"""The conformance tests once more, with private memory left where it is.

The emulator makes a mapping of a memfd of private memory that is registered, where it
can (docs/emulator.md, Private memory).  Here it is told not to, so that what the tests
check is also checked of memory that only the kernel can reach.
"""

import pytest
from test_conformance import CASES

@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_by_the_kernel(conformance_program, run_program, utofu_library, case):
    if utofu_library.machine:
        pytest.skip("a machine has no such choice")
    run = run_program(
        conformance_program, case.name, str(utofu_library.path), UTOFU_EMU_REHOME="0"
    )
    report = f"{case.section}: {case.statement}\n{run.stdout}{run.stderr}"
    assert not run.leftover, f"a process was left behind\n{report}"
    if run.code == 77:
        pytest.skip(run.stderr.strip() or case.name)
    assert run.code == 0, report
