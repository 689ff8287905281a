"""Calls of cached functions as sources, through which guards reach the cached results.

Invariant: such a call keeps none of the program's objects alive, and each read gives the cache's current result.
"""
from __future__ import annotations

import weakref
from typing import Any

import torch

# Types of tuples, which a cache finds again by their elements.
TUPLES = (tuple, torch.Size)


class Open:
    """Placeholder for an argument, or an element of one, that each call supplies.

    Args:
        place: its index among the supplied values.
    """

    def __init__(self, place: int) -> None:
        self.place = place

    def __repr__(self) -> str:
        return "_"


class Parts:
    """Representation of a tuple argument with placeholders; a real ``torch.Size`` can hold only ints.

    Args:
        cls: the type of the tuple.
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
        args: its arguments: constants, weak references to objects, :class:`Open` placeholders, :class:`Parts` of these.
        kwargs: its keyword arguments, in the same form.
    """

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs

    def ask(self, *given: Any) -> Any:
        """Calls the function with `given` in place of the open arguments."""
        args = [_value(arg, given) for arg in self.args]
        kwargs = {name: _value(arg, given) for name, arg in self.kwargs.items()}
        return self.function(*args, **kwargs)

    def __call__(self, *given: Any) -> Any:
        """:meth:`ask` for guards, which treat a LookupError as a missing value."""
        try:
            return self.ask(*given)
        except Exception as error:
            raise LookupError(f"a cached function raised {type(error).__name__}") from error

    @property
    def result(self) -> Any:
        """The cached result, where no argument is open."""
        return self()

    def words(self, given: str = "") -> str:
        """The text of the call. With open arguments, whose text is `given`, it also identifies the function."""
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
