"""Subclasses of numbers and texts, whose value is guarded and not the object; classes with keys that are no strings."""
from __future__ import annotations

import gc
import math

import pytest
import torch

import dynamo_lite


class Seconds(float):
    pass


class Name(str):
    pass


class Count(int):
    pass


class Raw(bytes):
    pass


class Ended(str):
    def __del__(self):
        LOG.append(str(self))


class Module(torch.nn.Module):
    def forward(self, x):
        return x * 2

    def __del__(self):
        LOG.append("module")


LOG: list[str] = []


def uses(x, value):
    size = len(value) if isinstance(value, (str, bytes)) else value
    return x * size, value, type(value) is type(value)


@pytest.mark.parametrize("make", [
    lambda: Seconds(2.5), lambda: Seconds("nan"), lambda: Count(3), lambda: Name("ab"), lambda: Raw(b"abc")])
def test_equal_values_are_one_entry(make):
    compiled = dynamo_lite.compile(uses, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for _ in range(4):
        value = make()
        got, want = compiled(x, value), uses(x, value)
        torch.testing.assert_close(got[0], want[0], equal_nan=True)
        assert got[1] is value
    assert dynamo_lite.metrics()["graphs"] == 1


def test_other_values_are_seen():
    compiled = dynamo_lite.compile(uses, backend="eager")
    x = torch.ones(2)
    for value in (Seconds(1.0), Seconds(-0.0), Seconds(0.0), Count(1), Count(True), Name("a"), Name("abc"), 1.0, "abc"):
        got = compiled(x, value)[0]
        want = uses(x, value)[0]
        assert got.tolist() == want.tolist() and math.copysign(1, got[0]) == math.copysign(1, want[0])


def lets_go(box, x):
    text = box.pop("text")
    LOG.append("held")
    size = len(text)
    text = None
    LOG.append("let go")
    y = box["module"](x)
    box["module"] = None
    LOG.append("after")
    return y + size + len(LOG)


def test_finalizers_of_texts_and_modules_run_where_they_are_let_go():
    compiled = dynamo_lite.compile(lets_go, backend="eager")
    for function in (lets_go, compiled, compiled, compiled):
        LOG.clear()
        result = function({"text": Ended("text"), "module": Module()}, torch.ones(2))
        gc.collect()
        assert LOG == ["held", "text", "let go", "module", "after"]
        assert result.tolist() == [11.0, 11.0]


def test_guards_do_not_keep_a_text_alive():
    compiled = dynamo_lite.compile(lambda x, s: x + len(s), backend="eager")
    LOG.clear()
    compiled(torch.ones(2), Ended("ab"))
    gc.collect()
    assert LOG == ["ab"]


def make_class():
    class Key:
        def __hash__(self):
            return hash("first")

        def __eq__(self, other):
            Owner.__bases__ = (After,)
            return False

    class Before:
        first = second = "before"

    class After:
        first = second = "after"

    Owner = type("Owner", (Before,), {Key(): 5})
    return Owner


@pytest.mark.filterwarnings("ignore")
def test_lookups_in_a_class_whose_keys_run_code_are_left_to_python():
    def reads(x, cls):
        # By getattr(): an instruction that is being specialized looks the name up once more.
        return (x + 1, *(getattr(cls, name) for name in ("first", "second")))

    compiled = dynamo_lite.compile(reads, backend="eager")
    x = torch.ones(2)
    for _ in range(2):
        assert compiled(x, make_class())[1:] == reads(x, make_class())[1:] == ("before", "after")
