"""Arguments given by name to functions that the trace evaluates itself."""
import inspect
import pickle
import typing

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import dynamo_lite


def annotated(x: int, y: float = 1.0):
    return x


PROGRAMS = {
    "tensor": lambda x: x + torch.tensor(data=[1., 2.], dtype=torch.float64),
    "as_tensor": lambda x: x + torch.as_tensor(data=x, dtype=torch.float64),
    "as_tensor_list": lambda x: x + torch.as_tensor(data=[x.shape[0], 2]),
    "asarray": lambda x: x + torch.asarray(obj=[1, 2.], dtype=torch.float64) + torch.asarray(3),
    "as_tensor_array": lambda x: x + torch.as_tensor(data=np.arange(2), dtype=torch.float32),
    "tensor_array": lambda x: x + torch.tensor(data=np.arange(2)),
    "asarray_array": lambda x: x + torch.asarray(obj=np.arange(2.)),
    "new_tensor": lambda x: x + x.new_tensor(data=[x.shape[0], 1]),
    "cov": lambda x: torch.cov(input=x) + torch.corrcoef(input=x),
    "round": lambda x: x * round(x.shape[0] / 3, ndigits=2) + round(number=2.345, ndigits=1),
    "check": lambda x: torch._check(cond=x.shape[0] == 2, message=lambda: "size") or x + 1,
    "str": lambda x: x + len(str(b"ab", encoding="utf8") + str(object=12) + str(object=b"a", errors="strict") + str()),
    "vmap": lambda x: torch.vmap(func=lambda a: a * 2)(x),
    "grad": lambda x: torch.func.grad(func=lambda a: (a * a).sum())(x),
    "jvp": lambda x: torch.func.jvp(func=lambda a: a * a, primals=(x,), tangents=(x,))[1],
    "checkpoint": lambda x: checkpoint(function=lambda: x * 2, use_reentrant=False),
    "signature": lambda x: x * len(inspect.signature(obj=annotated).parameters),
    "hints": lambda x: x * len(typing.get_type_hints(obj=annotated)),
    "dumps": lambda x: x * len(pickle.dumps(obj=[1, 2])),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name):
    program, x = PROGRAMS[name], torch.tensor([[1., 2.], [3., 5.]])
    dynamo_lite.reset_metrics()
    compiled = dynamo_lite.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)
    assert (dynamo_lite.metrics()["graphs"], dynamo_lite.metrics().get("recompiles", 0)) == (1, 0)


def test_a_tensor_stays_itself():
    x = torch.ones(2)
    assert dynamo_lite.compile(lambda x: torch.as_tensor(data=x), backend="eager")(x) is x


@pytest.mark.parametrize("program", [
    lambda: torch.tensor(dtype=torch.float32), lambda: torch.tensor([1], data=[2]), lambda: torch.as_tensor(),
    lambda: torch.asarray([1.], copy=False), lambda: torch.from_numpy(data=np.zeros(1)),
    lambda: torch.asarray([[1.], 2.]), lambda: round(1.5, digits=1), lambda: str("a", encoding="utf8"),
    lambda: torch.vmap(lambda x: x, func=torch.sin),
])
def test_errors(program):
    with pytest.raises(Exception) as want:
        program()
    with pytest.raises(type(want.value)) as got:
        dynamo_lite.compile(program, backend="eager")()
    assert str(got.value) == str(want.value)
