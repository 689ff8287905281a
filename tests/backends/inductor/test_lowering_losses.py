"""The negative log likelihood: generated code against eager, targets that don't count, and targets out of bounds."""
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite


def scores(*shape, dtype=torch.float32):
    torch.manual_seed(sum(shape))
    return torch.randn(shape).to(dtype)


def labels(classes, *shape):
    torch.manual_seed(classes)
    out = torch.randint(0, classes, shape)
    out.view(-1)[::3] = -100
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_negative_log_likelihood(check_many, dtype):
    cases = []
    for shape in ((7, 5), (300, 11), (2, 5, 3, 4)):
        y = labels(shape[1], shape[0], *shape[2:])
        x, w = scores(*shape, dtype=dtype), scores(shape[1], dtype=dtype)
        for how in ("none", "mean", "sum"):
            cases += [
                (f"nll {shape} {how}", lambda x, y, h=how: F.nll_loss(x * 2, y, reduction=h), [x, y]),
                (f"weights {shape} {how}", lambda x, y, w, h=how: F.nll_loss(x, y, w, reduction=h), [x, y, w]),
                (f"entropy {shape} {how}", lambda x, y, h=how: F.cross_entropy(x, y, reduction=h), [x, y]),
                (f"ignored {shape} {how}",
                 lambda x, y, h=how: F.nll_loss(x, y.clamp(0), ignore_index=0, reduction=h), [x, y]),
            ]
    cases.append(("none counts", lambda x, y: F.cross_entropy(x, y), [scores(4, 3), torch.full((4,), -100)]))
    check_many(cases, tolerance={torch.float32: (1e-6, 1e-6), torch.float64: (1e-13, 1e-13)})


@pytest.mark.parametrize("shape", [(6, 5), (2, 5, 3, 4)])
@pytest.mark.parametrize("how", ["none", "mean"])
@pytest.mark.parametrize("wrong", [5, -1, 77])
def test_a_target_out_of_bounds_raises_as_in_eager(shape, how, wrong):
    def fn(x, y):
        return F.cross_entropy(x, y, reduction=how)

    x, y = scores(*shape), labels(5, shape[0], *shape[2:])
    compiled = dynamo_lite.compile(fn)
    torch.testing.assert_close(compiled(x, y), fn(x, y))
    y.view(-1)[1] = wrong
    with pytest.raises(Exception) as want:
        fn(x, y)
    with pytest.raises(type(want.value)) as got:
        compiled(x, y)
    assert str(got.value) == str(want.value)


def test_training_with_cross_entropy():
    x, y = scores(40, 9), labels(9, 40)
    results = []
    for f in (F.cross_entropy, dynamo_lite.compile(lambda x, y: F.cross_entropy(x, y))):
        leaf = x.clone().requires_grad_()
        loss = f(leaf, y)
        loss.backward()
        results.append((loss.detach(), leaf.grad))
    torch.testing.assert_close(*results)


# ---------------------------------------------------------------- binary cross-entropy
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_binary_cross_entropy(check_many, dtype):
    cases = []
    for shape in ((7, 5), (301, 17), (1,)):
        x, y = torch.rand(shape, dtype=dtype), torch.rand(shape, dtype=dtype)
        x.view(-1)[::5], y.view(-1)[::3] = 0, 1
        w = scores(*shape, dtype=dtype)
        d = scores(*shape, dtype=dtype)
        for how, number in (("none", 0), ("mean", 1), ("sum", 2)):
            name = f"{shape} {how}"
            cases += [
                (name, lambda x, y, h=how: F.binary_cross_entropy(x, y, reduction=h), [x, y]),
                ("weighted " + name, lambda x, y, w, h=how: F.binary_cross_entropy(x, y, w, reduction=h), [x, y, w]),
                ("of sigmoids " + name, lambda w, y, h=how: F.binary_cross_entropy(w.sigmoid(), y, reduction=h),
                 [w, y]),
                ("gradient " + name, lambda d, x, y, w, n=number: torch.ops.aten.binary_cross_entropy_backward(
                    d if n == 0 else d.flatten()[0], x, y, w, n), [d, x, y, w]),
            ]
    check_many(cases, tolerance={torch.float32: (2e-6, 2e-6), torch.float64: (1e-13, 1e-13)})


@pytest.mark.parametrize("of", ["input", "target"])
@pytest.mark.parametrize("wrong", [-0.5, 1.25, float("nan"), float("inf")])
@pytest.mark.parametrize("how", ["none", "mean"])
def test_what_is_no_probability_raises_as_in_eager(of, wrong, how):
    def fn(x, y):
        return F.binary_cross_entropy(x, y, reduction=how) * 2

    def shapes_only(x, y):
        return x.new_zeros(F.binary_cross_entropy(x, y, reduction=how).shape)

    for f in (fn, shapes_only):
        x, y = torch.rand(37), torch.rand(37)
        compiled = dynamo_lite.compile(f)
        torch.testing.assert_close(compiled(x, y), f(x, y))
        (x if of == "input" else y)[35] = wrong
        with pytest.raises(RuntimeError) as want:
            f(x, y)
        with pytest.raises(RuntimeError) as got:
            compiled(x, y)
        assert str(got.value) == str(want.value)


def test_operands_of_other_shapes_or_dtypes_raise_as_in_eager():
    for x, y in ((torch.rand(3, 2), torch.rand(3)), (torch.rand(3), torch.rand(3).double())):
        def fn(x, y):
            return F.binary_cross_entropy(x, y)

        with pytest.raises(Exception) as want:
            fn(x, y)
        with pytest.raises(type(want.value)) as got:
            dynamo_lite.compile(fn)(x, y)
        assert str(got.value) == str(want.value)
