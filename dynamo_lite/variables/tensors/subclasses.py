"""Tensors of classes that derive from torch.Tensor, most of them with a ``__torch_function__`` of their own.

Torch's functions, methods, operators and attribute reads go to ``__torch_function__`` of the class first, which is
inlined (torch/csrc/utils/python_arg_parser.cpp, handle_torch_function). What the class itself defines is followed as
for any object. In the graph such a tensor is plain: an input is an alias of the caller's tensor, and a result is given
its class behind the graph. Invariant: no operation on such a tensor is recorded while its ``__torch_function__``
counts.
"""
from __future__ import annotations

import functools
import operator
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from ...guards.source import BASES, OWN_DICT, ComputedSource, Source
from ...rules.table import handles
from ...runtime.tensor_classes import as_plain, given_class, requires_grad
from ..base import VariableTracker, instance_dict, realized, unsupported, wraps_if
from ..class_calls import allocates
from ..constant import BINARY_METHODS, COMPARE_METHODS, UNARY_METHODS, ConstantVariable
from ..containers.spaces import dict_of_made, dict_source, read_own, space_at
from ..objects.classes import class_attribute_source, is_data_descriptor, is_stand_in
from ..objects.descriptors import takes_over
from ..objects.members import class_method
from ..objects.reads import reader_of
from .inputs import wrap_tensor
from .legacy_tensors import make_legacy
from .method_calls import handles_method
from .methods import TensorMethodVariable
from .parameters import adds_only
from .symbols_of_operators import BINARY, INPLACE, UNARY
from .tensor import TensorVariable, call_in_graph, method_by_name

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer

_KIND = "tensor_subclass"
_OPERATORS = frozenset(
    [name for pair in BINARY_METHODS.values() for name in pair]
    + ["__i" + pair[0][2:] for pair in BINARY_METHODS.values()]
    + [*COMPARE_METHODS.values(), *UNARY_METHODS.values(), "__len__", "__getitem__", "__setitem__", "__call__"])
# What a class statement, a generic base or an annotation leaves in a class, and methods that Python looks up in the
# class and that are followed, or break the graph, wherever they are called.
_FOLLOWED = _OPERATORS | frozenset({
    "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__orig_bases__",
    "__annotate__", "__annotate_func__", "__annotations_cache__", "__classcell__",
    "__parameters__", "__slots__", "__static_attributes__", "__firstlineno__", "__init__", "__new__", "__deepcopy__",
    "__reduce_ex__", "__reduce__", "__setstate__", "__repr__", "__str__", "__format__", "__init_subclass__",
    "__class_getitem__", "__subclasshook__", "__torch_function__", "__array_priority__", "__array_function__",
    "__array_ufunc__"})
# Methods by which a class would change what is evaluated here: guards fix that it defines none of them.
_REFUSED = (
    "__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__del__", "__hash__", "__bool__", "__iter__",
    "__contains__", "__reversed__", "__index__", "__int__", "__float__", "__complex__", "__abs__", "__round__",
    "__divmod__", "__enter__", "__torch_dispatch__")
# Attributes of a leaf that its alias does not have.
_OF_LEAVES = frozenset({"grad", "grad_fn", "is_leaf", "retains_grad", "_base", "output_nr"})
_DISABLED: Any = torch._C._disabled_torch_function_impl


class SubclassTensorVariable(TensorVariable):
    """A tensor of a class derived from torch.Tensor."""

    def describe(self) -> str:
        return f"{self.cls.__qualname__} ({super().describe()})"

    # -- torch's overrides
    def asks(self, tx: Tracer) -> bool:
        """Whether torch's functions call ``__torch_function__`` of the class."""
        if tx.output.parts or tx.output.examples or torch._C._are_functorch_transforms_active():
            unsupported(_KIND, f"{self.describe()} in a function that torch calls by itself")
        return not tx.output.overrides.plain and tx.classes.lookup(self.cls, "__torch_function__") is not _DISABLED

    def _added(self, tx: Tracer, name: str) -> bool:
        """Whether the class, not torch.Tensor, defines an attribute."""
        tx.classes.lookup(self.cls, name)  # guarded
        return any(name in OWN_DICT(base) for base in added_bases(self.cls))

    def _operator(self, tx: Tracer, name: str, *args: VariableTracker) -> VariableTracker | None:
        """The result of an operator's method that the class defines; None where it defines none."""
        if not self._added(tx, name):
            return None
        method = tx.classes.lookup(self.cls, name)
        return realized(tx, tx.classes.call_attribute(self, self.cls, name, method, list(args), {}))

    def by_torch(self) -> TensorVariable:
        return super()  # type: ignore[return-value]

    # -- attributes
    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name == "__class__":
            return tx.values.from_result(self.cls, "class")
        if name == "__dict__":
            return self._dict(tx)
        descriptor = tx.classes.lookup(self.cls, name)
        if self._added(tx, name):
            own = None if is_data_descriptor(tx, descriptor) else self._own(tx, name)
            found = own if own is not None else reader_of(descriptor)(tx, self, self.cls, name, descriptor)
            if found is None:
                unsupported("unsupported_attribute", f"{self.describe()}.{name}")
            return found
        if isinstance(descriptor, classmethod):
            cls = tx.values.from_result(self.cls, "class")
            return class_method(tx, descriptor, class_attribute_source(self.cls, name), cls)
        if isinstance(descriptor, (types.GetSetDescriptorType, property)):
            return self.computed(tx, name)
        if descriptor is None:
            own = self._own(tx, name)
            if own is None:
                tx.raise_error(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
            return own
        return TensorMethodVariable(self, name)

    def computed(self, tx: Tracer, name: str) -> VariableTracker:
        """An attribute that torch.Tensor computes, whatever the class defines under its name."""
        if self.asks(tx):
            return tx.call_override(getattr, [self, ConstantVariable(name)], {})
        if self.source is not None and name in _OF_LEAVES:
            unsupported(_KIND, f"{self.describe()}.{name}")
        return super().getattr(tx, name)

    def _dict(self, tx: Tracer) -> VariableTracker:
        own = instance_dict(self.value) if self.value is not None else None
        source = dict_source(self)
        return dict_of_made(tx, self, lambda name: True) if own is None or source is None else space_at(tx, own, source)

    def _own(self, tx: Tracer, name: str) -> VariableTracker | None:
        """The attribute in the tensor's own dict; None if there is none."""
        own = instance_dict(self.value) if self.value is not None else None
        return read_own(tx, self, own, dict_source(self), name)

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        descriptor = tx.classes.lookup(self.cls, name)
        if self._added(tx, name) and is_data_descriptor(tx, descriptor):
            if not takes_over(tx, descriptor, self, name, "__set__", value):
                unsupported("unsupported_attribute", f"setting {self.describe()}.{name}")
            return
        if isinstance(descriptor, (types.GetSetDescriptorType, property)) and not self._added(tx, name):
            unsupported(_KIND, f"setting {self.describe()}.{name}")
        super().setattr(tx, name, value)

    # -- methods and operators
    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        method = tx.classes.lookup(self.cls, name)
        if self._added(tx, name) or method is None or isinstance(method, classmethod):
            return tx.call(self.getattr(tx, name), args, kwargs)
        if self.asks(tx) and method not in torch.overrides.get_ignored_functions():
            return tx.call_override(method_by_name, [self, ConstantVariable(name), *args], kwargs)
        return super().call_method(tx, name, args, kwargs)

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if self._added(tx, "__call__"):
            return tx.classes.call_attribute(
                self, self.cls, "__call__", tx.classes.lookup(self.cls, "__call__"), args, kwargs)
        return super().call(tx, args, kwargs)

    def truth(self, tx: Tracer) -> bool:
        if self.asks(tx):
            return tx.truth(tx.call_override(bool, [self], {}))
        return super().truth(tx)

    def length(self, tx: Tracer) -> VariableTracker:
        own = self._operator(tx, "__len__")
        if own is None and self.asks(tx):
            own = tx.call_override(len, [self], {})
        return own if own is not None else super().length(tx)

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        own = self._operator(tx, "__getitem__", key)
        if own is None and self.asks(tx):
            own = tx.call_override(operator.getitem, [self, key], {})
        return own if own is not None else super().getitem(tx, key)

    def setitem(self, tx: Tracer, key: VariableTracker, value: VariableTracker) -> None:
        if self._operator(tx, "__setitem__", key, value) is not None:
            return
        if self.asks(tx):
            tx.call_override(operator.setitem, [self, key, value], {})
        else:
            super().setitem(tx, key, value)

    def iterator(self, tx: Tracer) -> VariableTracker:
        if not self.asks(tx):
            return super().iterator(tx)
        # Tensor.__iter__ is not overridden itself, but what it calls is.
        if tx.operators.as_index(self.call_method(tx, "dim", [], {})) == 0:
            tx.raise_error(TypeError, "iteration over a 0-d tensor")
        return self.call_method(tx, "unbind", [ConstantVariable(0)], {}).iterator(tx)

    def reversed(self, tx: Tracer) -> VariableTracker:
        if self.asks(tx):
            return tx.call_override(reversed, [self], {})
        return super().reversed(tx)

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        names = BINARY_METHODS.get(op)  # comparisons come here from `compare`
        own = self._operator(tx, names[reflected], other) if names is not None else None
        if own is not None:
            return None if own.is_not_implemented() else own
        if self.asks(tx):
            return tx.call_override_operator(BINARY[op], [other, self] if reflected else [self, other])
        return super().binary(tx, op, other, reflected)

    def inplace(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        own = self._operator(tx, "__i" + BINARY_METHODS[op][0][2:], other)
        if own is not None:
            return None if own.is_not_implemented() else own
        if self.asks(tx):
            return tx.call_override(INPLACE[op], [self, other], {}) if op in INPLACE else None
        return super().inplace(tx, op, other)

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        own = self._operator(tx, COMPARE_METHODS[op], other)
        if own is not None:
            return None if own.is_not_implemented() else own
        if self.asks(tx):
            return tx.call_override_operator(BINARY[op], [self, other])
        return super().compare(tx, op, other)

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        own = self._operator(tx, UNARY_METHODS[op])
        if own is None and self.asks(tx):
            own = tx.call_override(UNARY[op], [self], {})
        return own if own is not None else super().unary(tx, op)

    # -- generated code
    def reconstruct(self, cg: Codegen) -> None:
        become = functools.partial(given_class, self.cls)
        cg.build_new(
            self, lambda: cg.call_constant(become, lambda: cg.load_computed(self)), lambda: self._fill(cg))

    def _fill(self, cg: Codegen) -> None:
        cg.store_attributes(self)
        if self.own_dict is not None:
            self.own_dict.fill_keeper(cg)


def refuse_subclasses(values: Iterable[VariableTracker], what: str) -> None:
    """Breaks the graph if one of these values is a tensor of a derived class, which `what` would take for a plain
    one."""
    for value in values:
        if isinstance(value, SubclassTensorVariable):
            unsupported(_KIND, f"{what} with {value.describe()}")


# ---------------------------------------------------------------- which classes, and their tensors
def added_bases(cls: type) -> list[type]:
    """The classes in the method resolution order that are not torch's own."""
    known = torch.nn.Parameter.__mro__
    return [base for base in BASES(cls) if base not in known]


def _why_not(cls: Any) -> str | None:
    """Why tensors of a class can't be followed; None if they can."""
    if type(cls) not in (type(torch.Tensor), type(torch.nn.Parameter)):
        return f"its metaclass is {type(cls).__qualname__}"
    if cls.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        return "it has a __torch_dispatch__"
    if is_stand_in(cls):
        return "the program makes it"
    for base in added_bases(cls):
        if OWN_DICT(base).get("__slots__"):
            return "it has slots"
        for name in OWN_DICT(base):
            if name.startswith("__") and name.endswith("__") and name not in _FOLLOWED:
                return f"it defines {name}"
    return None


def _check(tx: Tracer, cls: type) -> None:
    """Breaks the graph for tensors of a class that can't be followed; guards fix that it is not such a class."""
    reason = _why_not(cls)
    if reason is not None:
        unsupported(_KIND, f"a tensor of the class {cls.__qualname__}: {reason}")
    tx.classes.guard_mro(cls)
    for name in _REFUSED:
        tx.classes.lookup(cls, name)


def of_class(tx: Tracer, tensor: TensorVariable, cls: type) -> TensorVariable:
    """The tensor that a node has just made, as one of a derived class."""
    made = SubclassTensorVariable(tensor.node, tensor.fake, None, cls)
    return tx.output.register_tensor(made)


@wraps_if(lambda value: issubclass(type(value), torch.Tensor), rank=0)
def _wrap_subclass(tx: Tracer, value: torch.Tensor, source: Source) -> VariableTracker:
    cls = type(value)
    if adds_only(cls):
        tx.classes.guard_mro(cls)
        return wrap_tensor(tx, value, source)
    _check(tx, cls)
    if torch.is_inference_mode_enabled():  # where the alias never requires gradients
        tx.guard(ComputedSource(source, requires_grad, f"{source.name}.requires_grad"), "const", False)
        if requires_grad(value):
            unsupported(_KIND, f"{source.name}, a {cls.__qualname__} that requires gradients, in inference mode")
    tx.guard(source, "type_is", cls)
    alias = ComputedSource(source, as_plain, f"{source.name}.as_subclass(torch.Tensor)")
    plain = realized(tx, tx.values.wrap_at(as_plain(value), alias))
    if not isinstance(plain, TensorVariable) or plain.node is None:
        unsupported(_KIND, f"{source.name} is a {cls.__qualname__}")
    made = SubclassTensorVariable(plain.node, plain.fake, source, cls)
    made.value = value
    return tx.output.register_tensor(made)


# ---------------------------------------------------------------- how the program makes them
def _class_argument(tx: Tracer, cls: VariableTracker) -> type:
    given = cls.constant() if cls.is_constant() else None
    if not isinstance(given, type) or not issubclass(given, torch.Tensor):
        unsupported(_KIND, f"as_subclass() with {cls.describe()}")
    if given is not torch.Tensor:
        _check(tx, given)
    return given


def as_subclass(tx: Tracer, tensor: TensorVariable, cls: type) -> TensorVariable:
    """``tensor.as_subclass(cls)``: another tensor over the same memory."""
    with tx.output.overrides.plainly():
        made = call_in_graph(tx, torch.ops.aten.alias.default, [tensor], {})
    assert isinstance(made, TensorVariable)
    return made if cls is torch.Tensor else of_class(tx, made, cls)


@handles_method(torch.Tensor.as_subclass)
def _as_subclass(tx: Tracer, tensor: TensorVariable, cls: VariableTracker) -> VariableTracker:
    return as_subclass(tx, tensor, _class_argument(tx, cls))


@handles(torch.Tensor._make_subclass)
def _make_subclass(
    tx: Tracer, cls: VariableTracker, data: VariableTracker, require_grad: VariableTracker | None = None
) -> VariableTracker:
    """torch/csrc/autograd/python_variable.cpp, THPVariable_make_subclass."""
    data = realized(tx, data)
    if not isinstance(data, TensorVariable):
        unsupported(_KIND, f"_make_subclass() of {data.describe()}")
    wanted = require_grad is not None and tx.truth(require_grad)
    given = _class_argument(tx, cls)
    with tx.output.overrides.plainly():
        made = tx.call_method(data, "detach", [])
        if wanted:
            made = tx.call_method(made, "requires_grad_", [])
    assert isinstance(made, TensorVariable)
    return made if given is torch.Tensor else of_class(tx, made, given)


@allocates(torch._C.TensorBase)
def _new(
    tx: Tracer, cls: type, native: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """``torch.Tensor.__new__(cls, ...)``, the legacy constructor."""
    _check(tx, cls)
    with tx.output.overrides.plainly():
        made = make_legacy(torch.Tensor, tx, *args, **kwargs)
    if not isinstance(made, TensorVariable) or type(made) is not TensorVariable:
        unsupported(_KIND, f"{cls.__qualname__}() of {made.describe()}")
    return of_class(tx, made, cls)


# ---------------------------------------------------------------- the __torch_function__ of torch.Tensor
@handles(vars(torch.Tensor)["__torch_function__"].__func__)
def _default(
    tx: Tracer, cls: VariableTracker, func: VariableTracker, kinds: VariableTracker,
    args: VariableTracker | None = None, kwargs: VariableTracker | None = None,
) -> VariableTracker:
    """Calls the function on tensors taken for plain ones, and makes tensors of the class of those that it returns
    (torch/_tensor.py)."""
    own = cls.constant()
    if not all(issubclass(own, kind.constant()) for kind in kinds.iterate(tx)):
        return ConstantVariable(NotImplemented)
    result = _called_plainly(tx, func, args, kwargs)
    return result if own is torch.Tensor or _keeps_class(func) else _converted(tx, result, own)


@handles(_DISABLED)
def _disabled(
    tx: Tracer, func: VariableTracker, kinds: VariableTracker, args: VariableTracker | None = None,
    kwargs: VariableTracker | None = None,
) -> VariableTracker:
    """The ``__torch_function__`` of nn.Parameter: results stay plain."""
    return _called_plainly(tx, func, args, kwargs)


def _called_plainly(
    tx: Tracer, func: VariableTracker, args: VariableTracker | None, kwargs: VariableTracker | None
) -> VariableTracker:
    positional = list(args.iterate(tx)) if args is not None and not args.is_none() else []
    named = tx.operators.dict_content(kwargs) if kwargs is not None and not kwargs.is_none() else None
    with tx.output.overrides.plainly():
        return realized(tx, tx.call(func, positional, _by_name(named)))


def _by_name(entries: Any) -> dict[str, VariableTracker]:
    return {} if entries is None else {key.constant(): value for key, value in entries.items.values()}


def _keeps_class(func: VariableTracker) -> bool:
    getter = func.value
    return isinstance(getter, types.MethodWrapperType) and getter in torch.overrides.get_default_nowrap_functions()


def _converted(tx: Tracer, value: VariableTracker, cls: type) -> VariableTracker:
    """A result with each tensor in it, if it is not of the class, given that class."""
    value = realized(tx, value)
    if isinstance(value, TensorVariable):
        return value if issubclass(value.cls, cls) else as_subclass(tx, value, cls)
    if issubclass(value.python_type(), (tuple, list)):
        items = value.known_items()
        if items is None:
            unsupported(_KIND, f"{value.describe()}, a result of __torch_function__")
        return tx.values.new_sequence(value.python_type(), [_converted(tx, item, cls) for item in items])
    return value
