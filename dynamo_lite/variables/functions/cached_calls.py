"""Calls of cached functions, as places where guards find what the cache gives.

Invariant: a call keeps none of the program's objects alive, and what it stands for is what the cache gives now.
"""
from __future__ import annotations

import weakref
from typing import Any

import torch

# Arguments that are found again by their elements.
TUPLES = (tuple, torch.Size)


class Open:
    """Stands for an argument, or an element of one, that is given at each call.

    Args:
        place: its place among those that are given.
    """

    def __init__(self, place: int) -> None:
        self.place = place

    def __repr__(self) -> str:
        return "_"


class Parts:
    """Stands for a tuple of such arguments; a ``torch.Size`` itself holds nothing but ints.

    Args:
        cls: its type.
        parts: its elements.
    """

    def __init__(self, cls: type, parts: list[Any]) -> None:
        self.cls = cls
        self.parts = parts

    def __repr__(self) -> str:
        return f"({', '.join(map(_words, self.parts))})"


class CachedCall:
    """A call of a cached function.

    Args:
        function: the cached function.
        args: its arguments: constants, weak references to objects, :class:`Open` ones, and :class:`Parts` of these.
        kwargs: the same of keywords.
    """

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs

    def ask(self, *given: Any) -> Any:
        """What the function gives, with `given` for what is open."""
        args = [_value(arg, given) for arg in self.args]
        kwargs = {name: _value(arg, given) for name, arg in self.kwargs.items()}
        return self.function(*args, **kwargs)

    def __call__(self, *given: Any) -> Any:
        """For guards, to which a call that fails is one without a result."""
        try:
            return self.ask(*given)
        except Exception as error:
            raise LookupError(f"a cached function raised {type(error).__name__}") from error

    @property
    def result(self) -> Any:
        """What the cache holds, where nothing is open."""
        return self()

    def words(self, given: str = "") -> str:
        """The call's text; with open arguments, whose text is `given`, it tells the function from all others."""
        parts = [*map(_words, self.args), *(f"{k}={_words(v)}" for k, v in self.kwargs.items())]
        name = getattr(self.function, "__qualname__", "cached function")
        text = f"{name}({', '.join(parts)})"
        return f"{text} of {given} [{id(self.function):x}]" if given else text


def _value(argument: Any, given: tuple[Any, ...]) -> Any:
    if type(argument) is Open:
        return given[argument.place]
    if type(argument) is Parts:
        return argument.cls([_value(part, given) for part in argument.parts])
    value = argument() if type(argument) is weakref.ref else argument
    if value is None and argument is not None:
        raise ReferenceError("an argument of a cached function has ended")
    return value


def _words(argument: Any) -> str:
    return f"<{type(argument()).__qualname__}>" if type(argument) is weakref.ref else repr(argument)
