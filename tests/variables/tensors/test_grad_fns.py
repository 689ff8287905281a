"""Whether a tensor has a ``grad_fn`` is known while tracing; which one it is breaks the graph."""
import pytest
import torch

import dynamo_lite
from dynamo_lite import exc


def asks_whether(x):
    y = x * 2
    if y.grad_fn is not None:
        y = y + 1
    if None is y.grad_fn:
        y = y * 100
    y = y.sin() if y.grad_fn else y.cos()
    return y, x.grad_fn is None, y.detach().grad_fn is None, not y.grad_fn


def asks_which(x):
    y = x * 2
    return y.sin(), y.grad_fn.name(), type(y.grad_fn).__name__, y.grad_fn is y.grad_fn, y.grad_fn in [None]


@pytest.mark.parametrize("requires_grad", [True, False])
def test_whether_there_is_one(requires_grad):
    compiled = dynamo_lite.compile(asks_whether, backend="eager", fullgraph=True)
    for leaf in (True, False):
        x = torch.randn(3, requires_grad=requires_grad)
        x = x if leaf else x * 1
        got, want = compiled(x), asks_whether(x)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]


def test_which_it_is():
    x = torch.randn(3, requires_grad=True)
    got, want = dynamo_lite.compile(asks_which)(x), asks_which(x)
    torch.testing.assert_close(got[0], want[0])
    assert got[1:] == want[1:]
    with pytest.raises(exc.Unsupported, match="grad_fn"):
        dynamo_lite.compile(asks_which, fullgraph=True)(x)


def test_a_node_that_leaves_the_graph():
    def function(x):
        return (x * 2).grad_fn

    x = torch.randn(3, requires_grad=True)
    assert dynamo_lite.compile(function)(x) is not None
