# SPDX-License-Identifier: BSD-3-Clause
"""Make docs/tutorial.ipynb of docs/tutorial.py, whose cells start with "# %%".

python docs/notebook.py
"""

import json
from pathlib import Path

SOURCE = Path(__file__).with_name("tutorial.py")


def notebook(text):
    """The notebook of a script in the percent format, as a dict.

    Parameters
    ----------
    text : str
        Cells begin with a line ``# %%``, or ``# %% [markdown]`` and have then only
        comments.  What is before the first is left out.

    Source: nbformat, format 4.5.
    """
    cells = []
    for number, part in enumerate(text.split("\n# %%")[1:], 1):
        kind, _, body = part.partition("\n")
        lines = body.strip("\n").splitlines(keepends=True)
        cell = {"cell_type": "code", "id": f"cell-{number}", "metadata": {}}
        if kind.strip() == "[markdown]":
            cell["cell_type"] = "markdown"
            lines = [line.removeprefix("#").removeprefix(" ") for line in lines]
        else:
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell | {"source": lines})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def main():
    """Write the notebook beside the script.

    Source: nbformat, format 4.5.
    """
    made = json.dumps(notebook(SOURCE.read_text()), indent=1) + "\n"
    SOURCE.with_suffix(".ipynb").write_text(made)


if __name__ == "__main__":
    main()
