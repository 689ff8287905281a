"""Interpreter of loop nests: the reference that generated code is tested against.

It evaluates every node with plain torch operations over all iterations at once (except along scans and for updates,
whose iterations run in order). It is meant to be simple, not fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import LoopNest
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.ir.ops import HALF, OPS, REDUCTIONS
from dynamo_lite.backends.inductor.ir.substitution import evaluate_index
from dynamo_lite.runtime.storage_extent import storage_extent

Memory = dict[str, torch.Tensor]


def run_nests(nests: Iterable[LoopNest], memory: Memory) -> None:
    """Runs nests in order. ``memory`` holds a flat tensor for each buffer, and receives the results."""
    for nest in nests:
        run_nest(nest, memory)


def run_nest(nest: LoopNest, memory: Memory) -> None:
    """Runs one nest of any kind: an update, a scan, a reduction or a pointwise nest."""
    if nest.update is not None:
        before = LoopNest(nest.buffer, nest.update.dims, nest.update.value, nest.update.index)
        run_nest(before, memory)
        run_update(nest.value, nest.dims, memory[nest.buffer.name], memory)
        return
    if nest.scan is not None:
        run_scan(nest, memory)
        return
    places = iteration_space(nest.dims)
    shape = [_int(v.size) for v in nest.dims]
    value = evaluate(nest.value, places, memory).expand(shape)
    kept = [d for d, v in enumerate(nest.dims) if v not in nest.reduced]
    if nest.kind is not None:
        reduced = [d for d in range(len(shape)) if d not in kept]
        value = reduce(nest.kind, value, kept, reduced)
        if nest.kind.startswith("arg"):
            value = _position(nest, value, places, kept, reduced)
        places = iteration_space(nest.kept)
    index = torch.as_tensor(evaluate_index(nest.index, places)).expand([shape[d] for d in kept])
    _memory_of(nest, memory)[index.reshape(-1)] = value.reshape(-1).to(nest.buffer.dtype)


def _memory_of(nest: LoopNest, memory: Memory) -> torch.Tensor:
    name = nest.buffer.name
    if name not in memory:
        extent = storage_extent([_int(n) for n in nest.buffer.size], [_int(s) for s in nest.buffer.stride])
        memory[name] = torch.zeros(extent, dtype=nest.buffer.dtype)
    return memory[name]


def run_scan(nest: LoopNest, memory: Memory) -> None:
    """Runs a nest with a ``scan``: the iterations of the scanned loop in order, those of all other loops at once."""
    assert nest.scan is not None
    others = tuple(v for v in nest.dims if v is not nest.scan.over)
    shape = [_int(v.size) for v in others]
    target = _memory_of(nest, memory)
    state = {c.name: torch.full(shape, c.start.attr, dtype=c.start.dtype) for c in nest.scan.carried}
    for at in range(_int(nest.scan.over.size)):
        places = {**iteration_space(others), nest.scan.over: torch.tensor(at)}
        state = {c.name: evaluate(c.value, places, memory, state).expand(shape) for c in nest.scan.carried}
        value = evaluate(nest.value, places, memory, state).expand(shape)
        target[torch.as_tensor(evaluate_index(nest.index, places)).expand(shape).reshape(-1)] = value.reshape(-1)


def run_update(node: Node, dims: tuple[ix.Var, ...], target: torch.Tensor, memory: Memory) -> None:
    """Applies the writes of an "update" node to the buffer ``target``, iteration by iteration."""
    places = iteration_space(dims)
    shape = [_int(v.size) for v in dims]
    index, mode = node.attr
    value = evaluate(node.args[0], places, memory).expand(shape).reshape(-1)

    def indirect(inner: Node) -> torch.Tensor:
        return evaluate(inner, places, memory)

    at = torch.as_tensor(evaluate_index(index, places, indirect)).expand(shape).reshape(-1)
    for k, i in enumerate(at.tolist()):
        target[i] = value[k] if mode == "set" else OPS[mode].reference(target[i], value[k])


def iteration_space(dims: tuple[ix.Var, ...]) -> dict[ix.Atom, torch.Tensor]:
    """The values of each variable, as a tensor that broadcasts along all dimensions but the variable's own."""
    out: dict[ix.Atom, torch.Tensor] = {}
    for d, v in enumerate(dims):
        shape = [1] * len(dims)
        shape[d] = -1
        out[v] = torch.arange(_int(v.size)).reshape(shape)
    return out


def evaluate(
    root: Node,
    places: dict[ix.Atom, torch.Tensor],
    memory: Memory,
    accs: Mapping[str, torch.Tensor] | None = None,
    bounds: bool = False,
) -> torch.Tensor:
    """The value of a node in every iteration, as a tensor that broadcasts over the iteration space.

    Args:
        places: the values of the loop variables.
        accs: the results of reductions, by name.
        bounds: whether a load out of bounds is an error; if not, it yields an arbitrary element.
    """
    values: dict[Node, torch.Tensor] = {}

    def indirect(node: Node) -> torch.Tensor:
        return values[node]

    for node in walk((root,)):
        if node.op == "const":
            result = torch.tensor(node.attr, dtype=node.dtype)
        elif node.op == "index":
            result = torch.as_tensor(evaluate_index(node.attr, places, indirect)).to(node.dtype)
        elif node.op == "load":
            name, index = node.attr
            at = torch.as_tensor(evaluate_index(index, places, indirect))
            # An index is out of bounds only where a guard (an "inside" node) is false, so that the value is unused.
            inside = at.clamp(0, max(memory[name].numel() - 1, 0))
            assert not bounds or torch.equal(at, inside), f"{node} reads out of bounds"
            result = memory[name][inside]
        elif node.op == "inside":
            value, low, high = (torch.as_tensor(evaluate_index(i, places, indirect)) for i in node.attr)
            result = (low <= value) & (value < high)
        elif node.op == "bounded":
            size, wraps, _ = node.attr
            result = values[node.args[0]]
            result = torch.where(result < 0, result + size, result) if wraps else result
            result = torch.where((result < 0) | (result >= size), 0, result)
        elif node.op == "acc":
            assert accs is not None, f"{node} is no part of a nest"
            result = accs[node.attr]
        elif node.op == "cast":
            result = _cast(values[node.args[0]], node.dtype)
        else:
            result = OPS[node.op].reference(*[values[a] for a in node.args])
        assert result.dtype is node.dtype, f"{node} computed {result.dtype}"
        values[node] = result
    return values[root]


def _cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if x.dtype is torch.float64 and dtype in HALF:
        x = x.float()  # eager rounds twice
    return x.to(dtype)


def reduce(kind: str, value: torch.Tensor, kept: list[int], reduced: list[int]) -> torch.Tensor:
    """``value`` reduced over the dimensions ``reduced``. Sums and products of floats are accumulated in float64."""
    flat = value.permute(*kept, *reduced).reshape(*[value.shape[d] for d in kept], -1)
    if kind in ("sum", "prod"):
        wide = flat.double() if flat.dtype.is_floating_point else flat
        return REDUCTIONS[kind](wide, -1, dtype=wide.dtype).to(value.dtype)
    return REDUCTIONS[kind](flat, -1)


def _position(
    nest: LoopNest, flat: torch.Tensor, places: dict[ix.Atom, Any], kept: list[int], reduced: list[int]
) -> torch.Tensor:
    """The nest's ``position`` of each iteration that argmax or argmin found.

    Args:
        flat: the places of these iterations in the flattened reduced dimensions.
    """
    shape = [_int(v.size) for v in nest.dims]
    numbers = torch.as_tensor(evaluate_index(nest.position, places)).expand(shape)
    numbers = numbers.permute(*kept, *reduced).reshape(*[shape[d] for d in kept], -1)
    return numbers.gather(-1, flat.unsqueeze(-1)).squeeze(-1)


def _int(n: ix.Index) -> int:
    assert isinstance(n, int), f"the interpreter runs nests of fixed sizes, not {n}"
    return n
