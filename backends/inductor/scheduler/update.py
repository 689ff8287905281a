"""Kernels that write to some elements of a buffer: scatters, and writes through views.

The kernel first initializes the whole buffer, then performs the writes in the order of their loops. If the buffer may
reuse the memory of an input, the kernel first checks all indices that are read from memory, and ends if one is out of
bounds.

Invariant: nothing is written to an input before all indices have been checked.
"""

from __future__ import annotations

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import Buffer, LoopNest
from dynamo_lite.backends.inductor.ir.nodes import Builder, Node, walk
from dynamo_lite.backends.inductor.ir.substitution import substitute
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel, Stage, Store
from dynamo_lite.backends.inductor.scheduler.loop_transforms import indices_of, mergeable


def update_kernel(builder: Builder, nest: LoopNest, buffers: dict[str, Buffer]) -> Kernel:
    """The kernel of a nest with an ``update``."""
    assert nest.update is not None
    name = nest.buffer.name
    before, node = nest.update, nest.value
    order = sorted(before.dims, key=lambda v: -_stride(before.index, v))
    start = _renamed(builder, _merged(builder, Stage(tuple(order), [Store(name, before.index, before.value)])), "b")
    writes = _merged(builder, Stage(nest.dims, [Store(name, 0, node)], ordered=True))
    node = writes.statements[0].value
    writes.free = bool(writes.inner) and _leads_apart(node, writes.inner[-1])
    writes.apart = len(writes.inner) > 1 and _writes_apart(node, writes.inner[0])
    writes.scalar = bool(writes.inner) and not writes.free and ix.coefficient(node.attr[0], writes.inner[-1]) != 1
    names = dict.fromkeys(n.attr[0] for n in walk((before.value, node)) if n.op == "load")
    arguments = {n: buffers[n] for n in (*names, name)}
    inplace: tuple[tuple[str, str], ...] = ()
    source = before.value
    if source.op == "load" and source.attr[1] == before.index and _same_memory(nest.buffer, buffers[source.attr[0]]):
        if all(n.attr[0] != source.attr[0] for n in walk((node,)) if n.op == "load"):
            inplace = ((name, source.attr[0]),)
            start.unless_same = inplace[0]
    bounded = [n for n in walk((node,)) if n.op == "bounded"] if inplace else []
    checks = []
    if bounded:
        loops = tuple(v for v in writes.inner if any(v in n.vars for n in bounded))
        check = Stage(loops, [Store("", 0, n) for n in bounded], check=True, where_same=inplace[0])
        check.apart, check.free = len(loops) > 1, len(loops) == 1
        checks = [_renamed(builder, check, "c")]
    return Kernel((), [*checks, start, writes], False, arguments, (name,), {}, nest.origin, inplace)


def _renamed(builder: Builder, stage: Stage, prefix: str) -> Stage:
    """The stage with its loop variables renamed, since a variable may be that of the vector loop in one stage only.

    Args:
        prefix: prefix of the new names.
    """
    own = {v: ix.Var(prefix + v.name, v.size) for v in stage.inner}
    mapping = {v: ix.atom(w) for v, w in own.items()}
    stage.inner = tuple(own.values())
    for s in stage.statements:
        assert isinstance(s, Store)
        s.value, s.index = builder.substitute(s.value, mapping), substitute(s.index, mapping)
    return stage


def _stride(index: ix.Index, v: ix.Var) -> int:
    """The stride of an index along ``v``; 0 if it is not a known int."""
    c = ix.coefficient(index, v)
    return c if isinstance(c, int) else 0


def _leads_apart(node: Node, v: ix.Var) -> bool:
    """Whether iterations that differ in ``v`` only write to different elements, for any indices in memory."""
    index = node.attr[0]
    inner = {a for a in ix.atoms_of(index) if isinstance(a, ix.Indirect)}
    return ix.coefficient(index, v) == 1 and not any(v in a.node.vars for a in inner)


def _merged(builder: Builder, stage: Stage) -> Stage:
    """The stage with adjacent loops merged wherever all indices step through the two loops as through one."""
    statement = stage.statements[0]
    assert isinstance(statement, Store)
    while True:
        indices = indices_of([statement])
        pair = next(((a, b) for a, b in zip(stage.inner, stage.inner[1:]) if mergeable(indices, a, b)), None)
        if pair is None:
            return stage
        a, b = pair
        merged = ix.Var(f"{a.name}_{b.name}", ix.mul(a.size, b.size))
        mapping = {a: 0, b: ix.atom(merged)}
        statement.value = builder.substitute(statement.value, mapping)
        statement.index = substitute(statement.index, mapping)
        stage.inner = tuple(merged if v is b else v for v in stage.inner if v is not a)


def _writes_apart(node: Node, v: ix.Var) -> bool:
    """Whether each iteration of the outermost loop, over ``v``, writes to a range of its own, for any indices in
    memory."""
    index = node.attr[0]
    step, rest = ix.coefficient(index, v), ix.value_range(substitute(index, {v: 0}))
    if not isinstance(step, int) or rest is None:
        return False
    low, high = rest
    return isinstance(low, int) and isinstance(high, int) and high - low < step


def _same_memory(a: Buffer, b: Buffer) -> bool:
    same: bool = a.dtype is b.dtype and a.size == b.size and a.stride == b.stride and a.device == b.device
    return same
