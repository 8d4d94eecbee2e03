# SPDX-License-Identifier: BSD-3-Clause
"""``uct-tofu perf validate``, ``compare``, ``paper`` and ``predict``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from uct_tofu.cli_types import Number, Output, naming, reason_of
from uct_tofu.perf import result

# matplotlib takes a second to import: only commands that plot do.

_MAX_SHOWN = 20  # bad lines of one file


def _fail(command, reason):
    is_file = isinstance(reason, OSError) and reason.filename is not None
    text = result.printable(reason_of(reason), 2000)
    click.echo(text if is_file else f"uct-tofu perf {command}: {text}", err=True)
    sys.exit(2)


def console():
    """The terminal, or 120 columns of plain text.

    Source: rich.console.
    """
    from rich.console import Console

    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=120)


def _no_records(context, parameter, path):
    """``click.BadParameter`` for a file of records, which a report would replace."""
    if path is not None and result.has_records(path):
        raise click.BadParameter(f"{path!r} has records, and is no report")
    return path


def _with_reports(function):
    for name in ("markdown", "html"):
        function = click.option(
            f"--{name}",
            f"{name}_file",
            type=Output(),
            callback=_no_records,
            help="Write a report.",
        )(function)
    return function


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
@_with_reports
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
                with naming(plot_folder):
                    path = plots.save(plot, plot_folder, form)
                click.echo(path)
        if html_file:
            with naming(html_file):
                report.write_html(document, html_file)
            click.echo(html_file)
        if markdown_file:
            with naming(markdown_file):
                report.write_markdown(document, markdown_file)
            click.echo(markdown_file)
    except (OSError, result.RecordError, compared.CompareError) as error:
        _fail("compare", error)


def _progress(number, of, text):
    click.echo(f"{number} of {of}: {text}", err=True)


def _modes():
    """The emulator has two, the machine is what it is."""
    import uct_tofu

    try:
        kind = uct_tofu.Backend.load().kind
    except (ImportError, RuntimeError, uct_tofu.UtofuError) as error:
        raise click.ClickException(f"no uTofu library: {error}") from None
    return ("fast",) if kind == "tofu" else ("fast", "timed")


def _with_plan(repeats):
    """The options of a Plan; ``repeats`` is the default of the first."""
    options = (
        click.option(
            "-r",
            "--repeats",
            type=click.IntRange(1),
            default=repeats,
            show_default=True,
        ),
        click.option(
            "--seconds",
            type=Number(0, min_open=True),
            default=0.2,
            show_default=True,
            help="Of one repeat of one size.",
        ),
        click.option(
            "--limit",
            type=Number(0, min_open=True),
            default=480.0,
            show_default=True,
            help="Begin no further measurement after so many seconds.",
        ),
    )

    def decorate(function):
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@click.command()
@click.argument("folder", type=click.Path(file_okay=False))
@click.option(
    "--from",
    "files",
    multiple=True,
    type=click.Path(),
    help="Measure nothing: draw these files of records; repeatable.",
)
@_with_plan(repeats=5)
def paper(folder, files, repeats, seconds, limit):
    """Make the paper's figures 4, 5 and 8 again, in FOLDER.

    Measures a tagged ping-pong over TCP, MPI and UCP, and the ping-pong of put and
    flag (the paper's figure 7) over uTofu, UCT and MPI, on the emulator in its fast
    and in its timed mode, or on the machine. Writes results.jsonl (while it measures,
    results.partial.jsonl), the figures as PNG and SVG with the published points,
    report.html and report.md. The exit code is 1 when something other than MPI could
    not be measured.
    """
    from uct_tofu.perf import compare as compared
    from uct_tofu.perf import paper as made
    from uct_tofu.perf.measure import Plan

    run = made.Run()
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        if not files:
            path = Path(folder) / "results.jsonl"
            # what was measured before stays until there is something new
            new = path.with_name("results.partial.jsonl")
            new.unlink(missing_ok=True)
            plan = Plan(repeats, seconds, limit)
            items = made.wanted(_modes())
            with naming(new):
                run = made.measure_all(items, plan, new, progress=_progress)
            for _, reason in run.missing:
                click.echo(f"not measured: {result.printable(reason, 500)}", err=True)
            if not run.records:
                _fail("paper", "nothing could be measured")
            new.replace(path)
            files = (path,)
        found = compared.load_files(files)
        with naming(folder):
            paths = made.make_report(found, folder, run.missing)
        for path in paths:
            click.echo(path)
    except (OSError, result.RecordError, compared.CompareError) as error:
        _fail("paper", error)
    sys.exit(0 if run.is_complete else 1)


@click.command()
@click.option("--only", metavar="TEXT", help="Only lines with TEXT in them.")
@click.option("-o", "--output", type=Output(), help="Write the records.")
@_with_reports
@_with_plan(repeats=3)
def predict(only, output, html_file, markdown_file, repeats, seconds, limit):
    """Hold the timed mode against published figures of raw uTofu.

    The exit code is 0 when every line that is judged holds, 1 when one does not or
    could not be measured, 2 when --only leaves none or a file can't be written.
    """
    from uct_tofu.perf import predict as made
    from uct_tofu.perf import report
    from uct_tofu.perf.measure import Plan

    outcomes = []
    interrupted = None
    try:
        made.predict(
            Plan(repeats, seconds, limit),
            progress=_progress,
            only=only,
            outcomes=outcomes,
        )
    except KeyboardInterrupt as error:  # what was measured is shown, and written
        if not outcomes:
            raise
        interrupted = error
    if not outcomes:
        _fail("predict", f"no line has {only!r} in it")
    document = made.document(outcomes)
    terminal = console()
    for block in document.blocks:
        if isinstance(block, report.TableBlock):
            terminal.print(block.rich())
        elif isinstance(block, report.Heading):
            terminal.print(f"\n{block.text}", markup=False)
        else:
            lines = block.text if isinstance(block.text, list) else [block.text]
            for line in lines:
                terminal.print(line, markup=False)
    try:
        if output:
            records = [record for item in outcomes for record in item.records]
            with naming(output):
                result.write(output, records)
        if html_file:
            with naming(html_file):
                report.write_html(document, html_file)
        if markdown_file:
            with naming(markdown_file):
                report.write_markdown(document, markdown_file)
    except (OSError, result.RecordError) as error:
        _fail("predict", error)
    if interrupted is not None:
        raise interrupted
    bad = ("DOES NOT HOLD", "not measured")
    sys.exit(1 if any(item.verdict in bad for item in outcomes) else 0)


def register(group) -> None:
    """Add the commands of this file to a group.

    Source: click.Group.add_command.
    """
    for command in (validate, compare, paper, predict):
        group.add_command(command)
