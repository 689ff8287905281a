"""Arrays in the memory of a graph's tensors: ``x.numpy()``."""
import copy

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import dynamo_lite


class State:
    kept = None


def _rebound(x):
    array = x.numpy()
    x.data = torch.ones(3)
    x.add_(5)
    return array, x


def _changed_later(x):
    y = x * 2
    array = y.numpy()
    y.add_(1)
    return y, array, x


def _input_changed_later(x):
    array = x.numpy()
    x.add_(1)
    return array


def _not_of_gradients(x):
    y = x.clone().requires_grad_() * 2
    return y.detach().cpu().numpy(), y


def _twice(x):
    a, b = x.numpy(), x.numpy()
    return a, b, a is b, a is a


def _kept(x):
    State.kept = (x + 1).numpy()
    return x * 2


def _in_inference_mode(x):
    with torch.inference_mode():
        return (x * 2).numpy()


CAPTURED = {
    "result": lambda x: (x * 2).numpy(),
    "input": lambda x: x.numpy(),
    "part": lambda x: (x[1:].numpy(), x),
    "expanded": lambda x: x.reshape(1, 3).expand(2, 3).t().numpy(),
    "in containers": lambda x: {"a": (x * 2).numpy(), "b": [x.sum().numpy()]},
    "type": lambda x: (isinstance(x.numpy(), np.ndarray), x + 1),
    "rebound": _rebound, "changed_later": _changed_later, "input changed later": _input_changed_later,
    "not of gradients": _not_of_gradients, "twice": _twice, "kept": _kept, "inference": _in_inference_mode,
}


def _caught(x):
    try:
        return (x.clone().requires_grad_() * 2).numpy()
    except RuntimeError as error:
        return str(error)


def _written(x):
    array = x.numpy()
    array[0] = 7
    return x + 1


def _added_to(x):
    array = x.numpy()
    array += 1
    return array, x


def _after_a_break(x):
    array = (x * 2).numpy()
    dynamo_lite.graph_break()
    array[0] = 9
    return array, x


BREAKS = {
    "caught": _caught, "written": _written, "added to": _added_to, "after a break": _after_a_break,
    "computed with": lambda x: (x * 2).numpy() + 1,
    "added to a list": lambda x: [1.0, 2.0, 3.0] + (x * 2).numpy(),
    "function": lambda x: np.negative((x * 2).numpy()),
    "compared": lambda x: ((x * 2).numpy() == 2).tolist(),
    "truth": lambda x: 1 if x.sum().numpy() else 0,
    "copied": lambda x: copy.deepcopy((x * 2).numpy()),
    "reversed": lambda x: list(reversed(x.numpy())),
    "taken apart": lambda x: [n for n in x.numpy()],
    "a tensor again": lambda x: torch.from_numpy((x * 2).numpy()) + 1,
    "copied to a tensor": lambda x: torch.tensor((x * 2).numpy()) + 1,
    "of selected elements": lambda x: x[x > 0].numpy(),
    "forced": lambda x: x.numpy(force=True),
}


def arrays_in(result):
    leaves = pytree.tree_leaves(result)
    return [t if isinstance(t, np.ndarray) else t.detach().numpy() for t in leaves
            if isinstance(t, (np.ndarray, torch.Tensor))]


def same(a, b):
    if isinstance(a, np.ndarray):
        return (type(b) is np.ndarray and np.array_equal(a, b) and (a.dtype, a.strides) == (b.dtype, b.strides)
                and a.flags.writeable == b.flags.writeable)
    if isinstance(a, torch.Tensor):
        return type(b) is torch.Tensor and torch.equal(a, b) and a.requires_grad == b.requires_grad
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", [*CAPTURED, *BREAKS])
def test_arrays(name, backend, dynamic):
    program = {**CAPTURED, **BREAKS}[name]
    compiled = dynamo_lite.compile(program, backend=backend, dynamic=dynamic, fullgraph=name in CAPTURED)
    dynamo_lite.reset_metrics()
    met = []
    for call in range(3):
        for function in (program, compiled):
            x = torch.arange(3.0) + call
            State.kept = None
            met.append((x, function(x), State.kept))
        (want, got) = ([*pytree.tree_leaves(result), x, kept] for x, result, kept in met[-2:])
        assert len(want) == len(got) and all(map(same, want, got))
        shared = [[np.shares_memory(a, b) for a in arrays_in(values) for b in arrays_in(values)]
                  for values in (want, got)]
        assert shared[0] == shared[1]
    for (_, want, _), (_, got, _) in zip(met[::2], met[1::2]):  # no later call has written to an array
        assert all(map(same, pytree.tree_leaves(want), pytree.tree_leaves(got)))
    if name in CAPTURED and name not in ("input", "type"):
        assert dynamo_lite.metrics()["graphs"] == 1 and not dynamo_lite.metrics().get("recompiles")


def test_what_raises():
    for program in (lambda x: (x.clone().requires_grad_() * 2).numpy(), lambda x: x.bfloat16().numpy(),
                    lambda x: (x + 1j).conj().numpy()):
        for function in (program, dynamo_lite.compile(program, backend="eager")):
            with pytest.raises((RuntimeError, TypeError)):
                function(torch.ones(3))
