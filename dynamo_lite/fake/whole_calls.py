"""What a call that a graph makes whole gives, without its operations: ``lstm``, ``gru``, ``rnn_tanh`` and ``rnn_relu``.

Sizes follow from those of the operands. In which order dimensions lie in memory is found by a small call of the same
kind. Invariant: a result has the sizes, strides, dtype and ``requires_grad`` that eager gives; what is not covered runs
operation by operation, as any call does, which raises what eager raises.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from dynamo_lite.fake.dense_results import is_known_equal
from dynamo_lite.runtime.neutral_state import probe
from dynamo_lite.runtime.storage_extent import storage_extent
from dynamo_lite.runtime.whole_calls import RECURRENT, is_whole

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class _Call(NamedTuple):
    """What a call of a recurrent network asks for besides its tensors.

    Attributes:
        function: which network.
        packed: whether sequences of several lengths are packed.
        projected: whether hidden states are projected to a smaller size.
        gradients: whether autograd records it.
        onednn: whether kernels of oneDNN may be chosen.
    """

    function: Any
    packed: bool
    biases: bool
    layers: int
    train: bool
    bidirectional: bool
    batch_first: bool
    projected: bool
    dtype: torch.dtype
    gradients: bool
    onednn: bool

    @property
    def states(self) -> int:
        """How many states there are: an LSTM's cells have one of their own."""
        return 2 if self.function is torch._C._VariableFunctions.lstm else 1

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    def weights(self, inputs: Any, hidden: Any, out: Any) -> list[tuple[Any, ...]]:
        """The sizes of the weights, in order."""
        rows = RECURRENT[self.function] * hidden
        found: list[tuple[Any, ...]] = []
        for layer in range(self.layers):
            width = inputs if layer == 0 else out * self.directions
            for _ in range(self.directions):
                found += [(rows, width), (rows, out)]
                found += [(rows,), (rows,)] if self.biases else []
                found += [(out, hidden)] if self.projected else []
        return found


def call(mode: Any, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result of a call, if it is one that a graph makes whole; NotImplemented otherwise."""
    if not is_whole(target) or kwargs or len(args) != 9:
        return NotImplemented
    packed = not isinstance(args[3], bool)
    if packed:
        x, sizes, hidden, weights, biases, layers, dropout, train, bidirectional = args
        batch_first = False
    else:
        x, hidden, weights, biases, layers, dropout, train, bidirectional, batch_first = args
        sizes = None
    states = list(hidden) if isinstance(hidden, (tuple, list)) else [hidden]
    tensors = [x, *states, *weights]
    if not _is_plain(tensors, (biases, layers, train, bidirectional, batch_first)) or torch.is_autocast_enabled("cpu"):
        return NotImplemented
    gradients = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    per_layer = (4 if biases else 2) * (2 if bidirectional else 1)
    projected = len(weights) != layers * per_layer
    onednn = torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)
    kind = _Call(
        target, packed, biases, layers, train, bidirectional, batch_first, projected, x.dtype, gradients, onednn)
    shapes = _shapes(kind, x, sizes, states, weights)
    if shapes is None:
        return NotImplemented
    orders = _orders(kind)
    if orders is None:
        return NotImplemented
    if dropout and train and layers > 1:
        mode.effects_seen = mode.random_seen = True
    mode.raises_seen = mode.raises_seen or packed  # lengths that do not fit
    made = functools.partial(_made, mode, shapes, orders, x.dtype)
    return _Whole.apply(made, *tensors) if gradients else made()


def _is_plain(tensors: list[Any], flags: tuple[Any, ...]) -> bool:
    if not all(type(flag) in (bool, int) for flag in flags) or not all(isinstance(t, FakeTensor) for t in tensors):
        return False
    first = tensors[0]
    return first.dtype in _DTYPES and all(
        t.dtype is first.dtype and t.device.type == "cpu" and t.layout is torch.strided
        and not any(type(n) is int and n == 0 for n in t.shape) for t in tensors)


def _shapes(kind: _Call, x: Any, sizes: Any, states: list[Any], weights: Sequence[Any]) -> list[tuple[Any, ...]] | None:
    """The sizes of the results; None where the operands do not fit."""
    if len(states) != kind.states or x.dim() != (2 if kind.packed else 3) or any(s.dim() != 3 for s in states):
        return None
    if kind.packed and (sizes.dim() != 1 or sizes.dtype is not torch.int64 or sizes.device.type != "cpu"):
        return None
    rows = RECURRENT[kind.function]
    out, hidden = states[0].shape[2], states[-1].shape[2]
    batch = states[0].shape[1] if kind.packed else x.shape[0 if kind.batch_first else 1]
    wanted = [(layers_of(kind), batch, out), (layers_of(kind), batch, hidden)][: kind.states]
    given = kind.weights(x.shape[-1], hidden, out)
    pairs = [*zip([s.shape for s in states], wanted), *zip([w.shape for w in weights], given)]
    if rows < 1 or len(given) != len(weights) or not all(_are_equal(a, b) for a, b in pairs):
        return None
    return [(*x.shape[:-1], out * kind.directions), *wanted]


def layers_of(kind: _Call) -> int:
    """How many states of layers there are, in both directions."""
    return kind.layers * kind.directions


def _are_equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(map(is_known_equal, a, b))


@probe
def _orders(kind: _Call) -> tuple[tuple[int, ...], ...] | None:
    """For each result, its dimensions from the outermost in memory on; None: they share memory, or lie otherwise."""
    inputs, out, hidden, batch = 5, 3, 4 if kind.projected else 3, 2
    with torch.set_grad_enabled(kind.gradients):
        def zeros(*size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=kind.dtype, requires_grad=kind.gradients)

        states = [zeros(layers_of(kind), batch, n) for n in (out, hidden)[: kind.states]]
        state = tuple(states) if kind.states > 1 else states[0]
        weights = [zeros(*size) for size in kind.weights(inputs, hidden, out)]
        options = kind.biases, kind.layers, 0.0, kind.train, kind.bidirectional
        try:
            if kind.packed:
                made = kind.function(zeros(2 * batch + 1, inputs), torch.tensor([2, 2, 1]), state, weights, *options)
            else:
                x = zeros(batch, 4, inputs) if kind.batch_first else zeros(4, batch, inputs)
                made = kind.function(x, state, weights, *options, kind.batch_first)
        except RuntimeError:
            return None
    if len({t.untyped_storage()._cdata for t in made}) < len(made):
        return None
    if any(t.storage_offset() or t.untyped_storage().nbytes() != t.itemsize * storage_extent(t.shape, t.stride())
           for t in made):
        return None
    orders = tuple(tuple(sorted(range(t.dim()), key=lambda d: (-t.stride(d), d))) for t in made)
    dense = all(_strides(t.shape, order) == t.stride() for t, order in zip(made, orders))
    return orders if dense else None


def _strides(shape: Sequence[Any], order: tuple[int, ...]) -> tuple[Any, ...]:
    found: list[Any] = [0] * len(shape)
    dense: Any = 1
    for dim in reversed(order):
        found[dim] = dense
        dense = dense * shape[dim]
    return tuple(found)


def _made(
    mode: Any, shapes: list[tuple[Any, ...]], orders: tuple[tuple[int, ...], ...], dtype: torch.dtype
) -> tuple[Any, ...]:
    with mode:
        return tuple(torch.empty_strided(shape, _strides(shape, order), dtype=dtype, device="cpu")
                     for shape, order in zip(shapes, orders))


class _Whole(torch.autograd.Function):
    """The history of a call's results: it leads to the operands, as eager's does."""

    @staticmethod
    def forward(ctx: Any, made: Callable[[], tuple[Any, ...]], *operands: Any) -> tuple[Any, ...]:
        ctx.operands = operands
        return made()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise NotImplementedError("gradients of the gradients of a recurrent network")
        return (None, *(torch.empty_like(t) if needed else None
                        for t, needed in zip(ctx.operands, ctx.needs_input_grad[1:])))
