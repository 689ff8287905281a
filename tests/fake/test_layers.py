"""Normalization layers in mixed precision: fake results have eager's dtypes and strides, and training is right."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import dynamo_lite
from dynamo_lite.fake.mode import TraceFakeMode


class Compared(TorchDispatchMode):
    """Each operation's metadata on fake tensors beside the real one's."""

    def __init__(self):
        self.differences = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        fakes = TraceFakeMode()
        twins = pytree.tree_map_only(torch.Tensor, fakes.from_tensor, (args, kwargs or {}))
        with fakes, torch.no_grad():
            promised = func(*twins[0], **twins[1])
        given = func(*args, **(kwargs or {}))
        for p, g in zip(pytree.tree_leaves(promised), pytree.tree_leaves(given)):
            if isinstance(g, torch.Tensor) and (p.dtype, p.shape, p.stride()) != (g.dtype, g.shape, g.stride()):
                self.differences.append((str(func), p.dtype, g.dtype, p.shape, g.shape, p.stride(), g.stride()))
        return given


LAYERS = {
    "batch": lambda x, w, b: F.batch_norm(x, torch.zeros(8), torch.ones(8), w, b, True),
    "batch, no statistics": lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
    "batch, inference": lambda x, w, b: F.batch_norm(x, torch.zeros(8), torch.ones(8), w, b, False),
    "group": lambda x, w, b: F.group_norm(x, 2, w, b),
    "padding": lambda x, w, b: F.pad(x, (1, 1, 0, 2), mode="replicate"),
    "layer": lambda x, w, b: F.layer_norm(x.transpose(1, -1), (8,), w, b),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("parameters", [torch.float32, None])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("batch", [1, 4])
def test_metadata_is_eagers(name, dtype, parameters, last, batch):
    x = torch.randn(batch, 8, 5, 3).to(dtype)
    if last:
        x = x.to(memory_format=torch.channels_last)
    x.requires_grad_()
    w, b = (torch.rand(8, dtype=parameters or dtype, requires_grad=True) for _ in range(2))
    if parameters is None and name.startswith("batch"):
        pytest.skip("the statistics are of 32 bits")
    with Compared() as compared:
        LAYERS[name](x, w, b).float().sum().backward()
    assert compared.differences == []


@pytest.mark.parametrize("kind", ["batch", "group", "layer", "instance"])
def test_training_under_autocast(kind):
    """The layers' elements are of 16 bits, their parameters of 32."""
    def made():
        torch.manual_seed(0)
        norm = {"batch": nn.BatchNorm2d(8), "group": nn.GroupNorm(2, 8), "layer": nn.LayerNorm([8, 6, 6]),
                "instance": nn.InstanceNorm2d(8, affine=True, track_running_stats=True)}[kind]
        return nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.GELU(), nn.Flatten(), nn.Linear(288, 4))

    x, y = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
    reached = []
    for compiled in (False, True):
        model = made()
        called = dynamo_lite.compile(model) if compiled else model
        losses = []
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(called(x), y)
            loss.backward()
            losses.append(loss.detach())
        reached.append((losses, [p.grad for p in model.parameters()], list(model.buffers())))
    for want, got in zip(pytree.tree_leaves(reached[0]), pytree.tree_leaves(reached[1])):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("op", [torch.neg, lambda x: x.pow(2), lambda x: x + x, torch.nan_to_num, F.hardtanh, F.gelu])
@pytest.mark.parametrize("strides", [(24, 8, 8, 1), (24, 0, 8, 1), (24, 24, 8, 1), (1, 5, 32, 4)])
def test_strides_of_elementwise_operations_on_one_layout(op, strides):
    x = torch.empty_strided((4, 1, 3, 8), strides).fill_(0.5)
    fakes = TraceFakeMode()
    with fakes:
        got = op(fakes.from_tensor(x)).stride()
    assert got == op(x).stride()
