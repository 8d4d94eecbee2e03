# SPDX-License-Identifier: BSD-3-Clause
"""docs/tutorial.py runs, its notebook is the same, and runs too."""

import importlib.util
import json
import os
import struct
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)

DOCS = Path(__file__).resolve().parents[2] / "docs"
PLOTS = ("tutorial-asyncio.png", "tutorial-bandwidth.png", "tutorial-stride.png")

# Says what each cell printed, so that it can be compared with the script's output.
EXECUTE = """
import sys
import nbclient, nbformat

book = nbformat.read(sys.argv[1], 4)
nbformat.validate(book)
nbclient.NotebookClient(book, timeout=300).execute()
pictures = 0
for cell in book.cells:
    for output in cell.get("outputs", ()):
        print(output.get("text", ""), end="")
        pictures += "image/png" in output.get("data", {})
print("pictures", pictures)
"""


def check(output):
    """What the script and the notebook print."""
    for said in (
        "RMT_PUT with edata 42",
        "it was 40 and is 42",
        "[500 501 502 503 504 505 506 507 508 509]",
        "one more than 1",
        "b'first' [0. 1. 2. 3.]",
        "TofuContiguityError: Endpoint.put",
        "20 answers",
        "hello from rank 3",
    ):
        assert said in output, output


def check_plots(folder):
    for name in PLOTS:
        data = (folder / name).read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n", name
        width, height = struct.unpack(">II", data[16:24])
        assert width > 300 and height > 200 and len(data) > 5000, name


@pytest.fixture
def environment(job, tmp_path):
    """Without a display, and with matplotlib's cache in a folder of the test's."""
    left = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "MPLBACKEND")}
    return {**left, "MPLCONFIGDIR": str(tmp_path / "matplotlib")}


def test_script(processes, environment, tmp_path):
    code, output = processes.run(
        [sys.executable, "-W", "default", str(DOCS / "tutorial.py")],
        timeout=400,
        env=environment,
        cwd=tmp_path,
    )
    assert code == 0, output
    assert "was not" not in output, output  # closed, freed
    check(output)
    check_plots(tmp_path)


def test_notebook_is_made_of_the_script():
    spec = importlib.util.spec_from_file_location("notebook", DOCS / "notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.notebook((DOCS / "tutorial.py").read_text())
    assert made == json.loads((DOCS / "tutorial.ipynb").read_text()), (
        "python docs/notebook.py makes it anew"
    )
    kinds = [cell["cell_type"] for cell in made["cells"]]
    assert kinds.count("markdown") >= 10 and kinds.count("code") >= 10


def test_notebook(processes, environment, tmp_path):
    """With the kernel that Jupyter uses, which has an event loop of its own."""
    command = [sys.executable, "-c", EXECUTE, str(DOCS / "tutorial.ipynb")]
    folders = {name: str(tmp_path) for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    code, output = processes.run(
        command, timeout=500, env={**environment, **folders}, cwd=tmp_path
    )
    assert code == 0, output
    check(output)
    assert output.endswith("pictures 3\n"), output
    check_plots(tmp_path)
