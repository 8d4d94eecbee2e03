# SPDX-License-Identifier: BSD-3-Clause
"""The simulator by itself: its network, its shortcuts, what it says, the command."""

import io
import json
import random
from collections import deque

import pytest
from click.testing import CliRunner
from rich.console import Console

from uct_tofu.cli import main
from uct_tofu.model import protocol as p
from uct_tofu.model.sizes import Sizes
from uct_tofu.perf import cli_scale, tofud_model
from uct_tofu.perf.scale import WORKLOADS, Case, memory, report, run_workload
from uct_tofu.perf.scale import simulator as sim
from uct_tofu.perf.scale.claims import ParkedClaims
from uct_tofu.perf.scale.network import FULL, FULL_NODES, Network, shape_for
from uct_tofu.perf.scale.nodes import Costs
from uct_tofu.perf.scale.workloads import simulate, sizes_for

COSTS = Costs(tofud_model.PROFILES["tofud"])


# ------------------------------------------------------------------ network


def test_shapes():
    assert shape_for(FULL_NODES) == FULL
    assert shape_for(1) == shape_for(12) == (1, 1, 1)
    assert shape_for(13) == (1, 1, 2)
    assert shape_for(12 * 27) == (3, 3, 3)
    for nodes in (0, FULL_NODES + 1):
        with pytest.raises(ValueError, match="158976"):
            shape_for(nodes)


@pytest.mark.parametrize("nodes", [12, 48, 12 * 27, 12 * 60])
def test_hops_are_those_over_links(nodes):
    """Against a search over the links, which are pairs of neighbours."""
    network = Network(nodes)
    distance, queue = {0: 0}, deque([0])
    while queue:
        here = queue.popleft()
        for there in network.neighbours(here):
            if there not in distance:
                distance[there] = distance[here] + 1
                queue.append(there)
    assert len(distance) == nodes
    for node, hops in distance.items():
        assert network.hops(0, node) == network.hops(node, 0) == hops
        assert network.node(network.coords(node)) == node


def test_links():
    """Ten links lead to ten neighbours; the way to all others begins with one."""
    network = Network(12 * 27)
    neighbours = network.neighbours(0)
    assert len(neighbours) == 10
    assert {network.first_link(0, one) for one in neighbours} == set(range(10))
    assert network.first_link(5, 5) is None
    assert Network(2).neighbours(0) == [1]


# ---------------------------------------------------------------- simulator


def stream(senders, messages, sizes=None, **options):
    """Many to one, everybody one hop away."""
    options.setdefault("length", 32)
    places = [(1, None, None)] * senders
    return sim.Simulation(
        sizes or sizes_for(32), COSTS, places, messages, **options
    ).run()


def test_time_of_one_sender():
    """Claim, request and answer, one message, then the gap between messages."""
    one, many = stream(1, 1), stream(1, 1001)
    par = COSTS.parameters
    asked = tofud_model.armw(par, 1) + 3 * tofud_model.put(par, 32, 1, piggyback=True)
    assert asked < one.end < asked + 1000
    gap = (many.end - one.end) / 1000
    assert gap == pytest.approx(tofud_model.stream(par, 32))


def test_time_of_many_senders():
    """The receiver's CPU decides: polls, handlers and credits."""
    plain = stream(8, 200)
    busy = Costs(COSTS.parameters, handler=1000.0)
    places = [(1, None, None)] * 8
    slow = sim.Simulation(sizes_for(32), busy, places, 200, length=32).run()
    least = 1600 * COSTS.parameters.poll + plain.counts["credit"] * 150
    assert least < plain.end < 1.3 * least
    assert slow.end - plain.end == pytest.approx(1600 * 1000, rel=0.05)


def test_large_messages():
    """The TNI of the receiver takes one after the other; credits are by 8."""
    done = stream(4, 64, sizes_for(4096), length=4096, large=True)
    bytes_each = 4096 + 16
    least = 4 * 64 * bytes_each * COSTS.parameters.per_byte
    assert least < done.end < 1.1 * least + 10_000
    assert done.counts["credit"] == 4 * 64 // 8
    assert done.peaks["slots_lent"] == 4 * 16


def test_links_are_shared():
    """Two streams over the first link of one node take twice as long as over two."""
    def run(links):
        places = [(1, link, None) for link in links]
        return sim.Simulation(
            sizes_for(4096), COSTS, places, 16, length=4096, large=True, mirror=True
        ).run()

    one_link, two_links = run([0, 0]), run([0, 1])
    # one process sends from one TNI, so that nothing is gained either
    assert one_link.end == pytest.approx(two_links.end)
    node = sim.Node(0.0)
    assert node.depart(0.0, 100.0, 10.0, 3) == 0.0
    assert node.depart(0.0, 100.0, 10.0, 3) == 100.0
    node.tni_free = node.cq_free = 0.0  # another TNI
    assert node.depart(0.0, 100.0, 10.0, 3) == 200.0
    node.tni_free = node.cq_free = 0.0
    assert node.depart(0.0, 100.0, 10.0, 4) == 0.0


@pytest.mark.parametrize("name", list(WORKLOADS))
@pytest.mark.parametrize("nodes", [2, 24, 150])
def test_everything_arrives_within_bounds(name, nodes):
    outcome = simulate(Case(name, nodes, messages=5))
    counts, peaks = outcome.counts, outcome.peaks
    assert counts["delivered"] == counts["message"] == outcome.messages
    assert counts["message"] == outcome.senders * 5
    assert 0 < peaks["slots_lent"] <= 1024 and peaks["other_slots_lent"] <= 512
    assert 0 < peaks["mrq"] <= peaks["slots_lent"] + 64 <= memory.mrq_bound()
    assert counts["credit"] <= counts["message"] if "credit" in counts else True
    assert counts["answer"] <= counts["request"] <= counts["claim"]
    assert 0 < outcome.busy <= 1


def test_who_holds_slots_longest_gives_them_back():
    """More senders than slots: in a tick as many recalls as requests can wait."""
    done = stream(150, 8)
    assert done.counts["released_recalled"] > 0
    assert done.counts["recall"] >= done.counts["released_recalled"]
    ticks = done.end / sim.TICK
    assert done.counts["recall"] <= done.sizes.grant_entries * (ticks + 1)
    assert done.counts["released_idle"] == 0


def test_idle_channels_give_back(monkeypatch):
    """A second without a message, and nobody asks: the slots come back."""
    monkeypatch.setattr(sim, "KEEP", 0.2 * sim.MS)
    sizes = Sizes(slots=64, max_window=64, other=(64, 16))
    slow = Costs(COSTS.parameters, handler=2e6)
    places = [(1, None, None)] * 4
    done = sim.Simulation(sizes, slow, places, 4, length=32).run()
    assert done.counts["released_idle"] > 0


def test_a_broken_protocol_is_seen(monkeypatch):
    """The checks of the model are at work, and a standstill is no endless loop."""
    monkeypatch.setattr(p, "find_run", lambda sz, r: (0, 2))
    with pytest.raises(p.Violation):
        stream(2, 8, Sizes(slots=64, other=(512, 16)))
    monkeypatch.undo()
    monkeypatch.setattr(sim.Simulation, "_recall", lambda self, time: time)
    monkeypatch.setattr(sim, "KEEP", 1000 * sim.STUCK)
    with pytest.raises(RuntimeError, match="stands still after 4 of 32 messages"):
        stream(8, 4, Sizes(slots=2, max_window=2, other=(2, 2)))


def test_tables_in_place_and_tables_copied(monkeypatch):
    """The model that is changed in place does what the searched one does."""
    sizes = Sizes(slots=24, max_window=8, other=(16, 4))
    one = stream(12, 20, sizes)
    for name in ("Table", "NoticeQueue", "LoanTable"):
        monkeypatch.setattr(sim, name, tuple)
    other = stream(12, 20, sizes)
    assert (one.end, one.counts, one.peaks) == (other.end, other.counts, other.peaks)
    assert one.counts["released_recalled"] > 0


# --------------------------------------------------------------- shortcuts


@pytest.mark.parametrize(
    "senders, messages", [(60, 4), (120, 5), (150, 3), (90, 10)]
)
def test_parked_claims(senders, messages):
    """With and without an event for each try: same time, same counts."""
    fast, exact = stream(senders, messages), stream(senders, messages, park=False)
    assert fast.end == exact.end
    for name in ("message", "answer_grant", "released_recalled", "credit"):
        assert fast.counts[name] == exact.counts[name], name
    # a try that comes while its sender has something else to do is not put off
    assert fast.counts["claim"] == pytest.approx(exact.counts["claim"], rel=0.03)
    assert fast.counts["claim"] > senders + fast.counts["released_recalled"]
    assert fast.counts["sender_notices"] < exact.counts["sender_notices"]


def test_next_try():
    """Against trying one after the other."""
    rng = random.Random(1)
    for _ in range(200):
        n, rest, doublings = rng.choice([1, 3, 8]), 100.0, rng.choice([0, 1, 3])
        rests = [rest * rng.choice([0.5, 1, 1.4]) for _ in range(3)]
        parked = ParkedClaims(3, n, rests, doublings)
        tries = []
        for sender in range(3):
            time, entry = rng.uniform(0, 50), rng.randrange(n)
            count, period = rng.randint(1, 2 * n), rng.uniform(1, 5)
            parked.add(sender, time, entry, count, period)
            for k in range(1, 2000):
                rounds = min(count // n - 1, doublings)
                time += period + rests[sender] * 2**rounds * (count % n == 0)
                entry, count = (entry + 1) % n, count + 1
                tries.append((time, sender, entry, k))
        since, entry = rng.uniform(0, 2000), rng.randrange(n)
        first = min(one for one in tries if one[0] >= since and one[2] == entry)
        found = parked.next_try(entry, since)
        assert found == (first[1], pytest.approx(first[0]), first[3])
        assert parked.tries_until(since) == pytest.approx(
            sum(one[0] <= since for one in tries)
        )
    parked.remove(found[0], 1)
    assert len(parked) == 2 and found[0] not in parked


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["many-to-one", "all-to-all"])
def test_continued(name):
    """What is continued is near what is simulated, and says what it is."""
    case, cache = Case(name, 2800, messages=1), {}
    guess = run_workload(case, exact=2048, cache=cache)
    real = run_workload(case, exact=2800, cache=cache)
    assert guess.based_on == (1024, 2048) and real.based_on == ()
    assert guess.time == pytest.approx(real.time, rel=0.1)
    for key in ("message", "answer_grant", "notices"):
        assert guess.counts[key] == pytest.approx(real.counts[key], rel=0.05)
    assert guess.counts["claim"] == pytest.approx(real.counts["claim"], rel=0.25)
    assert guess.peaks["loans"] == pytest.approx(real.peaks["loans"], rel=0.1)
    assert guess.memory["peers"] == real.memory["peers"]
    for outcome, simulated in ((guess, [1024, 2048]), (real, [2800])):
        params = report.record(outcome)["params"]
        assert params["extrapolated"] is (outcome is guess)
        assert params["simulated_nodes"] == simulated
    assert "~2,800" in _text(report.table(name, [report.record(guess)]))
    with pytest.raises(ValueError, match="1024 must be simulated"):
        run_workload(case, exact=600)  # slots go round only above: another regime


def _text(table):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_neighbours_are_always_simulated():
    """The largest network has no more neighbours than a small one."""
    full = run_workload(Case("neighbours", FULL_NODES, messages=3))
    small = run_workload(Case("neighbours", 12 * 27, messages=3))
    assert full.based_on == () and full.senders == 10
    assert full.counts == small.counts and full.time == small.time


# ------------------------------------------------------------ bytes, queues


def test_memory_and_queues():
    """The figures of docs/active-messages.md and docs/tnis.md."""
    assert memory.receive_bytes() == 1024 * 320 + 512 * 8448 + 4096
    assert memory.process_bytes(0, 0, 0, 1025, 0)["mailboxes"] == 2 * 65536
    assert memory.queues(1) == {
        "vcqs": 2, "vcqs_most": 12, "cqs": 2, "cqs_most": 7, "iface_cq": 1
    }  # fmt: skip
    for processes in range(1, 55):
        found = memory.queues(processes)
        assert found["cqs_most"] <= 54 and found["vcqs_most"] <= 432
    assert memory.queues(48)["iface_cq"] == 0
    with pytest.raises(ValueError, match="55"):
        memory.queues(55)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"workload": "nonsense"}, "many-to-one"),
        ({"nodes": 1}, "nobody"),
        ({"nodes": FULL_NODES + 1}, "158976"),
        ({"messages": 0}, "messages"),
        ({"size": 7}, "8 to 8256"),
        ({"size": 8257}, "8 to 8256"),
        ({"profile": "fast"}, "tofud"),
        ({"handler": -1.0}, "handler"),
    ],
)
def test_bad_cases(changes, words):
    case = {"workload": "many-to-one", "nodes": 2, **changes}
    with pytest.raises(ValueError, match=words):
        run_workload(Case(**case))


# ------------------------------------------------------------------ command


def test_command(tmp_path):
    """Table, records and plots; the schema when it is there."""
    output, plots = tmp_path / "r.jsonl", tmp_path / "plots"
    arguments = ["perf", "scale", "--nodes", "2,16,100", "--messages", "2",
                 "-o", str(output), "--plots", str(plots)]  # fmt: skip
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(records) == 9
    for one in records:
        assert one["clock"] == "model" and one["layer"] == "uct"
        c = one["counters"]
        assert c["messages"] == c["senders"] * 2
        assert one["rate"] == pytest.approx(c["messages"] / c["seconds"], rel=1e-3)
        assert c["mrq_peak"] <= c["mrq_bound"] <= c["mrq_entries"]
        assert c["bytes_node"] == sum(c[f"bytes_{part}"] for part in PARTS)
        assert one["params"]["extrapolated"] is False
    assert "~" not in done.output
    assert len(list(plots.glob("*.png"))) == 6
    for path in plots.iterdir():
        assert path.stat().st_size > 10_000


PARTS = ("receive", "bounce", "mailboxes", "peers", "endpoints", "channels", "loans")


def test_records_follow_the_schema():
    """The common format of all benchmarks."""
    result = pytest.importorskip("uct_tofu.perf.result")
    made = report.record(simulate(Case("all-to-all", 12, messages=2)))
    assert result.check(made) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nodes", "1"], "158976"),
        (["--nodes", "2,x"], "x"),
        (["--workload", "nonsense"], "many-to-one"),
        (["--size", "9000"], "8256"),
        (["--nodes", "2", "--exact", "500"], "1024"),
        (["--nodes", "2", "-o", "/nonexistent/r.jsonl"], "/nonexistent"),
        (["--nodes", "2", "-o", "/dev/full"], "/dev/full: No space left on device"),
    ],
)
def test_command_refuses(arguments, words):
    done = CliRunner().invoke(main, ["perf", "scale", *arguments])
    assert done.exit_code != 0 and words in done.output


@pytest.mark.parametrize("path", ["/nonexistent/r.jsonl", ""])
def test_output_is_looked_at_before(path, monkeypatch):
    """Not after all simulations."""
    monkeypatch.setattr(cli_scale, "run_workload", lambda *_, **__: pytest.fail("ran"))
    done = CliRunner().invoke(main, ["perf", "scale", "--nodes", "2", "-o", path])
    assert done.exit_code == 2 and "No such file" in done.output


def test_the_handlers_time_is_a_number():
    """A traceback from the simulator, once."""
    words = ["perf", "scale", "--nodes", "2", "--handler", "nan"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2 and "is not a number" in done.output


def test_recalls_go_to_idle_holders_first():
    """As many as wait, of those that sent nothing since they were looked at; without
    any, to some of all."""
    made = sim.Simulation(sizes_for(32), COSTS, [(1, None, None)] * 12, 1, length=32)
    for i in range(12):
        loan = p.Loan(i, (0, 1), 2 * i, 2, 2 * i, arrived=i % 2)
        made.receiver.loans.add(loan)
        made.lenders[i] = 0

    def recalled():
        """Whom the recalls that were posted since are for."""
        found = [args[3] for _, _, _, args in made.events if len(args) == 5]
        made.events.clear()
        return found

    made.events.clear()
    made.receiver = made.receiver._replace(jobs=((0, 20, "grant", 1),) * 3)
    made._recall(0.0)
    assert recalled() == [0, 2, 4]  # the odd ones sent a message
    made.receiver = made.receiver._replace(jobs=((0, 20, "grant", 1),) * 9)
    made._recall(0.0)
    assert recalled()[:3] == [6, 8, 10]
    for i in range(12):
        at = made.receiver.loans[i]
        made.receiver.loans[i] = at._replace(arrived=at.arrived + 1)
    made._recall(0.0)
    assert len(recalled()) == sim.RECALLS_PER_TICK


def test_what_is_posted_later_lands_later():
    """STRONG_ORDER: a short put does not overtake a long one of its sender."""
    made = sim.Simulation(sizes_for(32), COSTS, [(5, 0, 0)], 1, length=32)
    peer = made.peers[0]
    for length in (256, 8):
        made._post(peer.node, 0.0, length, peer, made._land_up, 0, length, up=True)
    landings = [(time, args[-1]) for time, _, _, args in sorted(
        made.events, key=lambda one: one[:2]) if len(args) == 5]  # fmt: skip
    assert [length for _, length in landings] == [256, 8]
    long = COSTS.one_way(256, 5) - 256 * COSTS.parameters.per_byte
    assert landings[0][0] == pytest.approx(long)
    gap = COSTS.parameters.message_gap  # by itself it would be there before
    assert gap + COSTS.one_way(8, 5) < long
