"""The weight's gradient of a convolution as a matrix product: right in every geometry, chosen where it pays."""
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.backends.inductor import convolution_gradients as convolution

GEOMETRIES = {
    "plain": dict(padding=1),
    "strided": dict(stride=2, padding=1),
    "uneven": dict(stride=(2, 1), padding=(0, 2)),
    "dilated": dict(dilation=2, padding=2),
    "pointwise": dict(kernel=1),
    "pointwise strided": dict(kernel=1, stride=2),
    "whole image": dict(kernel=5),
    "one dimension": dict(fn=F.conv1d, rank=1, padding=1),
    "three dimensions": dict(fn=F.conv3d, rank=3, padding=1, stride=2),
}


def gradients(fn, *inputs):
    inputs = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    fn(*inputs).square().sum().backward()
    return [x.grad for x in inputs]


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("input_needs_gradient", [True, False])
def test_geometries(monkeypatch, name, input_needs_gradient):
    monkeypatch.setattr(convolution, "_product_is_faster", lambda *_: True)
    geometry = dict(GEOMETRIES[name])
    fn, rank, kernel = geometry.pop("fn", F.conv2d), geometry.pop("rank", 2), geometry.pop("kernel", 3)
    torch.manual_seed(0)
    x = torch.randn(2, 3, *[5, 6, 7][:rank], requires_grad=input_needs_gradient)
    w = torch.randn(4, 3, *[kernel] * rank, requires_grad=True)
    b = torch.randn(4, requires_grad=True)

    def f(x, w, b):
        return fn(x, w, b, **geometry)

    dynamo_lite.reset()
    for p, q in zip(gradients(f, x, w, b), gradients(dynamo_lite.compile(f), x, w, b)):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("geometry", [dict(groups=2, padding=1), dict(padding=1, memory_format=torch.channels_last),
                                      dict(padding=1, dtype=torch.float64)])
def test_left_to_the_library(monkeypatch, geometry):
    monkeypatch.setattr(convolution, "_product_is_faster", lambda *_: True)
    memory_format = geometry.pop("memory_format", torch.contiguous_format)
    dtype, groups = geometry.pop("dtype", torch.float32), geometry.get("groups", 1)
    x = torch.randn(2, 4, 5, 5, dtype=dtype).to(memory_format=memory_format)
    w = torch.randn(6, 4 // groups, 3, 3, dtype=dtype).to(memory_format=memory_format).requires_grad_()
    f = lambda x, w: F.conv2d(x, w, **geometry)
    dynamo_lite.reset()
    for p, q in zip(gradients(f, x, w), gradients(dynamo_lite.compile(f), x, w)):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-4)


def test_chosen_for_large_weights_on_small_images():
    def chosen(n, c, k, side, kernel):
        return convolution._product_is_faster(torch.empty(n, k, side, side), torch.empty(k, c, kernel, kernel))

    assert chosen(4, 512, 512, 2, 3) and chosen(4, 256, 512, 2, 3)
    assert not chosen(4, 64, 64, 16, 3) and not chosen(32, 3, 64, 112, 7)


@pytest.mark.parametrize("channels, size, kernel", [(2, 1, 1), (1, 4, 3), (3, 1, 1), (1, 1, 1), (4, 1, 3)])
@pytest.mark.parametrize("last", [False, True])
def test_strides_tell_the_layout_of_one_channel_or_one_pixel(monkeypatch, channels, size, kernel, last):
    monkeypatch.setattr(convolution, "_product_is_faster", lambda *_: True)
    layout = torch.channels_last if last else torch.contiguous_format
    layer = torch.nn.Conv2d(channels, 512, kernel, padding=kernel // 2).to(memory_format=layout)

    def results(call):
        layer.zero_grad()
        x = torch.ones(2, channels, size, size).contiguous(memory_format=layout).requires_grad_()
        y = call(x)
        y.square().sum().backward()
        return [y, x.grad, layer.weight.grad, layer.bias.grad]

    for want, got in zip(results(layer), results(dynamo_lite.compile(layer))):
        assert got.stride() == want.stride()
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


# With which transforming costs nothing.
ALWAYS = {"transform_pixels": 1e-6, "transform_taps": 1e-6, "transform_sums": 1e-6, "far_store": 1e-6}


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("padding", [0, 1, 2, (2, 0)])
@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last", "channels_last filters"])
@pytest.mark.parametrize("wanted", ["all", "image"])
def test_the_images_gradient_by_filtering(monkeypatch, padding, layout, wanted):
    """A convolution of its own, laid out as the library would, whatever the incoming gradient's layout is."""
    asked = []
    monkeypatch.setattr(convolution, "_is_filtered", lambda *a, own=convolution._is_filtered: asked.append(own(*a)) or
                        asked[-1])
    place = getattr(torch, layout.split()[0])
    torch.manual_seed(0)
    x = torch.randn(2, 16, 9, 12)
    x = (x if "filters" in layout else x.to(memory_format=place)).requires_grad_()
    w, b = (torch.randn(*size).requires_grad_(wanted == "all") for size in ((24, 16, 3, 3), (24,)))
    w = w.detach().to(memory_format=place).requires_grad_(wanted == "all")
    for other in (torch.contiguous_format, torch.channels_last):

        def f(x, w, b, other=other):
            y = F.conv2d(x, w, b, padding=padding)
            return y * torch.linspace(-1, 1, y.numel()).view(y.shape).to(memory_format=other)

        dynamo_lite.reset()
        leaves, found = [t for t in (x, w, b) if t.requires_grad], []
        with dynamo_lite.config.patch(target=ALWAYS):
            for call in (f, dynamo_lite.compile(f)):
                found.append(torch.autograd.grad(call(x, w, b).sum(), leaves))
        for want, got in zip(*found):
            assert got.stride() == want.stride()
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)
    assert asked and all(asked)


@pytest.mark.parametrize("kind", [dict(stride=2), dict(dilation=2), dict(groups=2), dict(padding=3)])
def test_other_images_gradients_are_the_librarys(kind):
    torch.manual_seed(0)
    x = torch.randn(2, 16, 9, 12).requires_grad_()
    w = torch.randn(24, 16 // kind.get("groups", 1), 3, 3).requires_grad_()
    with dynamo_lite.config.patch(target=ALWAYS):
        for p, q in zip(gradients(lambda x, w: F.conv2d(x, w, **kind), x, w),
                        gradients(dynamo_lite.compile(lambda x, w: F.conv2d(x, w, **kind)), x, w)):
            torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-3)


def test_an_image_gradient_is_filtered_where_that_is_faster():
    def chosen(n, c, k, side):
        return convolution._is_filtered(torch.empty(n, k, side, side), torch.empty(n, c, side, side),
                                        torch.empty(k, c, 3, 3), [1, 1], [1, 1], [1, 1])

    assert chosen(8, 64, 64, 56) and chosen(8, 128, 128, 28)
    assert not chosen(8, 3, 64, 224) and not chosen(1, 512, 512, 4)
