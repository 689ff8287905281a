"""Dicts in which attributes live: the own dict of an object, a function, a module, a partial.

A trace that knows such a dict through its keeper alone keeps what is written to it with the keeper, by name; so an
object whose dict nobody has asked for stays without one. Once the dict has a second name (an argument, ``vars(o)``,
another object that shares it, a frame's globals) its own tracker holds all of it. Invariant: a dict's contents are in
one place.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...guards.source import DictItemSource, InstanceDictSource, Source
from ..base import MISSING, VariableTracker, realized, unsupported
from ..constant import ConstantVariable
from .mappings import DictVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


def dict_in(tracker: VariableTracker | None) -> DictVariable | None:
    """The entries of a dict, or of an object that is one."""
    content = tracker.content if tracker is not None else None
    found = content if content is not None else tracker
    return found if isinstance(found, DictVariable) else None


def space_at(tx: Tracer, real: dict[Any, Any], source: Source) -> DictVariable:
    """The tracker of the dict itself, which from now on holds what is written to it."""
    found = dict_in(realized(tx, tx.values.wrap_at(real, source)))
    if found is None:
        unsupported("unsupported_value", f"{source.name}, a dict of attributes")
    return found


def read_own(
    tx: Tracer, keeper: VariableTracker, real: dict[Any, Any] | None, source: Source | None, name: str
) -> VariableTracker | None:
    """What a keeper's dict has under a name, looked at and guarded; None if there is nothing.

    Args:
        real: the dict, if the keeper came in from outside.
        source: where it is found.
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
    """Sets what a keeper's dict has under a name, or deletes it with MISSING, which is there then."""
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
    """To be asked before a name is set that the trace has deleted, which then comes last: the tracker to do that with;
    None where the dict does not have the name from before the trace, so that setting it puts it there."""
    if name in real:
        return space_at(tx, real, source)
    tx.guard(source, "dict_lacks", name)
    return None


class OwnDictVariable(DictVariable):
    """``obj.__dict__`` of an object that the traced program made.

    Args:
        keeper: the object, which is built with these entries.
    """

    def __init__(self, keeper: VariableTracker) -> None:
        super().__init__({})
        self.keeper = keeper

    def reconstruct(self, cg: Codegen) -> None:
        cg.build_new(
            self, lambda: cg.call_constant(own_dict, lambda: cg.push(self.keeper)), lambda: None, refers_only=True
        )

    def fill_keeper(self, cg: Codegen) -> None:
        """With the new object on the stack, emits its attributes (keeps the object on the stack)."""
        if self.items:
            cg.push_of_top(own_dict)
            self.fill(cg)
            cg.emit.pop()


def own_dict(value: Any) -> Any:
    """An object's own dict, past what its class makes of ``__dict__``; generated code asks for it."""
    return object.__getattribute__(value, "__dict__")


def dict_source(keeper: VariableTracker) -> Source | None:
    """Where the own dict of an object is found; None if the object was made in the trace."""
    if keeper.dict_source is None and keeper.source is not None:
        keeper.dict_source = InstanceDictSource(keeper.source)
    return keeper.dict_source
