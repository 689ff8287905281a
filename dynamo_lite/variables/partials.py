"""``functools.partial``.

Invariant: a partial's parts are values of their own with sources of their own, so that equal partials share an
artifact.
"""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ..exc import Unsupported
from ..source import DictItemSource, InstanceDictSource, Source
from .base import MISSING, VariableTracker, realized, wraps_type
from .constant import ConstantVariable
from .mappings import DictVariable
from .objects import InstanceDictVariable
from .sequences import SequenceVariable, TupleVariable

if TYPE_CHECKING:
    from ..codegen import Codegen


@wraps_type(functools.partial)
def _wrap_partial(tx: Any, value: functools.partial[Any], source: Source) -> VariableTracker:
    tx.guard(source, "type_is", functools.partial)
    function, args, keywords = (
        realized(tx, tx.wrap_slot(source, functools.partial, value, name)) for name in ("func", "args", "keywords")
    )
    if not isinstance(args, SequenceVariable) or not isinstance(keywords, DictVariable):
        raise Unsupported("unsupported_value", "a functools.partial with unusual parts")
    named = dict(zip(keywords.items, keywords.values(tx)))
    return PartialVariable(function, list(args.iterate(tx)), named, source, value)


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
        keywords: dict[str, VariableTracker],
        source: Source | None = None,
        value: functools.partial[Any] | None = None,
    ) -> None:
        super().__init__(source)
        self.value = value
        self.function = function
        self.args = args
        self.keywords = keywords

    def python_type(self) -> type:
        return functools.partial

    def truth(self, tx: Any) -> bool:
        return True

    def hash_key(self) -> Any:
        return ("object", id(self))

    def call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(self.function, [*self.args, *args], {**self.keywords, **kwargs})

    def getattr(self, tx: Any, name: str) -> VariableTracker:
        parts = {
            "func": self.function,
            "args": TupleVariable(self.args),
            "keywords": tx.new_dict({ConstantVariable(k): v for k, v in self.keywords.items()}),
        }
        if name in parts:
            return parts[name]
        if name == "__class__":
            return tx.from_result(functools.partial, "class")
        if name == "__dict__":
            return InstanceDictVariable(self)
        if name == "__call__":
            return self
        own = self.own_attribute(tx, name)
        return own if own is not None else tx.class_getattr(self, functools.partial, name)

    def own_attribute(self, tx: Any, name: str) -> VariableTracker | None:
        """The value in the object's own dict, None if there is none."""
        written = tx.output.effects.attributes_of(self)
        if name in written:
            return tx.output.effects.load_attr(self, name)
        if self.value is None or self.source is None:
            return None
        own = InstanceDictSource(self.source)
        if name in self.value.__dict__:
            return realized(tx, tx.wrap_at(self.value.__dict__[name], DictItemSource(own, name)))
        tx.guard(own, "dict_lacks", name)
        return None

    def setattr(self, tx: Any, name: str, value: VariableTracker) -> None:
        if name in _OF_THE_CLASS:
            super().setattr(tx, name, value)
        tx.output.effects.store_attr(self, name, value)

    def delattr(self, tx: Any, name: str) -> None:
        if name in _OF_THE_CLASS:
            super().delattr(tx, name)
        if self.own_attribute(tx, name) is None:
            tx.raise_error(AttributeError, f"'functools.partial' object has no attribute {name!r}")
        tx.output.effects.store_attr(self, name, MISSING)

    def reconstruct(self, cg: Codegen) -> None:
        def make() -> None:
            cg.call_function(
                functools.partial, [self.function, *self.args], self.keywords
            )

        cg.build_new(self, make, lambda: cg.store_attributes(self), refers_only=True)


# What setting does not put into the object's own dict.
_OF_THE_CLASS = ("func", "args", "keywords", "__dict__", "__class__")
