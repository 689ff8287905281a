"""Kernels of scans, which carry values along a loop: cumulative sums, products and extremes.

On a CPU, the scanned loop runs in order, in one thread, and threads share the outer loops. If memory is contiguous
along one of these, it is the vector loop: then every lane carries values of its own.

Invariant: values are carried in the order of the scanned dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dynamo_lite.backends.inductor.ir.loops import Buffer, LoopNest
from dynamo_lite.backends.inductor.ir.nodes import Builder, walk
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Stage, Statement, Store
from dynamo_lite.backends.inductor.scheduler.order import dims_by_stride


def scan_kernel(builder: Builder, nests: Sequence[LoopNest], buffers: dict[str, Buffer],
                arrange: Callable[[Builder, Kernel], Kernel]) -> Kernel:
    """The kernel of a scan.

    Args:
        nests: the nests with a ``scan``, each of which computes one result of the same scan.
        arrange: the target's transform of the loops of scans.
    """
    first = nests[0]
    assert first.scan is not None
    over = first.scan.over
    outer = tuple(v for v in dims_by_stride(first.dims, first.index) or first.dims if v is not over)
    carried = {c.name: c for nest in nests if nest.scan is not None for c in nest.scan.carried}
    statements: list[Statement] = [Accumulate(c.name, "carry", c.value, 0, c.start, c.element)
                                   for c in carried.values()]
    statements += [Store(nest.buffer.name, nest.index, nest.value) for nest in nests]
    outputs = tuple(nest.buffer.name for nest in nests)
    read = dict.fromkeys(n.attr[0] for nest in nests for n in walk(nest.roots()) if n.op == "load")
    arguments = {n: buffers[n] for n in (*read, *outputs)}
    stage = Stage((over,), statements, scalar=True, scan=True)
    origin = tuple(dict.fromkeys(o for nest in nests for o in nest.origin))
    return arrange(builder, Kernel(outer, [stage], False, arguments, outputs, {}, origin))
