"""Operations that raise because of elements raise whether their result is used or not, on both backends: where the
program says, in reach of its handlers, with the effects before them."""
import traceback
import warnings

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import log
from dynamo_lite.runtime import raising

CASES = {
    "index": (lambda x, i: x[i], lambda: (torch.ones(3), torch.tensor([7]))),
    "one_hot": (lambda i: F.one_hot(i, 3), lambda: (torch.tensor([7]), )),
    "cholesky": (lambda x: torch.linalg.cholesky(x), lambda: (-torch.eye(3), )),
    "inv": (lambda x: torch.linalg.inv(x), lambda: (torch.zeros(3, 3), )),
    "inverse": (lambda x: x.inverse(), lambda: (torch.zeros(3, 3), )),
    "solve": (lambda x: torch.linalg.solve(x, x), lambda: (torch.zeros(3, 3), )),
    "svd": (lambda x: torch.linalg.svd(x), lambda: (torch.full((3, 3), float("nan")), )),
    "eigh": (lambda x: torch.linalg.eigh(x), lambda: (torch.full((3, 3), float("nan")), )),
    "floor_divide": (lambda a, b: a // b, lambda: (torch.tensor([1, 2]), torch.tensor([1, 0]))),
    "remainder": (lambda a, b: a % b, lambda: (torch.tensor([1, 2]), torch.tensor([1, 0]))),
    "fmod": (lambda a, b: torch.fmod(a, b), lambda: (torch.tensor([1, 2]), torch.tensor([1, 0]))),
    "div towards zero": (
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        lambda: (torch.tensor([1, 2]), torch.tensor([1, 0]))),
    "by the number zero": (lambda a: a // 0, lambda: (torch.tensor([1, 2]), )),
    "a number by zero": (lambda a:5 // a, lambda: (torch.tensor([1, 0]), )),
    "by a number that wraps to zero": (lambda a: a % 256, lambda: (torch.tensor([1, 5], dtype=torch.uint8), )),
    "multinomial": (lambda x: torch.multinomial(x, 2), lambda: (-torch.ones(3), )),
    "bincount": (lambda i: torch.bincount(i, minlength=3), lambda: (-torch.tensor([7]), )),
    "repeat_interleave": (
        lambda x, i: torch.repeat_interleave(x, i, output_size=7),
        lambda: (torch.ones(3), torch.tensor([-1, 3, 5]))),
    "assert_async": (lambda x: torch._assert_async(x.sum()>100), lambda: (torch.ones(3), )),
    "embedding": (lambda i, w: F.embedding(i, w), lambda: (torch.tensor([7]), torch.ones(3, 2))),
    "embedding_bag": (lambda i, w: F.embedding_bag(i[None], w), lambda: (torch.tensor([7]), torch.ones(3, 2))),
    "gather": (lambda x, i: x.gather(0, i), lambda: (torch.ones(3), torch.tensor([7]))),
    "scatter": (lambda x, i: x.scatter(0, i, 1.), lambda: (torch.ones(3), torch.tensor([7]))),
    "scatter_add": (lambda x, i: x.scatter_add(0, i, x), lambda: (torch.ones(3), torch.tensor([7]))),
    "nll_loss": (lambda x, i: F.nll_loss(x, i), lambda: (torch.ones(1, 3), torch.tensor([7]))),
    "cross_entropy": (lambda x, i: F.cross_entropy(x, i), lambda: (torch.ones(1, 3), torch.tensor([7]))),
    "index_select": (lambda x, i: x.index_select(0, i), lambda: (torch.ones(3), torch.tensor([7]))),
    "index_add": (lambda x, i: x.index_add(0, i, torch.ones(1)), lambda: (torch.ones(3), torch.tensor([7]))),
    "index_copy": (lambda x, i: x.index_copy(0, i, torch.ones(1)), lambda: (torch.ones(3), torch.tensor([7]))),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2.), lambda: (torch.ones(3), torch.tensor([7]))),
    "index_put": (lambda x, i: x.index_put((i, ), torch.ones(1)), lambda: (torch.ones(3), torch.tensor([7]))),
    "take": (lambda x, i: x.take(i), lambda: (torch.ones(3), torch.tensor([7]))),
    "put": (lambda x, i: x.put(i, torch.ones(1)), lambda: (torch.ones(3), torch.tensor([7]))),
    "binary_cross_entropy": (lambda x: F.binary_cross_entropy(x, x), lambda: (torch.ones(3)*2, )),
    "bernoulli": (lambda x: torch.bernoulli(x), lambda: (torch.ones(3)*2, )),
    "normal": (lambda x: torch.normal(x, -x), lambda: (torch.ones(3), )),
    "poisson": (lambda x: torch.poisson(x), lambda: (-torch.ones(3), )),
    "masked_scatter": (
        lambda x, m: x.masked_scatter(m, torch.ones(1)),
        lambda: (torch.ones(3), torch.ones(3, dtype=torch.bool))),
    "setitem": (lambda x, i: x.clone().__setitem__(i, 1.), lambda: (torch.ones(3), torch.tensor([7]))),
    "max_unpool1d": (lambda x, i: F.max_unpool1d(x, i, 2), lambda: (torch.ones(1, 1, 2), torch.tensor([[[0, 99]]]))),
    "multi_margin_loss": (lambda x, i: F.multi_margin_loss(x, i), lambda: (torch.ones(1, 3), torch.tensor([7]))),
    "zeros like it": (lambda x, i: torch.zeros_like(x[i]), lambda: (torch.ones(3), torch.tensor([7]))),
    "times zero": (lambda x, i: x[i].long()*0, lambda: (torch.ones(3), torch.tensor([7]))),
    "a slice of it": (lambda x, i: x[i][:1], lambda: (torch.ones(3), torch.tensor([1, 7]))),
    "its shape": (lambda x, i: x[i].shape[0], lambda: (torch.ones(3), torch.tensor([7]))),
    "computed of a slice": (lambda x, i: x[i][:1]+1, lambda: (torch.ones(3), torch.tensor([1, 7]))),
    "flipped": (lambda x, i: x[i].flip(0).view(1, 2)+1, lambda: (torch.ones(3), torch.tensor([1, 7]))),
    "a row of an embedding": (lambda w, i: F.embedding(i, w)[0]*2, lambda: (torch.ones(3, 2), torch.tensor([1, 7]))),
    "a part of a gather": (lambda x, i: x.gather(0, i)[:1]*2, lambda: (torch.ones(3), torch.tensor([1, 7]))),
    "a part of the losses": (
        lambda x, i: F.nll_loss(x, i, reduction="none")[:1]*2,
        lambda: (torch.ones(2, 3), torch.tensor([1, 7]))),
    "a part of one_hot": (lambda i: F.one_hot(i, 3)[:1]*2, lambda: (torch.tensor([1, 7]), )),
    "a part of a scatter": (lambda x, i: x.scatter(0, i, 1.)[:1]*2, lambda: (torch.ones(3), torch.tensor([1, 7]))),
    "padded": (lambda x, i: F.pad(x[i], (-1, 1)), lambda: (torch.ones(3), torch.tensor([7, 1]))),
    "a column": (lambda x, i: x[i, 0], lambda: (torch.ones(3, 2), torch.tensor([7]))),
    "chosen from equals": (lambda x, i: torch.where(x[i]>0, 1., 1.), lambda: (torch.ones(3), torch.tensor([7]))),
    "searchsorted": (
        lambda x, i: torch.searchsorted(x, x, sorter=torch.tensor([0, 1, 9])),
        lambda: (torch.ones(3), torch.tensor([7]))),
    "of one element": (lambda x, i: x[i], lambda: (torch.ones(1), torch.tensor([7]))),
    "two that raise": (lambda x, i: (torch.linalg.cholesky(x), x[i]), lambda: (-torch.eye(3), torch.tensor([7]))),
    "two that raise, the other way": (
        lambda x, i: (x[i], torch.linalg.cholesky(x)),
        lambda: (-torch.eye(3), torch.tensor([7]))),
    "in a checkpoint": (
        lambda x, i: torch.utils.checkpoint.checkpoint(lambda x: x[i], x, use_reentrant=False),
        lambda: (torch.ones(3, requires_grad=True), torch.tensor([7]))),
    "in vmap": (lambda x, i: torch.vmap(lambda j: x[j])(i), lambda: (torch.ones(3), torch.tensor([7]))),
    "histc": (lambda x: torch.histc(x, 3), lambda: (torch.tensor([float("nan"), 1.]), )),
    "a number of a tensor": (lambda x, i: 1/(i-7).sum().item(), lambda: (torch.ones(3), torch.tensor([7]))),
}


def unused(log, operation, *tensors):
    log.append("before")
    operation(*tensors)
    log.append("after")
    return tensors[0] + 1


def caught(log, operation, *tensors):
    try:
        operation(*tensors)
    except Exception as error:
        log.append(type(error))
    return tensors[0] + 1


def used(log, operation, *tensors):
    log.append("before")
    return operation(*tensors)


def outcome(function, operation, tensors):
    log = []
    try:
        function(log, operation, *tensors)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        return type(error), str(error), [f.lineno for f in frames if f.filename == __file__][1:], log
    return log


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", CASES)
def test_what_raises_raises(name, backend):
    operation, make = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for grad in (False, True):
            def tensors(grad=grad):
                return [t.requires_grad_() if grad and t.is_floating_point() else t for t in make()]

            for function in (unused, caught, used):
                want = outcome(function, operation, tensors())
                assert "after" not in want, "eager raises"
                assert outcome(dynamo_lite.compile(function, backend=backend), operation, tensors()) == want


def test_what_cannot_raise_is_dropped():
    graphs = []

    def keep(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    def f(x, i):
        x.exp() @ x
        i // 2
        i % 3
        torch.cat([x, x]).sum()
        F.interpolate(x[None, None], scale_factor=2.0, mode="bilinear")
        return x + 1

    dynamo_lite.compile(f, backend=keep)(torch.ones(3, 3), torch.ones(3, dtype=torch.long))
    assert sum(node.op.startswith("call_") for node in graphs[0].graph.nodes) == 1


def test_the_rule():
    aten, whole, real = torch.ops.aten, torch.ones(2, dtype=torch.uint8), torch.ones(2)
    may = raising.may_raise
    assert may(aten.remainder.Tensor, (whole, whole), {}) and not may(aten.remainder.Tensor, (real, whole), {})
    assert may(aten.remainder.Scalar, (whole, 256), {}) and not may(aten.remainder.Scalar, (whole, 255), {})
    assert not may(aten.div.Tensor_mode, (whole, 2.5), {"rounding_mode": "floor"})
    assert may(aten.index_put_.default, (), {}) and may(aten._linalg_check_errors.default, (), {})
    assert not may(aten.add.Tensor, (whole, whole), {}) and not may(aten.addmm.default, (), {})


def test_indices_that_a_loop_looks_at_are_not_looked_at_again(caplog, monkeypatch):
    monkeypatch.setattr(dynamo_lite.config, "cache_graphs", False)
    def f(w, i, x):
        return F.layer_norm(F.embedding(i, w) + x, (4,)), w[i].sum(), w.gather(0, i[:, None].expand(4, 4)).t() * 2

    compiled = dynamo_lite.compile(f)
    args = torch.ones(9, 4), torch.tensor([1, 2, 3, 8]), torch.ones(4, 4)
    log.set_logs("ir")
    try:
        for got, want in zip(compiled(*args), f(*args)):
            assert torch.allclose(got, want)
    finally:
        log.set_logs()
    assert "bounded" in caplog.text and "index check" not in caplog.text


@pytest.mark.parametrize("name", ["floor_divide.default", "remainder.Tensor", "fmod.Tensor", "div.Tensor_mode"])
def test_divisions_called_by_their_overloads(name):
    packet, overload = name.split(".")
    divide = getattr(getattr(torch.ops.aten, packet), overload)
    more = {"rounding_mode": "floor"} if packet == "div" else {}
    for x, y in ((torch.tensor([7.5, -3.0]), torch.tensor([2.0, 4.0])), (torch.tensor([7, -3]), torch.tensor([2, 4]))):
        compiled = dynamo_lite.compile(lambda x, y: divide(x, y, **more), fullgraph=True)
        assert torch.equal(compiled(x, y), divide(x, y, **more))
