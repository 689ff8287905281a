"""Training steps of networks whose channels lie innermost: in planes, with results and gradients as in eager."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dynamo_lite
from dynamo_lite.backends.aot import ops
from dynamo_lite.backends.inductor import images_in_planes, training


def last(x):
    return x.to(memory_format=torch.channels_last)


def conv(inner, outer, size=3, **more):
    return nn.Conv2d(inner, outer, size, padding=size // 2, **more)


class Joined(nn.Module):
    """Two scales, joined."""

    def __init__(self):
        super().__init__()
        self.down, self.up = conv(6, 12, stride=2), conv(18, 6)

    def forward(self, x):
        y = F.silu(self.down(x))
        return self.up(torch.cat([x, F.interpolate(y, scale_factor=2, mode="nearest")], 1)), y.mean((2, 3))


class Attended(nn.Module):
    """Channels weighted by what is in the whole image; an image that other calls than those of images read."""

    def __init__(self):
        super().__init__()
        self.first, self.weight = conv(6, 12), nn.Conv2d(12, 12, 1)

    def forward(self, x):
        y = F.relu(self.first(x))
        weights = torch.sigmoid(self.weight(F.adaptive_avg_pool2d(y, 1)))
        y = y * weights
        return y.flatten(2).transpose(1, 2) @ torch.ones(12, 3), y.permute(0, 2, 3, 1).softmax(-1), y


class Written(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = conv(6, 6), conv(6, 6)

    def forward(self, x):
        y = self.first(x)
        y[:, 1] *= 2
        y = y.clamp_(-1, 1)
        z = self.second(y)
        z.add_(y)
        return z, torch.where(z > 0, z, y), z.gt(0)


NETWORKS = {
    "plain": lambda: nn.Sequential(conv(6, 12, bias=False), nn.BatchNorm2d(12), nn.ReLU(), conv(12, 6), nn.GELU()),
    "one": lambda: conv(6, 9),
    "pooled": lambda: nn.Sequential(conv(6, 8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), conv(8, 8), nn.AvgPool2d(2),
                                    conv(8, 6)),
    "groups": lambda: nn.Sequential(conv(6, 12, groups=3), nn.GroupNorm(4, 12), nn.SiLU(), conv(12, 12, groups=12),
                                    nn.LeakyReLU(), conv(12, 6, 1)),
    "to one pixel": lambda: nn.Sequential(conv(6, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                          nn.Linear(8, 4)),
    "patches": lambda: nn.Sequential(nn.Conv2d(6, 8, 4, 4), nn.ReLU(), conv(8, 8)),
    "transposed": lambda: nn.Sequential(conv(6, 8), nn.ReLU(), nn.ConvTranspose2d(8, 6, 4, 2, 1), nn.Tanh(),
                                        conv(6, 6)),
    "joined": Joined,
    "attended": Attended,
    "written": Written,
}


def trained(module, fn, x, steps=2):
    """Results, gradients, parameters and statistics of training steps."""
    torch.manual_seed(1)
    found = []
    for _ in range(steps):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        module.zero_grad()
        results = fn(leaf)
        results = results if isinstance(results, tuple) else (results,)
        loss = sum((r * torch.linspace(-1, 2, r.numel()).view(r.shape)).sum()
                   for r in results if r.is_floating_point())
        loss.backward()
        found += [r.detach() for r in results] + [leaf.grad] + [p.grad.clone() for p in module.parameters()]
        found += [b.clone() for b in module.buffers()]
    return found


def compare(want, got):
    for w, g in zip(want, got, strict=True):
        assert w.shape == g.shape and w.dtype == g.dtype
        assert w.stride() == g.stride()
        scale = max(1.0, w.abs().max().item()) if w.is_floating_point() and w.numel() else 1.0
        torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-4 * scale)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("layout", ["both", "images", "filters"])
@pytest.mark.by_turns(3)
def test_training(name, layout):
    torch.manual_seed(0)
    module = NETWORKS[name]()
    x = torch.randn(3, 6, 16, 20)
    x = last(x) if layout != "filters" else x
    module = last(module) if layout != "images" else module
    other = copy.deepcopy(module)
    dynamo_lite.reset_metrics()
    want = trained(module, module, x)
    compare(want, trained(other, dynamo_lite.compile(other), x))
    assert not dynamo_lite.metrics()["fallbacks"]


def test_gradients_of_filters_alone_and_of_images_alone():
    torch.manual_seed(0)
    module = last(NETWORKS["plain"]())
    x = last(torch.randn(2, 6, 12, 12))
    found = []
    for fn in (module, dynamo_lite.compile(module)):
        module.zero_grad()
        fn(x).square().sum().backward()
        found.append([p.grad.clone() for p in module.parameters()])
    compare(*found)
    module.requires_grad_(False)
    found = []
    for fn in (module, dynamo_lite.compile(module)):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        fn(leaf).square().sum().backward()
        found.append([leaf.grad])
    compare(*found)


def test_layouts_of_what_is_saved_do_not_reach_the_program():
    """Hooks on saved tensors, gradients that are differentiated, a graph that is used twice."""
    torch.manual_seed(0)
    module = last(NETWORKS["plain"]()).eval()
    x = last(torch.randn(2, 6, 12, 12))
    found = []
    for fn in (module, dynamo_lite.compile(module)):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            y = fn(leaf)
        (first,) = torch.autograd.grad(y.sum(), leaf, retain_graph=True)
        (second,) = torch.autograd.grad(y.square().sum(), leaf)
        y = fn(leaf)
        (once,) = torch.autograd.grad(y.square().sum(), leaf, create_graph=True)
        (twice,) = torch.autograd.grad(once.square().sum(), leaf)
        found.append([first, second, once.detach(), twice])
    compare(*found)


def test_symbolic_sizes_stay_as_they_are():
    torch.manual_seed(0)
    module = last(NETWORKS["plain"]())
    other = copy.deepcopy(module)
    compiled = dynamo_lite.compile(other, dynamic=True)
    for n in (2, 3, 5):
        x = last(torch.randn(n, 6, 12 + n, 14))
        compare(trained(module, module, x, 1), trained(other, compiled, x, 1))


def test_only_what_comes_in_and_leaves_is_copied(monkeypatch):
    """The image and two filters, in both passes, the filters' gradients, the image's, the result and its gradient."""
    joints = []
    torch.manual_seed(0)
    module = last(NETWORKS["plain"]())
    monkeypatch.setattr(training, "put_in_planes", lambda joint: (images_in_planes.put_in_planes(joint),
                                                                  joints.append(joint)))
    dynamo_lite.reset()
    trained(module, dynamo_lite.compile(module), last(torch.randn(2, 6, 12, 12)), 1)
    assert joints
    for joint in joints:
        convolutions = [n for n in joint.graph.nodes if "convolution" in str(n.target)]
        assert len(convolutions) == 4
        for node in convolutions:
            assert all(a.meta["val"].is_contiguous() for a in node.all_input_nodes)
        read = [n for n in joint.graph.nodes if n.target is ops.copy_strided and (
            n.users or n in (*joint.values, *joint.gradients))]
        assert len(read) == 11


def test_random_numbers_follow_the_layout_that_eager_has():
    """A dropout's mask depends on how the image that it is drawn for is laid out."""
    torch.manual_seed(0)
    module = last(nn.Sequential(conv(6, 12), nn.ReLU(), nn.Dropout(0.5), conv(12, 6), nn.Dropout2d(0.3), nn.RReLU()))
    x = last(torch.randn(2, 6, 10, 10))
    compare(trained(module, module, x, 1), trained(module, dynamo_lite.compile(module), x, 1))


def test_an_input_that_is_written_before_the_backward_pass_is_an_error_as_in_eager():
    torch.manual_seed(0)
    module = last(NETWORKS["plain"]())
    for fn in (module, dynamo_lite.compile(module)):
        for written in (0, 1):
            leaf = last(torch.randn(2, 6, 12, 12)).requires_grad_()
            image = leaf * 1
            y = fn(image)
            with torch.no_grad():
                (module[3].weight if written else image).add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()
