"""What the compiler finds out by operations of its own does not depend on the state of the program that asks first."""
import contextlib

import new_process
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import dynamo_lite
from dynamo_lite import torch_versions
from dynamo_lite.backends.inductor import random
from dynamo_lite.backends.inductor.lowering import activations, tails
from dynamo_lite.fake import whole_calls
from dynamo_lite.runtime.neutral_state import neutral_state, probe


class _Refusing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} was seen")


def _refused(x):
    raise AssertionError("a tensor was saved")


STATES = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16), "inference": torch.inference_mode,
    "no_grad": torch.no_grad, "default device": lambda: torch.device("meta"), "dispatch mode": _Refusing,
    "Python dispatcher": torch._C._EnablePythonDispatcher,
    "saved tensors": lambda: torch.autograd.graph.saved_tensors_hooks(_refused, _refused),
}
LSTM = whole_calls._Call(
    torch._C._VariableFunctions.lstm, False, True, 1, True, False, False, False, torch.float32, True, True)
PROBES = [
    (torch_versions.apply_takes_keywords, ()), (torch_versions.matmul_asks_for_numbers, ()),
    (torch_versions.spectra_take_sorted_dims, ()), (torch_versions.norms_take_dims_from_the_front, ()),
    (torch_versions.clamp_ignores_nan, ()), (random.draws_like_torch, ()),
    (activations._edges_of_onednn, (torch.float32,)), (tails._bytes_at_a_time, (False,)),
    (tails._bytes_at_a_time, (True,)), (whole_calls._orders, (LSTM,)),
]


@contextlib.contextmanager
def _default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("asked, args", PROBES, ids=lambda v: getattr(v, "__name__", None))
def test_a_probe_finds_the_same_in_each_state(asked, args):
    found = {}
    for name, state in (STATES | {"float64": lambda: _default_dtype(torch.float64)}).items():
        asked.cache_clear()
        with state():
            found[name] = asked(*args)
    asked.cache_clear()
    assert set(found.values()) == {asked(*args)}, found


@pytest.mark.parametrize("name", STATES)
def test_operations_inside_are_those_of_a_new_thread(name):
    w = torch.ones(2, 2, requires_grad=True)
    with STATES[name]():
        before = (torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled(), torch.is_grad_enabled(),
                  torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack())
        with neutral_state():
            y = torch.ones(2, 2) @ w
            y.sin().sum().backward()
        assert before == (torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled(), torch.is_grad_enabled(),
                          torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack())
    assert (y.dtype, y.device.type, y.is_inference(), w.grad.shape) == (torch.float32, "cpu", False, (2, 2))


def test_an_answer_is_found_once():
    asked = []

    @probe
    def is_small(n):
        asked.append(n)
        return n < 3

    assert [is_small(n) for n in (1, 5, 1, 5)] == [True, False, True, False] and asked == [1, 5]


@pytest.mark.parametrize("first", ["autocast", "inference"])
def test_products_of_symbolic_sizes_after_a_first_compile_in_another_state(first):
    """They were one graph only if torch had first been asked about products in the default state."""
    torch_versions.matmul_asks_for_numbers.cache_clear()
    w = torch.randn(8, 8)
    with STATES[first]():
        in_state = dynamo_lite.compile(lambda x: x @ x.transpose(1, 2), backend="eager", dynamic=True)
        for n in (3, 4):
            in_state(torch.randn(2, n, 8))
    compiled = dynamo_lite.compile(lambda x: x @ w, backend="eager", dynamic=True, fullgraph=True)
    before = dynamo_lite.metrics()["graphs"]
    for n in (5, 7, 9):
        x = torch.randn(2, n, 8)
        assert torch.equal(compiled(x), x @ w)
    assert dynamo_lite.metrics()["graphs"] == before + 1


def test_kernels_under_a_default_device_are_those_of_their_tensors():
    """In a process of its own: a probe of dropout read memory that a tensor on "meta" does not have."""
    done = new_process.run("""
import torch, dynamo_lite
F = torch.nn.functional
x = torch.randn(40, 24)
lstm = torch.nn.LSTM(24, 16)
programs = {
    "gelu": lambda x: F.gelu(x.bfloat16()), "dropout": lambda x: F.dropout(x, 0.5, True) * 2,
    "maximum": lambda x: torch.maximum(x, x.flip(0)), "elu": lambda x: F.elu(x).clamp(-1, 1),
    "lstm": lambda x: lstm(x)[0], "number": lambda x: x * x[0, 0].item() + x.sum(),
}
for name, program in programs.items():
    with torch.device("meta"):
        compiled = dynamo_lite.compile(program)
        torch.manual_seed(0)
        got = compiled(x)
        torch.manual_seed(0)
        want = program(x)
    assert got.device == want.device == x.device and got.dtype is want.dtype, name
    torch.testing.assert_close(got, want)
torch.set_default_dtype(torch.float16)
for grad in (True, False):
    with torch.set_grad_enabled(grad):
        compiled = dynamo_lite.compile(lambda x: lstm(x[None])[0])
        torch.testing.assert_close(compiled(x), lstm(x[None])[0])
print("equal")
""")
    assert done.stdout == "equal\n" and "plain Python" not in done.stderr, done.stdout + done.stderr
