"""``id(x)``, and functions under ``functools.lru_cache``.

Invariants: an id is only compared and used as a key, its number never decides anything; a cached function is called while
tracing only for known arguments, and its result is guarded by asking the cache again.
"""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ..source import Source
from .base import VariableTracker, unsupported, wraps_type
from .constant import ConstantVariable, is_constant_value

if TYPE_CHECKING:
    from ..codegen import Codegen


class IdentityVariable(VariableTracker):
    """The number that ``id(owner)`` gives: unique among the objects of the trace, otherwise unknown."""

    def __init__(self, owner: VariableTracker) -> None:
        super().__init__()
        self.owner = owner

    def python_type(self) -> type:
        return int

    def describe(self) -> str:
        return f"id of {self.owner.describe()}"

    def hash_key(self) -> Any:
        return _Identity(self.owner)

    def truth(self, tx: Any) -> bool:
        return True

    def same_object(self, other: VariableTracker) -> bool | None:
        return self is other or None

    def compare(self, tx: Any, op: str, other: VariableTracker) -> VariableTracker | None:
        if op not in ("==", "!="):
            unsupported("unsupported_operator", f"the order of ids, {self.describe()}")
        if isinstance(other, IdentityVariable):
            return ConstantVariable(tx.is_same(self.owner, other.owner) == (op == "=="))
        return None

    def binary(self, tx: Any, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        unsupported("unsupported_operator", f"arithmetic on the {self.describe()}")

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_constant(id, lambda: cg.push(self.owner))


class _Identity:
    """A dict key that stands for an object by identity."""

    __slots__ = ("owner",)

    def __init__(self, owner: VariableTracker) -> None:
        self.owner = owner

    def _key(self) -> tuple[Any, ...]:
        owner = self.owner
        if owner.is_constant() and is_constant_value(owner.constant()):
            return (type(owner.constant()), owner.constant())
        return (id(owner),)

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self._key() == other._key()


class CachedFunctionVariable(VariableTracker):
    """A function under ``functools.lru_cache`` or ``functools.cache``."""

    has_identity = True

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def describe(self) -> str:
        return f"cached function {getattr(self.value, '__qualname__', self.value)}"

    def hash_key(self) -> Any:
        return self.value

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.value

    def same_object(self, other: VariableTracker) -> bool | None:
        return other.is_constant() and other.constant() is self.value

    def truth(self, tx: Any) -> bool:
        return True

    def call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        """Asks the cache where the arguments are known, else evaluates the function: its result is what the cache would hold."""
        if not kwargs and all(a.is_constant() for a in args):
            plain = tuple(a.constant() for a in args)
            result = tx.run_python(self.value, *plain)
            if is_constant_value(result):
                tx.guard_result(self.value, plain, result)
                return tx.from_result(result, self.describe())
        return tx.call(tx.library_function(self.value.__wrapped__), args, kwargs)

    def getattr(self, tx: Any, name: str) -> VariableTracker:
        if name in ("cache_info", "cache_clear", "cache_parameters"):
            unsupported("unsupported_attribute", f"{self.describe()}.{name}")
        return tx.from_result(tx.run_python(getattr, self.value, name), f"{self.describe()}.{name}")

    def reconstruct(self, cg: Codegen) -> None:
        cg.emit.load_const(self.value)


@wraps_type(functools._lru_cache_wrapper)
def _wrap_cached_function(tx: Any, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return CachedFunctionVariable(value, source)
