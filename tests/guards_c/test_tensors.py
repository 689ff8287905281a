"""Steps that check tensors and the state of the thread."""
import contextlib
import itertools
import threading

import pytest
import torch
from guard_programs import holds, program
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dynamo_lite import _guards as G


# ---------------------------------------------------------------- tensors
def tensor_step(t, requires_grad=None, flags=0, shape=None, strides=None):
    spec = list(G.tensor_spec(t))
    return ("tensor", 0, type(t), *spec[:4], shape or spec[4], strides or spec[5], requires_grad, flags)


def fits(step, t):
    return holds(("load_local", 0, 0), step, args=(t,))


def some_tensors():
    c = torch.randn(2, 3, dtype=torch.complex64)
    with torch.inference_mode():
        inference = torch.randn(2, 3)
    return {
        "plain": torch.randn(2, 3),
        "double": torch.randn(2, 3, dtype=torch.float64),
        "int": torch.ones(2, 3, dtype=torch.int32),
        "uint8": torch.ones(2, 3, dtype=torch.uint8),
        "int8": torch.ones(2, 3, dtype=torch.int8),
        "bool": torch.ones(2, 3, dtype=torch.bool),
        "half": torch.ones(2, 3, dtype=torch.half),
        "bfloat16": torch.ones(2, 3, dtype=torch.bfloat16),
        "fp8": torch.ones(2, 3).to(torch.float8_e4m3fn),
        "fp8b": torch.ones(2, 3).to(torch.float8_e5m2),
        "other shape": torch.randn(3, 2),
        "one dim": torch.randn(6),
        "scalar": torch.tensor(1.0),
        "grad": torch.randn(2, 3, requires_grad=True),
        "transposed": torch.randn(3, 2).t(),
        "expanded": torch.randn(1, 3).expand(2, 3),
        "size one": torch.randn(1, 3),
        "size one, odd stride": torch.empty_strided((1, 3), (100, 1)),
        "empty": torch.empty(0, 3),
        "empty, odd strides": torch.empty_strided((0, 3), (7, 5)),
        "complex": c,
        "conj": c.conj(),
        "neg": c.conj().imag,
        "inference": inference,
        "zeros without memory": torch._efficientzerotensor((2, 3)),
        "parameter": torch.nn.Parameter(torch.randn(2, 3)),
        "buffer": torch.nn.Buffer(torch.randn(2, 3)),
    }


def what_matters(t):
    return (type(t), t.dtype, t.device, t.shape, t.stride(), t.requires_grad, t.is_inference(), t.is_conj(), t.is_neg(),
            t._is_zerotensor())


def test_tensor_fits_exactly_what_it_describes():
    tensors = some_tensors()
    bits = G.TENSOR_INFERENCE | G.TENSOR_CONJ | G.TENSOR_NEG | G.TENSOR_ZERO
    for name, t in tensors.items():
        expected = t.is_inference() * G.TENSOR_INFERENCE | t.is_conj() * G.TENSOR_CONJ | t.is_neg() * G.TENSOR_NEG
        expected |= t._is_zerotensor() * G.TENSOR_ZERO
        step = tensor_step(t, t.requires_grad, bits | expected << G.TENSOR_EXPECTED_SHIFT)
        for other, u in tensors.items():
            assert fits(step, u) == (what_matters(t) == what_matters(u)), (name, other)
    for other in (
        5,
        None,
        torch.ones(2, 3).to_sparse(),
        torch.empty(2, 3, device="meta"),
        torch.randn(2, 3).to_mkldnn(),
    ):
        assert not fits(tensor_step(tensors["plain"]), other)


def test_tensor_open_dimensions():
    t = torch.randn(4, 5, 6)
    step = tensor_step(t, shape=(None, 5, None), strides=(None, None, 1))
    assert fits(step, t) and fits(step, torch.randn(1, 5, 2)) and not fits(step, torch.randn(4, 4, 6))
    assert not fits(step, torch.randn(4, 6, 5).transpose(1, 2))
    spec = G.tensor_spec(t)
    step = ("tensor", 0, torch.Tensor, *spec[:4], spec[4], None, None, 0)
    assert fits(step, torch.randn(6, 5, 4).permute(2, 1, 0))
    assert fits(tensor_step(t, requires_grad=False), t) and not fits(tensor_step(t, requires_grad=True), t)
    t.requires_grad_()
    assert fits(tensor_step(t, requires_grad=True), t)


def test_tensor_subclasses_and_views_of_other_modes_do_not_fit():
    class Mine(torch.Tensor):
        pass

    t = torch.randn(3)
    assert not fits(tensor_step(t), t.as_subclass(Mine)) and not fits(tensor_step(t), torch.nn.Parameter(t))
    seen = []
    torch.func.vmap(lambda row: seen.append(fits(tensor_step(t), row)) or row)(torch.randn(2, 3))
    assert seen == [False]


def test_tensor_spec():
    assert G.tensor_spec(torch.empty_strided((1, 3), (100, 1))) == (2, 32, 1, 0, (1, 3), (100, 1))
    with pytest.raises(TypeError):
        G.tensor_spec(5)
    with pytest.raises(RuntimeError):
        G.tensor_spec(torch.empty(1, device="meta"))


# ---------------------------------------------------------------- the thread's state
def test_global_state_tells_apart_what_matters():
    class Function(TorchFunctionMode):
        pass

    class Dispatch(TorchDispatchMode):
        pass

    @contextlib.contextmanager
    def setting(set, value, back):
        set(value)
        try:
            yield
        finally:
            set(back)

    class Another(TorchFunctionMode):
        pass

    function, another, device = Function(), Another(), torch.device("meta")
    states = {
        "plain": contextlib.nullcontext,
        "no_grad": torch.no_grad,
        "inference": torch.inference_mode,
        "autocast": lambda: torch.autocast("cpu"),
        "autocast half": lambda: torch.autocast("cpu", dtype=torch.float16),
        "autocast without cache": lambda: torch.autocast("cpu", cache_enabled=False),
        "default dtype": lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
        "deterministic": lambda: setting(torch.use_deterministic_algorithms, True, False),
        "function mode": lambda: function,
        "another function mode": lambda: another,
        "device": lambda: device,
        "another device": lambda: torch.device("cpu"),
        "dispatch mode": Dispatch,
        "no torch function": torch._C.DisableTorchFunction,
    }
    programs = {}
    for name, enter in states.items():
        with enter():
            programs[name] = (
                program(("global_state", *G.current_global_state())),
                program(("global_state", G.current_global_state())),
            )
    for name, enter in states.items():
        with enter():
            for other, (p, q) in programs.items():
                ok = p.check((), None, {}, {})[0]
                assert ok == q.check((), None, {}, {})[0] == (name == other), (name, other)
    with Function():  # each `with` statement may make a new one
        assert programs["function mode"][0].check((), None, {}, {})[0]
    seen = []
    torch.func.vmap(lambda t: seen.append(programs["plain"][0].check((), None, {}, {})[0]) or t)(torch.ones(2))
    assert seen == [False]
    assert len(G.GLOBAL_STATE_FIELDS) == len(G.current_global_state())


def test_global_state_is_of_the_thread():
    p = program(("global_state", G.current_global_state()))
    seen = []

    def run():
        seen.append(p.check((), None, {}, {})[0])
        with torch.no_grad():
            seen.append(p.check((), None, {}, {})[0])

    thread = threading.Thread(target=run)
    with torch.no_grad():
        thread.start()
        thread.join()
    assert seen == [True, False]


# ---------------------------------------------------------------- elements
def test_tensor_data():
    t = torch.tensor([3, 5, 7])
    step = ("tensor_data", 0, t.numpy().tobytes())
    assert fits(step, t) and fits(step, t.clone())
    assert not fits(step, torch.tensor([3, 5, 8])) and not fits(step, torch.tensor([3, 5]))


@pytest.mark.parametrize("view", [
    lambda t: t, lambda t: t[0], lambda t: t[:, 1], lambda t: t[..., 2], lambda t: t[:, ::2, 1:3],
    lambda t: t.transpose(0, 2),
    lambda t: t[:1].expand(3, 4, 5), lambda t: t[:, :, :1].expand(2, 4, 6), lambda t: t[:0], lambda t: t[1, 2, 3],
    lambda t: t[:, 1:2], lambda t: t.permute(1, 0, 2),
])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int32, torch.int64])
def test_tensor_data_of_views(view, dtype):
    base = torch.arange(40).view(2, 4, 5).remainder(3).to(dtype)
    t = view(base)
    step = ("tensor_data", 0, t.contiguous().numpy().tobytes())
    assert fits(step, t) and fits(step, t.contiguous())
    for place in itertools.product(*map(range, t.shape)):
        other = t.contiguous()
        other = other.clone()
        other[place] = 0 if other[place] else 1
        assert not fits(step, other)
    for number in range(base.numel()):
        changed = base.clone()
        changed.view(-1)[number] = 0 if changed.view(-1)[number] else 1
        assert fits(step, view(changed)) == torch.equal(view(changed), t)


def test_set_order():
    items = {1, "a", (2, 3)}
    step = ("set_order", 0, tuple(items))
    assert fits(step, items) and fits(step, frozenset(items)) == (list(frozenset(items)) == list(items))
    assert not fits(step, {1, "a"}) and not fits(step, {1, "a", (2, 4)}) and not fits(step, [*items])
