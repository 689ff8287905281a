"""Programs with tensors that are not strided, sparse ones above all: captured or left to eager, never a fault."""
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo_lite

INDICES = torch.tensor([[0, 1, 2], [2, 0, 3]])


def made(values):
    return torch.sparse_coo_tensor(INDICES, values, (4, 4))


FUNCTIONS = {
    "product": lambda v, x: torch.sparse.mm(made(v), x),
    "transposed": lambda v, x: torch.sparse.mm(made(v).t(), x),
    "operator": lambda v, x: torch.relu(made(v) @ x @ torch.ones(2, 3)),
    "addmm": lambda v, x: torch.sparse.addmm(x, made(v), x),
    "dense": lambda v, x: (made(v) * 2).to_dense() + made(v).clone().to_dense(),
    "like": lambda v, x: torch.zeros_like(made(v)).to_dense(),
    "detached": lambda v, x: made(v).detach().to_dense(),
    "in place": lambda v, x: made(v).mul_(2).to_dense(),
    "values": lambda v, x: made(v).coalesce().values() + 1,
    "sum": lambda v, x: torch.sparse.sum(made(v), 0).to_dense(),
    "softmax": lambda v, x: torch.sparse.softmax(made(v), 1).to_dense(),
    "joined": lambda v, x: torch.cat([made(v), made(v)]).to_dense(),
    "a row": lambda v, x: made(v)[0].to_dense(),
    "rows": lambda v, x: made(v).coalesce().to_sparse_csr() @ x,
    "metadata": lambda v, x: x * made(v).is_sparse * made(v).shape[0],
    "result": lambda v, x: made(v),
    "from dense": lambda v, x: x.to_sparse().to_dense() * 2,
    "nested": lambda v, x: torch.nested.nested_tensor([x, x[:2]]).to_padded_tensor(0.0),
    "quantized": lambda v, x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize() + 1,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results(name, backend):
    fn, compiled = FUNCTIONS[name], dynamo_lite.compile(FUNCTIONS[name], backend=backend)
    for _ in range(2):
        v, x = torch.randn(3), torch.randn(4, 2)
        got, want = compiled(v, x), fn(v, x)
        assert got.layout is want.layout
        torch.testing.assert_close(got, want)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
def test_gradients(backend):
    results = []
    for wrap in (lambda fn: fn, lambda fn: dynamo_lite.compile(fn, backend=backend)):
        torch.manual_seed(0)
        v, x, table = torch.randn(3, requires_grad=True), torch.randn(4, 2, requires_grad=True), nn.Parameter(
            torch.randn(5, 2))
        wrap(lambda v, x: torch.sparse.mm(made(v), x).tanh())(v, x).sum().backward()
        wrap(lambda w: F.embedding(INDICES, w, sparse=True).sin())(table).sum().backward()
        optimizer = torch.optim.SparseAdam([table])
        wrap(optimizer.step)()
        results.append((v.grad, x.grad, table.grad, table.detach()))
    for want, got in zip(*results):
        torch.testing.assert_close(got, want)
