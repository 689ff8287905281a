"""Results of operators on symbolic sizes lie as eager's do, dimensions of one element included."""
import pytest
import torch

import dynamo_lite


def rotated(q, cos):
    # A token's queries: (batch, heads, 1, size), the dimension of one element with the stride of all heads.
    return q.transpose(1, 2) * cos


def shifted(q, cos):
    return torch.sigmoid(q.transpose(1, 2)) + cos.transpose(0, 1).transpose(0, 1)


@pytest.mark.parametrize("f", [rotated, shifted])
def test_one_element_between_the_others(f):
    compiled, before = dynamo_lite.compile(f, backend="aot_eager"), dynamo_lite.metrics().get("graphs", 0)
    for batch in (1, 4, 5, 3, 7):
        q, cos = torch.randn(batch, 1, 4, 16), torch.randn(batch, 1, 1, 16)
        found, expected = compiled(q, cos), f(q, cos)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
    assert dynamo_lite.metrics()["graphs"] - before == 2


def test_an_order_that_depends_on_the_sizes_is_for_these_alone():
    def f(q, other):
        return q.transpose(1, 2) + other.transpose(1, 2)

    compiled = dynamo_lite.compile(f, backend="aot_eager")
    for a, b in ((2, 1), (3, 1), (1, 3), (1, 2), (4, 1), (1, 5)):
        q, other = torch.randn(3, a, b, 4), torch.randn(3, a, b, 4)
        found, expected = compiled(q, other), f(q, other)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride(), (a, b)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("f", [
    lambda x: x.view(-1, 1).diagonal(1), lambda x: x.view(1, -1).diagonal(-1), lambda x: x.diagonal(x.shape[1]),
    lambda x: x[x.shape[0]:], lambda x: x[:, x.shape[1]:], lambda x: x.narrow(0, x.shape[0], 0),
    lambda x: x.diagonal(1)])
def test_where_views_without_elements_begin(f, backend):
    compiled = dynamo_lite.compile(f, backend=backend)
    for rows, columns in ((12, 6), (5, 4), (5, 8), (9, 2)):
        x = torch.randn(rows + 1, columns)[1:]
        found, expected = compiled(x), f(x)
        assert torch.equal(found, expected)
        assert (found.storage_offset(), found.stride()) == (expected.storage_offset(), expected.stride())


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layer, dims", [(torch.nn.BatchNorm1d, (1, 2)), (torch.nn.BatchNorm2d, (2, 3))])
def test_one_of_several_results_lies_otherwise(layer, dims, training, backend):
    """torch's rule has a normalized tensor in the order of its operand, and eager has it contiguous."""
    mine, eagers = layer(8).train(training), layer(8).train(training)
    before = dynamo_lite.metrics().get("graphs", 0)
    compiled = dynamo_lite.compile(lambda x: mine(x.transpose(*dims)), backend=backend, dynamic=True)
    for n in (6, 5, 9, 7):
        x = torch.randn((2, n, 8) if layer is torch.nn.BatchNorm1d else (2, 8, n, n + 1))
        xs = [x.clone().requires_grad_() for _ in range(2)]
        got, want = compiled(xs[0]), eagers(xs[1].transpose(*dims))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert got.stride() == want.stride()
        weights = torch.arange(want.numel()).view(want.shape) / want.numel()
        for y in (got, want):
            (y * weights).sum().backward()
        torch.testing.assert_close(xs[0].grad, xs[1].grad, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mine.running_mean, eagers.running_mean)
    assert dynamo_lite.metrics()["graphs"] - before == 1
