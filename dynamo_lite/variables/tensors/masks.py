"""Masks that a program computes from floats: which images of a batch are padding, which rows are empty.

``real = (pixels == 0).sum((1, 2, 3)) != n; pixels[real]``. Such a mask has far fewer elements than what it is computed
from, and is mostly the same from call to call. Where a trace needs its elements, it starts again with the mask guarded
by value: a guard computes it from the tensor as eager does, compares its elements, and they are known from the
operation on that makes it (``fake.elements``). A mask as large as its tensor (``x[x > 0]``), and what comes out of a
network's weights, is not: that changes with every call.

Invariant: only operations take part that are exact, so that the graph computes the mask that the guard has computed,
whatever compiles it and under whatever state of torch.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ...continuation.deoptimize import is_of_torch
from ...guards.source import ComputedSource, PathKey, Source
from .graph_nodes import computed_from, operation_name

if TYPE_CHECKING:
    from ..protocols import OutputGraph, TensorVariable

MOST_ELEMENTS = 256  # of a mask
LEAST_RATIO = 16  # of the tensor's elements to the mask's
MOST_STEPS = 32

# Operations on tensors whose results are exact, by the name of the function or method.
_EXACT = frozenset({
    "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "logical_and", "logical_or", "logical_xor",
    "logical_not", "and_", "or_", "xor", "bitwise_and", "bitwise_or", "bitwise_xor", "invert", "inv", "bitwise_not",
    "any", "all", "amax", "amin", "max", "min", "abs", "neg", "view", "reshape", "flatten", "unflatten", "squeeze",
    "unsqueeze", "permute", "transpose", "t", "contiguous", "expand", "movedim", "getitem", "select", "narrow",
    "detach", "clone", "bool", "count_nonzero",
})
# These are exact on integers and truths.
_EXACT_ON_INTEGERS = frozenset({"sum", "add", "sub", "mul", "to", "long", "int"})


class Chain:
    """How a mask is computed from one tensor: operations on the results of those before; 0 is the tensor."""

    def __init__(self) -> None:
        self.steps: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, tensor: Any) -> torch.Tensor | None:
        if not isinstance(tensor, torch.Tensor):
            return None
        values = [tensor.detach()]
        try:
            for function, args, kwargs in self.steps:
                given, named = _map_refs((args, kwargs), values)
                values.append(function(*given, **named))
        except RuntimeError:  # the operation itself will say what is wrong
            return None
        return values[-1]


class _Ref:
    """The result of a step in the arguments of another."""

    def __init__(self, index: int) -> None:
        self.index = index


def _map_refs(value: Any, values: list[Any]) -> Any:
    if isinstance(value, _Ref):
        return values[value.index]
    if isinstance(value, (tuple, list)):
        return type(value)(_map_refs(item, values) for item in value)
    if isinstance(value, dict):
        return {key: _map_refs(item, values) for key, item in value.items()}
    return value


def source_of(output: OutputGraph, node: fx.Node) -> tuple[ComputedSource, TensorVariable] | None:
    """Where a guard finds a mask that `node` computes, and the tensor that it comes from; None: it is no such mask."""
    found = node.meta.get("example_value")
    if not isinstance(found, torch.Tensor) or found.dtype is not torch.bool or found.numel() > MOST_ELEMENTS:
        return None
    if node.op == "placeholder" or found.device.type != "cpu":
        return None
    order = _chain(node)
    if order is None:
        return None
    base = output.tensor_of(order[0].meta["example_value"])
    value, source = getattr(base, "value", None), getattr(base, "source", None)
    if base is None or source is None or value is None or not _may_be_base(order[0], value):
        return None
    if value.numel() < LEAST_RATIO * max(1, found.numel()):
        return None
    chain = Chain()
    texts = {order[0]: source.name}
    places = {order[0]: _Ref(0)}
    for step in order[1:]:
        function = _method(step.target) if isinstance(step.target, str) else step.target
        args, kwargs = fx.node.map_arg((step.args, step.kwargs), lambda n: places[n])  # type: ignore[arg-type, return-value]
        chain.steps.append((function, tuple(args), dict(kwargs)))
        places[step] = _Ref(len(chain.steps))
        given = fx.node.map_arg((step.args, step.kwargs), lambda n: _Text(texts[n]))
        words = [*map(repr, given[0]), *(f"{key}={item!r}" for key, item in given[1].items())]
        texts[step] = f"{operation_name(step)}({', '.join(words)})"
    return ComputedSource(source, chain, texts[node]), base


class _Text(str):
    __slots__ = ()
    __repr__ = str.__str__


def _method(name: str) -> Callable[..., Any]:
    return getattr(torch.Tensor, name)  # type: ignore[no-any-return]


def _may_be_base(node: fx.Node, value: torch.Tensor) -> bool:
    return (
        type(value) is torch.Tensor and value.is_floating_point() and value.device.type == "cpu"
        and value.layout is torch.strided and not node.meta.get("static")
    )


def _chain(node: fx.Node) -> list[fx.Node] | None:
    """One input and the exact operations that lead from it to a node, in order."""
    order = computed_from([node], _exact_operands, limit=2 * MOST_STEPS)
    inputs = [step for step in order or () if step.op == "placeholder"]
    if order is None or len(inputs) != 1 or len(order) > MOST_STEPS:
        return None
    return inputs + [step for step in order if step is not inputs[0]]


def _exact_operands(node: fx.Node) -> list[fx.Node] | None:
    if node.op == "placeholder":
        return []
    return node.all_input_nodes if _is_exact(node) else None


def _is_exact(node: fx.Node) -> bool:
    value = node.meta.get("example_value")
    operands = [v for n in node.all_input_nodes if isinstance(v := n.meta.get("example_value"), torch.Tensor)]
    if node._erased or node.meta.get("impure") or not isinstance(value, torch.Tensor):
        return False
    if not operands or len(operands) < len(node.all_input_nodes):
        return False
    if node.op == "call_function" and not (is_of_torch(node.target) and node.target not in (max, min, sum, any, all)):
        return False
    if node.op not in ("call_function", "call_method"):
        return False
    name = operation_name(node)
    if name == "getitem":
        return len(operands) == 1 and node.target is operator.getitem
    if name in _EXACT:
        return True
    integers = not any(v.is_floating_point() or v.is_complex() for v in (value, *operands))
    return integers and name in _EXACT_ON_INTEGERS or name == "to" and value.dtype is operands[0].dtype


# ---------------------------------------------------------------- asked for, and known
def masks_behind(output: OutputGraph, node: fx.Node) -> dict[PathKey, tuple[Source, torch.Tensor]] | None:
    """The masks from floats that a node comes from, the first in the program; None if there are none."""
    found = source_of(output, node)
    if found is None:
        return None
    earlier = [masks_behind(output, operand) for operand in node.all_input_nodes]
    known = {key: pair for masks in earlier if masks is not None for key, pair in masks.items()}
    if known and all(masks is not None for masks in earlier):
        return known
    return {found[0].key: (found[0], found[0].function(found[1].value))}


def fix(output: OutputGraph, node: fx.Node) -> None:
    """Guards what a new node has computed, if that was asked for."""
    found = source_of(output, node) if output.may_fix and not output.examples else None
    if found is None or found[0].key not in output.fixed_tables:
        return
    source, base = found
    assert base.value is not None
    chain = _chain(node)
    assert chain is not None
    storages = {n.meta["example_value"].untyped_storage()._cdata for n in chain}
    memory, fake = base.fake.untyped_storage()._cdata, node.meta["example_value"]
    if storages & output.written_storages or fake.untyped_storage()._cdata == memory:
        return
    if any(t.fake.untyped_storage()._cdata != memory for t in output.inputs_over(base.value)):
        return
    value = source.function(base.value)
    if value is None or (value.dtype, value.shape, value.stride()) != (fake.dtype, fake.shape, fake.stride()):
        return
    packed = value.contiguous().reshape(value.numel())
    output.guards.add(source, "tensor_data", bytes(packed.view(torch.uint8).tolist()))
    output.fake_mode.known.add(fake, value.clone())
