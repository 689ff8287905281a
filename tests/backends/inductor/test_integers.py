"""Integers of every width with numbers that do not fit in them, as eager: values, and what eager refuses."""
import operator

import pytest
import thorough
import torch

import dynamo_lite

NUMBERS = [0, -1, 7, 64, 128, -129, 256, 2**32 - 1, 2**32, -(2**63), True, 3.5]
OPERATIONS = {
    **{name: getattr(operator, name) for name in (
        "add", "sub", "mul", "truediv", "mod", "floordiv", "lshift", "rshift", "and_", "or_", "lt", "le", "eq")},
    "rsub": lambda a, n: n - a, "rlshift": lambda a, n: n << a, "rrshift": lambda a, n: n >> a, "fmod": torch.fmod,
    # In eager, the least integer divided by -1 ends the process.
    "towards zero": lambda a, n: torch.div(a.clamp(-5, 100), n, rounding_mode="trunc"),
    "down": lambda a, n: torch.div(a, n, rounding_mode="floor"), "remainder": torch.remainder,
    "alpha": lambda a, n: torch.add(a, a, alpha=n), "minus alpha": lambda a, n: torch.sub(a, a, alpha=n),
    "clamp": lambda a, n: a.clamp(min=n), "fill": lambda a, n: a.masked_fill(a > 1, n),
    "where": lambda a, n: torch.where(a > 1, a, n), "in place": lambda a, n: a.clone().remainder_(n),
    "by a tensor": lambda a, n: a << torch.tensor(n), "power": operator.pow,
}


def raised(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return error


@pytest.mark.parametrize(
    "turn, dtype", enumerate([torch.uint8, torch.int8, torch.int32, torch.int64, torch.bool]), ids=str)
def test_numbers_that_do_not_fit(turn, dtype):
    ends = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    a = torch.tensor([0, 1, *ends] + [2, 3, 5, 7, 100] * (dtype is not torch.bool) + [1] * 31).to(dtype)
    for number in thorough.share(NUMBERS, turn):
        want = {name: raised(operation, a, number) for name, operation in OPERATIONS.items()}
        fine = [name for name, value in want.items() if isinstance(value, torch.Tensor)]
        operations = [OPERATIONS[name] for name in fine]
        got = dynamo_lite.compile(lambda a, made=operations, n=number: [f(a, n) for f in made])(a)
        for name, value in zip(fine, got):
            assert value.dtype is want[name].dtype, (number, name)
            if value.is_floating_point():
                torch.testing.assert_close(value, want[name], rtol=1e-6, atol=0, equal_nan=True)
            else:
                assert torch.equal(value, want[name]), (number, name)
        for name in OPERATIONS.keys() - set(fine):
            error = raised(dynamo_lite.compile(lambda a, f=OPERATIONS[name], n=number: f(a, n)), a)
            assert (type(error), str(error)) == (type(want[name]), str(want[name])), (number, name)
        dynamo_lite.reset()
