"""What eager refuses to write is refused without data: op_db's in-place operations, and programs around them, on both
backends, with handlers, effects and lines."""
import traceback

import pytest
import thorough
import torch

import dynamo_lite
from dynamo_lite.fake import refusals
from dynamo_lite.fake.mode import TraceFakeMode

pytest.importorskip("expecttest")
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

# What they refuse depends on elements: indices of the samples that do not fit the smaller tensor.
ON_DATA = ("put", "index_fill", "index_put", "index_add", "index_copy", "index_reduce")
IN_PLACE = [op for op in op_db if op.inplace_variant is not None and not op.name.startswith(ON_DATA)]


def raised(function, args, kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return error
    return None


def written_wrongly(x):
    if x.dim() and x.numel():
        yield x[0].clone()
        yield x[:1].clone().expand(x.shape)
    for dtype in (torch.int32, torch.bool, torch.float32):
        if dtype is not x.dtype and not x.is_complex():
            yield x.to(dtype)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(4))
def test_what_eager_refuses_to_write_is_refused_without_data(part):
    missed = []
    for op in thorough.share(IN_PLACE[part::4], part, 4):
        dtype = torch.float32 if torch.float32 in op.dtypes else torch.int64
        if dtype not in op.dtypes:
            continue
        for _, sample in zip(range(2), op.sample_inputs("cpu", dtype)):
            if not isinstance(sample.input, torch.Tensor):
                continue
            for x in written_wrongly(sample.input.detach()):
                mode = TraceFakeMode()
                given = (x, *sample.args), sample.kwargs
                args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, given)
                with mode:
                    without_data = raised(op.inplace_variant, args, kwargs)
                real, real_kwargs = pytree.tree_map_only(
                    torch.Tensor, lambda t: t if t is x else t.detach().clone(), given)
                error = raised(op.inplace_variant, real, real_kwargs)
                if error is not None and without_data is None:
                    missed.append((op.name, tuple(x.shape), x.dtype, str(error)))
    assert not missed


def test_large_tensors_are_asked_about_by_small_ones():
    mode = TraceFakeMode()
    with mode:
        x, y = torch.empty(3000, 400), torch.empty(400)
        with pytest.raises(RuntimeError, match="output with shape"):
            y.mul_(x)
        with pytest.raises(RuntimeError, match="can't be cast"):
            torch.empty(1 << 20, dtype=torch.int32).div_(2)
        assert x.mul_(y) is x and tuple(y.shape) == (400,)


def test_a_tensor_that_a_metadata_rule_resizes_is_a_fault():
    x = torch.ones(4)
    written = refusals.sizes_written(torch.ops.aten.add_.Tensor, (x, 1), {})
    x.resize_(3, 4)
    with pytest.raises(dynamo_lite.exc.InternalError):
        refusals.compare_sizes(torch.ops.aten.add_.Tensor, written)


with torch.inference_mode():
    INFERENCE = torch.ones(4)


def power(y, x):
    y **= x


REFUSED = {
    "power": (power, lambda: (torch.ones(4), torch.ones(3, 4))),
    "larger": (lambda y, x: y.add_(x), lambda: (torch.ones(400), torch.ones(3000, 400))),
    "a fraction": (lambda y: y.div_(2.5), lambda: (torch.arange(4),)),
    "a leaf": (lambda y: y.add_(1), lambda: (torch.ones(4, requires_grad=True),)),
    "a view of a leaf": (lambda y: y[1:].add_(1), lambda: (torch.ones(4, requires_grad=True),)),
    "expanded": (lambda y: y.expand(3, 4).add_(1), lambda: (torch.ones(4),)),
    "shifted": (lambda y: y[1:].add_(y[:-1]), lambda: (torch.ones(4),)),
    "out of another type": (lambda y, x: torch.add(x, 1, out=y), lambda: (torch.ones(4).int(), torch.ones(4))),
    "out with gradients": (
        lambda y, x: torch.add(x, 1, out=y), lambda: (torch.ones(4, requires_grad=True), torch.ones(4))),
    "an item": (lambda y, x: y.__setitem__(0, x), lambda: (torch.ones(4), torch.ones(3))),
    "bits of floats": (lambda y: y.bitwise_and_(1), lambda: (torch.ones(4),)),
    "a mask": (lambda y, m: y.masked_fill_(m, 0), lambda: (torch.ones(4), torch.ones(3, 4, dtype=torch.bool))),
    "statistics": (
        lambda y, x: torch.nn.functional.batch_norm(x, y, torch.ones(4), training=True),
        lambda: (torch.ones(3), torch.ones(2, 4, 3))),
    "bounds": (lambda y, x: y.clamp_(x), lambda: (torch.ones(4), torch.ones(3, 4))),
    "a product": (lambda y, x: y.addmm_(x, x), lambda: (torch.ones(4), torch.ones(4, 4))),
    "a copy": (lambda y, x: y.copy_(x), lambda: (torch.ones(4), torch.ones(3, 4))),
    "lists": (lambda y, x: torch._foreach_add_([y], [x]), lambda: (torch.ones(4), torch.ones(3, 4))),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_in_eager(name, backend, fullgraph):
    write, make = REFUSED[name]

    def caught(log, *tensors):
        log.append("before")
        try:
            write(*tensors)
        except Exception as error:
            return type(error), str(error), log
        return "passed"

    def uncaught(log, *tensors):
        log.append("before")
        write(*tensors)
        log.append("after")

    want, tensors = caught([], *make()), make()
    assert want != "passed"
    assert dynamo_lite.compile(caught, backend=backend, fullgraph=fullgraph)([], *tensors) == want
    assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(tensors, make()))
    log, compiled = [], dynamo_lite.compile(uncaught, backend=backend, fullgraph=fullgraph)
    with pytest.raises(want[0]) as info:
        compiled(log, *make())
    lines = [f.lineno for f in traceback.extract_tb(info.value.__traceback__) if f.filename == __file__]
    with pytest.raises(want[0]) as info:
        uncaught([], *make())
    assert lines[1:] == [f.lineno for f in traceback.extract_tb(info.value.__traceback__)
                         if f.filename == __file__][1:]
    assert str(info.value) == want[1] and log == ["before"]


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_what_autograd_refuses_first(backend):
    """An input may be a view of a leaf, which fake tensors do not know: eager is asked where two reasons compete."""
    def write(y, x):
        try:
            y.pow_(x)
        except RuntimeError as error:
            return str(error)

    leaf, compiled = torch.ones(4, requires_grad=True), dynamo_lite.compile(write, backend=backend)
    for make in (lambda: leaf[:], lambda: leaf * 1, lambda: (leaf * 1)[:], lambda: leaf.detach()):
        assert compiled(make(), torch.ones(3, 4)) == write(make(), torch.ones(3, 4)) != None  # noqa: E711
    with torch.no_grad():
        assert compiled(leaf[:], torch.ones(3, 4)) == write(leaf[:], torch.ones(3, 4))


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_inference_tensors_outside_of_inference_mode(backend):
    def write(log, x):
        log.append(1)
        try:
            x.mul_(1)
        except RuntimeError as error:
            return str(error)

    def differentiate(x, w):
        return (x * w).sum()

    compiled = dynamo_lite.compile(write, backend=backend)
    assert compiled([], INFERENCE) == write([], INFERENCE) != None  # noqa: E711
    assert torch.equal(INFERENCE, torch.ones(4))
    with torch.inference_mode():
        assert compiled([], INFERENCE) is None
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        dynamo_lite.compile(differentiate, backend=backend)(INFERENCE, torch.ones(4, requires_grad=True))
    assert torch.equal(dynamo_lite.compile(differentiate, backend=backend)(INFERENCE, torch.ones(4)), torch.tensor(4.0))


RESAMPLED = [("linear", (5,)), ("bilinear", (5, 4)), ("bicubic", (5, 4)), ("trilinear", (5, 4, 3))]


@pytest.mark.parametrize("mode, size", RESAMPLED)
def test_resampling_to_or_from_nothing(mode, size):
    fakes = TraceFakeMode()
    for given, wanted in [((1, 1, *size), 2), ((0, 1, *size), 2), ((1, 0, *size), 2), ((1, 1, *size), 0),
                          ((1, 1, *size[:-1], 0), 2)]:
        x = torch.ones(given)
        with fakes:
            error = raised(torch.nn.functional.interpolate, (fakes.from_tensor(x), wanted), {"mode": mode})
        assert str(error) == str(raised(torch.nn.functional.interpolate, (x, wanted), {"mode": mode})), (given, wanted)


# Operations that eager refuses for dtypes or numbers, while metadata rules accept them.
REFUSED_TYPES = {
    "bool number": lambda x: x - True,
    "bool number first": lambda x: True - x,
    "bool tensor": lambda x: x - (x > 0),
    "negative power": lambda x: x.long() ** -1,
    "too large": lambda x: x.to(torch.uint8).clamp_max(300),
    "too large to choose": lambda x: torch.where(x > 0, x.to(torch.uint8), 300),
    "too large to fill": lambda x: x.to(torch.uint8).masked_fill(x > 0, 300),
    "too large to fill in place": lambda x: x.to(torch.uint8).fill_(300),
    "infinite whole": lambda x: torch.full((3,), float("-inf"), dtype=torch.int64),
    "complex number": lambda x: x < 1j,
    "complex remainder": lambda x: x % 1j,
    "complex sign": lambda x: torch.sign(x + 1j),
    "complex maximum": lambda x: torch.relu(x.to(torch.complex64)),
    "relu of bool": lambda x: torch.relu(x > 0),
    "argmax of bool": lambda x: (x > 0).argmax(),
    "bool sums": lambda x: x.cumsum(0, dtype=torch.bool),
    "parts": lambda x: torch.polar(x.bfloat16(), x.bfloat16()),
    "outside of memory": lambda x: torch.as_strided_scatter(x, torch.ones(2, 2), (2, 2), (200, 200)),
    "copy from outside": lambda x: torch.as_strided_copy(x, (2, 2), (200, 200)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", REFUSED_TYPES)
def test_effects_before_a_refused_type_or_number(name, backend):
    """The graph has written to a tensor by then, so the frame could not run again: the operation must not be in it."""
    def program(x, written, log):
        written.add_(1)
        log.append("before")
        return REFUSED_TYPES[name](x)

    seen = []
    for function in (program, dynamo_lite.compile(program, backend=backend)):
        for size in (3, 4):
            written, log = torch.zeros(2), []
            error = raised(function, (torch.ones(size), written, log), {})
            seen.append((type(error), str(error).replace("\n", " "), written.tolist(), log))
    assert seen[0][0] is not type(None) and seen[:2] == seen[2:]


def test_a_refused_number_is_no_answer_for_others():
    def program(x, exponent):
        return x ** exponent, x - exponent

    compiled = dynamo_lite.compile(program, backend="eager")
    x = torch.tensor([2, 3])
    for exponent in (-1, 2, -2, 3, True, 1):
        expected, got = raised(program, (x, exponent), {}), raised(compiled, (x, exponent), {})
        assert type(got) is type(expected) and str(got) == str(expected)
        if expected is None:
            assert [y.tolist() for y in compiled(x, exponent)] == [y.tolist() for y in program(x, exponent)]


def test_division_by_zero_is_no_answer_for_other_numbers(caplog):
    x = torch.tensor([5, 6], dtype=torch.uint8)
    for function in (torch.remainder, torch.fmod, torch.floor_divide):
        for number in (0, 7, False, True):
            def program(x):
                return function(x + 1, number) + 1

            program.__code__ = program.__code__.replace()
            expected, got = [], []
            assert str(raised(lambda: expected.append(program(x)), (), {})) == str(
                raised(lambda: got.append(dynamo_lite.compile(program)(x)), (), {}))
            assert [y.tolist() for y in got] == [y.tolist() for y in expected], (function, number)
        assert dynamo_lite.compile(lambda x: x.clone().remainder_(7), fullgraph=True)(x).tolist() == [5, 6]
    assert not caplog.records


def test_wrong_sizes_are_no_answer_about_types():
    def program(x):
        x @ x
        return x.new_zeros(2).cumsum(1)  # raises, too: the product's exception comes first

    compiled = dynamo_lite.compile(program, backend="eager")
    for rows in (5, 4, 4):
        x = torch.ones(rows, 4, dtype=torch.bool)
        expected, got = raised(program, (x,), {}), raised(compiled, (x,), {})
        assert type(got) is type(expected) and str(got) == str(expected)
