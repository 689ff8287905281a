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
