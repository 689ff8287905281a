"""Elements of tensors that become known in the course of a trace, because the program needs a number or a shape that
depends on them.

If the tensor was computed from integers and bools from outside and from constants alone, these inputs are guarded by
value (``value_guards``), and their elements are known from then on (``fake.elements``). Values that were computed from
them earlier are computed once more (:func:`learn`). Where a tensor was written to in between, the trace starts again
instead, with the elements known from the beginning. A tensor whose elements have changed between calls is not guarded a
second time, neither here nor in other code that reads it (``frame.changed_values``), unless the user wants a single
graph: the graph breaks there, so that a mask that changes with every call costs only one more compile.

Invariant: a number taken from a tensor is covered by a guard on the elements of every tensor that it was computed from,
and these are the elements at that point of the program, whatever shares memory with them.
"""
from __future__ import annotations

from collections.abc import Iterable
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ...continuation.deoptimize import is_of_torch
from ...exc import Unsupported
from ...fake.elements import FACTORIES, OF_METADATA
from ...guards.source import Source
from ...runtime import signal_handlers
from ..base import VariableTracker
from .graph_nodes import computed_from, operation_name
from .value_guards import guard_elements, masks_behind, may_be_guarded

if TYPE_CHECKING:
    from ..protocols import OutputGraph, TensorVariable, Tracer

# Functions without tensor operands whose results have elements that follow from their arguments.
_FACTORIES = FACTORIES | {"tensor", "as_tensor", "asarray"}
_UNSET = frozenset({"empty", "empty_like", "new_empty"})  # their elements are uninitialized memory
_OF_ANOTHERS_METADATA = frozenset({"expand_as", "view_as", "reshape_as", "type_as"})


class ValuesNeeded(Unsupported):
    """The elements of tensors from outside are needed: the trace starts again with these tensors guarded by value.

    Args:
        origins: the paths where the tensors live.
        readers: code of the functions that the evaluator was inlining, without the frame's own code.
    """

    def __init__(self, kind: str, detail: str, origins: frozenset[Any], readers: frozenset[CodeType]) -> None:
        super().__init__(kind, detail)
        self.origins = origins
        self.readers = readers


def learn_or_refuse(tx: Tracer, kind: str, detail: str, tensors: Iterable[VariableTracker]) -> None:
    """Makes the elements of tensors known. If that can't be done, breaks the graph or has the trace start again."""
    nodes = [t.node for t in tensors if t.node is not None]
    if not learn(tx, nodes):
        raise needed(tx, Unsupported(kind, detail), nodes)


# ---------------------------------------------------------------- computed again
def _input_at(output: OutputGraph, node: fx.Node) -> TensorVariable | None:
    """The tensor that the graph gets at a placeholder; None for a number."""
    found: Any = next((t for t in output.inputs if t.node is node and isinstance(t.fake, torch.Tensor)), None)
    return found


def learn(tx: Tracer, nodes: list[fx.Node]) -> bool:
    """Guards by value the inputs that some nodes are computed from, and computes the nodes in between outside of the
    graph.

    Returns:
        whether the elements of all these nodes are known now. They are not where the memory of a node in between may
        have been written to.
    """
    output: OutputGraph = tx.output
    guards, known = output.value_guards, output.fake_mode.known
    if not nodes or not guards.may_ask or not guards.may_learn:
        return False
    chain = computed_from(
        nodes, lambda node: _operands(output, node), lambda node: known.of(node.meta.get("example_value")) is not None)
    if chain is None or any(_is_symbolic(node) for node in chain):
        return False  # known elements need sizes that are numbers: the trace starts again with these guarded
    for node in chain:
        if node.op != "placeholder":
            continue
        tensor = _input_at(output, node)
        assert tensor is not None and tensor.source is not None and tensor.value is not None
        if not guard_elements(output, tensor.source, tensor.fake, tensor.value):
            return False
        key = tensor.source.key
        guards.learned[key] = guards.learned.get(key, frozenset()) | _readers(tx)
    known.follows = True
    flags = output.fake_mode.effects_seen, output.fake_mode.random_seen, known.needed
    try:
        return all(node.op == "placeholder" or _compute(output, node) for node in chain)
    finally:
        output.fake_mode.effects_seen, output.fake_mode.random_seen, known.needed = flags


def _is_symbolic(node: fx.Node) -> bool:
    value = node.meta["example_value"]
    return isinstance(value, torch.Tensor) and value._has_symbolic_sizes_strides


def _operands(output: OutputGraph, node: fx.Node) -> list[fx.Node] | None:
    """The nodes whose elements determine this node's elements; None if anything else does, too."""
    values = node.meta.get("example_value")
    values = values if isinstance(values, (tuple, list)) else [values]
    if node._erased or node.meta.get("impure") or not all(isinstance(v, torch.Tensor) for v in values):
        return None
    if any(v.untyped_storage()._cdata in output.written_storages for v in values):
        return None
    if node.op == "placeholder":
        tensor = _input_at(output, node)
        source, value = (tensor.source, tensor.value) if tensor is not None else (None, None)
        usable = source is not None and value is not None and may_be_guarded(value) and (
            source.key not in output.value_guards.paths and output.value_guards.allowed.allows(source))
        return [] if usable else None
    name = operation_name(node)
    if node.op == "call_function" and not is_of_torch(node.target) or node.op not in ("call_function", "call_method"):
        return None
    if name in _UNSET:
        return None
    if name in OF_METADATA:
        return []
    operands = node.all_input_nodes
    if not operands and name not in _FACTORIES:
        return None
    return operands[:1] if name in _OF_ANOTHERS_METADATA else operands


def _compute(output: OutputGraph, node: fx.Node) -> bool:
    """Runs a node's operation once more, in order to know its elements; whether that has succeeded."""
    was = node.meta["example_value"]
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["example_value"])
    try:
        with output.fake_mode:
            if node.op == "call_method":
                made = getattr(args[0], node.target)(*args[1:], **kwargs)  # type: ignore[arg-type]
            else:
                made = node.target(*args, **kwargs)  # type: ignore[operator]
    except Exception as error:  # torch's state may differ by now: the elements stay unknown
        signal_handlers.pass_on(error)
        return False
    if not isinstance(was, (tuple, list)):
        was, made = [was], [made]
    for old, new in zip(was, made):
        value = output.fake_mode.known.of(new)
        if value is None or (new.dtype, new.shape, new.stride()) != (old.dtype, old.shape, old.stride()):
            return False
        output.fake_mode.known.add(old, value)
    return True


def _readers(tx: Tracer) -> frozenset[CodeType]:
    """Code of the functions that the evaluator is inlining, without the frame's own code."""
    readers = set()
    while tx.parent is not None:
        readers.add(tx.code)
        tx = tx.parent
    return frozenset(readers)


# ---------------------------------------------------------------- known from the beginning


def needed(tx: Tracer, error: Unsupported, nodes: Iterable[fx.Node]) -> Unsupported:
    """The exception to raise where elements are needed: the break, or a request to start again with the tensors guarded
    that these nodes are computed from."""
    nodes, guards = list(nodes), tx.output.value_guards
    origins = _inputs_behind(tx.output, nodes)
    if not guards.may_ask:
        return error
    if not origins and guards.learned and _is_written(tx.output, nodes):
        # The values written may have been computed from elements before these became known.
        return ValuesNeeded(error.kind, error.detail, frozenset(guards.learned), _readers(tx))
    if not origins:
        return error
    dynamic = sorted(s.name for s, _ in origins.values() if not guards.allowed.allows(s))
    if dynamic:
        names = ", ".join(dynamic)
        detail = f"{error.detail}, for which the elements of {names} matter, and these change from call to call"
        return Unsupported(error.kind, detail)
    return ValuesNeeded(error.kind, error.detail, frozenset(origins), _readers(tx))


def _inputs_behind(output: OutputGraph, nodes: Iterable[fx.Node]) -> dict[Any, tuple[Source, torch.Tensor]]:
    """The inputs, and masks computed from inputs, that nodes are computed from and whose elements are not guarded yet;
    empty if the nodes also depend on elements that can't be known."""
    inputs = {t.node: t for t in output.inputs}
    found: dict[Any, tuple[Source, torch.Tensor]] = {}
    pending, seen = list(nodes), set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        name = operation_name(node)
        computed = masks_behind(output, node)
        if computed is not None:
            found.update({key: pair for key, pair in computed.items() if key not in output.value_guards.paths})
            continue
        if node.op == "placeholder":
            tensor = inputs.get(node)
            source, value = (tensor.source, tensor.value) if tensor is not None else (None, None)
            if source is None or value is None or not may_be_guarded(value):
                return {}
            if source.key not in output.value_guards.paths:
                found[source.key] = source, value
        elif name in _OF_ANOTHERS_METADATA:
            pending += node.all_input_nodes[:1]
            continue
        elif name in OF_METADATA or output.fake_mode.known.of(node.meta.get("example_value")) is not None:
            continue
        elif not node.all_input_nodes and name not in _FACTORIES:
            return {}
        pending += node.all_input_nodes
    return found


def _is_written(output: OutputGraph, nodes: list[fx.Node]) -> bool:
    """Whether an operation may have written to a tensor that these nodes are computed from."""
    pending, seen = list(nodes), set()
    while pending:
        node = pending.pop()
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor) and value.untyped_storage()._cdata in output.written_storages:
            return True
        pending += [n for n in node.all_input_nodes if n not in seen]
        seen.update(node.all_input_nodes)
    return False


def known_elements(tx: Tracer, value: Any) -> Any:
    """The elements of a new tensor, with numbers in place of tensors among them, whose elements have to be known."""
    if isinstance(value, (list, tuple)):
        return type(value)([known_elements(tx, item) for item in value])
    if not isinstance(value, fx.Node) or not isinstance(value.meta["example_value"], torch.Tensor):
        return value
    if known_tensor(tx, value.meta["example_value"]) is None and not learn(tx, [value]):
        raise needed(tx, Unsupported("tensor_to_python", "a tensor made of tensors"), [value])
    return known_tensor(tx, value.meta["example_value"])


def known_tensor(tx: Tracer, result: Any) -> torch.Tensor | None:
    """The elements of a result where they are known, else None."""
    return tx.output.fake_mode.known.of(result) if isinstance(result, torch.Tensor) else None
