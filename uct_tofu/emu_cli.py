# SPDX-License-Identifier: BSD-3-Clause
"""``uct-tofu emu``: what there is of the emulator on this host, for this user."""

from __future__ import annotations

import json
import subprocess
import sys

import click

from uct_tofu import _paths


def _tool(verb):
    """Run the helper program; returns (its JSON, its exit code)."""
    command = [str(_paths.package_dir() / "libexec" / "emu_info"), verb]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        # Names of processes may hold any bytes.
        return json.loads(done.stdout.decode(errors="replace")), done.returncode
    except (OSError, ValueError) as error:
        click.echo(f"uct-tofu emu: {command[0]}: {error}", err=True)
        sys.exit(1)


def _shown(text):
    """The text with every character that a terminal might act on replaced."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _size(count):
    if count is None:
        return "?"
    for factor, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def _count(number, noun):
    if number is None:
        return f"? {noun}s"
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _report_refused(data):
    for entry in data["refused"]:
        click.echo(
            f"process {entry['pid']}, descriptor {entry['fd']}: "
            f"not used, {_shown(entry['reason'])}",
            err=True,
        )


_NOTHING = (
    "no process of the emulator runs: nothing is there, and nothing is ever left "
    "(no files)"
)


@click.group()
def emu():
    """Look at the emulator's jobs on this host, and tidy them."""


def _process_lines(process):
    coords = ",".join(map(str, process["coords"]))
    name = f" {_shown(process['name'])}" if process["name"] else ""
    yield (
        f"  slot {process['slot']}: pid {process['pid']}{name}, {process['state']}, "
        f"node {coords}, {_size(process['memory'])}, "
        f"{_count(process['mrq_lanes'], 'MRQ lane')}, "
        f"{_count(process['barrier_gates'], 'barrier gate')}"
    )
    for vcq in process["vcqs"]:
        yield (
            f"    VCQ: TNI {vcq['tni']}, CQ {vcq['cq']} ({vcq['kind']}), "
            f"component {vcq['component']}: "
            f"{_count(vcq['registrations'], 'registration')}, "
            f"{_count(vcq['mrq_lanes'], 'MRQ lane')}"
        )


@emu.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def ls(as_json):
    """List jobs, their processes and what they hold.

    A job whose name is longer than 64 characters, or has others than
    A-Z a-z 0-9 . _ -, is listed by a hash of its name: hash-...

    What is not a job that can be looked at (of another PID namespace, of another
    version) is told on stderr; the exit code is 0 all the same.

    A process that has ended is listed while its job still has its entry; the
    job takes it back when it needs it, or "uct-tofu emu clean" does.
    """
    data, code = _tool("ls")
    if as_json:
        click.echo(json.dumps(data, indent=1))
        sys.exit(code)
    _report_refused(data)
    if not data["jobs"] and not data["refused"]:
        click.echo(_NOTHING)
    for job in data["jobs"]:
        click.echo(
            f"job {_shown(job['job'])}: {len(job['processes'])} in it, "
            f"control segment {_size(job['memory'])}"
        )
        for process in job["processes"]:
            for line in _process_lines(process):
                click.echo(line)
    sys.exit(code)


@emu.command("clean")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def clean(as_json):
    """Give back what ended processes hold in jobs that go on.

    That is their slots, CQs, VCQ IDs and barrier gates.  Nothing of a living
    process, running or stopped, is touched.  A job all of whose processes have
    ended needs no cleaning: the kernel has removed it.
    """
    data, code = _tool("clean")
    if as_json:
        click.echo(json.dumps(data, indent=1))
        sys.exit(code)
    _report_refused(data)
    if not data["jobs"] and not data["refused"]:
        click.echo(_NOTHING)
    for job in data["jobs"]:
        name = _shown(job["job"])
        for slot in job["reclaimed"]:
            click.echo(
                f"job {name}: slot {slot['slot']} of process {slot['pid']}, which has "
                f"ended: gave back {_count(slot['cqs'], 'CQ')}, "
                f"{_count(slot['vcqs'], 'VCQ ID')}, "
                f"{_count(slot['barrier_gates'], 'barrier gate')}"
            )
        if job["error"]:
            click.echo(f"job {name}: {job['error']}", err=True)
        elif not job["reclaimed"]:
            click.echo(f"job {name}: nothing to give back")
    sys.exit(code)
