"""Fake twins of the inputs: what torch's own mode would make of them, sharing storages as the tensors do."""
import pytest
import torch

import dynamo_lite
from dynamo_lite.fake.mode import TraceFakeMode


def families():
    """Groups of tensors that may lie in the same memory."""
    x = torch.randn(4, 6)
    p = torch.nn.Parameter(torch.randn(3, 3))
    c = torch.randn(3, dtype=torch.complex64)
    return [
        [x], [x, x[1], x.t(), x.view(-1), x[:, ::2]], [x[1], x], [x.t()], [x[2:], x[:2]], [p], [p, p.data, p[0]],
        [p[0], p], [c, c.conj()], [torch.tensor(3)], [torch.empty(0, 3)], [torch.zeros(1).expand(4)],
        [torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)], [torch.randn(3, requires_grad=True) * 2],
    ]


@pytest.mark.parametrize("family", families(), ids=lambda f: " ".join(str(list(t.shape)) for t in f))
@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad])
def test_a_twin_is_like_its_tensor(family, context):
    with context():
        mode = TraceFakeMode()
        twins = [mode.from_tensor(t) for t in family]
        for tensor, twin in zip(family, twins):
            assert (twin.shape, twin.stride(), twin.storage_offset()) == (
                tensor.shape, tensor.stride(), tensor.storage_offset())
            assert (twin.dtype, twin.device, twin.requires_grad, twin.is_leaf, twin.is_conj(), twin.is_neg()) == (
                tensor.dtype, tensor.device, tensor.requires_grad, tensor.is_leaf, tensor.is_conj(), tensor.is_neg())
            assert twin.untyped_storage().nbytes() == tensor.untyped_storage().nbytes() and twin._version == 0
            assert mode.from_tensor(tensor) is twin
        same = [[a.untyped_storage()._cdata == b.untyped_storage()._cdata for a in twins] for b in twins]
        assert same == [[a.untyped_storage()._cdata == b.untyped_storage()._cdata for a in family] for b in family]
        if all(s > 0 for s in family[0].stride()) and not any(t.requires_grad for t in family):
            with mode:
                twins[0].add_(1)
            assert all(twin._version == 1 for twin in twins)


@pytest.mark.parametrize("dynamic", [True, None])
def test_two_parts_of_one_memory_whose_sizes_are_symbols(dynamic):
    """The first one's twin does not tell how much memory there is; another part of it may lie behind."""

    def f(a, b):
        return a.sum() + b.sum(), b[1:] * 2

    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    compiled = dynamo_lite.compile(f, backend="eager", fullgraph=True, dynamic=dynamic)
    for n in (6, 7, 8, 9):
        x = torch.arange(2.0 * n)
        for got, want in zip(compiled(x[:n], x[n:]), f(x[:n], x[n:])):
            assert torch.equal(got, want)
        found, places = torch.where(torch.ones(n, 2) > 0)
        assert torch.equal(compiled(found, places)[0], f(found, places)[0])
    counted = dynamo_lite.metrics()
    expected = (2, 1) if dynamic else (4, 3)
    assert (counted["graphs"], counted["recompiles"]) == expected, counted
