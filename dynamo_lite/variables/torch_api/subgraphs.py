"""Parts of a trace that become graphs of their own.

A function that torch calls by itself (a forward or backward pass, the function of a transform) is evaluated like any
other function; the nodes that this adds to the graph are then moved to a graph of their own. Invariant: every value
that such a part reads comes in through its placeholders. A tensor that the part made and that is neither one of its
results nor passed on occurs in no other graph (``OutputGraph.create_node`` refuses it).
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ...guards import Guard, GuardSet
from ...guards.source import ClosureCellSource, LocalSource, Source
from ...runtime.graph_modules import graph_module
from ..base import VariableTracker, unsupported
from ..cells import CellVariable
from ..containers.mappings import DictVariable
from ..containers.sequences import ListVariable, TupleVariable
from ..containers.sets import SetVariable
from ..numbers.scalars import is_unknown
from ..tensors.tensor import TensorVariable
from .torch_functions import set_state, state_now

if TYPE_CHECKING:
    from ..protocols import Tracer


class NodeVariable(VariableTracker):
    """A node of the graph as an argument of another node."""

    def __init__(self, node: fx.Node) -> None:
        super().__init__()
        self.node = node

    def as_argument(self, tx: Tracer) -> Any:
        return self.node


class Part:
    """The nodes that a trace adds between the creation of this object and :meth:`close`."""

    def __init__(self, output: Any) -> None:
        self.output = output
        self._last = next(iter(reversed(output.graph.nodes)), None)
        self.nodes: list[fx.Node] = []
        output.parts += 1

    def close(self) -> list[fx.Node]:
        """The nodes, in order, without inputs of the whole graph that were added in between, and their sizes."""
        self.output.parts -= 1
        for node in reversed(self.output.graph.nodes):
            if node is self._last:
                break
            if node.op != "placeholder" and "at_inputs" not in node.meta:
                self.nodes.append(node)
        self.nodes.reverse()
        if any("draws" in node.meta for node in self.nodes):
            unsupported("rng_state", "Python's random numbers in a function that torch calls by itself")
        return self.nodes


def without_numbers(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes without those that compute numbers from numbers alone: these stay in the whole graph, and the part
    reads them."""
    kept: dict[fx.Node, None] = {}
    for node in nodes:
        read = node.all_input_nodes
        of_numbers = bool(read) and all(n not in kept and is_unknown(n.meta["example_value"]) for n in read)
        if not (of_numbers and is_unknown(node.meta["example_value"])):
            kept[node] = None
    return list(kept)


def read_from_outside(nodes: Sequence[fx.Node], results: Iterable[Any] = ()) -> list[fx.Node]:
    """The nodes that a part reads, or passes on as results, without having made them."""
    own = set(nodes)
    found: dict[fx.Node, None] = {}
    for node in nodes:
        found.update(dict.fromkeys(n for n in node.all_input_nodes if n not in own))
    found.update(dict.fromkeys(n for n in results if isinstance(n, fx.Node) and n not in own))
    return list(found)


def as_graph(
    nodes: Sequence[fx.Node], inputs: Sequence[fx.Node], results: Sequence[fx.Node | None], fake_mode: Any
) -> fx.GraphModule:
    """A graph module that consists of these nodes; a node may occur in `inputs` more than once."""
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for number, node in enumerate(inputs):
        placeholder = graph.placeholder(node.name if node not in env else f"{node.name}_again{number}")
        placeholder.meta["example_value"] = node.meta["example_value"]
        env.setdefault(node, placeholder)
    for node in nodes:
        if node not in env:
            env[node] = graph.node_copy(node, env.__getitem__)
    graph.output(tuple(None if r is None else env[r] for r in results))
    output = next(iter(reversed(graph.nodes)))
    output.meta["example_value"] = tuple(None if r is None else r.meta["example_value"] for r in results)
    module = graph_module(graph)
    module.meta["fake_mode"] = fake_mode
    return module


def remove(nodes: Sequence[fx.Node]) -> None:
    """Removes a part's nodes from the graph."""
    for node in reversed(nodes):
        node.graph.erase_node(node)


@contextlib.contextmanager
def torch_state(*, grad: bool | None = None, autocast: bool | None = None) -> Iterator[None]:
    """Sets torch's state as torch does it when it calls a function by itself, invisibly for the graph; restores it."""
    before = state_now()
    if grad is not None:
        torch._C._set_grad_enabled(grad)
    if autocast is not None:
        for device in ("cpu", "cuda"):
            torch.set_autocast_enabled(device, autocast)
    try:
        yield
    finally:
        set_state(before)


@contextlib.contextmanager
def own_guards(output: Any) -> Iterator[GuardSet]:
    """Collects all guards that a part needs, including those that the trace needed before; they also join the trace's
    own. Within, no number becomes an input of the graph or is computed at its entry, and no tensor's elements are
    known, as the part runs later than it is evaluated.
    """
    outer, output.guards = output.guards, GuardSet()
    dynamic, output.dynamic = output.dynamic, ()
    ahead, output.numbers_ahead = output.numbers_ahead, False
    trackers = output.effects.forget_trackers()
    try:
        with output.value_guards.none_added(), output.fake_mode.known.unknown():
            yield output.guards
    finally:
        outer.merge(output.guards)
        output.guards = outer
        output.dynamic = dynamic
        output.numbers_ahead = ahead
        output.effects.remember_trackers(trackers)


def is_of_the_frame(source: Source) -> bool:
    """Whether a path starts at an argument or closure cell of the frame, which does not exist after the frame's end."""
    if isinstance(source, (LocalSource, ClosureCellSource)):
        return True
    return any(map(is_of_the_frame, source.parents()))


_STRUCTURE = frozenset({"code_is", "type_is", "dict_has", "dict_lacks", "class_version"})


def fixes_a_value(guard: Guard) -> bool:
    """Whether a guard is about data, in contrast to guards about the identity of a function or class."""
    if guard.kind == "is":
        return isinstance(guard.expected[0], (bool, int, float, complex, str, type(None)))
    return guard.kind not in _STRUCTURE


def reachable(values: Iterable[VariableTracker], effects: Any = None) -> dict[int, VariableTracker]:
    """The trackers that can be reached through containers, by id; with `effects` also through attributes that were set
    in the trace."""
    found: dict[int, VariableTracker] = {}
    todo = list(values)
    while todo:
        value = todo.pop()
        if id(value) in found:
            continue
        found[id(value)] = value
        if isinstance(value, (ListVariable, TupleVariable)):
            todo.extend(value.items)
        elif isinstance(value, DictVariable):
            todo.extend(item for _, item in value.items.values())
        elif isinstance(value, SetVariable):
            todo.extend(value.members.values())
        elif isinstance(value, CellVariable) and isinstance(value.contents, VariableTracker):
            todo.append(value.contents)
        elif isinstance(value.content, VariableTracker):
            todo.append(value.content)
        if value.own_dict is not None:
            todo.append(value.own_dict)
        if effects is not None:
            todo.extend(v for v in effects.attributes_of(value).values() if isinstance(v, VariableTracker))
    return found


def alive(tx: Tracer) -> dict[int, VariableTracker]:
    """The trackers that the frames under evaluation can reach, by id: objects that a part has not made itself."""
    found: list[VariableTracker] = []
    frame: Tracer | None = tx
    while frame is not None:
        found += [*frame.locals.values(), *frame.stack, *frame.cells.values(), *frame.free_cells]
        frame = frame.parent
    return reachable(found, tx.output.effects)


def tensors_in(values: Iterable[VariableTracker]) -> list[TensorVariable]:
    """The tensors that can be reached from values."""
    return [v for v in reachable(values).values() if isinstance(v, TensorVariable)]
