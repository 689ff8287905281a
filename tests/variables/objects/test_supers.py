"""super objects that live across a break."""
import torch

import dynamo_lite


class _Base:
    def __init__(self, factor):
        self.factor = factor

    def run(self, x):
        return x * self.factor


class _Derived(_Base):
    def __init__(self, factor):
        parent = super()
        dynamo_lite.graph_break()
        parent.__init__(factor)
        self.same = parent.__thisclass__ is _Derived

    def run(self, x):
        parent = super()
        x = x + 1
        dynamo_lite.graph_break()
        return parent.run(x) - 1


def test_a_super_object_across_a_break():
    def fn(x):
        made = _Derived(3)
        return made.run(x), made.same

    compiled, x = dynamo_lite.compile(fn, backend="eager"), torch.ones(3)
    for _ in range(2):
        got, want = compiled(x), fn(x)
        assert torch.equal(got[0], want[0]) and got[1] is want[1]
