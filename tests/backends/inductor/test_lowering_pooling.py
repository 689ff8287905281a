"""Pooling where gradients are wanted: places of maxima, gradients of maxima and means, padded means."""
import itertools

import pytest
import thorough
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import config

pytestmark = pytest.mark.by_turns(3)

aten = torch.ops.aten

IMAGES = [(2, 3, 9, 10), (1, 2, 7, 5), (4, 6, 8)]
WINDOWS = [(2, 2, 0), (3, 2, 1), (3, 1, 1), ((2, 3), (1, 2), (1, 0)), ((3, 2), (2, 3), (1, 1)), (4, 4, 2)]


def image(*shape, dtype=torch.float32, seed=0):
    torch.manual_seed(sum(shape) + seed)
    # Few different values, so that a window has several that are the largest.
    return torch.randint(-4, 5, shape).to(dtype) / 2


def windows(shape):
    """Arguments of a pool that eager takes."""
    for (kernel, stride, padding), ceil in itertools.product(WINDOWS, (False, True)):
        yield {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", IMAGES)
def test_maxima_with_places(check_many, shape, dtype):
    x = image(*shape, dtype=dtype)
    check_many([(f"{w}", lambda x, w=w: F.max_pool2d(x.relu() - 1, **w, return_indices=True), [x])
                for w in thorough.share(list(windows(shape)), dtype.itemsize // 2)], interpreted=dtype is torch.float32)


def test_places_of_special_values(check_many):
    x = image(1, 2, 8, 8)
    x[0, 0, 2, 3] = x[0, 0, 3, 3] = x[0, 1, 5, 5] = torch.nan
    x[0, 1, :3] = -torch.inf
    x[0, 0, 6:] = torch.inf
    check_many([(f"{w}", lambda x, w=w: F.max_pool2d(x, **w, return_indices=True), [x]) for w in windows(x.shape)])
    check_many([("dilated", lambda x: F.max_pool2d(x, 3, 1, 1, 2, return_indices=True), [x]),
                ("dilated, far", lambda x: F.max_pool2d(x, (2, 3), 2, (1, 1), (3, 2), return_indices=True), [x])])


def test_large_windows_are_the_library_s(check_many):
    check_many([("large", lambda x: F.max_pool2d(x, 5, return_indices=True), [image(1, 2, 11, 12)])],
               library=["aten.max_pool2d_with_indices.default"])


@pytest.mark.parametrize("shape", IMAGES)
def test_gradient_of_maxima(check_many, shape):
    x = image(*shape)
    cases = []
    for w in windows(shape):
        y, at = F.max_pool2d(x, **w, return_indices=True)
        rest = (w["kernel_size"], w["stride"], w["padding"], 1, w["ceil_mode"])
        rest = [[r] if isinstance(r, int) and not isinstance(r, bool) else r for r in rest]
        cases.append((f"{w}", lambda d, x, at, rest=rest: aten.max_pool2d_with_indices_backward(d, x, *rest, at),
                      [image(*y.shape, seed=1), x, at]))
    check_many(cases, interpreted=True)


def test_threads_share_the_images_of_a_gradient(build, in_cpp):
    x = torch.randn(8, 16, 64, 64)
    y, at = F.max_pool2d(x, 2, return_indices=True)
    with config.patch(target={"wake": 6500, "awake": 1600, "elements": 10}):
        built = build(
            lambda d, at, x: aten.max_pool2d_with_indices_backward(d, x, [2, 2], [2, 2], [0], [1], False, at) + 1,
            [y, at, x])
    assert "parallel(128, 1, threads" in built.program.source
    threads = torch.get_num_threads()
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            want = aten.max_pool2d_with_indices_backward(y, x, [2, 2], [2, 2], [0], [1], False, at) + 1
            assert torch.equal(built.call(y, at, x)[0], want)
    finally:
        torch.set_num_threads(threads)


def test_a_place_out_of_bounds(build):
    y = torch.ones(1, 1, 1, 1)
    built = build(lambda d, x, at: aten.max_pool2d_with_indices_backward(d, x, [2, 2], [2, 2], [0], [1], False, at),
                  [y, torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 1, 1, dtype=torch.int64)])
    with pytest.raises(RuntimeError, match="Found an invalid max index"):
        built.call(y, torch.ones(1, 1, 2, 2), torch.full((1, 1, 1, 1), 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("counted", [False, True])
def test_padded_means(check_many, data, dtype, counted):
    cases = []
    for shape in IMAGES:
        for turn, w in enumerate(thorough.share(list(windows(shape)), len(shape) + shape[0], 3)):
            for divisor in thorough.share((None, 5), turn + counted) if dtype is torch.float32 else (None,):
                cases.append((f"{shape} {w} {divisor}", lambda x, w=w, v=divisor: F.avg_pool2d(
                    x, **w, count_include_pad=counted, divisor_override=v), [image(*shape, dtype=dtype)]))
    x = image(2, 3, 8, 9, dtype=dtype).contiguous(memory_format=torch.channels_last)
    cases.append(("channels last", lambda x: F.avg_pool2d(x.relu(), 3, 1, 1, count_include_pad=counted) * 2, [x]))
    check_many(cases, data.CLOSE, interpreted=dtype is torch.float32)


@pytest.mark.parametrize("counted", [False, True])
def test_gradient_of_means(check_many, data, counted):
    cases = []
    for shape in IMAGES:
        x = image(*shape)
        for kernel, stride, padding, ceil in ((2, 2, 0, False), (3, 3, 0, True), ((2, 3), (2, 3), 0, False),
                                              (3, 1, 1, False), ((2, 3), 1, (1, 0), False), (3, 1, 0, False)):
            y = F.avg_pool2d(x, kernel, stride, padding, ceil)
            pairs = [[v, v] if isinstance(v, int) else v for v in (kernel, stride, padding)]
            cases.append((f"{shape} {pairs} {ceil}", lambda d, x, pairs=pairs, ceil=ceil: aten.avg_pool2d_backward(
                d, x, *pairs, ceil, counted, None), [image(*y.shape), x]))
    check_many(cases, data.CLOSE, interpreted=True)
    check_many([("strided", lambda d, x: aten.avg_pool2d_backward(d, x, [3, 3], [2, 2], [1, 1], False, True, None),
                 [image(1, 2, 4, 4), image(1, 2, 8, 8)])], data.CLOSE, library=["aten.avg_pool2d_backward.default"])


def test_gradient_of_adaptive_means(check_many, data):
    d = image(2, 3, 4, 3)
    check_many([("even", aten._adaptive_avg_pool2d_backward, [d, image(2, 3, 8, 9)]),
                ("one", aten._adaptive_avg_pool2d_backward, [image(2, 3, 1, 1), image(2, 3, 5, 7)]),
                ("same", aten._adaptive_avg_pool2d_backward, [d, image(2, 3, 4, 3)])], data.CLOSE)


@pytest.mark.parametrize("pool", [
    lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 3, 1, 1),
    lambda x: F.adaptive_avg_pool2d(x, 4), lambda x: F.max_pool2d(x.relu(), 2), lambda x: F.max_pool1d(x[0], 2)])
def test_training_step(pool):
    torch.manual_seed(0)
    x = torch.randn(2, 4, 8, 8)
    grads = []
    for fn in (pool, dynamo_lite.compile(lambda x: pool(x))):
        leaf = x.clone().requires_grad_()
        (fn(leaf * 2).sin() + 1).sum().backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(grads[1], grads[0])
