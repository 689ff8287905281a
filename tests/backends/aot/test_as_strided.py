"""Views that leave their tensor: other elements of the memory that it lies in are seen and written."""
import logging

import pytest
import torch

import dynamo_lite


def _in_front(x):
    return x.as_strided((2, 2), (3, 1), 1).add_(10)


def _read(x):
    return x.as_strided((8,), (1,), x.storage_offset()) + 0


def _after_a_write(x):
    x.add_(1)
    return x.as_strided((8,), (1,), x.storage_offset()) * 2


def _written(x):
    x.add_(1)
    x.as_strided((8,), (1,), x.storage_offset()).mul_(2)
    return x + 1


@pytest.mark.parametrize("f", [_in_front, _read, _after_a_write, _written])
@pytest.mark.parametrize("part", [slice(4, 8), slice(0, 8, 2), slice(3, None, 3), slice(None)])
def test_elements_outside(f, part, caplog):
    one, two = torch.arange(20.0), torch.arange(20.0)
    want = f(one[part])
    with caplog.at_level(logging.WARNING):
        got = dynamo_lite.compile(f)(two[part])
    assert torch.equal(got, want) and torch.equal(two, one) and got.stride() == want.stride()
    assert not any("fault" in record.getMessage() for record in caplog.records)


def _relaid(x):
    y = x * 2
    y.as_strided_((2, 3), (1, 2))
    return y + 1, y


def _relaid_and_written(x):
    y = x * 2
    z = y.view(-1)
    y.as_strided_((2, 2), (3, 1), 1).mul_(3)
    z.add_(1)
    return y, z, y.t()


def _of_ones(x):
    y = x.sum(-1, keepdim=True)
    y.as_strided_((3, 1, 1), (1, 3, 3))
    return y * 1, y


def _relaid_twice(x):
    y = x + 1
    y.as_strided_((6,), (1,)).as_strided_((3, 2), (2, 1)).t_()
    return y.contiguous(), y


@pytest.mark.parametrize("f", [_relaid, _relaid_and_written, _of_ones, _relaid_twice])
def test_in_place(f):
    """A tensor that takes another layout of its memory: pooling of a channels-last image to one pixel ends so."""
    x = torch.arange(6.0).view(3, 2) if f is not _of_ones else torch.arange(12.0).view(3, 1, 4)
    dynamo_lite.reset_metrics()
    want, got = f(x.clone()), dynamo_lite.compile(f)(x.clone())
    for w, g in zip(want, got, strict=True):
        assert torch.equal(w, g) and w.stride() == g.stride() and w.storage_offset() == g.storage_offset()
    assert not dynamo_lite.metrics()["fallbacks"] and dynamo_lite.metrics()["graphs"] == 1


def test_in_place_with_gradients():
    x = torch.randn(2, 5, 4, 4).to(memory_format=torch.channels_last)
    found = []
    dynamo_lite.reset_metrics()
    for f in (_pooled, dynamo_lite.compile(_pooled)):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        y = f(leaf)
        y.sum().backward()
        found.append((y.detach(), leaf.grad))
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want)
        assert want.stride() == got.stride()
    assert not dynamo_lite.metrics()["fallbacks"]


def _pooled(x):
    return torch.nn.functional.adaptive_avg_pool2d(x * x, 1) * 3


def test_in_place_of_an_input_and_beyond_its_memory():
    def beyond(x):
        y = x * 2
        return y.as_strided_((7,), (1,))

    def of_an_input(x):
        return x.as_strided_((2, 3), (1, 2)) + 1

    for f in (beyond, of_an_input):
        x, own = torch.arange(6.0).view(3, 2), torch.arange(6.0).view(3, 2)
        try:
            want = f(x)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match="storage|bounds"):
                dynamo_lite.compile(f)(own)
            assert error
            continue
        got = dynamo_lite.compile(f)(own)
        assert got.shape == want.shape and own.stride() == x.stride()
        assert f is beyond or torch.equal(got, want)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor_lite"])
@pytest.mark.parametrize("step", [1, 2])
def test_elements_outside_of_symbolic_sizes(step, backend):
    """Nothing was checked where a size was a symbol, and a write to every second element reached the wrong ones."""
    def program(x):
        return x.as_strided((x.shape[0] + 2,), (1,)).add_(1)

    compiled = dynamo_lite.compile(program, dynamic=True, backend=backend)
    dynamo_lite.reset_metrics()
    for end in (8, 6, 12):
        one, two = torch.arange(20.0), torch.arange(20.0)
        assert torch.equal(compiled(two[0:end:step]), program(one[0:end:step])) and torch.equal(two, one)
    assert dynamo_lite.metrics()["graphs"] == 1


def of_a_part_after_a_write(x):
    y = x * 2
    y.add_(1)
    return y[:, :3].as_strided((2, 2), (6, 1), 3)


def of_a_part_that_was_written(x):
    y = x * 2
    y[0].mul_(2)
    part = y[:, :3]
    return part.as_strided((2, 4), (6, 1), 1)


def of_the_whole(x):
    y = x * 2
    y.add_(1)
    return y.t().as_strided((2, 4), (6, 1), 1)


@pytest.mark.parametrize("program", [of_a_part_after_a_write, of_a_part_that_was_written, of_the_whole])
def test_gradients_end_with_the_part_that_the_view_is_of(program):
    x = torch.randn(6, 6, requires_grad=True)
    (got,), (want,) = (torch.autograd.grad(f(x).sum(), x) for f in (dynamo_lite.compile(program), program))
    assert torch.equal(got, want)
