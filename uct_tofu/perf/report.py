# SPDX-License-Identifier: BSD-3-Clause
"""Reports: a document of headings, text, tables and plots, as terminal, Markdown, HTML.

An HTML file holds its plots itself, so that it can be sent as it is.
"""

from __future__ import annotations

import base64
import html
import os
from dataclasses import dataclass, field
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from uct_tofu.perf import plots, units
from uct_tofu.perf.compare import Comparison, TestComparison
from uct_tofu.perf.result import printable

__all__ = [
    "Document",
    "Heading",
    "Image",
    "TableBlock",
    "Text",
    "comparison_document",
    "test_table",
    "write_html",
    "write_markdown",
]


@dataclass
class Heading:
    """A heading of level 1 or more.

    Source: HTML, h1 to h6.
    """

    text: str
    level: int = 2


@dataclass
class Text:
    """A paragraph, or the items of a list.

    Source: HTML, p and ul.
    """

    text: str | list


@dataclass
class TableBlock:
    """A table; columns named in ``right`` are numbers.

    Source: HTML, table.
    """

    title: str
    columns: list
    rows: list
    right: tuple = ()

    def rich(self) -> Table:
        """For a terminal.

        Source: rich.table.
        """
        table = Table(title=escape(self.title), title_justify="left")
        for name in self.columns:
            table.add_column(
                escape(name),
                justify="right" if name in self.right else "left",
                no_wrap=name in self.right,
            )
        for row in self.rows:
            table.add_row(*(escape(printable(cell, 300)) for cell in row))
        return table


@dataclass
class Image:
    """A plot.

    Source: plots.Plot.
    """

    plot: plots.Plot


@dataclass
class Document:
    """Blocks under a title, in order.

    Source: HTML.
    """

    title: str
    blocks: list = field(default_factory=list)

    def add(self, *blocks) -> None:
        """Append blocks.

        Source: list.extend.
        """
        self.blocks += blocks


def test_table(test: TestComparison, baseline: str | None) -> TableBlock:
    """The rows of one test; columns that would be empty are left out.

    Source: compare.Row.
    """
    quantity = test.quantity
    head = {"latency": "median", "bandwidth": "bandwidth", "rate": "rate"}[quantity]
    text = units.quantity_text
    columns = {
        "size": lambda r: "-" if r.size is None else units.size_text(r.size),
        "threads": lambda r: "-" if r.threads is None else str(r.threads),
        "processes": lambda r: "-" if r.processes is None else str(r.processes),
        "what": lambda r: r.label,
        head: lambda r: text(quantity, r.value),
        "min to max": lambda r: (
            f"{text(quantity, r.low)} to {text(quantity, r.high)}"
            if r.low < r.high
            else "-"
        ),
        "p99": lambda r: text("latency", r.p99),
        "bytes/s": lambda r: text("bandwidth", r.bandwidth),
        "operations/s": lambda r: text("rate", r.rate),
        "ratio": lambda r: "-" if r.ratio is None else f"{r.ratio:.3f}",
    }
    axes = set(test.axes) | {"size"}
    rows = test.rows
    names = []
    for name, show in columns.items():
        if name in ("size", "threads", "processes"):
            wanted = name in axes
        elif (name, quantity) in (("bytes/s", "bandwidth"), ("operations/s", "rate")):
            wanted = False  # is the headline
        else:
            wanted = name in ("what", head) or any(show(row) != "-" for row in rows)
        if wanted:
            names.append(name)
    title = test.test
    if baseline is not None and "ratio" in names:
        faster = "below" if quantity == "latency" else "above"
        title += f" (ratio: {head} / that of {baseline}; {faster} 1 is faster)"
    cells = [[columns[name](row) for name in names] for row in rows]
    right = tuple(name for name in names if name != "what")
    return TableBlock(title, names, cells, right)


def comparison_document(comparison: Comparison, made: list) -> Document:
    """The report of a comparison.

    Parameters
    ----------
    comparison : Comparison
    made : list of plots.Plot
        Of this comparison; may be empty.

    Source: issue "Benchmarks, and emulator against Fugaku".
    """
    document = Document("uct-tofu perf compare")
    document.add(
        Text(
            "Times are medians over repeats of the median of each. Emulator fast, "
            "emulator timed and the machine are different things: the first is what "
            "this host can do, the second a model of Tofu-D, the third Tofu-D."
        ),
        Heading("Measured on"),
        Text(list(comparison.hosts)),
    )
    for test in comparison.tests:
        document.add(Heading(test.test), test_table(test, comparison.baseline))
        document.add(*(Text(f"Published: {text}.") for text in test.remarks))
        document.add(
            *(Image(plot) for plot in made if plot.name.startswith(f"{test.test}-"))
        )
        add_sources(document, test.figures)
    return document


def add_sources(document: Document, figures) -> None:
    """The full sources of published figures, each once.

    Source: data/fugaku_published.json.
    """
    sources = dict.fromkeys(
        ", ".join(
            str(part)
            for part in (
                figure.source.authors,
                figure.source.title,
                figure.source.year,
                figure.source.place,
            )
            if part
        )
        for figure in figures
    )
    if sources:
        document.add(Text("Sources of the published figures:"), Text(list(sources)))


def _markdown_text(text):
    for letter in "\\`*_[]<>|":
        text = text.replace(letter, "\\" + letter)
    return text


def _markdown(block, folder, image_folder):
    if isinstance(block, Heading):
        return f"{'#' * block.level} {_markdown_text(block.text)}\n"
    if isinstance(block, Text):
        if isinstance(block.text, list):
            return "".join(f"- {_markdown_text(item)}\n" for item in block.text)
        return _markdown_text(block.text) + "\n"
    if isinstance(block, TableBlock):
        lines = [f"**{_markdown_text(block.title)}**", ""]
        lines.append("| " + " | ".join(map(_markdown_text, block.columns)) + " |")
        marks = ("---:" if name in block.right else "---" for name in block.columns)
        lines.append("| " + " | ".join(marks) + " |")
        lines += [
            "| " + " | ".join(_markdown_text(str(cell)) for cell in row) + " |"
            for row in block.rows
        ]
        return "\n".join(lines) + "\n"
    path = plots.save(block.plot, image_folder, "png")
    link = os.path.relpath(path, folder).replace(" ", "%20")
    return f"![{_markdown_text(block.plot.title)}]({link})\n"


def write_markdown(document: Document, path, *, image_folder=None) -> None:
    """Write a document as Markdown, its plots as PNG beside it.

    Parameters
    ----------
    document : Document
    path : path-like
    image_folder : path-like, optional
        None is the folder ``<name of the file>-plots`` beside the file; it is made
        when there are plots.

    Raises ``OSError``.

    Source: CommonMark; GitHub's tables.
    """
    path = Path(path)
    folder = path.parent
    images = Path(image_folder or folder / f"{path.stem}-plots")
    if any(isinstance(block, Image) for block in document.blocks):
        images.mkdir(parents=True, exist_ok=True)
    parts = [f"# {_markdown_text(document.title)}\n"]
    parts += [_markdown(block, folder, images) for block in document.blocks]
    path.write_text("\n".join(parts), encoding="utf-8")


_STYLE = """
body { font: 15px/1.45 sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em;
       color: #111; background: #fff; }
table { border-collapse: collapse; margin: 0.5em 0 1.2em; font-size: 13px; }
caption { text-align: left; font-weight: bold; padding: 0.3em 0; }
th, td { padding: 0.15em 0.7em; border-bottom: 1px solid #ccc; text-align: left; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
figure { margin: 1em 0 2em; } img { max-width: 100%; }
figcaption { font-size: 13px; color: #333; }
"""


def _html_table(block):
    kinds = [' class="n"' if name in block.right else "" for name in block.columns]
    head = "".join(
        f"<th{kind}>{html.escape(name)}</th>"
        for kind, name in zip(kinds, block.columns, strict=True)
    )
    rows = []
    for row in block.rows:
        cells = "".join(
            f"<td{kind}>{html.escape(str(cell))}</td>"
            for kind, cell in zip(kinds, row, strict=True)
        )
        rows.append(f"<tr>{cells}</tr>")
    return (
        f"<table><caption>{html.escape(block.title)}</caption>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>"
        + "\n".join(rows)
        + "</tbody></table>"
    )


def _html(block):
    if isinstance(block, Heading):
        return f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
    if isinstance(block, Text):
        if isinstance(block.text, list):
            items = "".join(f"<li>{html.escape(item)}</li>" for item in block.text)
            return f"<ul>{items}</ul>"
        return f"<p>{html.escape(block.text)}</p>"
    if isinstance(block, TableBlock):
        return _html_table(block)
    # An image and not inline SVG: the ids within several would clash.
    data = base64.b64encode(plots.to_bytes(block.plot, "svg")).decode()
    title = html.escape(block.plot.title)
    return (
        f'<figure><img alt="{title}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{html.escape(block.plot.caption)}</figcaption></figure>"
    )


def write_html(document: Document, path) -> None:
    """Write a document as one HTML file that needs no other.

    Raises ``OSError``.

    Source: HTML; RFC 2397, data URLs.
    """
    body = "\n".join(_html(block) for block in document.blocks)
    title = html.escape(document.title)
    Path(path).write_text(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n"
        f"{body}\n</body></html>\n",
        encoding="utf-8",
    )
