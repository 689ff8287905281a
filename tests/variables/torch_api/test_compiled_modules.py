"""Compiled modules met in a trace: they do what their originals do, and are objects of their own."""
import pytest
import torch
from torch import nn

import dynamo_lite


class Holder:
    pass


MODULE = nn.Linear(2, 2)
COMPILED = dynamo_lite.compile(MODULE, backend="eager")
CHAIN = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
COMPILED_CHAIN = dynamo_lite.compile(CHAIN, backend="eager")


def told_apart(x, a, b):
    same = a is b, a == b, a != b, type(a) is type(b), a in [b]
    return x + 1, same, isinstance(a, nn.Linear), isinstance(a, nn.Module)


def named(x, a, b):
    return x + 1, type(a).__name__, a._orig_mod is b if hasattr(a, "_orig_mod") else None, a.__class__.__name__


def used(x, a, b):
    y = a(x) + a.forward(x)
    return y, a.weight is b.weight, a.training, [n for n, _ in a.named_parameters()], bool(a), callable(a)


def chained(x, a, b):
    y = COMPILED_CHAIN(x)
    return y, len(COMPILED_CHAIN), [m is n for m, n in zip(COMPILED_CHAIN, CHAIN)], COMPILED_CHAIN[0] is CHAIN[0], (
        CHAIN[1] in list(COMPILED_CHAIN), bool(COMPILED_CHAIN))


def written(x, a, b):
    a.extra = 3
    kept = a.extra + b.extra
    del a.extra
    return x * kept, hasattr(b, "extra")


def in_global(x, a, b):
    return x + 1, COMPILED is a, COMPILED is b, COMPILED.weight is b.weight


@pytest.mark.parametrize("pair", [(COMPILED, MODULE), (MODULE, COMPILED), (COMPILED, COMPILED), (MODULE, MODULE)])
@pytest.mark.parametrize("f", [told_apart, named, used, chained, written, in_global])
def test_as_in_plain_python(f, pair):
    dynamo_lite.reset()
    x = torch.ones(1, 2)
    want = f(x, *pair)
    graphs = dynamo_lite.explain(f)(x, *pair).graphs
    compiled = dynamo_lite.compile(f, backend="eager")
    for _ in range(2):
        got = compiled(x, *pair)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
    assert len(graphs) == 1


def test_what_is_stored_and_returned_is_the_object():
    def f(x, holder):
        holder.model = COMPILED
        holder.both = [COMPILED, MODULE]
        return x + 1, COMPILED, {"m": COMPILED}, lambda: COMPILED

    compiled, holder = dynamo_lite.compile(f, backend="eager", fullgraph=True), Holder()
    _, model, table, gives = compiled(torch.ones(1), holder)
    assert model is table["m"] is gives() is holder.model is holder.both[0] is COMPILED
    assert holder.both[1] is MODULE


def test_a_compiled_module_is_true_where_its_original_is():
    assert COMPILED and COMPILED_CHAIN and not dynamo_lite.compile(nn.Sequential())
