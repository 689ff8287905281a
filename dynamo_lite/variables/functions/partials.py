"""``functools.partial``.

Invariant: a partial's parts are separate values with sources of their own, so that equal partials share a cache entry.
"""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ...exc import Unsupported
from ...guards.source import ComputedSource, InstanceDictSource, Source
from ..base import MISSING, VariableTracker, realized, wraps_type
from ..constant import ConstantVariable
from ..containers.mappings import DictVariable
from ..containers.sequences import SequenceVariable, TupleVariable
from ..containers.spaces import OwnDictVariable, dict_source, read_own, space_at, write_own

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


@wraps_type(functools.partial)
def _wrap_partial(tx: Tracer, value: functools.partial[Any], source: Source) -> VariableTracker:
    tx.guard(source, "type_is", functools.partial)
    function, args, keywords = (
        realized(tx, tx.values.wrap_slot(source, functools.partial, value, name))
        for name in ("func", "args", "keywords")
    )
    if not isinstance(args, SequenceVariable) or not isinstance(keywords, DictVariable):
        raise Unsupported("unsupported_value", "a functools.partial with unusual parts")
    return PartialVariable(function, list(args.iterate(tx)), keywords, source, value)


class PartialVariable(VariableTracker):
    """``functools.partial(function, *args, **keywords)``.

    Args:
        value: the real object, if it came in from outside.
    """

    has_identity = True
    cls = functools.partial

    def __init__(
        self,
        function: VariableTracker,
        args: list[VariableTracker],
        keywords: DictVariable,
        source: Source | None = None,
        value: functools.partial[Any] | None = None,
    ) -> None:
        super().__init__(source)
        self.value = value
        self.function = function
        self.args = args
        self.keywords = keywords
        self.own_dict: OwnDictVariable | None = None  # for a partial made in the trace, once it has been read

    def python_type(self) -> type:
        return functools.partial

    def truth(self, tx: Tracer) -> bool:
        return True

    def hash_key(self) -> Any:
        return ("object", id(self))

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(self.function, [*self.args, *args], {**self.named(), **kwargs})

    def named(self) -> dict[str, VariableTracker]:
        """The current keyword arguments, by name."""
        return {key.constant(): value for key, value in self.keywords.items.values()}

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        parts = {"func": self.function, "args": TupleVariable(self.args), "keywords": self.keywords}
        if name in parts:
            return parts[name]
        if name == "__class__":
            return tx.values.from_result(functools.partial, "class")
        if name == "__dict__":
            return self._dict_variable(tx)
        if name == "__call__":
            return self
        own = self.own_attribute(tx, name)
        return own if own is not None else tx.classes.builtin_attribute(self, functools.partial, name)

    def own_attribute(self, tx: Tracer, name: str) -> VariableTracker | None:
        """The value in the object's own dict, None if there is none."""
        if self.value is not None and not tx.output.effects.attributes_of(self) and not self._has_dict(tx):
            return None
        return read_own(tx, self, self._real_dict(), dict_source(self), name)

    def has_attributes(self, tx: Tracer) -> bool:
        """Whether its ``__dict__`` exists, in which case a partial of this partial does not flatten it
        (Modules/_functoolsmodule.c, partial_new)."""
        if self.own_dict is not None or tx.output.effects.attributes_of(self):
            return True
        return self.value is not None and self._has_dict(tx)

    def _has_dict(self, tx: Tracer) -> bool:
        """Whether the real object has a ``__dict__``, which the first read of that attribute creates; guarded."""
        assert self.value is not None and self.source is not None
        made = _made_dict(self.value) is not None
        where = ComputedSource(self.source, _made_dict, f"the dict of {self.source.name}")
        tx.guard(where, "type_is" if made else "is", dict if made else None)
        return made

    def _real_dict(self) -> dict[str, Any] | None:
        return None if self.value is None else self.value.__dict__

    def _dict_variable(self, tx: Tracer) -> DictVariable:
        real = self._real_dict()
        if real is not None:
            return space_at(tx, real, InstanceDictSource(self.source))  # type: ignore[arg-type]
        if self.own_dict is None:
            self.own_dict = OwnDictVariable(self)
            written = tx.output.effects.attributes_of(self)
            self.own_dict.items.update({name: (ConstantVariable(name), value) for name, value in written.items()})
            written.clear()
        return self.own_dict

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        if name in _OF_THE_CLASS:
            super().setattr(tx, name, value)
        write_own(tx, self, self._real_dict(), dict_source(self), name, value)

    def delattr(self, tx: Tracer, name: str) -> None:
        if name in _OF_THE_CLASS:
            super().delattr(tx, name)
        if self.own_attribute(tx, name) is None:
            tx.raise_error(AttributeError, f"'functools.partial' object has no attribute {name!r}")
        write_own(tx, self, self._real_dict(), dict_source(self), name, MISSING)

    def reconstruct(self, cg: Codegen) -> None:
        def make() -> None:
            cg.call_function(functools.partial, [self.function, *self.args], self.named())
            if self.own_dict is not None or cg.effects.attributes_of(self):
                # The dict has to exist at once: a partial of this one may be made before its dict is filled, and
                # flattens it unless it has a dict.
                cg.emit.dup()
                cg.emit.load_attr("__dict__")
                cg.emit.pop()

        def fill() -> None:
            cg.store_attributes(self)
            if self.own_dict is not None:
                self.own_dict.fill_keeper(cg)

        cg.build_new(self, make, fill, refers_only=True)


def _made_dict(value: functools.partial[Any]) -> dict[str, Any] | None:
    """The ``__dict__`` of a partial, None while it does not exist: reading the attribute would create it, which the
    program can observe."""
    state: Any = functools.partial.__reduce__(value)
    made: dict[str, Any] | None = state[2][3]
    return made


class KeywordsVariable(DictVariable):
    """``partial.keywords`` of a partial that the traced program made.

    Args:
        named: the keyword arguments, by name.
    """

    def __init__(self, named: dict[str, VariableTracker]) -> None:
        super().__init__({name: (ConstantVariable(name), value) for name, value in named.items()})
        self.partial: PartialVariable | None = None

    def reconstruct(self, cg: Codegen) -> None:
        def make() -> None:
            assert self.partial is not None
            cg.push(self.partial)
            cg.emit.load_attr("keywords")

        cg.build_new(self, make, lambda: None, refers_only=True)


def new_partial(
    tx: Tracer, function: VariableTracker, args: list[VariableTracker], named: dict[str, VariableTracker]
) -> PartialVariable:
    """The tracker of a partial that the traced program makes."""
    if isinstance(function, PartialVariable) and not function.has_attributes(tx):
        args, named = [*function.args, *args], {**function.named(), **named}
        function = function.function
    keywords = KeywordsVariable(named)
    keywords.partial = PartialVariable(function, args, keywords)
    return keywords.partial


# Attributes that are not stored in the object's ``__dict__``.
_OF_THE_CLASS = ("func", "args", "keywords", "__dict__", "__class__")
