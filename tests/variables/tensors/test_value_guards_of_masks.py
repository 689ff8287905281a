"""Masks that come from floats by exact operations and have few elements: guarded by what a guard computes."""
import logging

import pytest
import torch

import dynamo_lite
from dynamo_lite import config, exc, log

pytestmark = [pytest.mark.by_turns(3), pytest.mark.usefixtures("guards_alone")]

BACKENDS = ["eager", "inductor_lite"]
SOME_EMPTY = ([], [], [1], [1], [0, 2], [], [0, 1, 2], [2])


@pytest.fixture(autouse=True)
def _small_images():
    """The images of these tests have fewer elements than any real one."""
    with config.patch(value_guard_reduction=16):
        yield




def compiled(fn, backend="eager", **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend=backend, **options)


def counted(name):
    return log.counters().get(name, 0)


def images(empty=(), shape=(3, 3, 4, 4)):
    x = torch.randn(shape)
    x[list(empty)] = 0
    return x


def check(fn, compiled_fn, *args):
    mine, theirs = [a.clone() for a in args], [a.clone() for a in args]
    want, got = fn(*theirs), compiled_fn(*mine)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


# ---------------------------------------------------------------- programs
def real_images(x):
    real = (x == 0.0).sum(dim=(-1, -2, -3)) != x.shape[1:].numel()
    return x[real].contiguous().sin() * 2, real.view(1, -1).sum(1).tolist()


def at_least_one(x):
    real = (x == 0.0).sum(dim=(-1, -2, -3)) != x.shape[1:].numel()
    real[0] |= ~torch.any(real)
    return x[real].sin() * 2, real


def by_any(x):
    rows = (x.flatten(1) != 0).any(-1)
    return torch.where(rows)[0], x[rows.nonzero().squeeze(-1)] + 1, x[~rows]


def by_extremes(x):
    rows = torch.logical_not(x.abs().amax((1, 2, 3)).eq(0) | torch.isnan(x).flatten(1).all(1))
    out = []
    for row, used in zip(x, rows.tolist()):
        if used:
            out.append(row.sum())
    return out


def branch_on_all(x):
    empty = (x == 0).flatten(1).all(1)
    return x[empty] + 1 if empty.shape[0] == 3 else x


def in_a_helper(x):
    y = x * 2
    return real_images(x)[0].sum() + y.sum(), by_any(x)


PROGRAMS = [real_images, at_least_one, by_any, by_extremes, branch_on_all, in_a_helper]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", PROGRAMS)
def test_one_graph_for_each_mask(f, backend):
    fn = compiled(f, backend, fullgraph=True)
    for _ in range(3):
        check(f, fn, images())
    assert counted("graphs") == 1 and counted("recompiles") == 0
    for empty in SOME_EMPTY:
        check(f, fn, images(empty))
    assert counted("graphs") <= 6
    graphs = counted("graphs")
    for empty in SOME_EMPTY:
        check(f, fn, images(empty))
    assert counted("graphs") == graphs


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", PROGRAMS)
def test_a_mask_that_changes_costs_one_compile(f, backend):
    fn = compiled(f, backend)
    check(f, fn, images())
    assert counted("graphs") == 1 and counted("graph_breaks") == 0
    for _ in range(2):
        for empty in SOME_EMPTY:
            check(f, fn, images(empty))
    graphs = counted("graphs")
    for _ in range(2):
        for empty in SOME_EMPTY:
            check(f, fn, images(empty))
    assert counted("graphs") == graphs


def test_the_break_says_why(caplog):
    caplog.set_level(logging.INFO, "dynamo_lite.graph_breaks")
    fn = compiled(real_images)
    check(real_images, fn, images())
    assert not caplog.records
    check(real_images, fn, images([1]))
    said = caplog.records[0].getMessage()
    assert "the elements of ne(sum(eq(x, 0.0), dim=(-1, -2, -3)), 48) matter" in said and "from call to call" in said


def test_the_recompile_says_why(caplog):
    caplog.set_level(logging.INFO, "dynamo_lite.recompiles")
    fn = compiled(real_images)
    fn(images())
    fn(images([1]))
    assert "ne(sum(eq(x, 0.0), dim=(-1, -2, -3)), 48) had other values than [True, False, True]" in caplog.text


# ---------------------------------------------------------------- never a stale one
def test_changed_in_place_between_calls():
    fn, x = compiled(real_images), images()
    view = x[1]
    for value in (1.0, 0.0, 0.0, float("nan"), 0.0, -0.0, 1e-40):
        view.fill_(value)
        torch.testing.assert_close(fn(x), real_images(x), equal_nan=True)
        view[0, 0, 0] = 3
        torch.testing.assert_close(fn(x), real_images(x), equal_nan=True)
    x.data = images([0])
    torch.testing.assert_close(fn(x), real_images(x))


def test_other_shapes_types_and_strides():
    fn = compiled(real_images)
    for shape in ((3, 3, 4, 4), (3, 3, 5, 4), (2, 3, 4, 4)):
        for empty in ([], [1]):
            x = images(empty, shape)
            for given in (x, x.double(), x.transpose(2, 3), x.to(memory_format=torch.channels_last), x.half()):
                torch.testing.assert_close(fn(given), real_images(given))


def writes_before(x):
    x[1] = 0
    return real_images(x)[0] + 1


def writes_before_through_another(x, y):
    y.zero_()
    return real_images(x)[0] + 1, y


def writes_after(x):
    real = (x == 0.0).flatten(1).all(1).logical_not()
    x[0] = 0
    again = (x == 0.0).flatten(1).all(1).logical_not()
    return x[real] + 1, x[again] * 2, again


def writes_to_the_mask(x):
    real = (x == 0.0).flatten(1).all(1).logical_not()
    real[0] = x.sum() > 0
    return x[real] + 1, real


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", [writes_before, writes_after, writes_to_the_mask])
def test_programs_that_write(f, backend):
    fn = compiled(f, backend)
    for empty in ([], [], [0], [2], [], [0, 1, 2]):
        check(f, fn, images(empty))
        check(f, fn, -images(empty).abs())


def test_another_input_in_the_same_memory():
    fn = compiled(writes_before_through_another)
    for i in (0, 0, 1, 2, 1):
        a, b = images([2]), images()
        b.copy_(a)
        torch.testing.assert_close(fn(a, a[i]), writes_before_through_another(b, b[i]))
        torch.testing.assert_close(fn(a, images()[0]), writes_before_through_another(b, images()[0]))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inputs = {"pixels": images([0])}
        self.layer = torch.nn.Conv2d(3, 2, 3)

    def forward(self, flags):
        x = self.inputs["pixels"]
        real = ~(x == 0).all(-1).all(-1).all(-1)
        return self.layer(x[real & flags])


@pytest.mark.parametrize("backend", BACKENDS)
def test_with_integers_beside_and_gradients(backend):
    model = Model()
    fn = compiled(model, backend, fullgraph=True)
    for flags in ([True, True, False], [True, True, False], [True, True, True]):
        flags = torch.tensor(flags)
        for empty in ([0], [1]):
            model.inputs["pixels"] = images(empty).requires_grad_()
            want, got = model(flags), fn(flags)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            expected = torch.autograd.grad(want.sum(), [model.inputs["pixels"], model.layer.weight])
            found = torch.autograd.grad(got.sum(), [model.inputs["pixels"], model.layer.weight])
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert counted("graphs") == 4


def test_states_of_torch():
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return real_images(x)

    for context in (torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu"), torch.enable_grad):
        fn = compiled(f)
        with context():
            for empty in ([], [1], [1], []):
                check(f, fn, images(empty))


# ---------------------------------------------------------------- what is not guarded
WEIGHT = torch.nn.Parameter(torch.randn(48, 1))
NOT_GUARDED = {
    "as large as the tensor": lambda x: x[x > 0],
    "of a parameter": lambda x: x[(WEIGHT.view(3, 16) > 0).any(1)],
    "out of a network": lambda x: x[((x.flatten(1) @ WEIGHT) > 0).any(1)],
    "rounded": lambda x: x[(x.mean((1, 2)) > 0.1).all(1)],
    "rounded sum": lambda x: x[x.sum((1, 2, 3)) > 0],
    "random": lambda x: x[(torch.rand_like(x) > 0.1).flatten(1).all(1)],
    "of two tensors": lambda x: x[(x == x.sin()).flatten(1).all(1)],
    "a branch": lambda x: x + 1 if x.sum() > 0 else x,
    "a number": lambda x: x * x.sum().item(),
}


@pytest.mark.parametrize("f", NOT_GUARDED.values(), ids=NOT_GUARDED)
def test_what_changes_with_every_call_breaks(f):
    with pytest.raises(exc.Unsupported):
        compiled(f, fullgraph=True)(images())
    fn = compiled(f)
    for empty in ([], [1], [0]):
        x = images(empty)
        torch.manual_seed(3)
        want = f(x)
        torch.manual_seed(3)
        torch.testing.assert_close(fn(x), want)
    assert counted("recompiles") <= 2


def test_a_batch_has_no_mask():
    def f(x):
        return torch.vmap(lambda image: image * (image == 0).flatten(1).all(1).sum())(x)

    fn = compiled(f)
    for empty in ([], [1]):
        check(f, fn, images(empty))


def test_subclasses_are_left_alone():
    class Loud(torch.Tensor):
        pass

    fn = compiled(real_images)
    for empty in ([], [1]):
        x = images(empty)
        got, want = fn(x.as_subclass(Loud)), real_images(x.as_subclass(Loud))
        assert type(got[0]) is type(want[0]) and torch.equal(got[0], want[0])
