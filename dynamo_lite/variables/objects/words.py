"""Messages of AttributeErrors for missing attributes, which differ between versions of CPython.

Invariant: the message comes from the running Python, which raises it for an empty class of the same name.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any


def of_setting(cls: type, name: str) -> str:
    """The message for setting an attribute of an instance that has no ``__dict__``."""
    own = {} if cls.__setattr__ is object.__setattr__ else {"__setattr__": lambda self, name, value: None}
    return _said(lambda: object.__setattr__(_namesake(cls, (), own)(), name, None))


def of_reading(cls: type, name: str) -> str:
    """The message for reading an empty slot of an instance."""
    return _said(lambda: getattr(_namesake(cls, (name,), {})(), name))


def _namesake(cls: type, slots: tuple[str, ...], own: dict[str, Any]) -> type:
    named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return type(cls.__name__, (), {"__slots__": slots, **named, **own})


def _said(ask: Callable[[], Any]) -> str:
    try:
        ask()
    except AttributeError as error:
        return str(error)
    raise AssertionError("it has that attribute")
