"""What the backends' tests share: a captured graph made of any function, and the comparison of a backend with eager."""
from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx

from dynamo_lite import log
from dynamo_lite.backends import lookup_backend
from dynamo_lite.fake.mode import TraceFakeMode


def capture(fn: Callable[..., Any], inputs: list[Any]) -> tuple[torch.fx.GraphModule, list[Any]]:
    """A graph of one node that calls ``fn``, and the fake inputs: the recorder sees what ``fn`` does all the same."""
    graph = torch.fx.Graph()
    placeholders = tuple(graph.placeholder(f"arg{i}") for i in range(len(inputs)))
    graph.output(graph.call_function(fn, placeholders))
    gm = torch.fx.GraphModule(torch.nn.Module(), graph)
    mode = gm.meta["fake_mode"] = TraceFakeMode()
    return gm, [mode.from_tensor(t) if isinstance(t, torch.Tensor) else t for t in inputs]


def as_function(module: torch.nn.Module, inputs: list[Any]) -> tuple[Callable[..., Any], list[Any]]:
    """A function of parameters, buffers and inputs that runs ``module``, and its arguments."""
    slots = [(holder, name) for sub in module.modules() for holder in (sub._parameters, sub._buffers)
             for name, tensor in holder.items() if tensor is not None]
    tensors = list({id(holder[name]): holder[name] for holder, name in slots}.values())
    index = {id(t): i for i, t in enumerate(tensors)}
    places = [(holder, name, index[id(holder[name])]) for holder, name in slots]

    def run(*flat):
        for holder, name, i in places:
            holder[name] = flat[i]
        try:
            return module(*flat[len(tensors):])
        finally:
            for holder, name, i in places:
                holder[name] = tensors[i]

    return run, [*tensors, *inputs]


def tuple_of(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def copies(inputs: list[Any]) -> list[Any]:
    """Inputs of the same layout and contents in memory of their own, shared among them as in the originals."""
    memory: dict[int, torch.Tensor] = {}
    made = []
    for t in inputs:
        if not isinstance(t, torch.Tensor):
            made.append(t)
            continue
        storage = t.untyped_storage()
        if storage._cdata not in memory:
            flat = torch.empty(0, dtype=torch.uint8).set_(storage)
            memory[storage._cdata] = flat.clone()
        twin = torch.empty(0, dtype=t.dtype).set_(
            memory[storage._cdata].untyped_storage(), t.storage_offset(), t.shape, t.stride())
        made.append(twin.requires_grad_(t.requires_grad) if t.is_leaf else twin)
    return made


def aliasing(tensors: list[Any]) -> list[tuple[int, int]]:
    """Pairs of tensors that share memory."""
    found = []
    for i, a in enumerate(tensors):
        for j in range(i):
            b = tensors[j]
            if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.numel() and b.numel():
                if a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr():
                    found.append((j, i))
    return found


def compare(fn, inputs, *, backend="inductor_lite", options=None, rtol=0.0, atol=0.0, calls=2, seed=0):
    """Asserts that a backend's result of ``fn`` has eager's values, layouts, aliases, mutations and random stream.

    Returns:
        the compiled function.
    """
    with torch.no_grad():
        gm, fakes = capture(fn, inputs)
        chosen = lookup_backend(backend)
        compiled = chosen(gm, fakes, options=options) if options is not None else chosen(gm, fakes)
        assert "fallback lowering failed" not in log.counters(), "a graph was not lowered; the log says why"
        for call in range(calls):
            theirs, ours = copies(inputs), copies(inputs)
            torch.manual_seed(seed + call)
            want = tuple_of(fn(*theirs))
            after_want = torch.rand(1)
            torch.manual_seed(seed + call)
            got = tuple_of(compiled(*ours))
            after_got = torch.rand(1)
            assert torch.equal(after_want, after_got), "the random stream went elsewhere"
            assert len(want) == len(got)
            for i, (p, q) in enumerate(zip([*theirs, *want], [*ours, *got])):
                same(p, q, f"input {i}" if i < len(theirs) else f"result {i - len(theirs)}", rtol, atol)
            assert aliasing([*theirs, *want]) == aliasing([*ours, *got]), "tensors share memory otherwise"
            for i, t in enumerate([*theirs, *want]):
                for j, u in enumerate([*theirs, *want][:i]):
                    if t is u and isinstance(t, torch.Tensor):
                        assert [*ours, *got][i] is [*ours, *got][j], "the same tensor became two"
    return compiled


def same(p, q, what="", rtol=0.0, atol=0.0):
    if not isinstance(p, torch.Tensor):
        assert p == q, what
        return
    assert isinstance(q, torch.Tensor), what
    assert p.dtype == q.dtype, f"{what}: {p.dtype} became {q.dtype}"
    assert p.shape == q.shape, f"{what}: {p.shape} became {q.shape}"
    assert p.stride() == q.stride(), f"{what}: strides {p.stride()} became {q.stride()}"
    assert p.requires_grad == q.requires_grad, what
    torch.testing.assert_close(q, p, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{what}: {m}")


@pytest.fixture
def backend_check():
    """``compare`` and its helpers as attributes."""
    return types.SimpleNamespace(compare=compare, capture=capture, as_function=as_function, same=same, copies=copies)
