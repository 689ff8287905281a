"""The minimum cut of a directed graph with capacities (Dinic's algorithm).

Implemented here because the graphs are small, and importing a graph library takes longer than all cuts of a model.

Invariant: no other cut has a smaller capacity.
"""
from __future__ import annotations

import collections

INFINITE = float("inf")


class FlowNetwork:
    """A directed graph with capacities; its vertices are small integers, which ``vertex`` returns."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = []
        self._head: list[int] = []
        self._left: list[float] = []

    def vertex(self) -> int:
        """A new vertex."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, start: int, end: int, capacity: float) -> None:
        """Adds an edge, and its residual edge back."""
        self._edges[start].append(len(self._head))
        self._head.append(end)
        self._left.append(capacity)
        self._edges[end].append(len(self._head))
        self._head.append(start)
        self._left.append(0.0)

    def reachable_after_cut(self, source: int, sink: int) -> set[int] | None:
        """The vertices on the source's side of the minimum cut that is nearest to the source; None if no finite cut
        exists.
        """
        while True:
            levels = self._levels(source)
            if levels[sink] < 0:
                return {v for v, level in enumerate(levels) if level >= 0}
            progress = [0] * len(self._edges)
            while (path := self._path(source, sink, levels, progress)) is not None:
                flow = min(self._left[e] for e in path)
                if flow == INFINITE:
                    return None
                for e in path:
                    self._left[e] -= flow
                    self._left[e ^ 1] += flow

    def _levels(self, source: int) -> list[int]:
        """The distance of each vertex from the source in the residual graph; -1 if it is not reachable."""
        levels = [-1] * len(self._edges)
        levels[source] = 0
        queue = collections.deque([source])
        while queue:
            v = queue.popleft()
            for e in self._edges[v]:
                end = self._head[e]
                if self._left[e] > 0 and levels[end] < 0:
                    levels[end] = levels[v] + 1
                    queue.append(end)
        return levels

    def _path(self, source: int, sink: int, levels: list[int], progress: list[int]) -> list[int] | None:
        """An augmenting path, as edges between successive levels; None if there is none. ``progress``: for each vertex,
        the number of its edges that are known to lead nowhere."""
        path: list[int] = []
        v = source
        while v != sink:
            edges = self._edges[v]
            while progress[v] < len(edges):
                e = edges[progress[v]]
                if self._left[e] > 0 and levels[self._head[e]] == levels[v] + 1:
                    path.append(e)
                    v = self._head[e]
                    break
                progress[v] += 1
            else:
                if v == source:
                    return None
                # A dead end: go back one step, and skip the edge that led here.
                v = self._head[path.pop() ^ 1]
                progress[v] += 1
        return path
