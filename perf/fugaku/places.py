#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Which ranks of a job are how far apart on the Tofu network.

    places.py show                    under mpiexec: rank and X Y Z A B C of its node
    places.py pair HOPS FILE          two ranks whose nodes are HOPS links apart
    places.py neighbours MOST FILE    a rank, and up to MOST ranks one link away

FILE is what show printed.  The answer is one line of ranks for UCT_TOFU_RANKS.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

# Of a unit: A and C have two nodes, B is a ring of three.  X, Y and Z are rings of the
# whole machine, whose ends no job can know: a way around them is not looked for.
RING_B = 3
RANKS = ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def distance(one, other):
    """Links on the way between two places (X, Y, Z, A, B, C)."""
    steps = [abs(a - b) for a, b in zip(one, other, strict=True)]
    steps[4] = min(steps[4], RING_B - steps[4])
    return sum(steps)


def read(path):
    """Rank -> place, of lines "rank X Y Z A B C"; SystemExit when there are none."""
    places = {}
    for line in Path(path).read_text().splitlines():
        words = line.split()
        if len(words) == 7 and all(word.isdecimal() for word in words):
            rank, *place = map(int, words)
            places[rank] = tuple(place)
    if not places:
        sys.exit(f"places.py: {path} has no line of rank and coordinates")
    return places


def pair(places, hops):
    """The first two ranks that far apart, or None."""
    for one, other in itertools.combinations(sorted(places), 2):
        if distance(places[one], places[other]) == hops:
            return [one, other]
    return None


def neighbours(places, most):
    """The rank with most neighbours on links of their own, and up to most of them."""
    best = []
    for rank in sorted(places):
        near = {}  # a place once, should it have several ranks
        for other in sorted(places):
            if distance(places[rank], places[other]) == 1:
                near.setdefault(places[other], other)
        if len(near) > len(best) - 1:
            best = [rank, *near.values()]
    return best[: most + 1]


def show():
    import uct_tofu

    rank = next((os.environ[name] for name in RANKS if name in os.environ), None)
    if rank is None:
        sys.exit("places.py: no launcher told the rank in the environment")
    coords = uct_tofu.Backend.load().coords()
    # one write, as all ranks may have the same file
    os.write(1, " ".join(map(str, [rank, *coords])).encode() + b"\n")


def main(words):
    if words == ["show"]:
        show()
        return
    if len(words) != 3 or words[0] not in ("pair", "neighbours"):
        sys.exit(__doc__)
    if not words[1].isdecimal():
        sys.exit(f"places.py: {words[1]} is no number")
    places, number = read(words[2]), int(words[1])
    if words[0] == "pair":
        found = pair(places, number)
        what = f"two nodes with {number} links between them"
    else:
        found = neighbours(places, number)
        what = "two nodes"
    if not found or len(found) < 2:
        sys.exit(f"places.py: the job does not have {what}")
    print(*found)


if __name__ == "__main__":
    main(sys.argv[1:])
