"""Objects whose class looks attributes up itself: capturing a function reads none that the program does not read."""
from __future__ import annotations

import torch

import dynamo_lite


class Logged:
    def __init__(self):
        object.__setattr__(self, "log", [])
        object.__setattr__(self, "scale", 3.0)

    def __getattribute__(self, name):
        if name != "log":
            object.__getattribute__(self, "log").append(name)
        return object.__getattribute__(self, name)

    def __setattr__(self, name, value):
        object.__getattribute__(self, "log").append(f"{name}=")
        object.__setattr__(self, name, value)


class LoggedDict(dict):
    reads: list = []

    def __getattribute__(self, name):
        LoggedDict.reads.append(name)
        return super().__getattribute__(name)


def test_reads_are_the_programs_own():
    def program(x, o):
        y = x * o.scale
        o.count = 2
        return y + o.count

    compiled = dynamo_lite.compile(program, backend="eager", fullgraph=True)
    want, got = Logged(), Logged()
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2), got), program(torch.ones(2), want))
        assert got.log == want.log


def test_a_dict_that_is_passed_through_is_not_asked():
    def program(x, d):
        y = x + 1
        print(end="")
        return y * d["k"], d

    compiled = dynamo_lite.compile(program, backend="eager")
    d = LoggedDict(k=2.0)
    compiled(torch.ones(2), d)
    LoggedDict.reads.clear()
    for _ in range(2):
        y, same = compiled(torch.ones(2), d)
        assert y.tolist() == [4.0, 4.0] and same is d
    assert LoggedDict.reads == []


def test_a_key_that_is_no_text_is_not_compared_while_capturing():
    class Key:
        asked = 0

        def __hash__(self):
            return hash("scale")

        def __eq__(self, other):
            Key.asked += 1
            return False

    class Plain:
        scale = 2.0

    def program(x, o):
        return x * o.scale

    report = dynamo_lite.explain(program)
    o = Plain()
    o.__dict__[Key()] = 0
    before = Key.asked
    program(torch.ones(2), o)
    in_eager = Key.asked - before
    before = Key.asked
    found = report(torch.ones(2), o)
    assert found.result.tolist() == [2.0, 2.0] and found.break_reasons[0].kind == "unsupported_value"
    assert Key.asked - before == in_eager


def test_methods_in_c_are_equal_each_time_that_they_are_read():
    def program(x):
        same = int.__init_subclass__ == int.__init_subclass__, dict.fromkeys == dict.fromkeys
        other = int.__init_subclass__ == str.__init_subclass__, int.__init_subclass__ is int.__init_subclass__
        return x + 1, same, other, [].append == [].append, len == len, len != abs

    compiled = dynamo_lite.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(2))[1:] == program(torch.ones(2))[1:]


class ShownDict(type):
    @property
    def __dict__(cls):
        return {"a": 1}


class Shown(metaclass=ShownDict):
    b = 3


def test_a_metaclass_that_shows_another_dict():
    def program(x):
        return x * Shown.b, Shown.__dict__, vars(Shown), getattr(Shown, "a", 5), Shown().__dict__, Shown().b

    dynamo_lite.reset()
    compiled = dynamo_lite.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(2))[1:] == program(torch.ones(2))[1:] == ({"a": 1}, {"a": 1}, 5, {}, 3)
