"""Scans in Triton, one block at a time.

Values carried over consecutive elements may be joined in any grouping (``ir.loops.Carried``). So a block's threads scan
a piece of a row in parallel, and the value carried from earlier pieces is joined with each result. The additions of a
sum are therefore in another order than element by element, as eager's are on a GPU.

Invariant: elements behind a row's end do not affect any stored value.
"""
from __future__ import annotations

from collections.abc import Sequence

from dynamo_lite.backends.inductor.codegen.triton.body import Body, Value
from dynamo_lite.backends.inductor.codegen.triton.expressions import VALUE, const_text
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Stage


def can_join(stage: Stage) -> bool:
    """Whether a scan's values may be joined in any grouping."""
    carried = [s for s in stage.statements if isinstance(s, Accumulate)]
    elements = {s.element for s in carried}
    return None not in elements and all(_is_of(s.value, elements) for s in carried)


def _is_of(value: Node, elements: set[Node | None]) -> bool:
    """Whether a value is computed only from carried values, elements and constants."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if node in elements or node.op in ("acc", "const"):
            continue
        if node.op in ("load", "index", "inside", "bounded"):
            return False
        waiting += node.args
    return True


class BlockScan:
    """The text of one scan.

    Args:
        carried: the carried values.
        body: the body of the kernel, with its axes; ``results`` gets the carried value at each element.
        name: the name of the kernel's function.
    """

    def __init__(self, carried: Sequence[Accumulate], body: Body, name: str) -> None:
        self._carried, self._body, self._join = carried, body, f"{name}_join"
        self._rows = len(body.axes) == 2
        self._every = frozenset(range(len(body.axes)))

    def function(self) -> str:
        """The function that joins the values carried over some elements with those over the elements after them."""
        body = Body({}, False, self._body.gpu)
        count = range(len(self._carried))
        for k, s in enumerate(self._carried):
            assert s.element is not None
            body.results[s.acc] = Value(f"a{k}", frozenset())
            body.values[s.element] = Value(f"b{k}", frozenset())
        joined = [body.value(s.value).text for s in self._carried]
        parameters = [f"{side}{k}" for side in "ab" for k in count]
        head = f"@triton.jit\ndef {self._join}({', '.join(parameters)}):"
        return "\n".join([head, *body.lines, f"    return {', '.join(joined)}", ""])

    def begin(self) -> None:
        """Defines the carried values before the first piece."""
        shape = self._body.shape(self._every - {len(self._body.axes) - 1}) if self._rows else "()"
        for k, s in enumerate(self._carried):
            self._body.line(f"c{k} = {self._start(s).replace('()', shape, 1)}")

    def piece(self, start: str | None) -> None:
        """Computes the carried values at each element of a piece of the row, or of the whole row if ``start`` is None.
        """
        body, count = self._body, range(len(self._carried))
        body.values = {}
        elements = [s.element for s in self._carried if s.element is not None]
        body.prepare(elements)
        shape, mask = body.shape(self._every), body.mask(self._every)
        for k, (s, node) in enumerate(zip(self._carried, elements)):
            value = body.value(node)
            text = value.text if value.axes == self._every else f"tl.broadcast_to({value.text}, {shape})"
            text = f"tl.where({mask}, {text}, {self._start(s)})" if mask else text
            body.line(f"e{k} = {text}")
        axis = "1" if self._rows else "0"
        names = [f"s{k}" for k in count]
        given = [f"e{k}" for k in count]
        several = len(names) > 1
        body.line(f"{', '.join(names)} = tl.associative_scan("
                  f"{'(' + ', '.join(given) + ')' if several else given[0]}, {axis}, {self._join})")
        if start is not None:
            before = [f"tl.broadcast_to(c{k}, {shape})" for k in count]
            body.line(f"{', '.join(names)} = {self._join}({', '.join([*before, *names])})")
            keep = ", keep_dims=True" if self._rows else ""
            for k, s in enumerate(self._carried):
                # Selects the value at the last element: the others become zero, so that a sum gives it.
                last = f"tl.where(r == {start} + RBLOCK - 1, s{k}, {const_text(0, s.value.dtype)})"
                body.line(f"c{k} = tl.sum({last}, {axis}{keep}).to({VALUE[s.value.dtype]})")
        for k, s in enumerate(self._carried):
            body.results[s.acc] = Value(names[k], self._every)
        body.values = {node: value for node, value in body.values.items()
                       if not any(inner.op == "acc" for inner in walk((node,)))}

    def _start(self, s: Accumulate) -> str:
        assert s.start is not None
        return const_text(s.start.attr, s.start.dtype)
