"""Results of operators on symbolic sizes lie as eager's do, dimensions of one element included."""
import pytest
import torch

import dynamo_lite
from dynamo_lite import config


@pytest.fixture(autouse=True)
def fresh():
    dynamo_lite.reset()
    with config.patch(cache_sizes=False):
        yield
    dynamo_lite.reset()


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
