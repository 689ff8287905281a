"""Tensors without elements, whose memory is at no address: kernels read nothing of them, whatever their strides are."""
import pytest
import thorough
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import dynamo_lite
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.scheduler.empty_memory import sizes_to_ask

pytestmark = pytest.mark.by_turns(3)

PROGRAMS = {
    "one": lambda x: x.log2(),
    "two": lambda x: (x.square(), x + 1),
    "sums": lambda x: (x.float().sum(), x.float().sum(0), (x * 2).float().mean(-1, keepdim=True)),
    "softmax": lambda x: torch.softmax(x.float(), -1),
    "norm": lambda x: F.layer_norm(x.float(), x.shape[-1:]),
    "all": lambda x: (x > 0).all(-1),
    "product": lambda x: x.float().prod(-1) + 1,
    "spread": lambda x: (x.new_ones(4, 1, 1) + x, x.exp().expand(3, *x.shape).sum(0)),
    "scan": lambda x: x.float().tanh().cumsum(-1),
    "logsumexp": lambda x: torch.logsumexp(x.float(), -1, keepdim=True) + x,
}
EXPANDED = [((1, 1), (1, 0)), ((1,), (0,)), ((3, 1), (3, 0)), ((1, 3), (0, 3)), ((1, 1), (0, 0)),
            ((4, 1, 1), (4, 0, 5)), ((1, 1), (64, 0)), ((1, 2000), (0, 2000))]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.bfloat16])
def test_expanded_tensors_without_elements(dtype, dynamic):
    compiled = {name: dynamo_lite.compile(fn, dynamic=dynamic) for name, fn in PROGRAMS.items()}
    for turn, (shape, size) in enumerate(EXPANDED):
        x = torch.zeros(shape, dtype=dtype).expand(size)
        for name, fn in thorough.share(list(PROGRAMS.items()), turn + (dtype is torch.int8)):
            torch.testing.assert_close(
                compiled[name](x), fn(x), equal_nan=True, msg=lambda m, name=name: f"{name} of {size}: {m}")


def test_sizes_that_become_zero():
    def f(x, y):
        return x * 2 + y[:, :1], (x + y).sum(1), x.sum(0)

    compiled = dynamo_lite.compile(f, dynamic=True)
    for rows, columns in ((5, 9), (3, 70), (0, 9), (5, 0), (0, 0), (1, 4)):
        x, y = torch.ones(rows, columns), torch.ones(rows, max(columns, 1))[:, :1].expand(rows, max(columns, 1))
        y = y[:, :columns] if columns else torch.ones(rows, 1).expand(rows, 0)
        try:
            want = f(x, y)
        except RuntimeError:
            continue
        got = compiled(x, y)
        assert all(torch.equal(a, b) for a, b in zip(pytree.tree_leaves(got), pytree.tree_leaves(want)))


def test_which_sizes_are_asked():
    n, m = ix.atom(ix.Sym("n", 0)), ix.atom(ix.Sym("m", 2))
    (v,) = ix.free_vars(ix.var("i", n))
    buffer = Buffer("b", (n, m, 3), (m, 1, 0), torch.float32)
    assert sizes_to_ask(buffer, ()) == [n] and sizes_to_ask(buffer, (v,)) == []
    assert sizes_to_ask(Buffer("b", (1, 0), (0, 1), torch.float32), ()) == [0]
