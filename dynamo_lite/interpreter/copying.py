"""Methods that ``copy`` calls: ``__reduce_ex__`` of builtins and user-defined objects, ``__deepcopy__`` of tensors.

The ``copy`` module itself is inlined. Invariant: the reduced value is the same as in CPython for protocol 4
(Objects/typeobject.c, reduce_newobj; the ``__reduce__`` of each builtin), or the graph breaks.
"""
from __future__ import annotations

import collections
import copyreg
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..rules.table import handles
from ..variables.base import MISSING, ObservedException, VariableTracker, unsupported
from ..variables.constant import ConstantVariable
from ..variables.containers.attributed import OrderedDictVariable
from ..variables.containers.deques import DequeVariable
from ..variables.containers.mappings import DictVariable
from ..variables.containers.sequences import ListVariable, TupleVariable
from ..variables.containers.sets import SetVariable
from ..variables.identity import IdentityVariable
from ..variables.objects.classes import native_base
from ..variables.objects.objects import ObjectVariable
from ..variables.tensors.tensor import TensorVariable

if TYPE_CHECKING:
    from ..variables.protocols import Tracer

# Builtins whose instances copyreg.__newobj__ makes empty, and which are filled afterwards; those that it makes from
# their contents.
_FILLED = (object, list, dict, collections.OrderedDict, collections.defaultdict)
_MADE_OF = (tuple, str, bytes, int, float, complex)


@handles(object.__reduce_ex__)
def reduced_ex(tx: Tracer, owner: VariableTracker, protocol: VariableTracker) -> VariableTracker:
    """owner.__reduce_ex__(protocol)."""
    cls = owner.python_type()
    own = tx.classes.lookup(cls, "__reduce__")
    if isinstance(own, types.FunctionType):
        return tx.classes.call_attribute(owner, cls, "__reduce__", own, [], {})
    return reduced(tx, owner, as_new=tx.operators.as_index(protocol) >= 2)


@handles(object.__reduce__, BaseException.__reduce__, set.__reduce__, frozenset.__reduce__,
         collections.deque.__reduce__, collections.OrderedDict.__reduce__, collections.defaultdict.__reduce__,
         torch.Size.__reduce__)
def _reduced(tx: Tracer, owner: VariableTracker) -> VariableTracker:
    return reduced(tx, owner)


def reduced(tx: Tracer, owner: VariableTracker, *, as_new: bool = False) -> VariableTracker:
    """owner.__reduce__(); `as_new`: whether the protocol (2 or later) makes objects with ``__newobj__``."""
    made_by = tx.values.from_result(owner.python_type(), "class")
    content = owner.content if isinstance(owner, ObjectVariable) else owner
    for cls, reduce in _REDUCED.items():
        if isinstance(content if cls is SetVariable else owner, cls):
            parts = reduce(tx, owner, content)
            if parts is not None:
                return TupleVariable([made_by, *parts])
    if not as_new:
        unsupported("unsupported_method", f"pickling {owner.describe()}")
    return _reduced_as_new(tx, owner, content, made_by)


def _reduced_set(tx: Tracer, owner: VariableTracker, content: Any) -> list[VariableTracker]:
    return [TupleVariable([ListVariable(content.ordered(tx))]), _state(tx, owner)]


def _reduced_deque(tx: Tracer, owner: Any, content: Any) -> list[VariableTracker]:
    limit = [] if owner.maxlen is None else [TupleVariable([]), ConstantVariable(owner.maxlen)]
    return [TupleVariable(limit), ConstantVariable(None), owner.iterator(tx)]


def _reduced_dict(tx: Tracer, owner: Any, content: Any) -> list[VariableTracker] | None:
    """None for plain dicts, which have no ``__reduce__`` of their own."""
    if owner.python_type() not in (collections.OrderedDict, collections.defaultdict):
        return None
    factory = owner.default_factory
    given = TupleVariable([] if factory is None or factory.is_none() else [factory])
    items = owner.call_method(tx, "items", [], {}).iterator(tx)
    return [given, _state(tx, owner), ConstantVariable(None), items]


def _reduced_size(tx: Tracer, owner: Any, content: Any) -> list[VariableTracker] | None:
    """None for other tuples, which have no ``__reduce__`` of their own."""
    if owner.python_type() is not torch.Size:
        return None
    return [TupleVariable([TupleVariable(list(owner.iterate(tx)))])]


# The items that follow the class in the result, for builtins with a __reduce__ of their own.
_REDUCED: dict[type, Callable[[Any, Any, Any], list[VariableTracker] | None]] = {
    SetVariable: _reduced_set, DequeVariable: _reduced_deque, DictVariable: _reduced_dict,
    TupleVariable: _reduced_size,
}


def _reduced_as_new(
    tx: Tracer, owner: VariableTracker, content: VariableTracker | None, made_by: VariableTracker
) -> VariableTracker:
    """The reduced value that makes an object with ``copyreg.__newobj__``, then sets its state, elements and entries."""
    cls = owner.python_type()
    base: Any = native_base(cls)
    if base not in (*_FILLED, *_MADE_OF) or not isinstance(owner, (ObjectVariable, TupleVariable)):
        unsupported("unsupported_method", f"pickling {owner.describe()}")
    if base in (collections.OrderedDict, collections.defaultdict):
        unsupported("unsupported_method", f"pickling {owner.describe()}, a kind of {base.__name__}")
    if tx.classes.lookup(cls, "__getnewargs_ex__") is not None:
        unsupported("unsupported_method", f"pickling {owner.describe()}, which has __getnewargs_ex__")
    none = ConstantVariable(None)
    arguments = _new_arguments(tx, owner, base, content)
    elements = content.iterator(tx) if base is list and content is not None else none
    entries = content.call_method(tx, "items", [], {}).iterator(tx) if isinstance(content, DictVariable) else none
    maker = tx.values.library_function(copyreg.__newobj__)  # type: ignore[attr-defined]
    return TupleVariable([maker, TupleVariable([made_by, *arguments]), _state(tx, owner), elements, entries])


def _new_arguments(
    tx: Tracer, owner: VariableTracker, base: type, content: VariableTracker | None
) -> list[VariableTracker]:
    """owner.__getnewargs__()."""
    cls = owner.python_type()
    own = tx.classes.lookup(cls, "__getnewargs__")
    if isinstance(own, types.FunctionType):
        found = tx.classes.call_attribute(owner, cls, "__getnewargs__", own, [], {})
        if not issubclass(found.python_type(), tuple):
            kind = found.python_type().__name__
            tx.raise_error(TypeError, f"__getnewargs__ should return a tuple, not {kind!r}")
        return list(found.iterate(tx))
    if base not in _MADE_OF:
        return []
    assert content is not None
    return [TupleVariable(list(content.iterate(tx))) if base is tuple else content]


def _state(tx: Tracer, owner: VariableTracker) -> VariableTracker:
    """owner.__getstate__() (Objects/typeobject.c, object_getstate)."""
    cls = owner.python_type()
    custom = tx.classes.lookup(cls, "__getstate__")
    if isinstance(custom, types.FunctionType):
        return tx.classes.call_attribute(owner, cls, "__getstate__", custom, [], {})
    if custom is not object.__getstate__:
        unsupported("unsupported_method", f"pickling {owner.describe()}, whose class has a __getstate__ of its own")
    if not isinstance(owner, ObjectVariable):
        return _state_of_builtin(tx, owner)
    state: VariableTracker = ConstantVariable(None)
    if cls.__dictoffset__ != 0:
        own = owner.generic_getattr(tx, "__dict__")
        state = own if isinstance(own, DictVariable) and own.items else state
    slots: dict[str, VariableTracker] = {}
    for name in copyreg._slotnames(cls):  # type: ignore[attr-defined]
        value = _slot(tx, owner, name)
        if value is not None:
            slots[name] = value
    if not slots:
        return state
    return TupleVariable([state, tx.values.new_dict({ConstantVariable(name): value for name, value in slots.items()})])


def _state_of_builtin(tx: Tracer, owner: VariableTracker) -> VariableTracker:
    if tx.output.effects.attributes_of(owner):
        unsupported("unsupported_method", f"pickling {owner.describe()}, which has attributes")
    own = owner.getattr(tx, "__dict__") if isinstance(owner, OrderedDictVariable) else None
    return own if isinstance(own, DictVariable) and own.items else ConstantVariable(None)


def _slot(tx: Tracer, owner: ObjectVariable, name: str) -> VariableTracker | None:
    try:
        value = owner.generic_getattr(tx, name)
    except ObservedException as error:
        if issubclass(error.value.python_type(), AttributeError):
            return None
        raise
    return None if value is MISSING else value


def deep_copied(tx: Tracer, owner: VariableTracker, memo: VariableTracker) -> VariableTracker:
    """owner.__deepcopy__(memo)."""
    return owner.call_method(tx, "__deepcopy__", [memo], {})


@handles(torch.Tensor.__deepcopy__, torch.nn.Parameter.__deepcopy__, of_tensor=True)
def _deep_copied_tensor(tx: Tracer, owner: TensorVariable, memo: VariableTracker) -> VariableTracker:
    """A clone of the tensor, if that has the same strides and no other copied tensor shares its storage."""
    if not isinstance(memo, DictVariable):
        unsupported("unsupported_method", f"Tensor.__deepcopy__() of {owner.describe()}, with another memo")
    key = IdentityVariable(owner)
    known = memo.lookup(tx, key)
    if known is not None:
        return known
    fake, real = owner.fake, owner.value
    attributes = tx.output.effects.attributes_of(owner) or (real is not None and getattr(real, "__dict__", None))
    storage = fake.untyped_storage()
    whole = fake.storage_offset() == 0 and storage.nbytes() == fake.numel() * fake.element_size()
    shares = any(
        isinstance(other, TensorVariable) and other.fake.untyped_storage()._cdata == storage._cdata
        for other in _copied_tensors(memo)
    )
    plain = owner.cls is torch.Tensor and fake.layout is torch.strided
    if not plain or fake.requires_grad or attributes or not whole or shares:
        unsupported("unsupported_method", f"Tensor.__deepcopy__() of {owner.describe()}")
    gradient = tx.getattr(owner, "grad")
    if not gradient.is_none():
        unsupported("unsupported_method", f"Tensor.__deepcopy__() of {owner.describe()}, which has a gradient")
    made = tx.call_method(owner, "clone", [])
    memo.store(tx, key, made)
    return made


def _copied_tensors(memo: DictVariable) -> list[VariableTracker]:
    return [key.owner for key in memo.keys() if isinstance(key, IdentityVariable)]
