"""Tensors of the trace, and the recording of operations into the graph.

A :class:`TensorVariable` is a node of the graph and its fake tensor. An operation is recorded and run on the fake
tensors at once. The trackers of its results are found by the identity of the fake tensors, so that ``x.add_(1) is x``
and ``x.contiguous() is x`` hold where they hold in eager.

Invariant: every fake tensor that the trace knows has one TensorVariable, whose node computes that tensor.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ...exc import Unsupported
from ...guards.source import AttrSource, Source
from ...rules.table import Decision, Level, Rule, row_of
from ...runtime.graph_calls import GraphCall
from ...runtime.raising import may_raise
from ...runtime.storage_extent import storage_extent
from ..base import VariableTracker, instance_dict, realized, unsupported
from ..constant import BINARY_METHODS, COMPARE_METHODS, UNARY_METHODS, ConstantVariable
from ..containers.spaces import dict_source, read_own, write_own
from ..failures import target_name
from ..numbers.scalars import ScalarVariable, run_with_numbers
from ..numbers.symbolic_ints import size_variable
from ..objects.classes import class_attribute_source
from .attributes import METADATA_ATTRIBUTES, VIEW_ATTRIBUTES
from .class_arguments import in_graph
from .grad_fns import GradFnVariable
from .graph_nodes import fake_of, has_tensor, is_metadata
from .known_sizes import fits_in_graph, with_known_sizes
from .learned_elements import known_elements, known_tensor, learn_or_refuse
from .methods import TensorMethodVariable
from .parameters import read_added
from .running_sizes import define_sizes, with_sizes
from .special_methods import check_special, is_torchs
from .storage_offsets import check_offset
from .symbolic_index import select_symbolic, write_symbolic
from .symbols_of_operators import BINARY, INPLACE, UNARY
from .tensor_data import check_hooked, check_leaf_views, check_uses, set_data

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


class TensorVariable(VariableTracker):
    """A tensor that the graph computes or takes as an input.

    Args:
        node: the node that computes it.
        fake: its fake tensor.
        source: where it lives, for inputs.
        cls: its Python class: Tensor, Parameter or a subclass that only adds attributes.
    """

    has_identity = True
    # The tensors of the trace that it may be at run time, if it stands for one of several.
    alternatives: tuple[TensorVariable, ...] = ()
    # The tensor that reading `.data` gives, for a tensor from outside whose data was set.
    plain: TensorVariable | None = None

    def __init__(
        self, node: fx.Node, fake: torch.Tensor, source: Source | None = None, cls: type = torch.Tensor
    ) -> None:
        super().__init__(source)
        self.node = node
        self.fake = fake
        self.cls = cls
        self.value: torch.Tensor | None = None  # the real tensor, for inputs

    def describe(self) -> str:
        name = f" {self.source.name!r}" if self.source is not None else ""
        return f"tensor{name} of shape {list(self.fake.shape)}"

    def python_type(self) -> type:
        return self.cls

    def hash_key(self) -> Any:
        return ("tensor", id(self))

    def guard_hash(self, tx: Tracer) -> None:
        if self.source is not None:
            tx.output.guards.distinct([self.source])

    def as_argument(self, tx: Tracer) -> Any:
        return self.node

    def contains_tensor(self) -> bool:
        return True

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_output(self)

    def truth(self, tx: Tracer) -> bool:
        check_special(tx, self, "__bool__")
        if known_tensor(tx, self.fake) is None:
            learn_or_refuse(tx, "data_dependent_branch", f"bool() of a {self.describe()}", [self])
        constant = known_tensor(tx, self.fake)
        if constant is not None and constant.numel() == 1:
            return bool(constant)
        unsupported("data_dependent_branch", f"bool() of a {self.describe()}")

    def same_object(self, other: VariableTracker) -> bool | None:
        if self is not other and isinstance(other, TensorVariable) and (self.alternatives or other.alternatives):
            mine, theirs = ({id(t) for t in (one, *one.alternatives)} for one in (self, other))
            return False if mine.isdisjoint(theirs) else None
        return self is other

    # -- attributes
    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if tx.output.overrides.active() and isinstance(getattr(self.cls, name, None), _GETSETS):
            made = tx.output.overrides.call(tx, getattr, [self, ConstantVariable(name)], {})
            if made is not None:
                return made
        descriptor = tx.classes.lookup(self.cls, name)
        of_torch = is_torchs(self.cls, name, descriptor)
        read = _ATTRIBUTES.get(name) if of_torch else None
        found = read(self, tx, name) if read is not None else None
        if found is not None:
            return found
        if of_torch and name in METADATA_ATTRIBUTES:
            return tx.values.from_result(getattr(self.fake, name), f"Tensor.{name}")
        if of_torch and name in VIEW_ATTRIBUTES:
            return call_in_graph(tx, getattr, [self, ConstantVariable(name)], {})
        own = instance_dict(self.value) if self.value is not None else None
        written = name in tx.output.effects.attributes_of(self) or tx.output.effects.tracker_of(own) is not None
        first = not of_torch and isinstance(descriptor, property)  # it goes before the object's own attributes
        if descriptor is None or not first and (written or own is not None and name in own):
            found = read_own(tx, self, own, dict_source(self), name)
            if found is not None:
                return found
        if descriptor is None:
            check_special(tx, self, "__getattr__")
            tx.raise_error(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        if not of_torch:
            return read_added(tx, self, self.cls, name, descriptor)
        if isinstance(descriptor, _GETSETS):
            unsupported("unsupported_attribute", f"Tensor.{name}")
        return TensorMethodVariable(self, name)

    def _shape(self, tx: Tracer, name: str) -> VariableTracker:
        return tx.values.new_size([size_variable(n, tx.output) for n in self.fake.shape])

    def _class(self, tx: Tracer, name: str) -> VariableTracker:
        return tx.values.from_result(self.cls, "class")

    def _data(self, tx: Tracer, name: str) -> VariableTracker | None:
        return self.plain.getattr(tx, name) if self.plain is not None else None

    def _of_leaf(self, tx: Tracer, name: str) -> VariableTracker:
        """``is_leaf`` and ``retains_grad``, which can change while the tensor's metadata stay the same."""
        written = self.fake.untyped_storage()._cdata in tx.output.written_storages
        if self.source is not None:
            tx.guard(AttrSource(self.source, name), "is", getattr(self.value, name))
            if not written:
                return ConstantVariable(getattr(self.value, name))
            over = tx.output.inputs_over(self.value) if self.value is not None else []
            if any(other is not self and other.fake.requires_grad for other in over):
                unsupported("unsupported_attribute", f"Tensor.{name} of a tensor that was written to through another")
        if name == "retains_grad" and self.fake.requires_grad:
            unsupported("unsupported_attribute", f"Tensor.{name} of a value computed in the graph")
        return ConstantVariable(getattr(self.fake, name))

    def _grad_fn(self, tx: Tracer, name: str) -> VariableTracker:
        none = not self.fake.requires_grad or self.getattr(tx, "is_leaf").constant()
        return ConstantVariable(None) if none else GradFnVariable(self)

    def _grad(self, tx: Tracer, name: str) -> VariableTracker:
        if name in tx.output.effects.attributes_of(self):
            return tx.output.effects.load_attr(self, name)
        if self.source is None or self.value is None:
            if not self.fake.requires_grad:
                return ConstantVariable(None)
            unsupported("autograd_in_graph", "Tensor.grad of a value computed in the graph")
        return tx.values.wrap_at(self.value.grad, AttrSource(self.source, "grad"))

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        if tx.output.overrides.active() and isinstance(getattr(self.cls, name, None), _GETSETS):
            unsupported("unsupported_attribute", f"setting Tensor.{name} under a torch function mode")
        if name == "grad" and self._may_have_grad(value):
            tx.output.effects.store_attr(self, name, value)
            return
        if name == "data" and isinstance(value, TensorVariable):
            set_data(tx, self, value)
            return
        if name == "requires_grad" and value.python_type() is bool:
            self.call_method(tx, "requires_grad_", [value], {})
            return
        if name in ("data", "requires_grad", "grad", "names") or isinstance(
            tx.classes.lookup(self.cls, name), _GETSETS
        ):
            unsupported("input_mutation", f"setting Tensor.{name}")
        own = instance_dict(self.value) if self.value is not None else None
        write_own(tx, self, own, dict_source(self), name, value)

    def _may_have_grad(self, value: VariableTracker) -> bool:
        """Whether torch is certain to accept the value as this tensor's gradient when it is set after the graph."""
        if self.source is None or not self.fake.is_leaf:
            return False
        if not isinstance(value, TensorVariable):
            return value.is_none()
        a, b = self.fake, value.fake
        return value is not self and a.shape == b.shape and a.dtype is b.dtype and a.device == b.device and (
            b.layout is torch.strided)

    # -- methods and operators
    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if tx.output.overrides.active() and callable(getattr(self.cls, name, None)):
            made = tx.output.overrides.call(tx, method_by_name, [self, ConstantVariable(name), *args], kwargs)
            if made is not None:
                return made
        method = tx.classes.lookup(self.cls, name)
        if method is None or not is_torchs(self.cls, name, method):
            return tx.call(self.getattr(tx, name), args, kwargs)
        decision = row_of(method)
        if decision is None:
            return record_method(tx, name, self, args, kwargs)
        return self._call_by_row(tx, decision, name, method, args, kwargs)

    def _call_by_row(
        self, tx: Tracer, decision: Decision, name: str, method: Any, args: list[VariableTracker],
        kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Calls a method that has a row in the table of calls."""
        rule = decision.rule
        if rule is Rule.HANDLED:
            return tx.checked_call(decision.calls, tx, self, *args, **kwargs)
        by_user = decision.level is Level.USER
        if rule is Rule.SKIP:
            said = f": {decision.reason}" if by_user and decision.reason else ""
            unsupported(decision.kind, f"Tensor.{name}(){said}")
        if by_user and rule is not Rule.GRAPH:
            function = realized(tx, tx.values.wrap_at(method, class_attribute_source(self.cls, name)))
            return tx.call(function, [self, *args], kwargs)
        if rule is Rule.ELEMENTS and known_tensor(tx, self.fake) is None and not tx.output.captures_sizes:
            learn_or_refuse(tx, decision.kind, f"Tensor.{name}()", [self])
        return record_method(tx, name, self, args, kwargs)

    def by_torch(self) -> TensorVariable:
        """The tensor as torch's own methods see it, without operators that its class defines."""
        return self

    def as_index(self, tx: Tracer) -> Any:
        return tx.operators.as_index(self.call_method(tx, "__index__", [], {}))

    def length(self, tx: Tracer) -> VariableTracker:
        check_special(tx, self, "__len__")
        if tx.output.overrides.active():
            made = tx.output.overrides.call(tx, len, [self], {})
            if made is not None:
                return made
        if self.fake.dim() == 0:
            tx.raise_error(TypeError, "len() of a 0-d tensor")
        return size_variable(self.fake.shape[0], tx.output)

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        check_special(tx, self, "__getitem__")
        key = _with_tensors(tx, key)
        if tx.output.examples and _are_numbers(key) and not tx.output.overrides.active():
            # In truth each is a batch of numbers, with which torch indexes; a single one would have to be known.
            keys: list[VariableTracker] = [key] if isinstance(key, TensorVariable) else list(key.iterate(tx))
            return call_in_graph(tx, torch.ops.aten.index.Tensor, [self, tx.values.new_list(keys)], {})
        selected = select_symbolic(tx, self, key) or tx.output.masked.read(tx, self, key)
        return selected if selected is not None else call_in_graph(tx, operator.getitem, [self, key], {})

    def setitem(self, tx: Tracer, key: VariableTracker, value: VariableTracker) -> None:
        check_special(tx, self, "__setitem__")
        key = _with_tensors(tx, key)
        if not write_symbolic(tx, self, key, value) and not tx.output.masked.write(tx, self, key, value):
            call_in_graph(tx, operator.setitem, [self, key, value], {})

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        unsupported("tensor_to_python", "`in` on a tensor")

    def iterator(self, tx: Tracer) -> VariableTracker:
        check_special(tx, self, "__iter__")
        if tx.output.overrides.active():
            self.call_method(tx, "dim", [], {})  # Tensor.__iter__ calls it, so overrides see it
        if self.fake.dim() == 0:
            tx.raise_error(TypeError, "iteration over a 0-d tensor")
        return record(tx, "call_method", "unbind", [self, ConstantVariable(0)], {}).iterator(tx)

    def reversed(self, tx: Tracer) -> VariableTracker:
        return tx.call_method(self, "flip", [ConstantVariable(0)]).iterator(tx)

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        check_special(tx, self, *_OPERATOR_METHODS[op])
        operands = [other, self] if reflected else [self, other]
        if tx.overrides_torch([other]):
            return tx.call_override_operator(BINARY[op], operands)
        if not _is_operand(other):
            return None
        return call_in_graph(tx, BINARY[op], operands, {})

    def inplace(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        # Tensors have no `__imatmul__`: `x @= y` gives a new tensor, so an in-place node would wrongly rebind `x`.
        function = INPLACE.get(op)
        check_special(tx, self, "__i" + BINARY_METHODS[op][0][2:])
        return call_in_graph(tx, function, [self, other], {}) if function is not None and _is_operand(other) else None

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if op in ("==", "!=") and isinstance(other, ConstantVariable) and not _is_operand(other):
            return ConstantVariable(op == "!=")
        return self.binary(tx, op, other, reflected=False)

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        check_special(tx, self, UNARY_METHODS[op])
        return call_in_graph(tx, UNARY[op], [self], {})


_OPERATOR_METHODS = {**BINARY_METHODS, **{op: (name,) for op, name in COMPARE_METHODS.items()}}
# Attributes that the tracker knows, or that can change while the tensor's metadata stay; None: read like any other.
_ATTRIBUTES: dict[str, Callable[[TensorVariable, Tracer, str], VariableTracker | None]] = {
    "shape": TensorVariable._shape, "__class__": TensorVariable._class, "data": TensorVariable._data,
    "is_leaf": TensorVariable._of_leaf, "retains_grad": TensorVariable._of_leaf,
    "grad": TensorVariable._grad, "grad_fn": TensorVariable._grad_fn,
}


def is_unknown_number(tx: Tracer, value: VariableTracker) -> bool:
    """Whether it is a number that only the running graph knows, or a tensor without dimensions."""
    value = realized(tx, value)
    return isinstance(value, ScalarVariable) or (isinstance(value, TensorVariable) and not value.fake.dim())


_GETSETS = (type(torch.Tensor.requires_grad), property)


def method_by_name(tensor: torch.Tensor, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Calls a method of a tensor, for uses that need a function instead of a method."""
    return getattr(tensor, name)(*args, **kwargs)


def _are_numbers(key: VariableTracker) -> bool:
    """Whether an index consists of integer tensors without dimensions."""
    items = key.known_items()
    if items:
        return all(isinstance(item, TensorVariable) and _are_numbers(item) for item in items)
    return isinstance(key, TensorVariable) and not key.fake.dim() and key.fake.dtype in _INDEX_TYPES


def _with_tensors(tx: Tracer, key: VariableTracker) -> VariableTracker:
    """An index, with tensors in place of NumPy's arrays."""
    if key.python_type() is not tuple or (items := key.known_items()) is None:
        return key.as_tensor_index(tx)
    found = [realized(tx, item) for item in items]
    made = [item.as_tensor_index(tx) for item in found]
    same = all(new is old for new, old in zip(made, found, strict=True))
    return key if same else tx.values.new_sequence(tuple, made)


_INDEX_TYPES = (torch.int64, torch.int32)


def _is_operand(value: VariableTracker) -> bool:
    value = value.content or value  # an instance of a subclass of int or float
    if isinstance(value, ConstantVariable):
        return issubclass(value.python_type(), (int, float, complex))
    return isinstance(value, (TensorVariable, ScalarVariable))


# ---------------------------------------------------------------- recording
# Operations that change a tensor's autograd metadata, but no memory.
_AUTOGRAD_CHANGES = ("detach_", torch.Tensor.detach_, torch.detach_)


def call_in_graph(
    tx: Tracer, function: Callable[..., Any], args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """Records ``function(*args, **kwargs)`` and returns its result."""
    return record(tx, "call_function", function, args, kwargs)


def record_method(
    tx: Tracer, name: str, tensor: TensorVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """Records ``tensor.name(*args, **kwargs)`` and returns its result."""
    return record(tx, "call_method", name, [tensor, *args], kwargs)


def record(
    tx: Tracer, op: str, target: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """Runs an operation on fake tensors, adds its node, and returns the result.

    Raises:
        exc.Unsupported: an argument can't be held by a graph, or the operation can't be run without data.
    """
    output = tx.output
    made = _made_otherwise(tx, op, target, args, kwargs)
    if made is not None:
        return made
    node_args, node_kwargs = _node_arguments(tx, op, target, args, kwargs)
    if target in _AUTOGRAD_CHANGES and isinstance(args[0], TensorVariable):
        check_hooked(output, frozenset({args[0].fake.untyped_storage()._cdata}))
    with output.sizes_defined() as defined:
        node_args, node_kwargs, (result, impure, fake_args, fake_kwargs) = with_sizes(
            tx, (node_args, node_kwargs), lambda given: _run(tx, op, target, *given))
    if output.fake_mode.known.needed:
        leaves = pytree.tree_leaves((fake_args, fake_kwargs))
        given = {t.untyped_storage()._cdata for t in leaves if isinstance(t, torch.Tensor)}
        if not may_raise(target, (), {}) and fits_in_graph(tx, result, given):
            return _known_result(tx, result)
        if type(result) is tuple and all(fits_in_graph(tx, r, given) for r in result):
            return tx.values.new_sequence(tuple, [_known_result(tx, r) for r in result])
        if has_tensor(result):
            node_args, node_kwargs = with_known_sizes(tx, target, node_args, node_kwargs, result)
            fake_args, fake_kwargs = fx.node.map_arg((node_args, node_kwargs), fake_of)
            result, impure = output.run_fake(tx, op, target, fake_args, fake_kwargs)
            if output.fake_mode.known.needed and "output_size" not in node_kwargs:
                raise Unsupported("dynamic_output_shape", f"{target_name(target)} with a shape that elements decide")
    if not impure and isinstance(fake_kwargs.get("out"), torch.Tensor):
        # Some composite operations return a new tensor for operands of a subclass, and leave `out` unwritten.
        unsupported("unsupported_torch_call", f"{target_name(target)} does not write to out without data")
    if target in _AUTOGRAD_CHANGES:
        impure = True
    if not impure and not has_tensor(result):
        if is_metadata(result):
            if not args and not kwargs:
                tx.guard_result(target, (), result)  # without operands, the result depends only on torch's state
            return tx.values.from_result(result, f"result of {target_name(target)}")
        unsupported("unsupported_torch_call", f"{target_name(target)} returns a {type(result).__name__}")
    if output.rebound:
        check_uses(output, target, (node_args, node_kwargs), result, impure)
    written = frozenset(output.fake_mode.written) if impure else frozenset()
    operands = pytree.tree_leaves((fake_args, fake_kwargs)) if written else []
    if written:
        check_leaf_views(output, written, operands)
        check_hooked(output, written)
    node = output.create_node(tx, op, target, node_args, node_kwargs, result, impure)
    node.meta.update(
        raises=output.fake_mode.raises_seen, visit=tx.root_visit(), writes=written,
        unseen_by_autograd=target not in _AUTOGRAD_CHANGES and not _autograd_sees(written, operands))
    if isinstance(result, list):
        for argument, fake in zip(args, fake_args):
            if fake is result:  # an operation that changes a list in place
                return argument
    made = wrap_result(tx, node, result)
    define_sizes(tx, defined, result)
    return made


def _made_otherwise(
    tx: Tracer, op: str, target: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    """The result where an override of torch's functions gives it, or where it is computed for more elements than the
    operands have."""
    overrides = tx.output.overrides
    if not overrides.plain and tx.overrides_torch([*args, *kwargs.values()]):
        if op == "call_function":
            return tx.call_override(target, args, kwargs)
        return tx.call_override(method_by_name, [args[0], ConstantVariable(target), *args[1:]], kwargs)
    if overrides.active() and not isinstance(target, GraphCall):
        if op == "call_function":
            return overrides.call(tx, target, args, kwargs)
        return overrides.call(tx, method_by_name, [args[0], ConstantVariable(target), *args[1:]], kwargs)
    return tx.output.masked.record(tx, op, target, args, kwargs)


def _run(
    tx: Tracer, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, bool, tuple[Any, ...], dict[str, Any]]:
    """Runs the operation of a node with these arguments on fake tensors. Returns its result, whether it has effects
    beyond the result, and the fake arguments, one of which may be the result."""
    output = tx.output
    fake_args, fake_kwargs = fx.node.map_arg((args, kwargs), fake_of)
    check_offset(output, target, fake_args, fake_kwargs)
    output.fake_mode.raises_seen = may_raise(target, fake_args, fake_kwargs)
    output.fake_mode.written.clear()
    run = run_with_numbers if output.scalars.any else output.run_fake
    return *run(tx, op, target, fake_args, fake_kwargs), fake_args, fake_kwargs


def _autograd_sees(written: frozenset[int], operands: list[Any]) -> bool:
    """Whether autograd records a write to these storages: not in ``no_grad``, nor a write to ``x.data``."""
    return torch.is_grad_enabled() and any(
        isinstance(x, torch.Tensor) and x.requires_grad and x.untyped_storage()._cdata in written for x in operands)


def _node_arguments(
    tx: Tracer, op: str, target: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments in the form in which a node of the graph holds them."""
    node_args = tuple(in_graph(target, a.as_argument(tx)) for a in args)
    node_kwargs = {name: in_graph(target, a.as_argument(tx)) for name, a in kwargs.items()}
    if tx.output.open_modes and op == "call_function" and node_kwargs.get("device") is None:
        device = tx.output.device_for(target)
        if device is not None:
            node_kwargs["device"] = device
    if target in (torch.tensor, torch.as_tensor) and node_args and isinstance(node_args[0], (list, tuple)):
        return _made_of_numbers(tx, node_args, node_kwargs)
    return node_args, node_kwargs


def _made_of_numbers(
    tx: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of torch.tensor() with numbers in place of tensors, whose dtypes help decide the result's dtype."""
    elements = known_elements(tx, args[0])
    found = fx.node.map_aggregate(elements, lambda e: e.dtype if isinstance(e, torch.Tensor) else None)
    if not any(isinstance(leaf, torch.dtype) for leaf in pytree.tree_leaves(found)):
        return args, kwargs
    if kwargs.get("dtype") is None:
        kwargs = {**kwargs, "dtype": torch.tensor(elements).dtype}
    numbers = pytree.tree_map_only(torch.Tensor, lambda t: t.tolist(), elements)
    return (numbers, *args[1:]), kwargs


def _known_result(tx: Tracer, fake: torch.Tensor) -> VariableTracker:
    """A result whose shape depends on known elements, as a constant of the graph: backends don't know elements."""
    known = known_tensor(tx, fake)
    assert known is not None
    output = tx.output
    shape, strides = tuple(known.shape), known.stride()
    # The elements in the order in which they lie in memory.
    extent = storage_extent(shape, strides)
    lying = known.as_strided((extent,), (1,))
    elements, kwargs = lying.tolist(), {"dtype": known.dtype, "device": known.device}
    with output.fake_mode:
        flat = torch.empty(extent, dtype=known.dtype, device=known.device)
    output.fake_mode.known.add(flat, lying)
    node = output.create_node(tx, "call_function", torch.tensor, (elements,), kwargs, flat, False)
    if strides == torch.empty(shape, device="meta").stride():
        node = output.create_node(tx, "call_method", "reshape", (node, shape), {}, fake, False)
    else:
        node = output.create_node(tx, "call_method", "as_strided", (node, shape, strides), {}, fake, False)
    return output.register_tensor(TensorVariable(node, fake))


def wrap_result(tx: Tracer, node: fx.Node, result: Any) -> VariableTracker:
    """The tracker of a node's result, which is a tensor or a structure of tensors."""
    output = tx.output
    if isinstance(result, torch.Tensor):
        known = output.tensor_of(result)
        if known is not None:
            return known
        return output.register_tensor(TensorVariable(node, result))
    if isinstance(result, (tuple, list)):
        items: list[VariableTracker] = []
        for index, element in enumerate(result):
            known = output.tensor_of(element) if isinstance(element, torch.Tensor) else None
            if known is not None:
                items.append(known)
            elif isinstance(element, (torch.Tensor, tuple, list)):
                child = output.create_node(tx, "call_function", operator.getitem, (node, index), {}, element, False)
                items.append(wrap_result(tx, child, element))
            else:
                items.append(tx.values.from_result(element, "element of a result"))
        return tx.values.new_sequence(type(result), items)
    if isinstance(result, torch.Size) or result is None or is_metadata(result):
        return tx.values.from_result(result, f"result of {node.target}")
    unsupported("unsupported_torch_call", f"{target_name(node.target)} returns a {type(result).__name__}")
