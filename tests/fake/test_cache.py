"""Results of operations on fake tensors that are remembered: the same as those that are worked out anew."""
import itertools

import pytest
import torch

from dynamo_lite.fake import cache
from dynamo_lite.fake.mode import TraceFakeMode

ATEN = torch.ops.aten


@pytest.fixture(autouse=True)
def nothing_remembered():
    cache.forget()
    yield
    cache.forget()


def forms():
    """Tensors of one shape that lie differently in memory, and others."""
    x = torch.randn(2, 4, 3, 4)
    return [
        x, x.to(memory_format=torch.channels_last), x.transpose(1, 3), x[:, :, :, :1].expand_as(x), x.double(),
        x.long(), x.bool(), x.to(torch.complex64), x[:1], torch.tensor(2.0), torch.tensor(3),
        torch.as_strided(torch.randn(200), (2, 4, 3, 4), (96, 12, 4, 1), 5),
    ]


def told(result):
    if isinstance(result, tuple):
        return [told(r) for r in result]
    return (tuple(result.shape), result.stride(), result.dtype, result.device, result.storage_offset(),
            result.is_inference(), result.untyped_storage().nbytes())


BINARY = [ATEN.add.Tensor, ATEN.mul.Tensor, ATEN.div.Tensor, ATEN.pow.Tensor_Tensor, ATEN.eq.Tensor,
          ATEN.maximum.default]
UNARY = [
    ATEN.relu.default, ATEN.exp.default, ATEN.gelu.default, ATEN.clone.default,
    lambda x: ATEN.clone.default(x, memory_format=torch.contiguous_format), lambda x: ATEN.add.Tensor(x, 1),
    lambda x: ATEN.add.Tensor(x, 1.0), lambda x: ATEN.add.Tensor(x, True), lambda x: ATEN.pow.Tensor_Scalar(x, 2),
    lambda x: ATEN._to_copy.default(x, dtype=torch.float16), lambda x: ATEN._softmax.default(x, -1, False),
    lambda x: ATEN.sum.dim_IntList(x, [-1]), lambda x: ATEN.sum.dim_IntList(x, [-1], True),
    lambda x: ATEN.cat.default([x, x], -1), lambda x: ATEN.sum.default(x),
    lambda x: ATEN.mean.dim(x, [0], False, dtype=torch.float64), lambda x: ATEN.where.self(x > 0, x, x),
]


def calls():
    for op, a, b in itertools.product(BINARY, forms(), forms()):
        yield lambda to, op=op, a=a, b=b: op(to(a), to(b))
    for op, a in itertools.product(UNARY, forms()):
        yield lambda to, op=op, a=a: op(to(a))


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_remembered_is_worked_out(context, monkeypatch):
    def run(call, mode):
        try:
            with mode:
                return told(call(mode.from_tensor))
        except (RuntimeError, NotImplementedError, IndexError) as error:
            return type(error)

    with context():
        remembered = [[run(call, TraceFakeMode()) for call in calls()] for _ in range(2)]
        entries = len(cache._entries)
        monkeypatch.setattr(cache, "key_of", lambda *_: None)
        fresh = [run(call, TraceFakeMode()) for call in calls()]
    assert remembered[0] == remembered[1] == fresh and entries > 300


def test_the_default_type_is_part_of_a_key():
    def dtype():
        mode = TraceFakeMode()
        x = mode.from_tensor(torch.arange(3))
        with mode:
            return [(x / 2).dtype for _ in range(2)]

    assert dtype() == [torch.float32] * 2
    torch.set_default_dtype(torch.float64)
    try:
        assert dtype() == [torch.float64] * 2
    finally:
        torch.set_default_dtype(torch.float32)


def test_numbers_are_told_by_their_types():
    mode = TraceFakeMode()
    x = mode.from_tensor(torch.arange(3))
    with mode:
        for _ in range(2):
            assert [(x + n).dtype for n in (1, 1.0, True, 1 + 0j)] == [
                torch.int64, torch.float32, torch.int64, torch.complex64]


def test_what_is_not_remembered():
    for op in (ATEN.view.default, ATEN.add_.Tensor, ATEN.add.out, ATEN.nonzero.default, ATEN.rand.default,
               ATEN.bernoulli.default, ATEN.dropout.default, ATEN.convolution.default, ATEN.detach.default):
        assert not cache.is_remembered(op)
    assert cache.is_remembered(ATEN.add.Tensor)


def test_constants_keep_their_values():
    mode = TraceFakeMode()
    with mode:
        for _ in range(2):
            made = torch.tensor(3) + 1
            assert made.item() == 4


def test_results_have_memory_of_their_own():
    mode = TraceFakeMode()
    x = mode.from_tensor(torch.randn(3))
    with mode:
        a, b = x + 1, x + 1
        a.add_(1)
    assert a._version == 1 and b._version == 0 and x._version == 0
    assert a.untyped_storage()._cdata != b.untyped_storage()._cdata


VIEWS = [
    lambda x: ATEN.t.default(x[0, 0]), lambda x: ATEN.transpose.int(x, 0, -1), lambda x: ATEN.view.default(x, [-1]),
    lambda x: ATEN.view.default(x, [x.shape[0], -1]), lambda x: ATEN.view.dtype(x, torch.int32),
    lambda x: ATEN.permute.default(x, [3, 0, 2, 1]), lambda x: ATEN.expand.default(x, [5, 2, 4, 3, 4]),
    lambda x: ATEN.select.int(x, 1, 0), lambda x: ATEN.slice.Tensor(x, 1, 1, 3), lambda x: ATEN.unsqueeze.default(x, 0),
    lambda x: ATEN.squeeze.dim(x, 0), lambda x: ATEN.squeeze.default(x), lambda x: ATEN.detach.default(x),
    lambda x: ATEN.as_strided.default(x, [2, 2], [1, 4], 1), lambda x: ATEN.as_strided.default(x, [300], [1]),
    lambda x: ATEN.diagonal.default(x, 0, 1, 2), lambda x: ATEN.unfold.default(x, 1, 2, 1),
    lambda x: ATEN.view_as_real.default(x), lambda x: ATEN.alias.default(x), lambda x: ATEN.split.Tensor(x, 2, 1)[1],
    lambda x: ATEN.select.int(ATEN.slice.Tensor(x, 1, 1, 3), 1, 1), lambda x: ATEN._conj.default(x),
]


@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_remembered_views_are_worked_out(context, monkeypatch):
    def run(call, x, mode):
        try:
            with mode:
                base = mode.from_tensor(x)
                view = call(base)
                if view.is_conj():
                    return True
                root = base if base._base is None else base._base
                related = (view.untyped_storage()._cdata == base.untyped_storage()._cdata, view._is_view(),
                           view._base is root, view._is_view() and view._version == base._version)
                if torch.is_floating_point(view) and view.numel() and 0 not in view.stride():
                    view.zero_()
                return told(view), related, view._version, base._version
        except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError) as error:
            return type(error)

    cases = list(itertools.product(VIEWS, forms()))
    with context():
        remembered = [[run(*case, TraceFakeMode()) for case in cases] for _ in range(2)]
        entries = len(cache._views)
        monkeypatch.setattr(cache, "key_of", lambda *_: None)
        fresh = [run(*case, TraceFakeMode()) for case in cases]
    assert remembered[0] == remembered[1] == fresh
    assert entries > 100 or context is torch.inference_mode
