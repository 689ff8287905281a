"""Short ways to make guard programs and run them, for the tests of their interpreter."""

import torch

from dynamo_lite import _guards as G

G.init_torch(torch)


def program(*steps, inputs=0):
    registers = [s[1] for s in steps if s[0].startswith("load_")]
    return G.GuardProgram(steps, inputs, max(registers, default=-1) + 1)


def holds(*steps, args=(), closure=None, globals=None, builtins=None):
    return program(*steps).check(args, closure, globals or {}, builtins or {})[0]


def check(value, op, *operands):
    """Whether one check holds for a value."""
    return holds(("load_local", 0, 0), (op, 0, *operands), args=(value,))


def loaded(value, *step, **frame):
    """What one load from a value gives; KeyError when it does not hold."""
    p = program(("load_local", 0, 0), (step[0], 1, *step[1:]), ("collect", 1, 0), inputs=1)
    ok, result = p.check((value,), frame.get("closure"), frame.get("globals", {}), frame.get("builtins", {}))
    if not ok:
        assert result == 1
        raise KeyError(step)
    return result[0]


class Slotted:
    __slots__ = ("a", "b")


class Plain:
    @property
    def fails(self):
        raise ZeroDivisionError

    @property
    def lacks(self):
        raise AttributeError
