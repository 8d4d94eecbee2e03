# SPDX-License-Identifier: BSD-3-Clause
"""Tofu coordinates: where a node is, how many hops apart two are, the first link.

The network is X x Y x Z units of 2 x 3 x 2 nodes (A, B, C), numbered as by the
emulator (cython/emu/emu_topology.c); X, Y, Z and B are rings, A and C pairs.
"""

from __future__ import annotations

from functools import lru_cache

FULL = (24, 23, 24)  # units of the largest network
UNIT = (2, 3, 2)
UNIT_NODES = 12
FULL_NODES = FULL[0] * FULL[1] * FULL[2] * UNIT_NODES


def shape_for(nodes: int) -> tuple[int, int, int]:
    """The smallest box of units that holds so many nodes, as near to a cube as it can.

    Parameters
    ----------
    nodes : int
        1 to 158,976.

    Raises ``ValueError`` when there is no such network.

    Source: cython/emu/emu_topology.c, numbers of nodes.
    """
    if not 1 <= nodes <= FULL_NODES:
        raise ValueError(f"a network has 1 to {FULL_NODES} nodes, not {nodes}")
    units = -(-nodes // UNIT_NODES)
    best = None
    for x in range(1, FULL[0] + 1):
        for y in range(1, FULL[1] + 1):
            z = -(-units // (x * y))
            if z > FULL[2]:
                continue
            key = (x * y * z, x + y + z, max(x, y, z), (x, y, z))
            if best is None or key < best:
                best = key
    return best[3]


class Network:
    """Coordinates of the nodes 0 .. nodes - 1.

    Parameters
    ----------
    nodes : int
        1 to 158,976; others raise ``ValueError``.

    Source: cython/emu/emu_timing.c, route.
    """

    def __init__(self, nodes: int):
        self.nodes = nodes
        self.shape = shape_for(nodes)
        self.size = (*self.shape, *UNIT)
        self.hops_from_0 = lru_cache(maxsize=None)(self._hops_from_0)

    def coords(self, node: int) -> tuple[int, ...]:
        """X, Y, Z, A, B, C of a node.

        Source: cython/emu/emu_topology.c, emu_topology_init.
        """
        unit, inside = divmod(node, UNIT_NODES)
        x, y = self.shape[:2]
        return (
            unit % x, unit // x % y, unit // x // y,
            inside // 6, inside // 2 % 3, inside % 2,
        )  # fmt: skip

    def node(self, coords: tuple[int, ...]) -> int:
        """The number of the node at X, Y, Z, A, B, C.

        Source: cython/emu/emu_topology.c, emu_topology_init.
        """
        x, y, z, a, b, c = coords
        unit = x + self.shape[0] * (y + self.shape[1] * z)
        return unit * UNIT_NODES + a * 6 + b * 2 + c

    def hops(self, one: int, other: int) -> int:
        """Links between two nodes along the shortest way; 0 for the same one.

        Source: cython/emu/emu_timing.c, ring_distance.
        """
        total = 0
        for a, b, n in zip(self.coords(one), self.coords(other), self.size):
            d = abs(a - b)
            total += min(d, n - d)
        return total

    def _hops_from_0(self, node: int) -> int:
        return self.hops(0, node)

    def first_link(self, one: int, other: int) -> int | None:
        """Which of the ten links of a node the way to another begins with.

        X, Y, Z and B have two each, A and C one.  None for the same node.

        Source: cython/emu/emu_timing.c, route; its default path has the A, B, C of
        the target.
        """
        here, there = self.coords(one), self.coords(other)
        for axis in (3, 4, 5, 0, 1, 2):
            n, a, b = self.size[axis], here[axis], there[axis]
            if a != b:
                d = min(abs(a - b), n - abs(a - b))
                up = (b - a) % n == d
                if axis in (3, 5):
                    return 8 if axis == 3 else 9
                return (3 if axis == 4 else axis) * 2 + up
        return None

    def neighbours(self, node: int) -> list[int]:
        """The nodes one hop away, each once; at most ten.

        Source: cython/emu/emu_topology.c, the shape of the network.
        """
        here = self.coords(node)
        found = set()
        for axis in range(6):
            for step in (1, -1):
                there = list(here)
                there[axis] = (there[axis] + step) % self.size[axis]
                number = self.node(tuple(there))
                if number != node and number < self.nodes:
                    found.add(number)
        return sorted(found)
