"""``functools.partial``.

Invariant: a partial's parts are values of their own with sources of their own, so that equal partials share an
artifact.
"""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ..exc import Unsupported
from ..source import Source
from .base import VariableTracker, realized, wraps_type
from .constant import ConstantVariable
from .mappings import DictVariable
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
    return PartialVariable(function, list(args.iterate(tx)), dict(zip(keywords.items, keywords.values(tx))), source)


class PartialVariable(VariableTracker):
    """``functools.partial(function, *args, **keywords)``."""

    has_identity = True

    def __init__(
        self,
        function: VariableTracker,
        args: list[VariableTracker],
        keywords: dict[str, VariableTracker],
        source: Source | None = None,
    ) -> None:
        super().__init__(source)
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
        tx.raise_error(AttributeError, f"'functools.partial' object has no attribute {name!r}")

    def reconstruct(self, cg: Codegen) -> None:
        def make() -> None:
            cg.call_function(
                functools.partial, [self.function, *self.args], self.keywords
            )

        cg.build_new(self, make, lambda: None)
