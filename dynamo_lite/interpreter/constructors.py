"""Calls of builtin classes as constructors: numbers, texts, ranges, slices, partials, descriptors, ``super()``.

Invariant: an object made in the trace is not made for real before generated code makes it.
"""
from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.distributions.utils import _lazy_property_and_property

from ..polyfills.optimizers import Region
from ..rules.table import handles
from ..variables.base import VariableTracker, type_name, unsupported
from ..variables.class_calls import allocates
from ..variables.constant import ConstantVariable
from ..variables.contents import VALUE_TYPES
from ..variables.functions.functions import FunctionVariable, MethodVariable
from ..variables.functions.partials import new_partial
from ..variables.numbers.numpy_numbers import as_of_python
from ..variables.numbers.ranges import SliceVariable
from ..variables.numbers.scalars import ScalarVariable, call_on_scalars
from ..variables.numbers.symbolic_ints import call_on_ints
from ..variables.objects.classes import (
    ClassVariable,
    derives,
)
from ..variables.objects.made_classes import DESCRIPTORS, DescriptorVariable, define_class
from ..variables.objects.objects import ObjectVariable
from ..variables.objects.supers import SuperVariable, misfit_text
from ..variables.objects.weakrefs import WeakrefVariable
from ..variables.special_results import own_value_for, value_for
from ..variables.tensors.arrays import RunningArray
from ..variables.tensors.tensor import TensorVariable
from ..variables.torch_api.inference import InferenceModeVariable
from ..variables.torch_api.overrides import DisabledOverridesVariable

if TYPE_CHECKING:
    from ..variables.protocols import Tracer

Constructor = Callable[..., VariableTracker]


@handles(torch.autograd.profiler.record_function)
def _record_function(tx: Tracer, name: VariableTracker, args: VariableTracker | None = None) -> VariableTracker:
    return tx.construction.construct(ClassVariable(Region), [], {})


@handles(slice)
def _slice(tx: Tracer, *args: VariableTracker) -> VariableTracker:
    none = ConstantVariable(None)
    parts = {1: [none, *args, none], 2: [*args, none], 3: list(args)}.get(len(args))
    if parts is None:
        tx.raise_error(TypeError, f"slice expected at most 3 arguments, got {len(args)}")
    return SliceVariable(parts)


@handles(functools.partial)
def _partial(tx: Tracer, function: VariableTracker, /, *args: VariableTracker,
    **kwargs: VariableTracker) -> VariableTracker:
    return new_partial(tx, function, list(args), kwargs)


@handles(types.MethodType)
def _method(tx: Tracer, function: VariableTracker, owner: VariableTracker) -> VariableTracker:
    return MethodVariable(function, owner)


@handles(type)
def _type(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    if len(args) == 3 and not kwargs:
        content = tx.operators.dict_content(args[2])
        if not issubclass(args[2].python_type(), dict):
            content = None
        if content is None or not args[0].is_constant() or not issubclass(args[1].python_type(), tuple):
            unsupported("class_definition", "type(name, bases, namespace)")
        namespace = {key.constant(): value for key, value in zip(content.keys(), content.values(tx))}
        namespace.setdefault("__module__", ConstantVariable(tx.globals[0].get("__name__")))
        return define_class(tx, args[0].constant(), list(args[1].iterate(tx)), namespace, None)
    if len(args) != 1:
        unsupported("class_definition", "type(name, bases, namespace)")
    return tx.values.from_result(args[0].python_type(), "class")


def _descriptor(cls: type) -> Constructor:
    def constructor(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if kwargs or not args:
            unsupported("class_definition", f"{cls.__name__}() with keyword arguments")
        return DescriptorVariable(cls, list(args))

    return constructor


for _cls in DESCRIPTORS:
    handles(_cls)(_descriptor(_cls))


@handles(object)
def _object(tx: Tracer) -> VariableTracker:
    return ObjectVariable(object)


@allocates(object)
def _new_plain(
    tx: Tracer, cls: type, native: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    if args or kwargs:  # Objects/typeobject.c, object_new
        if tx.classes.lookup(cls, "__new__") is not object.__new__:
            tx.raise_error(TypeError, "object.__new__() takes exactly one argument (the type to instantiate)")
        if tx.classes.lookup(cls, "__init__") is object.__init__:
            tx.raise_error(TypeError, f"{type_name(cls)}() takes no arguments")
    if inspect.isabstract(cls):
        tx.run_python(object.__new__, cls)
    return ObjectVariable(cls)


@allocates(*VALUE_TYPES)
def _new_value(
    tx: Tracer, cls: type, native: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    made = tx.construction.construct(ClassVariable(native), args, kwargs)
    # A special method may return an instance of a subclass of the builtin.
    return made.content if isinstance(made, ObjectVariable) and made.content is not None else made


def _constant_of_torch(cls: type) -> Constructor:
    """Classes of torch, written in C, whose instances are constants."""
    def constructor(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        plain = [tx.values.as_plain(a) for a in args]
        named = {k: tx.values.as_plain(v) for k, v in kwargs.items()}
        return tx.values.from_result(tx.run_python(cls, *plain, **named), cls.__name__)

    return constructor


for _class_of_constants in (torch.device, torch.finfo, torch.iinfo):
    handles(_class_of_constants)(_constant_of_torch(_class_of_constants))


@handles(super)
def _super(tx: Tracer, *args: VariableTracker) -> VariableTracker:
    if not args:
        start, owner = tx.zero_argument_super()
    else:
        start, owner = args[0], args[1]
    cls = start.constant() if start.is_constant() else None
    if not isinstance(cls, type):
        tx.raise_error(TypeError, f"super() argument 1 must be a type, not {start.python_type().__name__}")
    if len(args) == 1 or len(args) > 2:
        unsupported("unsupported_builtin", "super() with one argument")
    if isinstance(owner, ClassVariable) and derives(tx, owner.value, cls):
        return SuperVariable(cls, owner, owner.value, True)
    if not derives(tx, owner.python_type(), cls):
        is_class = isinstance(owner, ClassVariable)
        tx.raise_error(TypeError, misfit_text(cls, owner.value if is_class else owner.python_type(), is_class))
    return SuperVariable(cls, owner, owner.python_type(), False)


@handles(bool)
def _bool(tx: Tracer, value: VariableTracker | None = None) -> VariableTracker:
    if isinstance(value, ScalarVariable):
        return call_on_scalars(tx, bool, [value], {}) or value
    return ConstantVariable(value is not None and tx.truth(value))


def _tensor_in(tx: Tracer, args: tuple[VariableTracker, ...]) -> TensorVariable | None:
    """The tensor of which a number is made, given itself or as a number of NumPy's."""
    if len(args) == 1 and isinstance(args[0], RunningArray):
        tensor = args[0].tensor(tx)
        return None if tensor.fake.dim() else tensor
    return args[0] if args and isinstance(args[0], TensorVariable) else None


def _number(cls: type, method: str) -> Constructor:
    def constructor(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        tensor = _tensor_in(tx, args)
        if tensor is not None:
            return tensor.call_method(tx, method, [], {})
        numbers = as_of_python(cls, args)
        number = call_on_ints(tx, cls, numbers, kwargs) if tx.output.symbols.any else None
        if number is None and tx.output.scalars.met:
            number = call_on_scalars(tx, cls, numbers, kwargs)
        if number is not None:
            return number
        if len(args) == 1 and not kwargs and isinstance(args[0], ObjectVariable):
            given = value_for(tx, cls, args[0])
            if given is not None:
                return given if issubclass(given.python_type(), cls) else constructor(tx, given)
        if len(args) == 1 and not kwargs and args[0].is_constant():
            given = own_value_for(tx, cls, args[0])
            if given is not None:
                return constructor(tx, given)
        known = args[0] if len(args) == 1 and not kwargs and cls is not bytes else None
        # A number is made of one constant by what has just been asked for.
        plain = [known.constant()] if isinstance(known, ConstantVariable) else [tx.values.as_plain(a) for a in args]
        return ConstantVariable(tx.run_python(cls, *plain, **{k: tx.values.as_plain(v) for k, v in kwargs.items()}))

    return constructor


for _number_class, _name in ((int, "__int__"), (float, "__float__"), (complex, "__complex__"), (bytes, "__bytes__")):
    handles(_number_class)(_number(_number_class, _name))


@handles(str)
def _str(
    tx: Tracer, object: VariableTracker | None = None, encoding: VariableTracker | None = None,
    errors: VariableTracker | None = None,
) -> VariableTracker:
    decoding = {"encoding": encoding, "errors": errors}
    options = {name: tx.values.as_plain(value) for name, value in decoding.items() if value is not None}
    if object is None:
        return ConstantVariable(tx.run_python(str, **options))
    if options:
        return ConstantVariable(tx.run_python(str, tx.values.as_plain(object), **options))
    return tx.texts.to_text(object, "s")


@handles(torch._C._InferenceMode)
def _inference_mode(tx: Tracer, mode: VariableTracker) -> VariableTracker:
    return InferenceModeVariable(tx.truth(mode), tx.root_visit())


@handles(weakref.ref)
def _weakref(tx: Tracer, referent: VariableTracker, *callback: VariableTracker) -> VariableTracker:
    if callback or not isinstance(referent, (ObjectVariable, FunctionVariable, ClassVariable)):
        unsupported("unsupported_builtin", f"weakref.ref() of {referent.describe()}")
    cls = referent.python_type()
    if isinstance(referent, ObjectVariable) and not cls.__weakrefoffset__:
        tx.raise_error(TypeError, f"cannot create weak reference to {cls.__name__!r} object")
    return WeakrefVariable(referent)


@handles(types.SimpleNamespace)
def _simple_namespace(tx: Tracer, /, **attributes: VariableTracker) -> VariableTracker:
    made = ObjectVariable(types.SimpleNamespace)
    for name, value in attributes.items():
        tx.output.effects.store_attr(made, name, value)
    return made


# torch/_C declares these classes as functions.
_DISABLED: Any = torch._C.DisableTorchFunction
_DISABLED_SUBCLASS: Any = torch._C.DisableTorchFunctionSubclass


@handles(torch._C.DisableTorchFunction)
def _disable_torch_function(tx: Tracer) -> VariableTracker:
    return DisabledOverridesVariable(_DISABLED, tx.root_visit())


@handles(torch._C.DisableTorchFunctionSubclass)
def _disable_torch_function_subclass(tx: Tracer) -> VariableTracker:
    return DisabledOverridesVariable(_DISABLED_SUBCLASS, tx.root_visit())


class _LazyAttributeVariable(ObjectVariable):
    """What a lazily computed attribute of a distribution is when it is read from the class: only asked what it is."""

    def reconstruct(self, cg: Any) -> None:
        unsupported("unsupported_value", "a lazy property of a class")


@handles(_lazy_property_and_property)
def _lazy_attribute(tx: Tracer, wrapped: VariableTracker) -> VariableTracker:
    return _LazyAttributeVariable(_lazy_property_and_property)
