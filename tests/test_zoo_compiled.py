"""Every program of the zoo through the real compiler: not interrupted, at each instruction in turn, at all of them.

What a caller can see is as in plain Python: the result, what is printed, the arguments afterwards, exceptions with
their lines, cause and context. By default a sample of the places is tried; `DYNAMO_LITE_TESTS=all` tries every one.
"""
from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest
import thorough
import torch

sys.path.insert(0, os.path.dirname(__file__))

from native_breaks import break_points, outcome
from zoo import CASES, cases

import dynamo_lite
from dynamo_lite._eval_frame import CompiledFunction
from dynamo_lite.bytecode.instructions import decode
from dynamo_lite.frame.eval_frame import make_hook
from dynamo_lite.frame.request import Settings

pytestmark = [pytest.mark.timeout(3600)] if thorough.ALL else []


@pytest.fixture(autouse=True)
def _dispatch_keys_stay() -> Iterator[None]:
    """Frames of torch hold guard objects that set these until they end; held by a compile, they would end too late."""
    before = str(torch._C._dispatch_tls_local_exclude_set())
    yield
    assert str(torch._C._dispatch_tls_local_exclude_set()) == before


def lift(value: Any) -> Any:
    return torch.tensor([value])


LIFTS: dict[str, Callable[[Any], Any]] = {"numbers": lambda value: value, "tensors": lift}
BY_NAME: dict[str, FunctionType] = {fn.__qualname__: fn for fn, _ in CASES}  # type: ignore[misc]
every_program = pytest.mark.parametrize("name", BY_NAME)
both = pytest.mark.parametrize("values", LIFTS)
# Each program with one of the two, by turns.
PAIRS = [(name, values) for turn, name in enumerate(BY_NAME) for values in thorough.share(list(LIFTS), turn)]


def arguments(name: str, values: str) -> list[tuple[Any, ...]]:
    return [args for fn, args in cases(LIFTS[values]) if fn.__qualname__ == name]


def compiled(fn: FunctionType, break_at: Callable[[CodeType, int], bool] | None = None) -> CompiledFunction:
    dynamo_lite.reset()
    return CompiledFunction(fn, make_hook(Settings(lambda graph, inputs: graph.forward, break_at=break_at)))


def places(fn: FunctionType) -> list[int]:
    points = break_points(fn.__code__)
    if thorough.ALL:
        return points
    step = max(1, len(points) // 4)
    return points[zlib.crc32(fn.__qualname__.encode()) % step :: step]


def same(call: Callable[..., Any], expected: Any, args: tuple[Any, ...], where: Any = "") -> None:
    # Twice: what is compiled, and what is found again.
    for turn in ("compiled", "found again"):
        got = outcome(call, args)
        assert got == expected, f"{turn} {where}"


@both
@every_program
def test_as_it_is(name: str, values: str) -> None:
    fn = BY_NAME[name]
    call = compiled(fn)
    for args in arguments(name, values):
        same(call, outcome(fn, args), args)


@pytest.mark.parametrize("name, values", thorough.share(PAIRS, 0, 3))
def test_a_break_before_each_instruction(name: str, values: str) -> None:
    fn = BY_NAME[name]
    all_arguments = arguments(name, values)
    expected = [outcome(fn, args) for args in all_arguments]
    for index in places(fn):
        call = compiled(fn, lambda code, i: code is fn.__code__ and i == index)
        for args, wanted in zip(all_arguments, expected):
            same(call, wanted, args, decode(fn.__code__).instructions[index])


@pytest.mark.parametrize("name, values", [pair for pair in PAIRS if pair[0] != "wide"])
def test_one_instruction_at_a_time(name: str, values: str) -> None:
    fn = BY_NAME[name]
    call = compiled(fn, lambda code, i: code is fn.__code__)
    for args in arguments(name, values) if thorough.ALL else arguments(name, values)[:2]:
        same(call, outcome(fn, args), args)
