"""Convolution networks whose images have their channels innermost: computed in planes, handed out in eager's layout."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dynamo_lite


def last(x):
    return x.to(memory_format=torch.channels_last)


def compiled_and_eager(model, *args, close=1e-4):
    """Library calls of a compiled model after its results were compared with eager's, layouts included."""
    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    with torch.no_grad():
        want, compiled = model(*args), dynamo_lite.compile(model)
        for _ in range(2):
            got = compiled(*args)
            for w, g in zip(*(r if isinstance(r, (tuple, list)) else (r,) for r in (want, got)), strict=True):
                assert g.shape == w.shape and g.stride() == w.stride() and g.dtype == w.dtype
                torch.testing.assert_close(g, w, rtol=close, atol=close)
    assert not dynamo_lite.metrics()["fallbacks"]
    return dynamo_lite.metrics()["library_calls"]


class Block(nn.Module):
    def __init__(self, channels, out, stride=1, groups=1):
        super().__init__()
        self.first = nn.Conv2d(channels, out, 3, stride, 1, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(out)
        self.second = nn.Conv2d(out, out, 3, 1, 1)
        self.short = nn.Conv2d(channels, out, 1, stride)

    def forward(self, x):
        y = self.second(F.relu(self.norm(self.first(x))))
        return F.relu(y + self.short(x))


class Network(nn.Module):
    def __init__(self, groups=1):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Block(16, 16, groups=groups), Block(16, 32, 2, groups))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


@pytest.fixture
def network():
    torch.manual_seed(0)
    net = last(Network().eval())
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_()
            m.running_var.uniform_(0.5, 2)
    return net


@pytest.mark.parametrize("size", [(64, 64), (50, 71)])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_network_needs_no_library(network, size, batch):
    assert not compiled_and_eager(network, last(torch.randn(batch, 3, *size)))


def test_either_of_image_and_filters_makes_results_channels_last(network):
    assert not compiled_and_eager(network, torch.randn(2, 3, 64, 64))
    planes = network.to(memory_format=torch.contiguous_format)
    assert not compiled_and_eager(planes, last(torch.randn(2, 3, 64, 64)))


def test_groups():
    torch.manual_seed(0)
    assert not compiled_and_eager(last(Network(groups=4).eval()), last(torch.randn(2, 3, 40, 40)))


def test_what_leaves_the_graph_is_laid_out_as_in_eager():
    torch.manual_seed(0)
    a, b = (last(nn.Conv2d(8, 8, 3, padding=1)) for _ in range(2))
    x = last(torch.randn(2, 8, 12, 15))

    def between(x):
        y = F.relu(a(x))
        return y, b(y), y.sum((2, 3)), y * 2

    def views(x):
        y = a(x)
        z = b(y + 1)
        return z.permute(0, 2, 3, 1), z[:, 2:5], (y * 2).flatten(1), F.relu(z).reshape(2, -1)

    def strided(x):
        y = F.relu(a(x))
        z = b(y)
        return torch.as_strided(z, (2, 3), (5, 1), 4), torch.as_strided(y, (4,), (1,)), z.transpose(1, 3).contiguous()

    def library(x):
        y = F.relu(a(x))
        values, places = torch.sort(y, dim=1)
        return b(values), places, b(torch.fft.fft(y).real)

    def written(x):
        y = a(x)
        y.mul_(2).relu_()
        z = b(y)
        z[:, 1] = 0
        return z + y, y.clone()

    for fn in (between, views, strided, library, written):
        compiled_and_eager(fn, x)


def test_written_inputs_keep_their_layout():
    torch.manual_seed(0)
    conv = last(nn.Conv2d(8, 8, 3, padding=1))

    def fn(x, out):
        y = F.relu(conv(x))
        out.copy_(conv(y))
        x.add_(conv(F.relu(conv(y))))
        return y.mean()

    x, out = last(torch.randn(2, 8, 9, 9)), last(torch.zeros(2, 8, 9, 9))
    found = []
    with torch.no_grad():
        for f in (fn, dynamo_lite.compile(fn)):
            args = [x.clone(memory_format=torch.preserve_format), out.clone(memory_format=torch.preserve_format)]
            found.append([f(*args), *args])
    for want, got in zip(*found, strict=True):
        assert want.stride() == got.stride()
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_what_does_not_pay_is_left_to_the_library():
    torch.manual_seed(0)
    x = last(torch.randn(1, 16, 32, 32))
    # Windows that see no pixel twice, a depthwise convolution of an image that is not in planes, a result as it is.
    assert compiled_and_eager(lambda x, m=last(nn.Conv2d(16, 8, 4, 4)): m(x) * 2, x)
    assert compiled_and_eager(lambda x, m=last(nn.Conv2d(16, 16, 3, groups=16)): m(x) * 2, x)
    assert compiled_and_eager(last(nn.Conv2d(16, 16, 3)), x)
    # One of an image in planes follows.
    net = last(nn.Sequential(nn.Conv2d(16, 24, 1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.ReLU(),
                             nn.Conv2d(24, 16, 1), nn.ReLU()))
    assert not compiled_and_eager(net, x)


@pytest.mark.parametrize("kind", ["float64", "bfloat16"])
def test_other_dtypes(network, kind):
    dtype = getattr(torch, kind)
    x = last(torch.randn(2, 3, 40, 40, dtype=dtype))
    compiled_and_eager(network.to(dtype), x, close=0.1 if kind[0] == "b" else 1e-8)


def test_symbolic_batches(network):
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(network, dynamic=True)
    with torch.no_grad():
        for n in (2, 5, 3):
            x = last(torch.randn(n, 3, 40, 40))
            torch.testing.assert_close(compiled(x), network(x), rtol=1e-4, atol=1e-4)


def test_training(network):
    torch.manual_seed(0)
    x = last(torch.randn(4, 3, 40, 40))
    network.train()
    found = []
    state = {k: v.clone() for k, v in network.state_dict().items()}
    for fn in (network, dynamo_lite.compile(network)):
        network.load_state_dict(state)
        network.zero_grad()
        y = fn(x)
        y.square().sum().backward()
        gradients = [p.grad.clone() for p in network.parameters()]
        found.append([y.detach(), *gradients, *(b.clone() for b in network.buffers())])
    for want, got in zip(*found, strict=True):
        assert want.stride() == got.stride()
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3 * max(1.0, want.abs().max().item()))


def test_upsampling_and_joining():
    torch.manual_seed(0)
    down = last(nn.Conv2d(8, 16, 3, 2, 1))
    up = last(nn.Conv2d(24, 8, 3, padding=1))

    def fn(x):
        y = F.relu(down(x))
        y = F.interpolate(y, scale_factor=2, mode="nearest")
        smooth = F.interpolate(y, size=(7, 9), mode="bilinear")
        return F.relu(up(torch.cat([x, y], 1))) + F.avg_pool2d(x, 3, 1, 1), smooth

    compiled_and_eager(fn, last(torch.randn(2, 8, 16, 16)))


def test_group_norm_between_convolutions():
    torch.manual_seed(0)
    first, second = nn.Conv2d(8, 32, 3, padding=1), nn.Conv2d(32, 8, 3, padding=1)
    net = last(nn.Sequential(first, nn.GroupNorm(8, 32), nn.SiLU(), second, nn.SiLU()))
    for size in (12, 80):
        assert not compiled_and_eager(net, last(torch.randn(2, 8, size, size)))
