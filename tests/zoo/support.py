"""What the programs of the zoo are registered with and what they use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


def case(*argument_lists: tuple[Any, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        CASES.extend((fn, arguments) for arguments in argument_lists or ((),))
        return fn

    return register


def cases(lift: Callable[[Any], Any] = lambda value: value) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
    return [(fn, tuple(lift(a) if type(a) in (int, float) else a for a in arguments)) for fn, arguments in CASES]


# What the programs use


def note(*values: Any) -> Any:
    print("note", *values)
    return values[-1] if values else None


def fail(kind: type[BaseException] = ValueError, text: str = "failed") -> Any:
    raise kind(text)


def takes(a: Any, b: Any = 2, *rest: Any, c: Any = 3, **more: Any) -> Any:
    print("takes", a, b, rest, c, sorted(more))
    return a


class Manager:
    def __init__(self, name: str, suppress: bool = False) -> None:
        self.name, self.suppress = name, suppress

    def __enter__(self) -> Manager:
        print("enter", self.name)
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        print("exit", self.name, kind and kind.__name__, value)
        return self.suppress


@contextlib.contextmanager
def generator_manager(name: str) -> Iterator[str]:
    print("begin", name)
    try:
        yield name
    except KeyError as e:
        print("swallow", e)
    finally:
        print("end", name)


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __repr__(self) -> str:
        return f"Point({self.x}, {self.y})"


class Noisy:
    """Says what is done to it."""

    def __init__(self, value: Any = 0) -> None:
        object.__setattr__(self, "value", value)

    def __getattr__(self, name: str) -> Any:
        print("get", name)
        if name.startswith("bad"):
            raise AttributeError(name)
        return self.value

    def __setattr__(self, name: str, value: Any) -> None:
        print("set", name, value)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        print("del", name)
        object.__delattr__(self, name)

    def __getitem__(self, key: Any) -> Any:
        print("item", key)
        return self.value

    def __setitem__(self, key: Any, value: Any) -> None:
        print("set item", key, value)

    def __delitem__(self, key: Any) -> None:
        print("del item", key)

    def __add__(self, other: Any) -> Any:
        print("add", other)
        return self.value + other

    def __iadd__(self, other: Any) -> Noisy:
        print("iadd", other)
        object.__setattr__(self, "value", self.value + other)
        return self

    def __lt__(self, other: Any) -> bool:
        print("lt", other)
        return self.value < other

    def __bool__(self) -> bool:
        print("bool")
        return self.value > 0

    def __contains__(self, other: Any) -> bool:
        print("contains", other)
        return other == self.value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        print("call", args, sorted(kwargs))
        return self.value

    def method(self, a: Any = 1, *, key: Any = 2) -> Any:
        print("method", a, key)
        return self.value + a

    def __format__(self, spec: str) -> str:
        print("format", spec)
        return f"<{self.value}>"


class BadBool:
    def __bool__(self) -> bool:
        raise TypeError("no truth here")


class Counting:
    """An iterator of its own class, that may fail."""

    def __init__(self, stop: int, bad: int = -1) -> None:
        self.at, self.stop, self.bad = 0, stop, bad

    def __iter__(self) -> Counting:
        return self

    def __next__(self) -> int:
        print("next", self.at)
        self.at += 1
        if self.at == self.bad:
            raise ValueError(f"bad {self.at}")
        if self.at > self.stop:
            raise StopIteration
        return self.at
