# SPDX-License-Identifier: BSD-3-Clause
"""``uct-tofu perf validate``, ``compare``, ``paper`` and ``predict``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from uct_tofu.perf import result

# matplotlib takes a second to import: only commands that plot do.

_MAX_SHOWN = 20  # bad lines of one file


def _fail(command, reason):
    click.echo(f"uct-tofu perf {command}: {result.printable(reason, 2000)}", err=True)
    sys.exit(2)


def console():
    """The terminal, or 120 columns of plain text.

    Source: rich.console.
    """
    from rich.console import Console

    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=120)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("--strict", is_flag=True, help="Fields that are not known are errors.")
def validate(files, strict):
    """Check files of records, line by line.

    Prints file, line, field and what is wrong with it. The exit code is 0 when all
    lines are records, 1 when one is not, 2 when a file can't be read.
    """
    code = 0
    for path in files:
        good = bad = shown = 0
        try:
            for line, record, problems in result.scan(path):
                is_good = record is not None and not (strict and problems)
                good, bad = good + is_good, bad + (not is_good)
                for problem in problems:
                    shown += 1
                    if shown > _MAX_SHOWN:
                        continue
                    note = "" if strict or not problem.is_unknown_field else "note: "
                    click.echo(f"{result.printable(path)}:{line}: {note}{problem}")
        except OSError as error:
            reason = error.strerror or str(error)
            click.echo(f"{result.printable(path)}: {reason}", err=True)
            code = 2
            continue
        if shown > _MAX_SHOWN:
            click.echo(f"{result.printable(path)}: {shown - _MAX_SHOWN} lines more")
        if good + bad == 0:
            click.echo(f"{result.printable(path)}: no record")
            bad = 1
        click.echo(f"{result.printable(path)}: {good} good, {bad} bad")
        code = max(code, 1 if bad else 0)
    sys.exit(code)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option(
    "--reference",
    type=click.Choice(["published"]),
    help="Add the published figures of the machine.",
)
@click.option(
    "--baseline",
    metavar="FILE|PART=VALUE",
    help="What ratios are to: a file, or e.g. layer=utofu; 'backend=emulator fast'; "
    "several joined by ';'. Default: the first of several files.",
)
@click.option("--test", "tests", multiple=True, help="Only this test; repeatable.")
@click.option("--html", "html_file", type=click.Path(), help="Write a report.")
@click.option("--markdown", "markdown_file", type=click.Path(), help="Write a report.")
@click.option("--plots", "plot_folder", type=click.Path(), help="Write the plots.")
@click.option("--format", "form", type=click.Choice(["png", "svg"]), default="png")
def compare(
    files, reference, baseline, tests, html_file, markdown_file, plot_folder, form
):
    """Lay files of records side by side.

    Prints a table for each test. Latencies are medians; with several records of the
    same thing the value is the median over them. A bandwidth of a ping-pong is
    size / latency.
    """
    from uct_tofu.perf import compare as compared

    try:
        comparison = compared.compare(
            compared.load_files(files),
            baseline=baseline,
            tests=tests,
            reference=reference == "published",
        )
        from uct_tofu.perf import plots, report

        terminal = console()
        for test in comparison.tests:
            terminal.print(report.test_table(test, comparison.baseline).rich())
            for remark in test.remarks:
                terminal.print(f"published: {remark}", markup=False)
        if not (html_file or markdown_file or plot_folder):
            return
        made = plots.all_plots(comparison)
        document = report.comparison_document(comparison, made)
        if plot_folder:
            Path(plot_folder).mkdir(parents=True, exist_ok=True)
            for plot in made:
                click.echo(plots.save(plot, plot_folder, form))
        if html_file:
            report.write_html(document, html_file)
            click.echo(html_file)
        if markdown_file:
            report.write_markdown(document, markdown_file)
            click.echo(markdown_file)
    except (OSError, result.RecordError, compared.CompareError) as error:
        _fail("compare", error)


def register(group) -> None:
    """Add the commands of this file to a group.

    Source: click.Group.add_command.
    """
    for command in (validate, compare):
        group.add_command(command)
