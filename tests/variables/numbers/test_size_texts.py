"""Texts made of sizes: one graph for all sizes while nobody reads them, Python's text where they leave or are read."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

import dynamo_lite


@dataclasses.dataclass
class Rows:
    number: int


UNREAD: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "f-string": lambda x, n: f"{n:>5}|{n!r:5}|{x.shape}|{list(x.shape)}|{tuple(x.shape)}|{ {1: n} }|{x.shape[:1]}|",
    "percent": lambda x, n: "%d and %s, %5.1f %r %x %% %s" % (n, x.shape, n, n, n, (n,)),
    "format": lambda x, n: "{0} {1:5d} {a!r} {0:x}".format(n, n + 1, a=x.shape),
    "format in turn": lambda x, n: "{} {:>8}".format(n, x.dtype.itemsize),
    "join": lambda x, n: " x ".join(str(s) for s in x.shape) + "!",
    "map": lambda x, n: "x".join(map(str, x.shape)),
    "floats": lambda x, n: f"{n / 3:.2f} {n / 3}" + "%.2f %s %d" % (n / 3, n / 3, n),
    "repr": lambda x, n: str(n) + repr(f"n{n}") + f"{str(n)!a}",
    "text of texts": lambda x, n: f"{f'{n}':>10}|{(f'{n}',)}|{[f'{n}']}|{n:>{x.shape[1]}}",
    "added": lambda x, n: ("rows: " + f"{n}" + " of" + str(x.shape), f"n{n}" + f"{n}", bool(f"n{n}")),
    "a dataclass": lambda x, n: f"{Rows(n)}",
    "its type": lambda x, n: (isinstance(f"{n}", str), type(str(n)) is str, f"{n}" is None),
    "a message": lambda x, n: x + 1 if x.shape[1] == 4 else torch._assert(False, f"{n}"),
    "an assert's": lambda x, n: torch._assert(x.shape[1] == 4, f"{n}*{x.shape[1]} doesn't match"),
    "kept": lambda x, n: {"name": f"n{n}", "all": [f"{n}", (f"{n}",)]},
    "of an exception": lambda x, n: ValueError(f"{n} rows").args,
}
READ: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "length": lambda x, n: len(f"{n}"),
    "equal": lambda x, n: (f"{n}" == "6", "6" == f"{n}", f"{n}" == f"{n}", f"{n}" < "6", f"{n}" in ("6", "5")),
    "itself": lambda x, n: (lambda s: (s is s, s == s, s * 2, [s, s]))(f"{n}"),
    "a key": lambda x, n: {f"a{n}": 1}[f"a{n}"],
    "methods": lambda x, n: (f"{n}".isdigit(), f"{n}".zfill(5), f"{n}".encode(), int(f"{n}"), [*f"{n}"], f"{n}"[0]),
    "a character": lambda x, n: ("%c" % (n + 60), f"{n + 60:c}"),
    "hash": lambda x, n: hash(f"{n}") == hash("6"),
    "truth": lambda x, n: (f"{n}" or "x", not f"{n}", "" == f"{n}", max(f"{n}", "5")),
    "a template": lambda x, n: f"{n}%d" % n,
    "a width": lambda x, n: "%*d" % (n, n) + "{:>{}}".format(n, n),
    "named": lambda x, n: "%(a)d" % {"a": n} + "{0.real}".format(n),
    "bytes": lambda x, n: b"%d" % n,
}


def _compare(idiom: Callable[[torch.Tensor, Any], Any], dynamic: bool | None = True) -> dict[str, int]:
    def f(x: torch.Tensor) -> Any:
        return x * 2, idiom(x, x.shape[0])

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=dynamic)
    for n in (6, 5, 11, 123, 7):
        x = torch.randn(n, 4)
        (first, got), (_, want) = compiled(x), f(x)
        assert torch.equal(first, x * 2)
        assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want
    return dict(dynamo_lite.metrics())


@pytest.mark.parametrize("name", UNREAD)
def test_unread_texts_are_one_graph(name: str) -> None:
    metrics = _compare(UNREAD[name])
    assert metrics["graphs"] == 1 and "recompiles" not in metrics and "graph_breaks" not in metrics
    dynamo_lite.reset()
    assert _compare(UNREAD[name], None)["graphs"] == 2


@pytest.mark.parametrize("name", READ)
def test_read_texts_are_those_of_the_call(name: str) -> None:
    assert "graph_breaks" not in _compare(READ[name])


TWO, ONE_LEFT, TWO_LEFT = "{} {}", "%s", "%d %d"
ERRORS: dict[str, Callable[[Any], Any]] = {
    "specification": lambda n: f"{n:zz}", "count": lambda n: TWO_LEFT % (n,), "kind": lambda n: "%d" % f"{n}",
    "left over": lambda n: ONE_LEFT % (n, n), "sum": lambda n: f"{n}" + 1, "join": lambda n: "-".join([str(n), 3]),
    "field": lambda n: TWO.format(n), "infinite": lambda n: "%d" % (n * 1e308 * 10 / 2),
    "text": lambda n: f"{str(n):d}",
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_pythons(name: str) -> None:
    idiom = ERRORS[name]

    def f(x: torch.Tensor) -> Any:
        try:
            return x * 2, idiom(x.shape[0])
        except (TypeError, ValueError, OverflowError, IndexError) as error:
            return x * 3, type(error), str(error)

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (6, 5, 11):
        x = torch.randn(n, 4)
        got, want = compiled(x), f(x)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]


def test_the_texts_of_changing_floats_are_those_of_the_call() -> None:
    def f(x: torch.Tensor, rate: float) -> Any:
        return x * rate, f"{rate}", f"{rate:.3f}", "%s %e" % (rate, rate)

    compiled = dynamo_lite.compile(f, backend="eager")
    x = torch.ones(3)
    for rate in (0.5, 0.25, 0.125, float("inf"), float("nan"), -0.0):
        got, want = compiled(x, rate), f(x, rate)
        assert torch.equal(got[0], want[0]) or rate != rate
        assert got[1:] == want[1:]
    assert dynamo_lite.metrics()["graphs"] == 2


def test_a_text_kept_from_one_call_to_the_next_is_of_its_call() -> None:
    class Holder:
        name = ""

    holder = Holder()

    def f(x: torch.Tensor) -> Any:
        before = holder.name
        holder.name = f"n{x.shape[0]}"
        return x + 1, before

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    assert [compiled(torch.ones(n))[1] for n in (3, 4, 5, 5)] == ["", "n3", "n4", "n5"] and holder.name == "n5"
