# SPDX-License-Identifier: BSD-3-Clause
"""Plots over the number of nodes, with matplotlib; colours of Okabe and Ito."""

from __future__ import annotations

from pathlib import Path

STYLES = {  # colour, marker, and its size: lines may lie upon each other
    "scale_many_to_one": ("#D55E00", "o", 9.5),
    "scale_all_to_all": ("#0072B2", "s", 5.5),
    "scale_neighbours": ("#009E73", "^", 6),
}
MIB = 1 << 20


def _counter(name, factor=1.0):
    return lambda one: one["counters"][name] * factor


# file -> title, label of the axis, what is drawn, and a limit: its label and value
PLOTS = {
    "time": (
        "Time until the last message was handled", "time [s]",
        _counter("seconds"), None,
    ),
    "rate": (
        "Messages that one process receives", "messages [1/s]",
        lambda one: one["rate"], None,
    ),
    "control": (
        "Operations that carry no message", "operations per message",
        _counter("control_per_message"), None,
    ),
    "mrq": (
        "Most notices in the receiver's MRQ", "notices",
        _counter("mrq_peak"), ("bound of the core (query)", "mrq_bound"),
    ),
    "loans": (
        "Senders that hold slots at a time", "senders",
        _counter("loans_peak"), None,
    ),
    "memory": (
        "Memory of a node for active messages", "memory [MiB]",
        _counter("bytes_node", 1 / MIB), None,
    ),
}  # fmt: skip


def draw(records, folder, form: str = "png") -> list[Path]:
    """Write the plots of some records.

    Parameters
    ----------
    records : list of dict
        Of ``report.record``, one or more.
    folder : str or os.PathLike
        Is made when it is not there.
    form : str
        ``png`` or ``svg``.

    Returns
    -------
    list of pathlib.Path
        What was written.

    Raises ``ImportError`` without matplotlib and ``OSError`` as files do.

    Source: docs/scale.md, Plots.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, (title, label, value, limit) in PLOTS.items():
        figure = Figure(figsize=(7.2, 4.6), dpi=120, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for test in dict.fromkeys(one["test"] for one in records):
            _draw_test(axes, test, [r for r in records if r["test"] == test], value)
        if limit:
            axes.axhline(
                records[0]["counters"][limit[1]], color="black", ls=":", label=limit[0]
            )
        if any(one["params"]["extrapolated"] for one in records):
            axes.plot([], [], color="grey", ls="--", marker="o", mfc="white",
                      label="hollow: continued, not simulated")  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("nodes, one process each")
        axes.set_ylabel(label)
        one = records[0]
        about = (
            f"{one['iterations']} messages of {one['size']} B from each sender to each "
            f"of its receivers; model clock, profile {one['params']['profile']}"
        )
        axes.set_title(f"{title}\n", loc="left", fontsize=11)
        axes.text(0, 1.02, about, transform=axes.transAxes, fontsize=8)
        axes.grid(True, which="major", color="0.85", lw=0.6)
        figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
        path = folder / f"scale_{name}.{form}"
        figure.savefig(path)
        written.append(path)
    return written


def _draw_test(axes, test, records, value):
    records = sorted(records, key=lambda one: one["params"]["nodes"])
    colour, marker, size = STYLES[test]
    points = [(one["params"]["nodes"], value(one)) for one in records]
    simulated = [not one["params"]["extrapolated"] for one in records]
    last = max((i for i, is_real in enumerate(simulated) if is_real), default=-1)
    style = {"color": colour, "marker": marker, "ms": size}
    if last >= 0:
        label = test.removeprefix("scale_").replace("_", "-")
        axes.plot(*zip(*points[: last + 1]), ls="-", label=label, **style)
    if last + 1 < len(points):
        tail = points[max(last, 0) :]
        axes.plot(*zip(*tail), ls="--", mfc="white", zorder=1, **style)
