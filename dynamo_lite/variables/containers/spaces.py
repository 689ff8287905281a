"""Dicts that store attributes: the ``__dict__`` of an object (the keeper), a function, a module or a partial.

While the trace knows such a dict only through its keeper, it records writes with the keeper, by attribute name; so an
object whose ``__dict__`` is never read gets no tracker for it. Once the dict is reachable in another way (an argument,
``vars(o)``, another object that shares it, a frame's globals), a tracker of the dict itself holds all entries.
Invariant: a dict's contents are recorded in one place.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...guards.source import DictItemSource, InstanceDictSource, Source
from ..base import MISSING, VariableTracker, realized, unsupported
from ..constant import ConstantVariable
from .mappings import DictVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


def dict_in(tracker: VariableTracker | None) -> DictVariable | None:
    """The tracker of a dict, or of the content of an instance of a subclass of dict; None for other values."""
    content = tracker.content if tracker is not None else None
    found = content if content is not None else tracker
    return found if isinstance(found, DictVariable) else None


def space_at(tx: Tracer, real: dict[Any, Any], source: Source) -> DictVariable:
    """The tracker of the dict itself, which records its writes from now on."""
    found = dict_in(realized(tx, tx.values.wrap_at(real, source)))
    if found is None:
        unsupported("unsupported_value", f"{source.name}, a dict of attributes")
    return found


def read_own(
    tx: Tracer, keeper: VariableTracker, real: dict[Any, Any] | None, source: Source | None, name: str
) -> VariableTracker | None:
    """The value under a name in a keeper's dict, realized and guarded; None if there is none.

    Args:
        real: the dict, if the keeper came in from outside.
        source: where the dict lives.
    """
    effects = tx.output.effects
    space = effects.space_of(tx, keeper, real, source)
    if space is not None:
        return space.lookup(tx, ConstantVariable(name))
    written = effects.attributes_of(keeper)
    if name in written:
        return None if written[name] is MISSING else realized(tx, written[name])
    if real is None:
        return None
    assert source is not None
    value = dict.get(real, name, MISSING)
    if value is not MISSING:
        return realized(tx, tx.values.wrap_at(value, DictItemSource(source, name)))
    tx.guard(source, "dict_lacks", name)
    return None


def write_own(
    tx: Tracer, keeper: VariableTracker, real: dict[Any, Any] | None, source: Source | None, name: str, value: Any
) -> None:
    """Sets the value under a name in a keeper's dict; MISSING deletes the name, which has to be there."""
    effects = tx.output.effects
    space = effects.space_of(tx, keeper, real, source)
    if space is None and real is not None and value is not MISSING:
        if effects.attributes_of(keeper).get(name) is MISSING:
            assert source is not None
            space = set_anew(tx, real, source, name)
    if space is None:
        effects.store_attr(keeper, name, value)
    elif value is MISSING:
        space.delitem(tx, ConstantVariable(name))
    else:
        space.store(tx, ConstantVariable(name), value)


def set_anew(tx: Tracer, real: dict[Any, Any], source: Source, name: str) -> DictVariable | None:
    """The tracker through which a name has to be set that the trace has deleted, so that the name moves to the end of
    the dict. None where the dict did not have the name before the trace: then setting it adds it at the end anyway."""
    if name in real:
        return space_at(tx, real, source)
    tx.guard(source, "dict_lacks", name)
    return None


class OwnDictVariable(DictVariable):
    """``obj.__dict__`` of an object that the traced program made.

    Args:
        keeper: the object, which generated code builds with these entries as its attributes.
    """

    def __init__(self, keeper: VariableTracker) -> None:
        super().__init__({})
        self.keeper = keeper

    def reconstruct(self, cg: Codegen) -> None:
        cg.build_new(
            self, lambda: cg.call_constant(own_dict, lambda: cg.push(self.keeper)), lambda: None, refers_only=True
        )

    def fill_keeper(self, cg: Codegen) -> None:
        """Emits code that sets the attributes of the new object on top of the stack, and leaves it there."""
        if self.items:
            cg.push_of_top(own_dict)
            self.fill(cg)
            cg.emit.pop()


def dict_of_made(tx: Tracer, keeper: VariableTracker, is_in_dict: Callable[[str], bool]) -> OwnDictVariable:
    """The tracker of ``obj.__dict__`` of an object that the program made; it takes over the entries recorded so far.

    Args:
        is_in_dict: whether an attribute of the object is stored in its dict.
    """
    if keeper.own_dict is None:
        keeper.own_dict = OwnDictVariable(keeper)
        written = tx.output.effects.attributes_of(keeper)
        for name in filter(is_in_dict, list(written)):
            keeper.own_dict.items[name] = (ConstantVariable(name), written.pop(name))
    found: OwnDictVariable = keeper.own_dict
    return found


def own_dict(value: Any) -> Any:
    """An object's own dict, regardless of a ``__dict__`` that its class defines; called by generated code."""
    return object.__getattribute__(value, "__dict__")


def dict_source(keeper: VariableTracker) -> Source | None:
    """The source of an object's own dict; None if the object was made in the trace."""
    if keeper.dict_source is None and keeper.source is not None:
        keeper.dict_source = InstanceDictSource(keeper.source)
    return keeper.dict_source
