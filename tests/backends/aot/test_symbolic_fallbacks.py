"""What becomes of gradients with symbolic sizes that can't be recorded with symbols."""
import torch

import dynamo_lite
from dynamo_lite.backends.inductor import training
from dynamo_lite.symbols.environment import Frozen


def function(x, w):
    h = x @ w
    return h[1:], h.exp().mean(0)


def gradients(run, n):
    torch.manual_seed(n)
    x, w = torch.randn(n, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    results = run(x, w)
    return (*results, *torch.autograd.grad(results[1].sum(), (x, w)))


def check(sizes):
    compiled = dynamo_lite.compile(function, dynamic=True)
    for n in sizes:
        for a, b in zip(gradients(function, n), gradients(compiled, n), strict=True):
            torch.testing.assert_close(b, a)
            assert b.stride() == a.stride()


def test_sizes_are_fixed_where_autograd_has_no_rule_for_symbols(monkeypatch, caplog):
    record = training.record_joint

    def refused(gm, examples, *rest):
        if any(value._has_symbolic_sizes_strides for value in examples):
            raise RuntimeError("no rule for symbols")
        return record(gm, examples, *rest)

    monkeypatch.setattr(training, "record_joint", refused)
    caplog.set_level("INFO", "dynamo_lite.fallbacks")
    check((5, 7, 5))
    assert "the sizes of a graph are fixed" in caplog.text and "in eager" not in caplog.text


def test_what_would_need_a_later_guard_is_computed_in_eager(monkeypatch, caplog):
    record = training.record_joint

    def frozen(gm, examples, decompositions, given=None):
        if given is not None:
            raise Frozen("s0 == 5")
        return record(gm, examples, decompositions)

    monkeypatch.setattr(training, "record_joint", frozen)
    caplog.set_level("INFO", "dynamo_lite.fallbacks")
    check((5, 7))
    assert "gradients of some results are computed in eager: they hang on s0 == 5" in caplog.text
