"""Whatever a compiled function has read may change before its next call; the next call then equals eager.

A case gives a function, its arguments and a change. The function is compiled and called, the change is made, and both
are called again: a stale cache entry would give the old answer. """
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

import dynamo_lite

X = torch.arange(6.0).reshape(2, 3)
Case = tuple[Callable[..., Any], tuple[Any, ...], Callable[[], Any]]


class Plain:
    kind = 1

    def __init__(self, k: Any = 2) -> None:
        self.k = k

    def scale(self, x: Any) -> Any:
        return x * self.k


class Cases:
    """The cases of one test module."""

    def __init__(self) -> None:
        self.all: dict[str, Callable[[], Case]] = {}

    def __call__(self, make: Callable[[], Case]) -> Callable[[], Case]:
        """Registers a case under its name."""
        self.add(make.__name__, make)
        return make

    def add(self, name: str, make: Callable[[], Case]) -> None:
        assert name not in self.all, name
        self.all[name] = make

    def check(self, name: str, space: dict[str, Any]) -> None:
        """Runs a case; `space` is the module's globals, which a case may change."""
        before = dict(space)
        fn, args, change = self.all[name]()
        compiled = dynamo_lite.compile(fn, backend="eager")
        try:
            assert same(_outcome(compiled, args), _outcome(fn, args)), "first call"
            assert same(_outcome(compiled, args), _outcome(fn, args)), "second call"
            change()
            got, want = _outcome(compiled, args), _outcome(fn, args)
            assert same(got, want), f"stale: {got} instead of {want}"
        finally:
            getattr(change, "undo", lambda: None)()
            for added in set(space) - set(before):
                del space[added]
            space.update(before)


@dataclasses.dataclass
class Raised:
    cls: type


def _outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return fn(*args)
    except Exception as error:
        return Raised(type(error))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
            and a.requires_grad == b.requires_grad and a.is_conj() == b.is_conj() and torch.equal(a, b)
        )
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b
