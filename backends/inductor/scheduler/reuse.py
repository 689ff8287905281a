"""Reuse distances: how much other data a graph touches between two uses of a buffer. A buffer with a large distance has
left the caches when it is used again, however small it is itself: so do the weights of a network from call to call.

A distance, in bytes, counts what the group touches that uses the buffer before, since it used the buffer's first
elements, and each input and constant that is touched for the first time in between. Buffers that are made in between
count as nothing, because they share memory that is freed, and so do symbolic sizes.

Invariant: the time that distances take is linear in the number of groups and of the buffers that they touch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynamo_lite.backends.inductor import program as prog
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import Buffer, LoopNest
from dynamo_lite.backends.inductor.scheduler.groups import Group


def operand_distances(
    groups: Sequence[Group], buffers: Mapping[str, Buffer], lasting: frozenset[str]
) -> dict[int, tuple[int, int]]:
    """For each group that begins with a product, by number, the bytes of the left and of the right operand's buffer
    together with its reuse distance; 0 for a buffer that nothing has touched.

    Args:
        groups: in the order in which they run.
        lasting: names of the graph's inputs and constants, which are the same memory from call to call.
    """
    aliases: dict[str, str] = {}
    touched: list[list[str]] = []
    for group in groups:
        if isinstance(group.operation, prog.View):
            base = group.operation.base
            aliases[group.operation.name] = aliases.get(base, base)
        touched.append(list(dict.fromkeys(aliases.get(name, name) for name in _touched(group))))
    sizes = {name: _bytes(buffers, name) for names in touched for name in names}
    each = [sum(map(sizes.__getitem__, names)) for names in touched]
    before = [0]  # bytes of lasting buffers that are touched for the first time before each group
    first: set[str] = set()
    for names in touched:
        fresh = [name for name in names if name in lasting and name not in first]
        first.update(fresh)
        before.append(before[-1] + sum(map(sizes.__getitem__, fresh)))
    made = max((sum(sizes[name] for name in names if name not in lasting) for names in touched), default=0)
    found: dict[int, tuple[int, int]] = {}
    last: dict[str, int] = {}  # the group that has touched a buffer last

    def distance(name: str, at: int) -> int:
        name = aliases.get(name, name)
        if name in last:
            return before[at] - before[last[name] + 1] + each[last[name]]
        # Since the call before: the whole graph, of whose own buffers those of the largest group are in use together.
        return before[-1] + made if name in lasting else 0

    for at, (group, names) in enumerate(zip(groups, touched)):
        if group.contraction is not None:
            left, right = group.contraction.left.buffer, group.contraction.right.buffer
            found[group.number] = distance(left, at), distance(right, at)
        last.update(dict.fromkeys(names, at))
    return found


def _touched(group: Group) -> list[str]:
    operation = group.operation
    if operation is None:
        return [name for m in group.members for name in (*m.reads, m.nest.buffer.name)]
    assert not isinstance(operation, LoopNest)
    return [] if isinstance(operation, prog.View) else [*prog.step_reads(operation), *prog.step_writes(operation)]


def _bytes(buffers: Mapping[str, Buffer], name: str) -> int:
    buffer = buffers.get(name)
    if buffer is None:
        return 0
    elements = ix.product(buffer.size)
    return elements * buffer.dtype.itemsize if isinstance(elements, int) else 0
