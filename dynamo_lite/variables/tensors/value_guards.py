"""Value guards: guards on the elements of a tensor, because numbers or shapes of the program depend on them.

Examples are ``grid.tolist()``, ``x[mask]`` and a branch on ``lengths[0]``. Two kinds of tensors can be guarded: tensors
of integers and bools from outside, and masks that the program computes from floats (which images of a batch are
padding, which rows are empty: ``real = (pixels == 0).sum((1, 2, 3)) != n; pixels[real]``). A guard computes such a mask
from the tensor as eager does; its elements are known from the operation that makes it (``fake.elements``).

One rule decides by the cost of a guard which of them are guarded (:func:`is_worth_its_cost`). A guard that holds saves
the compile of the code behind a break, and costs reading the elements at each call and running the operations that
compute a mask. Once it fails, the frame is compiled once more and breaks there from then on
(``frame.changed_values``). So one compile is gained or lost, and a guard is tried where it is more likely to hold than
not: not for a tensor that the program has just computed and passed to a function that breaks, nor for a mask each of
whose elements summarizes only a few others (``x[x > 0]``).

Invariant: the elements are those at that point of the program, whatever shares memory with them. Only exact operations
take part in computing a mask, so that the graph computes the same mask as the guard, whichever backend compiles it and
whatever torch's state is.
"""
from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Collection, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import fx

from ... import config
from ...continuation.deoptimize import is_of_torch
from ...guards.memory import overlap_on_device
from ...guards.source import (
    AttrSource,
    ComputedSource,
    ConstSource,
    GlobalsSource,
    InstanceDictSource,
    LocalSource,
    PathKey,
    SlotSource,
    Source,
    TypeAttrSource,
)
from .graph_nodes import computed_from, operation_name

if TYPE_CHECKING:
    from ..protocols import OutputGraph, TensorVariable

_DTYPES = frozenset({
    torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32,
    torch.uint64,
})
_TYPES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


# Stands for every name, where it is not known by which name a function refers to a tensor.
ANY_NAME = "*"


class Guardable(NamedTuple):
    """Which tensors may be guarded by their elements, as far as that depends on the frame and on earlier calls.

    Attributes:
        none: no tensor may be guarded.
        changed: the paths of values that have changed from call to call.
        changed_names: the names of such values; ``ANY_NAME`` stands for all names.
        left: the locals that a resume function gets from the code before the break.
        computed: whether the frame's arguments count as computed by the program, in contrast to attributes of objects.
    """

    none: bool = False
    changed: frozenset[PathKey] = frozenset()
    changed_names: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    computed: bool = False

    def allows(self, source: Source) -> bool:
        """Whether a tensor may be guarded."""
        if self.none or source.key in self.changed or not self.changed_names.isdisjoint((source.name, ANY_NAME)):
            return False
        root = source
        while root.parents():
            root = root.parents()[0]
        if isinstance(root, LocalSource) and root.local in self.left:
            return False
        return not self.computed or is_kept(source)


_ALL = Guardable()


class ValueGuards:
    """The value guards of one trace.

    Args:
        paths: the paths of the tensors that are guarded from the beginning.
        allowed: says which other tensors may be guarded.
    """

    def __init__(self, paths: Collection[PathKey] = (), allowed: Guardable = _ALL) -> None:
        self.paths = frozenset(paths)
        self.allowed = allowed
        self.inputs: list[tuple[torch.Tensor, torch.Tensor]] = []  # the fake and real tensors of guarded inputs
        self.learned: dict[PathKey, frozenset[CodeType]] = {}  # guards added during the trace; code that needed them
        self.may_ask = True  # whether the trace may be started again with more guards
        self.may_learn = True  # whether guards may be added in the middle of the trace

    @contextlib.contextmanager
    def none_added(self) -> Iterator[None]:
        """A context in which no tensor is guarded."""
        before, self.may_ask = self.may_ask, False
        try:
            yield
        finally:
            self.may_ask = before

    @contextlib.contextmanager
    def none_learned(self, unless: bool = False) -> Iterator[None]:
        """A context in which no tensor is guarded in the middle of the trace; `unless` makes it have no effect."""
        before, self.may_learn = self.may_learn, self.may_learn and unless
        try:
            yield
        finally:
            self.may_learn = before

    def forget(self) -> None:
        """Drops the references to the program's tensors."""
        self.allowed = Guardable(none=True)
        self.inputs.clear()


# ---------------------------------------------------------------- the rule
def is_worth_its_cost(elements: int, *, of: int | None = None, operations: int = 0) -> bool:
    """Whether a tensor is worth a value guard.

    Args:
        elements: the number of elements to guard.
        of: the number of elements that a mask is computed from.
        operations: the number of operations that compute a mask.
    """
    if elements > config.value_guard_elements or operations > config.value_guard_operations:
        return False
    return of is None or config.value_guard_reduction * max(1, elements) <= of


def is_kept(source: Source) -> bool:
    """Whether a tensor is held by an object or by a module's globals, in contrast to being an argument."""
    while source.parents():
        if isinstance(source, _OF_OBJECTS):
            return True
        source = source.parents()[0]
    return isinstance(source, (GlobalsSource, ConstSource))


_OF_OBJECTS = (AttrSource, InstanceDictSource, SlotSource, TypeAttrSource)


def may_be_guarded(value: torch.Tensor) -> bool:
    """Whether a tensor from outside may be guarded by its elements: it holds few enough integers or bools, in the CPU's
    memory."""
    return (
        type(value) in _TYPES and value.dtype in _DTYPES and value.device.type == "cpu" and not value.is_neg()
        and value.layout is torch.strided and is_worth_its_cost(value.numel())
    )


# ---------------------------------------------------------------- tensors from outside
def guard_elements(output: OutputGraph, source: Source, fake: torch.Tensor, value: torch.Tensor) -> bool:
    """Guards a tensor by its elements, which are known from here on; whether that was possible.

    The elements stay unknown where the program may have changed them already, or may change them unnoticed, through
    another input that lies in the same memory but whose fake tensor does not share the fake tensor's storage.
    """
    storage = fake.untyped_storage()._cdata
    if storage in output.written_storages:
        return False
    if any(t.fake.untyped_storage()._cdata != storage for t in output.inputs_over(value)):
        return False
    for size in (*fake.shape, *fake.stride()):
        int(size)  # the guard on the elements does not cover the shape, which is fixed here
    with torch.no_grad():
        copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        if copy.untyped_storage().nbytes() > 4 * config.value_guard_elements * value.itemsize:
            copy = torch.empty(value.shape, dtype=value.dtype, device=value.device)  # few elements, far apart
        if all(stride for size, stride in zip(value.shape, value.stride()) if size > 1):
            copy.copy_(value)
        else:
            copy = value.clone()
        packed = value.clone(memory_format=torch.contiguous_format).reshape(value.numel())
    output.guards.add(source, "tensor_data", bytes(packed.view(torch.uint8).tolist()))
    output.fake_mode.known.add(fake, copy)
    output.value_guards.inputs.append((fake, value))
    return True


def forget_alias(output: OutputGraph, fake: torch.Tensor, value: torch.Tensor) -> None:
    """Makes the elements of guarded inputs unknown that share memory with a new input without the fake tensors showing
    it."""
    storage, guarded = fake.untyped_storage()._cdata, output.value_guards.inputs
    output.fake_mode.known.forget([
        f for f, v in guarded if f.untyped_storage()._cdata != storage and overlap_on_device(v, value)])


# ---------------------------------------------------------------- masks from floats
# Operations on tensors whose results are exact, by function or method name.
_EXACT = frozenset({
    "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "logical_and", "logical_or", "logical_xor",
    "logical_not", "and_", "or_", "xor", "bitwise_and", "bitwise_or", "bitwise_xor", "invert", "inv", "bitwise_not",
    "any", "all", "amax", "amin", "max", "min", "abs", "neg", "view", "reshape", "flatten", "unflatten", "squeeze",
    "unsqueeze", "permute", "transpose", "t", "contiguous", "expand", "movedim", "getitem", "select", "narrow",
    "detach", "clone", "bool", "count_nonzero",
})
# Operations that are exact on integers and bools only.
_EXACT_ON_INTEGERS = frozenset({"sum", "add", "sub", "mul", "to", "long", "int"})


class _Chain:
    """The computation of a mask from one tensor: steps on the results of earlier steps; result 0 is the tensor."""

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
        except RuntimeError:  # the program's own operation will raise it
            return None
        return values[-1]


class _Ref:
    """A reference to the result of a step, among the arguments of a later step."""

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
    """The path by which a guard computes the mask that `node` computes, and the tensor that the mask comes from; None
    if it is no such mask."""
    found = node.meta.get("example_value")
    if not isinstance(found, torch.Tensor) or found.dtype is not torch.bool:
        return None
    if found.numel() > config.value_guard_elements:
        return None  # this function is called for every node, so the cheapest part of the rule comes first
    if node.op == "placeholder" or found.device.type != "cpu":
        return None
    order = _chain(node)
    if order is None:
        return None
    base = output.tensor_of(order[0].meta["example_value"])
    if base is None:
        return None
    value, source = base.value, base.source
    if source is None or value is None or not _may_be_base(order[0], value):
        return None
    if not is_worth_its_cost(found.numel(), of=value.numel(), operations=len(order) - 1):
        return None
    chain = _Chain()
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
    return getattr(torch.Tensor, name)


def _may_be_base(node: fx.Node, value: torch.Tensor) -> bool:
    return (
        type(value) is torch.Tensor and value.is_floating_point() and value.device.type == "cpu"
        and value.layout is torch.strided and not node.meta.get("static")
    )


def _chain(node: fx.Node) -> list[fx.Node] | None:
    """One input and the exact operations that compute a node from it, in order; None if there is no such chain."""
    order = computed_from([node], _exact_operands, limit=2 * config.value_guard_operations)
    inputs = [step for step in order or () if step.op == "placeholder"]
    if order is None or len(inputs) != 1:
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


def masks_behind(output: OutputGraph, node: fx.Node) -> dict[PathKey, tuple[Source, torch.Tensor]] | None:
    """The masks from floats that a node is computed from, as early in the program as possible; None if it has none."""
    found = source_of(output, node)
    if found is None:
        return None
    earlier = [masks_behind(output, operand) for operand in node.all_input_nodes]
    known = {key: pair for masks in earlier if masks is not None for key, pair in masks.items()}
    if known and all(masks is not None for masks in earlier):
        return known
    return {found[0].key: (found[0], found[0].function(found[1].value))}


def guard_mask(output: OutputGraph, node: fx.Node) -> None:
    """Guards the result of a new node, if the trace was started with a guard on it."""
    found = source_of(output, node) if output.value_guards.may_ask and not output.examples else None
    if found is None or found[0].key not in output.value_guards.paths:
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
    packed = value.clone(memory_format=torch.contiguous_format).reshape(value.numel())
    output.guards.add(source, "tensor_data", bytes(packed.view(torch.uint8).tolist()))
    output.fake_mode.known.add(fake, value.clone())
