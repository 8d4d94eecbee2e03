# SPDX-License-Identifier: BSD-3-Clause
"""``uct-tofu perf run`` and ``uct-tofu perf list``."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys

import click

from uct_tofu.cli_types import Number, naming, reason_of
from uct_tofu.perf import kernels, runner
from uct_tofu.perf.result import ends_a_line

HEADER = ("test", "layer", "transport", "layout", "size", "p50 us", "p99 us")
HEADER += ("GB/s", "rate /s", "spread")


def sizes_of(context, parameter, values):
    """Byte counts: 8, 64K, lists 8,64K, and ranges 8:4M in steps of two.

    Raises ``click.BadParameter``.

    Source: click.
    """
    found = []

    def number(text):
        digits = text.strip().upper().removesuffix("B").removesuffix("I")
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(digits[-1:], 1)
        digits = digits if factor == 1 else digits[:-1]
        if not digits.isascii() or not digits.isdigit() or int(digits) < 1:
            raise click.BadParameter(f"{text!r} is not a size of 1 or more")
        return int(digits) * factor

    for value in values:
        for part in value.split(","):
            low, colon, high = part.partition(":")
            size, last = number(low), number(high if colon else low)
            if last < size:
                raise click.BadParameter(f"{part!r} ends before it begins")
            while size <= last:
                found.append(size)
                size *= 2
    return tuple(found) or None


def _numbers(context, parameter, value):
    if value is None:
        return None
    try:
        return [int(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of CPUs") from None


def _params(context, parameter, values):
    found = {}
    for value in values:
        name, equal, text = value.partition("=")
        if not equal:
            raise click.BadParameter(f"{value!r} is not NAME=NUMBER")
        try:
            found[name] = int(text)
        except ValueError:
            raise click.BadParameter(f"{value!r}: not an integer") from None
    return found


def _cells(record):
    def text(value, factor, form):
        return "-" if value is None else format(value * factor, form)

    latency = record["latency"] or {}
    test = record["test"]
    if "step" in record["params"]:
        test += f" {record['params']['step']}"
    return (
        test,
        record["layer"],
        record["transport"],
        record["layout"] or "-",
        str(record["size"]),
        text(latency.get("p50"), 1e6, ".3f"),
        text(latency.get("p99"), 1e6, ".3f"),
        text(record["bandwidth"], 1e-9, ".3f"),
        text(record["rate"], 1, ".0f"),
        format(record["spread"]["relative"], ".0%"),
    )


def _plain(cells):
    form = "{:<14} {:<7} {:<10} {:<7} {:>9} {:>10} {:>10} {:>8} {:>12} {:>7}"
    click.echo(form.format(*cells))


@contextlib.contextmanager
def _shown():
    """(show a record, progress of the runner): a bar on a terminal, else lines."""
    if not sys.stdout.isatty():
        _plain(HEADER)
        yield lambda record: (_plain(_cells(record)), sys.stdout.flush()), None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Table

    table = Table(*HEADER, box=None)
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[4:]:
        column.justify = "right"
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    # refreshed by hand: no thread may be alive when children are started
    bar = Progress(*columns, console=console, auto_refresh=False, transient=True)
    try:
        with bar:
            task = bar.add_task("", total=None)

            def progress(number, of, text):
                bar.update(task, description=text, total=of, completed=number - 1)
                bar.refresh()

            yield lambda record: table.add_row(*_cells(record)), progress
    finally:
        if table.row_count:  # also what was measured before an error, or ^C
            console.print(table)


@contextlib.contextmanager
def _added_to(path):
    """A function that adds a record to the file; to none without a path."""
    if path is None:
        yield lambda record: None
        return
    file = open(path, "a")  # noqa: SIM115
    begin = "" if ends_a_line(path) else "\n"

    def add(record):
        nonlocal begin
        with naming(path):
            file.write(begin + json.dumps(record) + "\n")
            file.flush()
        begin = ""

    try:
        yield add
    finally:
        with naming(path):
            file.close()


def _chosen(tests, layers, transports):
    """(test, layer, transport) of each measurement."""
    for test in tests or ("put_lat",):
        for layer in layers or ("uct",):
            chosen = transports or ("utofu",)
            if layer in ("utofu", "uct", "mpi"):  # theirs is given
                chosen = ("mpi" if layer == "mpi" else "utofu",)
            for transport in chosen:
                yield test, layer, transport


def _check_tests(tests, layers):
    """``click.BadParameter`` for a test that none of the layers has."""
    for test in tests:
        names = {}
        for layer in layers:
            try:
                names |= dict.fromkeys(kernels.tests_of(layer))
            except (kernels.KernelError, ImportError):
                break  # perhaps it would have it; said when it is to run
            if runner.canonical(test, layer) in names:
                break
        else:
            raise click.BadParameter(
                f"no test {test!r} of {', '.join(layers)}; "
                f"there are {', '.join(names)}",
                param_hint="'--test'",
            )


def _check_sizes(test, name, sizes):
    """``click.BadParameter`` for sizes that the test, here called name, can't have."""
    other = [size for size in sizes if size != 8]
    if other and name in runner.EIGHT_BYTES:
        said = f"the test {test} is of 8 bytes, not of {other[0]}"
    elif sizes and name in runner.NO_DATA:
        said = f"the test {test} sends nothing that has a size"
    else:
        return
    raise click.BadParameter(said, param_hint="'--size'")


def _by_test(jobs, progress, absent):
    """The records: layers and transports of one test take turns."""
    for _, members in itertools.groupby(jobs, key=lambda job: job.test):
        yield from runner.in_turn(members, progress=progress, absent=absent)


@click.command("run")
@click.option("-t", "--test", "tests", multiple=True, help="May be repeated. [put_lat]")
@click.option(
    "--layer",
    "layers",
    multiple=True,
    type=click.Choice(kernels.LAYERS),
    help="May be repeated: utofu (raw calls), uct (this package's transport), libuct "
    "and ucp (stock UCX), mpi. [uct]",
)
@click.option(
    "-x",
    "--transport",
    "transports",
    multiple=True,
    help="Of libuct, e.g. sysv; of ucp the value of UCX_TLS. May be repeated. [utofu]",
)
@click.option(
    "-s",
    "--size",
    "sizes",
    multiple=True,
    callback=sizes_of,
    help="Bytes: 8, 64K, a list 8,64K, or a range 8:4M of powers of two.",
)
@click.option("-n", "--iters", type=click.IntRange(min=1), help="Instead of --seconds.")
@click.option("-w", "--warmup", type=click.IntRange(min=0), help="Iterations. [n/10]")
@click.option("-O", "--window", type=click.IntRange(min=1), help="In flight. [32]")
@click.option("-T", "--threads", type=click.IntRange(1, 64), default=1)
@click.option("-D", "--layout", type=click.Choice(["short", "bcopy", "zcopy"]))
@click.option("-d", "--device", help="Of libuct; chosen by transport.")
@click.option("-c", "--cpus", callback=_numbers, help="For processes and threads.")
@click.option(
    "-r", "--repeats", type=click.IntRange(min=1), default=5, show_default=True
)
@click.option(
    "--seconds",
    type=Number(min=1e-4),
    default=0.3,
    show_default=True,
    help="Of each repeat.",
)
@click.option(
    "--timed",
    is_flag=False,
    flag_value="tofud",
    default=None,
    metavar="[PROFILE]",
    help="The emulator takes the machine's time; tofud (also: tofud:measured), "
    "tofud:best or a file.",
)
@click.option(
    "--hops",
    type=click.IntRange(1, runner.MOST_HOPS),
    help="Between the nodes; on the machine it says how they were placed.",
)
@click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    callback=_params,
    metavar="NAME=NUMBER",
    help=f"Of single tests: {', '.join(runner.PARAMS)}.",
)
@click.option("-o", "--output", help="Add the records to this file (JSON Lines).")
def run_command(
    tests,
    layers,
    transports,
    sizes,
    iters,
    warmup,
    window,
    threads,
    layout,
    device,
    cpus,
    repeats,
    seconds,
    timed,
    hops,
    params,
    output,
):
    """Run benchmark tests between processes of this host, on cores of their own.

    Letters are ucx_perftest's, but for -r (repeats), -s (a list of sizes, not of
    parts of one message), -p and -o.
    """
    if transports and not {"libuct", "ucp"} & set(layers):
        raise click.UsageError("-x is for the layers libuct and ucp")
    if device and "libuct" not in layers:
        raise click.UsageError("-d is for the layer libuct")
    if layout and layers and not set(layers) - {"ucp", "mpi"}:
        raise click.UsageError("-D is for the layers utofu, uct and libuct")
    _check_tests(tests, layers or ("uct",))
    for test, layer, _ in _chosen(tests, layers, transports):
        _check_sizes(test, runner.canonical(test, layer), sizes or ())
    failed = False

    def absent(_, error):
        nonlocal failed
        failed = True  # the others may have it
        click.echo(f"uct-tofu perf run: {error}", err=True)

    try:
        with contextlib.ExitStack() as stack:
            add = stack.enter_context(_added_to(output))
            show, progress = stack.enter_context(_shown())
            jobs = []
            for test, layer, transport in _chosen(tests, layers, transports):
                try:
                    jobs.append(
                        runner.Job(
                            test,
                            layer=layer,
                            transport=transport,
                            sizes=sizes,
                            repeats=repeats,
                            seconds=seconds,
                            mode="timed" if timed else "fast",
                            profile=timed,
                            threads=threads,
                            window=window,
                            hops=hops,
                            layout=layout if layer not in ("ucp", "mpi") else None,
                            params=params,
                            cpus=cpus,
                            device=device,
                            iterations=iters,
                            warmup=warmup,
                        )
                    )
                except runner.NotThereError as error:
                    absent(None, error)
            for record in _by_test(jobs, progress, absent):
                show(record)
                add(record)
    except (runner.KernelError, ValueError, ImportError, OSError) as error:
        click.echo(f"uct-tofu perf run: {reason_of(error)}", err=True)
        sys.exit(1)
    sys.exit(1 if failed else 0)


@click.command("list")
def list_command():
    """List the tests of each layer."""
    for layer in kernels.LAYERS:
        try:
            names = kernels.tests_of(layer)
        except (kernels.KernelError, ImportError) as error:
            click.echo(f"{layer + ':':<8} not there: {error}")
            continue
        click.echo(f"{layer + ':':<8} {' '.join(names)}")


def register(group):
    """Add the commands to the group ``perf``.

    Source: click.
    """
    group.add_command(run_command)
    group.add_command(list_command)
