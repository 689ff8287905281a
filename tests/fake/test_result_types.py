"""Operations on tensors of several dtypes: fake results, and so programs, have the dtypes of eager's kernels."""
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import dynamo_lite
from dynamo_lite.fake import result_types
from dynamo_lite.fake.mode import TraceFakeMode

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
PAIRS = list(itertools.permutations(DTYPES, 2))

CALLS = {
    "huber_loss": lambda x, y: aten.huber_loss(x, y, 0),
    "huber_loss of means": lambda x, y: aten.huber_loss(x, y, 1),
    "mse_loss_backward": lambda x, y: aten.mse_loss_backward(x, x, y, 0),
    "mse_loss_backward, other gradient": lambda x, y: aten.mse_loss_backward(y, x, y, 0),
    "smooth_l1_loss_backward": lambda x, y: aten.smooth_l1_loss_backward(x, x, y, 0, 1.0),
    "huber_loss_backward": lambda x, y: aten.huber_loss_backward(x, x, y, 0, 1.0),
    "soft_margin_loss": lambda x, y: aten.soft_margin_loss(x, y, 0),
    "normal": lambda x, y: aten.normal.Tensor_Tensor(x, y),
    "addr": lambda x, y: aten.addr(x.new_zeros(3, 5, dtype=torch.float16), x[:, 0], y[0]),
    "layer_norm": lambda x, y: aten.native_layer_norm(x, (5,), y[0], y[1], 1e-5),
    "add": lambda x, y: x + y,
    "add a number": lambda x, y: x + y[0, 0],
    "where": lambda x, y: torch.where(x > 0, x, y),
    "cat": lambda x, y: torch.cat([x, y]),
    "gather": lambda x, y: x.gather(0, torch.zeros(1, 5, dtype=torch.int64)) * y,
    "index_put": lambda x, y: x.index_put((torch.tensor([0]),), x[:1]) + y,
}


def types_of(result):
    return [t.dtype for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]


@pytest.mark.parametrize("name", CALLS)
def test_fake_results_have_the_dtypes_of_eager(name):
    for first, second in PAIRS:
        x, y = torch.ones(3, 5, dtype=first), torch.ones(3, 5, dtype=second)
        try:
            want = types_of(CALLS[name](x, y))
        except RuntimeError:
            continue  # no kernel for these
        with TraceFakeMode() as fakes:
            assert types_of(CALLS[name](fakes.from_tensor(x), fakes.from_tensor(y))) == want, (first, second)


def test_large_operands_are_not_made():
    size = (1 << 15, 1 << 15)
    with TraceFakeMode():
        x, y = torch.empty(size), torch.empty(size, dtype=torch.float64)
        assert aten.huber_loss(x, y, 0).dtype is torch.float32


def test_what_has_one_dtype_is_not_asked(monkeypatch):
    monkeypatch.setattr(result_types, "_ask", None)
    with TraceFakeMode():
        x = torch.ones(3, 4, dtype=torch.bfloat16)
        assert aten.huber_loss(x, x, 0).dtype is torch.bfloat16


def test_random_numbers_are_not_drawn_while_asking():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    with TraceFakeMode():
        aten.normal.Tensor_Tensor(torch.ones(7), torch.ones(7, dtype=torch.float64))
    assert torch.equal(torch.get_rng_state(), state)


LOSSES = ["mse_loss", "huber_loss", "smooth_l1_loss", "soft_margin_loss"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_losses_and_gradients(backend, dynamic):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(7, 5, generator=generator), torch.rand(7, 5, generator=generator).double()
    for name, reduction in itertools.product(LOSSES, ("none", "mean")):
        def loss(x, y, name=name, reduction=reduction):
            return getattr(F, name)(x * 2, y, reduction=reduction) + 1

        results = []
        for fn in (loss, dynamo_lite.compile(loss, backend=backend, dynamic=dynamic)):
            a, b = x.clone().requires_grad_(), y.clone().requires_grad_(name != "soft_margin_loss")
            value = fn(a, b)
            try:
                value.sum().backward()
            except RuntimeError as error:  # eager has no kernel for gradients of some
                results.append((value.detach(), type(error)))
            else:
                results.append((value.detach(), a.grad, b.grad))
        for want, got in zip(*results):
            if isinstance(want, torch.Tensor):
                torch.testing.assert_close(got, want, msg=lambda m, name=name: f"{name}: {m}")
            else:
                assert got == want
