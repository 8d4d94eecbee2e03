# SPDX-License-Identifier: BSD-3-Clause
"""The command ``uct-tofu``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import sys

import click

import uct_tofu
from uct_tofu import _paths
from uct_tofu import perftest as perf
from uct_tofu.cli_types import OUTPUT_FAILS, Number, Output, naming, reason_of
from uct_tofu.emu_cli import emu
from uct_tofu.perf.cli import perf as perf_commands
from uct_tofu.perf.cli_run import sizes_of
from uct_tofu.perf.runner import ALIASES
from uct_tofu.perf.units import size_text
from uct_tofu.run_cli import run

DEFAULT_TESTS = ("put_lat", "put_bw")


def _rate_text(rate):
    """Messages per second."""
    return f"{rate / 1e6:.3f} M/s" if rate >= 1e5 else f"{rate:.0f} /s"


def _on_sigterm(number, frame):
    # So that "finally" blocks run and children are ended.
    sys.exit(128 + number)


@contextlib.contextmanager
def _output_told():
    """Says that the standard output can't be written."""
    try:
        yield
    except OSError as error:
        # A file of a command's own has a name.
        if error.filename is None and error.errno in OUTPUT_FAILS:
            raise click.ClickException(f"standard output: {error.strerror}") from None
        raise


class _Commands(click.Group):
    """Says that it was interrupted, or can't write its output, of whichever command."""

    def make_context(self, *args, **kwargs):
        with _output_told():  # --help and --version
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx):
        try:
            with _output_told():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(128 + signal.SIGINT)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(uct_tofu.__version__, prog_name="uct-tofu")
def main():
    """UCX on Fujitsu's Tofu interconnect, or on its emulator."""
    signal.signal(signal.SIGTERM, _on_sigterm)


main.add_command(emu)
main.add_command(run)
main.add_command(perf_commands)


@main.command("plugin-dir")
def plugin_dir():
    """Print the directory for UCX_PLUGIN_PATH."""
    click.echo(uct_tofu.plugin_dir())


def _word(flag):
    """The flag for a command line, quoted only if the shell would not take it as it is.

    What comes out of ``$(...)`` keeps its quotes.  So a path with a letter like "ü" is to have
    none; one with a space needs them, and ``eval``.
    """
    return shlex.quote(flag) if re.search(r"[^\w@%+=:,./-]", flag) else flag


@main.command()
@click.option("--mpi-ext", is_flag=True, help="For programs that include mpi-ext.h too.")
def cflags(mpi_ext):
    """Print compiler flags for programs that include utofu.h."""
    include = uct_tofu.include_dir()
    folders = [include, os.path.join(include, "fjmpi")] if mpi_ext else [include]
    click.echo(" ".join(_word(f"-I{folder}") for folder in folders))


@main.command()
def libs():
    """Print linker flags for programs that call uTofu."""
    lib = uct_tofu.lib_dir()
    click.echo(f"{_word('-L' + lib)} -ltofucom {_word('-Wl,-rpath,' + lib)}")


@main.command()
@click.option("--tls", default=None, help="Also set UCX_TLS, e.g. 'utofu,self'.")
def env(tls):
    """Print shell exports for stock UCX programs and uTofu programs.

    Use it as: eval "$(uct-tofu env)"
    """
    from ucp_glue import environment

    values = environment({}, tls=tls)
    # A uTofu program finds its libtofucom by this path; the machine's needs no
    # help, and must not be hidden by ours.
    try:
        if uct_tofu.Backend.load().kind == "emulator":
            values["LD_LIBRARY_PATH"] += os.pathsep + uct_tofu.lib_dir()
    except RuntimeError as error:
        click.echo(f"uct-tofu env: no uTofu library: {error}", err=True)
    # of the same UCX as the libraries: ucx_info, ucx_perftest
    values["PATH"] = str(_paths.ucx_dir() / "bin")
    for name in sorted(values):
        value = shlex.quote(values[name])
        if name in ("PATH", "UCX_PLUGIN_PATH", "LD_LIBRARY_PATH"):
            value += f'"${{{name}:+:${name}}}"'
        click.echo(f"export {name}={value}")


def _collect_info():
    """What ``info`` tells, as a dict; every failure is a sentence in it."""
    from ucp_glue import verify

    info = {"version": uct_tofu.__version__, "backend": None, "backend_error": None}
    try:
        backend = uct_tofu.Backend.load()
        tnis = backend.onesided_tnis()
        info["backend"] = {
            "kind": backend.kind,
            "path": backend.path,
            "reason": backend.reason,
            "network_id": f"{backend.network_id:#x}",
            "onesided_tnis": tnis,
            "barrier_tnis": backend.barrier_tnis(),
            "coords": list(backend.coords()),
            "tofu_version": list(backend.tofu_version),
            "utofu_version": list(backend.utofu_version),
            "onesided_caps": backend.onesided_caps(tnis[0]) if tnis else None,
        }
    except (ImportError, RuntimeError, uct_tofu.UtofuError) as error:
        info["backend_error"] = str(error)
    info["plugin_dir"] = uct_tofu.plugin_dir()
    info["ucx"] = {"path": None, "version": None}
    info["transport"] = {"listed": False, "devices": [], "reasons": []}
    try:
        info["ucx"] = {
            "path": str(_paths.ucx_lib_dir()),
            "version": _paths.ucx_version(),
        }
        found = verify()
        info["transport"] = {
            "listed": found.ok,
            "devices": found.devices,
            "reasons": found.reasons,
        }
    except (ImportError, OSError) as error:
        info["transport"]["reasons"] = [str(error)]
    return info


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def info(as_json):
    """Tell which backend and which UCX are used, and whether they work.

    The exit code is 0 when the backend works and UCX lists the transport.
    """
    data = _collect_info()
    good = data["backend"] is not None and data["transport"]["listed"]
    if as_json:
        click.echo(json.dumps(data, indent=1))
        sys.exit(0 if good else 1)
    lines = [("uct-tofu", data["version"])]
    backend = data["backend"]
    if backend:
        caps = backend["onesided_caps"] or {}
        lines += [
            ("backend", f"{backend['kind']}: {backend['reason']}"),
            ("library", backend["path"]),
            (
                "versions",
                "Tofu {}.{}, uTofu {}.{}".format(
                    *backend["tofu_version"], *backend["utofu_version"]
                ),
            ),
            ("coordinates", "X Y Z A B C = " + " ".join(map(str, backend["coords"]))),
            (
                "TNIs",
                f"{len(backend['onesided_tnis'])} for one-sided communication, "
                f"{len(backend['barrier_tnis'])} for barriers",
            ),
        ]
        if caps:
            lines.append(
                (
                    "limits",
                    f"put/get {caps['max_putget_size']} B, "
                    f"piggyback {caps['max_piggyback_size']} B, "
                    f"EDATA {caps['max_edata_size']} B, "
                    f"{caps['num_reserved_stags']} reserved STags, "
                    f"cache line {caps['cache_line_size']} B",
                )
            )
    else:
        lines.append(("backend", "none: " + data["backend_error"]))
    lines += [
        ("UCX", f"{data['ucx']['version'] or 'none'} in {data['ucx']['path']}"),
        ("plugin", data["plugin_dir"]),
    ]
    if data["transport"]["listed"]:
        devices = ", ".join(data["transport"]["devices"])
        lines.append(("transport", f"UCX lists utofu on {devices}"))
    else:
        lines.append(("transport", "UCX does not list utofu"))
        lines += [("  because", reason) for reason in data["transport"]["reasons"]]
    for name, value in lines:
        click.echo(f"{name + ':':<13}{value}")
    sys.exit(0 if good else 1)


def _verdict(transport, rows):
    """One line: what ran where, and how fast it was."""
    where = transport
    if transport == "utofu":
        try:
            backend = uct_tofu.Backend.load()
            where = f"utofu on {backend.kind} ({backend.path})"
        except (ImportError, RuntimeError) as error:
            where = f"utofu ({error})"
    parts = []
    for test in dict.fromkeys(row.test for row in rows):
        mine = [row for row in rows if row.test == test]
        small = min(mine, key=lambda row: row.size)
        name = test.removesuffix("_lat").removesuffix("_bw")
        if test.endswith("_bw"):
            peak = max(mine, key=lambda row: row.bandwidth)
            parts.append(
                f"{name} peak {peak.bandwidth / 1e9:.2f} GB/s at {size_text(peak.size)}"
            )
        elif test.endswith("_mr"):
            parts.append(f"{name} {size_text(small.size)} {_rate_text(small.rate)}")
        else:
            parts.append(f"{name} {size_text(small.size)} {small.latency * 1e6:.2f} us")
    return f"{where}: {', '.join(parts)}"


def _check_tests(tests):
    """``click.BadParameter`` for a test that ucx_perftest does not have."""
    try:
        names = perf.tests() if tests else ()
    except ImportError:
        return  # said when it is to run
    for test in tests:
        if test in names or not names:
            continue
        layer = "ucp_" if test.startswith("ucp_") else ""
        theirs = {layer + ours: layer + name for name, ours in ALIASES.items()}
        hint = f" (ucx_perftest calls it {theirs[test]})" if test in theirs else ""
        raise click.BadParameter(
            f"no test {test!r}{hint}; there are {', '.join(names)}",
            param_hint="'--test'",
        )


_HEADER = ("test", "layout", "size", "iterations", "p50 us", "mean us", "GB/s", "rate")


def _cells(row):
    return (
        row.test,
        row.layout,
        size_text(row.size),
        str(row.iterations),
        f"{row.latency_p50 * 1e6:.3f}",
        f"{row.latency * 1e6:.3f}",
        f"{row.bandwidth / 1e9:.3f}",
        _rate_text(row.rate),
    )


def _print_plain(cells):
    click.echo("{:<12} {:<7} {:>9} {:>10} {:>10} {:>10} {:>9} {:>12}".format(*cells))


@main.command()
@click.option(
    "--transport",
    default="utofu",
    show_default=True,
    help="UCT transport (utofu, sysv, posix, cma, tcp, ...); for UCP "
    "tests the value of UCX_TLS.",
)
@click.option("--device", default=None, help="UCT device; chosen by transport.")
@click.option(
    "--test",
    "tests",
    multiple=True,
    help="Name of a ucx_perftest test; may be repeated. [default: put_lat and put_bw]",
)
@click.option(
    "--layout",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "short", "shortiov", "bcopy", "zcopy"]),
    help="Data layout of UCT tests.",
)
@click.option(
    "--size",
    "sizes",
    multiple=True,
    callback=sizes_of,
    help="Message size, e.g. 8, 64K, 1M, a list 8,64 or a range 8:4K; may be "
    "repeated. [default: 8 B to 4 MiB]",
)
@click.option(
    "--iters",
    type=click.IntRange(min=1),
    default=None,
    help="Iterations; by default what fits into --seconds.",
)
@click.option(
    "--seconds",
    type=Number(min=0.01),
    default=0.3,
    show_default=True,
    help="Time of one measurement, seconds.",
)
@click.option(
    "--timeout",
    type=Number(min=1),
    default=60.0,
    show_default=True,
    help="Seconds after which one run is ended.",
)
@click.option(
    "--json",
    "json_file",
    type=Output(allow_dash=True),
    default=None,
    help="Also write the results to this file.",
)
@click.argument("extra", nargs=-1)
def perftest(
    transport, device, tests, layout, sizes, iters, seconds, timeout, json_file, extra
):
    """Run stock ucx_perftest between two processes on two cores.

    Options after "--" go to both sides of ucx_perftest as they are.
    """
    _check_tests(tests)
    tests = tests or DEFAULT_TESTS
    cpus = perf.choose_cpus()
    if cpus[0] == cpus[1]:
        click.echo(
            f"only one CPU may be used ({cpus[0]}): both sides share it, "
            "the figures are those of a crowded core",
            err=True,
        )
    plan = [
        (test, size) for test in tests for size in sizes or perf.default_sizes(test)
    ]
    kwargs = {
        "layout": None if layout == "auto" else layout,
        "device": device,
        "cpus": cpus,
        "timeout": timeout,
        "extra": extra,
    }
    rows = []

    def measure(test, size):
        if iters is not None:
            rows.append(perf.run(test, transport, size, iterations=iters, **kwargs))
        else:
            rows.append(
                perf.run_calibrated(test, transport, size, seconds=seconds, **kwargs)
            )
        return rows[-1]

    try:
        if sys.stdout.isatty():
            _run_on_terminal(plan, measure)
        else:
            _print_plain(_HEADER)
            for test, size in plan:
                _print_plain(_cells(measure(test, size)))
                sys.stdout.flush()
    except (perf.PerftestError, ImportError, OSError) as error:
        click.echo(f"uct-tofu perftest: {reason_of(error)}", err=True)
        sys.exit(1)
    click.echo(_verdict(transport, rows))
    if json_file is not None:
        found = {
            "command": "perftest",
            "transport": transport,
            "ucx": _paths.ucx_version(),
            "uct_tofu": uct_tofu.__version__,
            "host": os.uname().machine,
            "cpus": cpus,
            "results": [row.as_dict() for row in rows],
        }
        try:
            with naming(json_file), click.open_file(json_file, "w") as file:
                json.dump(found, file, indent=1)
        except OSError as error:
            click.echo(f"uct-tofu perftest: {reason_of(error)}", err=True)
            sys.exit(1)


def _run_on_terminal(plan, measure):
    """The same with a progress bar.

    The bar is refreshed by hand: no thread may be alive when children are
    started.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Table

    console = Console()
    table = Table(*_HEADER, box=None)
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[2:]:
        column.justify = "right"
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
    ) as progress:
        task = progress.add_task("", total=len(plan))
        for test, size in plan:
            progress.update(task, description=f"{test} {size_text(size)}")
            progress.refresh()
            table.add_row(*_cells(measure(test, size)))
            progress.advance(task)
    console.print(table)
