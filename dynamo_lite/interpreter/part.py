"""The parts of the evaluator: each owns one topic of what Python does with values, and calls the others through `tx`.

A frame makes a part when it first needs it, and releases its parts when it stops running, so that no reference cycle
keeps the frame's values, which belong to the program, alive. Invariant: a part holds nothing but its frame.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from ..variables.protocols import Tracer


class Part:
    """Base class of the parts: one topic, for one frame."""

    __slots__ = ("tx",)

    def __init__(self, tx: Tracer) -> None:
        self.tx = tx


P = TypeVar("P", bound=Part)


class Owned(Generic[P]):
    """A descriptor: an attribute of a frame that holds one of its parts, made on first access."""

    def __init__(self, cls: type[P]) -> None:
        self.cls = cls

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, tx: Tracer, owner: type) -> P:
        part = tx.__dict__[self.name] = self.cls(tx)
        return part
