"""Torch function modes that a program enters."""
from __future__ import annotations

import pytest
import torch
import torch._dynamo._trace_wrapped_higher_order_op as flex
from language_support import Programs, same
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, _get_current_function_mode

import dynamo_lite

program = Programs()
LOG: list = []
LINEAR = nn.Linear(3, 3)
ATTENTION = nn.MultiheadAttention(4, 2)
NET = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 1))


class Count(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        LOG.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Scale(TorchFunctionMode):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        return made * self.factor if func in (torch.add, torch.Tensor.add) else made


class Double(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.ones, torch.zeros):
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


class Refuse(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise ValueError(func.__name__)


class Shapes(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (7,) if func == torch.Tensor.shape.__get__ else func(*args, **(kwargs or {}))


@program
def operators(x):
    LOG.clear()
    with Count():
        y = x + 1
        z = (1 - y) * 2 / 3
        first, shape, dtype, n, length = x[0], x.shape, x.dtype, x.size(0), len(x)
        equal, minus, power, two = x == y, -x, x**2, 2**x
        product, copy = x @ x.t(), x.clone()
        copy[0] = 1
        copy += 1
        rows = [row for row in x.T]
    return y, z, first, shape, dtype, n, length, equal, minus, power, two, product, copy, rows, list(LOG)


@program
def functions(x):
    LOG.clear()
    with Count():
        made = F.relu(x), LINEAR(x), torch.cat([x, x]), torch.ones(3), torch.tensor([1.0, 2]), torch.zeros_like(x)
        more = F.softmax(x, -1), torch.is_tensor(x), F.dropout(x, 0.5), torch.where(x > 0, x, 0), x.max(1).values
        with torch.no_grad():
            without = LINEAR(x)
    return made, more, without, list(LOG)


@program
def functions_that_are_inlined(x):
    LOG.clear()
    q = torch.ones(2, 1, 4)
    with Count():
        made = ATTENTION(q, q, q)
    return made, x + 1, list(LOG)


@program
def nested_modes(x):
    LOG.clear()
    with Scale(3), Count(), Scale(2):
        y = torch.add(x, 1)
        z = x + 2
    return y, z, x + 1, list(LOG)


@program
def one_mode_twice(x):
    LOG.clear()
    mode = Count()
    with mode, mode:
        y = x + 1
        current = _get_current_function_mode() is mode
    return y, current, list(LOG)


@program
def models_under_a_mode(x):
    with Scale(2):
        return NET(x)


@program
def functions_that_make_tensors(x):
    with Double():
        y, z = torch.ones(3), torch.zeros(2)
    return x + 1, y, z, torch.ones(1)


@program
def modes_that_raise(x):
    try:
        with Refuse():
            x + 1
    except ValueError as error:
        return x * 2, str(error)


@program
def attributes(x):
    with Shapes():
        shape = x.shape
    return x + 1, shape, x.shape


@program
def modes_switched_off(x):
    LOG.clear()
    with Count():
        with torch._C.DisableTorchFunction():
            y = x + 1
        with torch._C.DisableTorchFunctionSubclass():
            y = y * 2
    return y, list(LOG)


@program
def indices_under_vmap(x):
    with flex.TransformGetItemToIndex():
        return torch.vmap(lambda i: x[i, i] * 2)(torch.arange(2))


@program
def functions_that_call_several(x):
    LOG.clear()
    q = torch.ones(1, 3)
    with Count():
        made = F._in_projection_packed(q, q, q, torch.ones(9, 3)), F.sigmoid(x)
        pooled = F.max_pool1d(x[None], 2), F.max_pool1d(x[None], 2, return_indices=True)
    return made, pooled, list(LOG)


@program
def arguments_that_a_function_does_not_take(x):
    LOG.clear()
    with Count():
        try:
            torch.add(x, "a")
        except TypeError:
            return x + 1, list(LOG)


@program.breaks("torch_state")
def switches_without_a_handler(x):
    LOG.clear()
    before = torch._C._check_sparse_tensor_invariants()
    with Count():
        torch._C._set_check_sparse_tensor_invariants(not before)
        y = x + 1
    now = torch._C._check_sparse_tensor_invariants()
    torch._C._set_check_sparse_tensor_invariants(before)
    return y, now != before, list(LOG)


@program.breaks("rng_state")
def seeds(x):
    LOG.clear()
    with Count():
        torch.manual_seed(5)
        y = torch.rand(3) + x
    return y, list(LOG)


@program.breaks("data_dependent_branch")
def a_break_inside(x):
    LOG.clear()
    with Count():
        y = x + 1
        if y.sum() > 3:
            y = y * 2
    return y - 1, list(LOG)


@program.breaks("explicit_break")
def breaks_in_a_loop(x):
    LOG.clear()
    mode = Count()
    for _ in range(2):
        with mode:
            x = x + 1
            dynamo_lite.graph_break()
            x = x * 2
        x = x - 1
    return x, list(LOG), torch._C._len_torch_function_stack()


@program.breaks("unsupported_context_manager")
def modes_and_devices(x):
    with Count(), torch.device("cpu"):
        return torch.ones(3) + x


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
    assert torch._C._len_torch_function_stack() == 0


def test_switches_are_not_set_while_tracing():
    seen = []

    def f(x):
        with Count():
            y = x + 1
            torch._C._set_check_sparse_tensor_invariants(y is not None)
        return y

    def look(graph, inputs):
        seen.append(torch._C._check_sparse_tensor_invariants())
        return graph

    assert not torch._C._check_sparse_tensor_invariants()
    with pytest.raises(dynamo_lite.exc.Unsupported, match="_set_check_sparse_tensor_invariants"):
        dynamo_lite.compile(f, backend=look, fullgraph=True)(torch.ones(3))
    assert not torch._C._check_sparse_tensor_invariants() and not seen


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_a_mode_from_outside_is_guarded_by_what_it_reads(backend):
    def f(x, mode):
        with mode:
            return x + 1

    compiled = dynamo_lite.compile(f, backend=backend, fullgraph=True)
    x, mode = torch.arange(3.0), Scale(2)
    for factor in (2, 2, 5):
        mode.factor = factor
        assert same(compiled(x, mode), f(x, mode))
    assert same(compiled(x, Count()), f(x, Count()))


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_numbers_that_change_are_handed_to_a_mode_as_they_are(backend):
    """Sizes, and what is computed from them, stay symbols."""
    def f(x, scale):
        with Scale(2):
            return torch.add(x, x, alpha=scale) * torch.mul(x, 1 / x.shape[0] ** 0.5) + x.size(0)

    compiled = dynamo_lite.compile(f, backend=backend, fullgraph=True, dynamic=True)
    for turn, (n, scale) in enumerate(((4, 0.5), (5, 0.7), (9, 1.5), (7, 0.1))):  # a float is one after it has changed
        with dynamo_lite.config.patch(error_on_recompile=turn > 1):
            x = torch.arange(float(n))
            torch.testing.assert_close(compiled(x, scale), f(x, scale))
