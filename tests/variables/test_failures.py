"""Operations of torch that raise: the program's handlers see eager's exception, in one graph; uncaught, it gets out."""
import pytest
import torch
from language_support import Programs
from torch import nn
from torch.nn import functional as F

import dynamo_lite

program = Programs()
LINEAR = nn.Linear(3, 3)


@program
def shapes_that_do_not_fit(x):
    try:
        return x @ torch.ones(7)
    except RuntimeError as error:
        return x + 1, str(error)


@program
def an_index_too_large(x):
    seen = []
    for i in range(4):
        try:
            seen.append(x[i] * 2)
        except IndexError as error:
            seen.append(str(error))
    return seen


@program
def a_wrong_type(x):
    try:
        return torch.add(x, "a")
    except TypeError as error:
        return x * 2, str(error)


@program
def in_a_module(x):
    try:
        return LINEAR(x[:, :2])
    except RuntimeError as error:
        return LINEAR(x), error.args


@program
def one_shape_after_another(x):
    for shape in ((7,), (4, 2), (3, 2), (6,)):
        try:
            return x.view(shape)
        except RuntimeError:
            continue


@program
def with_a_finally(x):
    steps = []
    try:
        try:
            torch.cat([x, torch.ones(3, 3)], 1)
        finally:
            steps.append("finally")
    except RuntimeError as error:
        raise_from = ValueError("mine")
        try:
            raise raise_from from error
        except ValueError as second:
            return x + 1, steps, str(second.__cause__)


@program
def random_numbers_after_it(x):
    first = torch.rand(3)
    try:
        F.dropout(x.bool(), 2.0)
    except ValueError as error:
        return first, torch.rand(3) + x, str(error)


@program
def in_place(x):
    y = x.clone()
    try:
        y.add_(torch.ones(5))
    except RuntimeError:
        pass
    return y


@program
def on_another_device(x):
    with torch.device("meta"):
        try:
            return x.view(7)
        except RuntimeError as error:
            return x + 1, str(error)


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)


UNCAUGHT = {
    "matmul": lambda x: (x + 1) @ torch.ones(7),
    "cat": lambda x: torch.cat([x, torch.ones(5, 5)], 1),
    "view": lambda x: x.view(7),
    "index": lambda x: x[9],
    "module": lambda x: LINEAR(x[:, :2]),
    "type": lambda x: torch.add(x, "a"),
    "argument": lambda x: F.log_softmax(x, dim=5),
    "value": lambda x: F.dropout(x, 2.0),
    "broadcast": lambda x: x + torch.ones(5),
    "expanded": lambda x: x[0].expand(4, 3) @ x,
    "empty": lambda x: x[:0] @ x,
    "complex": lambda x: x.to(torch.complex64) @ x.t(),
    "half": lambda x: x.half() @ x.t(),
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("name", UNCAUGHT)
def test_what_nobody_catches_is_eagers(name, fullgraph, backend):
    function = UNCAUGHT[name]
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=fullgraph)
    x = torch.ones(4, 3)
    with pytest.raises(Exception) as want:
        function(x)
    for _ in range(2):
        with pytest.raises(type(want.value)) as got:
            compiled(x)
        assert type(got.value) is type(want.value) and str(got.value) == str(want.value)


def test_what_fails_without_data_alone_is_no_exception():
    @torch.library.custom_op("test_failures::without_rule", mutates_args=())
    def without_rule(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def function(x):
        try:
            return without_rule(x)
        except RuntimeError:
            return None

    x = torch.randn(3, 3)
    assert torch.equal(dynamo_lite.compile(function, backend="eager")(x), function(x))
    with pytest.raises(dynamo_lite.exc.Unsupported, match="without_rule"):
        dynamo_lite.compile(function, backend="eager", fullgraph=True)(x)


def test_types_for_which_there_is_no_kernel() -> None:
    """Also where nobody reads the result, which would otherwise be dropped."""
    norm = torch.nn.BatchNorm1d(4).double()

    def unused(x: torch.Tensor) -> object:
        torch.softmax(torch.arange(4), -1)
        return x + 1

    def caught(x: torch.Tensor) -> object:
        try:
            return norm(x)
        except RuntimeError as error:
            return str(error)

    def not_one_number(x: torch.Tensor) -> object:
        try:
            return x.long().item()
        except RuntimeError as error:
            return str(error)

    x = torch.randn(3, 4)
    for backend in ("eager", "inductor_lite"):
        with pytest.raises(NotImplementedError, match="Long"):
            dynamo_lite.compile(unused, backend=backend)(x)
        for fn in (caught, not_one_number):
            assert dynamo_lite.compile(fn, backend=backend)(x) == fn(x)


def test_one_of_several_views_after_a_write_to_their_base_raises_as_in_eager(monkeypatch):
    monkeypatch.setattr(dynamo_lite.config, "raise_internal_errors", True)

    def used(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        part = y.chunk(2)[1]
        y.add_(1)
        return part * 2

    x = torch.randn(4, 6, requires_grad=True)
    with pytest.raises(RuntimeError) as want:
        used(x)
    with pytest.raises(RuntimeError) as got:
        dynamo_lite.compile(used)(x)
    assert str(got.value) == str(want.value)
    torch.testing.assert_close(dynamo_lite.compile(used)(x.detach()), used(x.detach()))
