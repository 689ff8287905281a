"""Members of enums that are written in C++ (pybind11), such as ``torch.nn.attention.SDPBackend.MATH``.

Invariant: a member is immutable; one with its class and number stands for it.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...guards.source import Source
from ..base import VariableTracker, wraps_if
from ..torch_api.modules import OpaqueVariable

if TYPE_CHECKING:
    from ..protocols import Tracer


def is_native_enum(value: Any) -> bool:
    """Whether a value is a member of an enum of pybind11's."""
    cls = type(value)
    if type(cls).__name__ != "pybind11_type" or not hasattr(cls, "__members__"):
        return False
    members = cls.__members__
    return isinstance(members, dict) and any(member == value for member in members.values())


class NativeEnumVariable(OpaqueVariable):
    """A member of an enum that is written in C++."""

    has_identity = False

    def describe(self) -> str:
        return str(self.value)

    def same_object(self, other: VariableTracker) -> bool | None:
        return other.is_constant() and other.constant() is self.value


@wraps_if(is_native_enum, rank=3)
def _wrap_native_enum(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return NativeEnumVariable(value, source)
