# SPDX-License-Identifier: BSD-3-Clause
"""What README and docs say is so."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_example_runs(processes, tmp_path):
    """README's Python example prints the sum of what it put."""
    (block,) = re.findall(r"```python\n(.*?)```", DOCS[0].read_text(), re.DOTALL)
    program = tmp_path / "example.py"
    program.write_text(block)
    code, output = processes.run(
        [sys.executable, "-W", "error", str(program)], cwd=tmp_path
    )
    assert code == 0, output
    assert output.split() == [str(sum(range(100)))]


# The page of ucxx and Dask needs packages that are not among the tests'.
EXAMPLES = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in DOCS[1:]
    if page.name != "ucxx.md"
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    )
]


def test_pages_have_examples():
    assert len(EXAMPLES) >= 9


@pytest.mark.parametrize("block", EXAMPLES)
def test_examples_of_the_pages_run(processes, tmp_path, block):
    program = tmp_path / "example.py"
    program.write_text(block)
    code, output = processes.run(
        [sys.executable, "-W", "error", str(program)], cwd=tmp_path
    )
    assert code == 0, output


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_variables_exist(page):
    """Each variable of ours that is named is read by the sources."""
    sources = "".join(
        path.read_text() for path in (ROOT / "cython").rglob("*.[ch]")
    ) + "".join(path.read_text() for path in (ROOT / "uct_tofu").rglob("*.py"))
    names = set(
        re.findall(
            r"\b(?:UTOFU_EMU|UTOFU_NUM|UCT_TOFU|UCX_UTOFU)_[A-Z_]+\b", page.read_text()
        )
    )
    cmake = (ROOT / "cython" / "CMakeLists.txt").read_text()
    for name in names:
        if name in cmake:
            continue
        wanted = f'"{name.removeprefix("UCX_UTOFU_")}"'
        assert wanted in sources, name
