"""Small programs of one construct each, run compiled and compared with eager.

A program is a function of a tensor. By default it has to be captured as one graph, give eager's result twice, and be
found again at the second call. A program that is marked with :meth:`Programs.breaks` may break; its result has to be
right all the same.
"""
from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

import dynamo_lite
from dynamo_lite import config
from dynamo_lite._eval_frame import CompiledFunction
from dynamo_lite.break_kinds import BREAK_KINDS
from dynamo_lite.frame.eval_frame import make_hook
from dynamo_lite.frame.request import Settings

X = torch.arange(6.0).reshape(2, 3)
Program = Callable[[torch.Tensor], Any]


@dataclasses.dataclass
class Raised:
    """How an exception left a program."""

    cls: type
    text: str


class Programs:
    """The programs of one test module."""

    def __init__(self) -> None:
        self.all: dict[str, tuple[Program, str | None]] = {}

    def __call__(self, program: Program) -> Program:
        """Registers a program that is one graph."""
        return self._add(program, None)

    def breaks(self, kind: str) -> Callable[[Program], Program]:
        """Registers a program that breaks, for a reason of this kind; in words: one that is traced again for other
        values."""
        return lambda program: self._add(program, kind)

    def _add(self, program: Program, kind: str | None) -> Program:
        assert program.__name__ not in self.all, program.__name__
        self.all[program.__name__] = (program, kind)
        return program

    def names(self) -> list[str]:
        return list(self.all)

    def check(self, name: str) -> None:
        """Runs a program both ways."""
        program, kind = self.all[name]
        compiled = dynamo_lite.compile(program, backend="eager", fullgraph=kind is None)
        for attempt in ("first", "second"):
            want = outcome(program)
            with config.patch(error_on_recompile=attempt == "second" and kind is None):
                got = outcome(compiled)
            assert same(got, want), f"{attempt} call: {got} instead of {want}"
        if kind in BREAK_KINDS and not isinstance(want, Raised):
            kinds = {reason.kind for reason in dynamo_lite.explain(program)(X.clone()).break_reasons}
            assert kind in kinds, f"it breaks because of {kinds}"


def outcome(program: Program) -> Any:
    """The program's result, or how it raised."""
    torch.manual_seed(0)
    try:
        return program(X.clone())
    except dynamo_lite.exc.DynamoLiteError:
        raise
    except Exception as error:
        return Raised(type(error), str(error))


def same(a: Any, b: Any) -> bool:
    """Equality of results: types, values, order, layouts."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return (
            a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
            and a.requires_grad == b.requires_grad
            and torch.allclose(a.resolve_conj(), b.resolve_conj(), rtol=0, atol=0, equal_nan=True)
        )
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return all(map(same, a, b)) and len(a) == len(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, float) and a != a:
        return b != b
    if isinstance(a, types.SimpleNamespace) or (not isinstance(a, type) and type(a).__eq__ is object.__eq__):
        if isinstance(a, Iterator) and isinstance(a, Iterable):
            return same(list(a), list(b))
        if callable(a):
            return True
        return same(getattr(a, "__dict__", {}), getattr(b, "__dict__", {}))
    return bool(a == b)


def broken_everywhere(program: Any) -> Any:
    """The program compiled with a break before each instruction of its module's code."""
    place = program.__code__.co_filename
    return _broken(program, lambda code, index: code.co_filename == place)


def broken_at(program: Any, place: int) -> Any:
    """The program compiled with a break before the instruction of this index, in addition to its own."""
    return _broken(program, lambda code, index: code is program.__code__ and index == place)


def _broken(program: Any, break_at: Callable[[types.CodeType, int], bool]) -> Any:
    return CompiledFunction(program, make_hook(Settings(lambda graph, inputs: graph.forward, break_at=break_at)))
