"""Views with symbolic sizes, computed without torch's rules: the layout of a view follows from its base's by a line of
arithmetic.

Invariant: as in ``fake.plain_results``, nothing is decided, and calls that a rule does not cover are left to torch's
rules. A view lies within its base.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from dynamo_lite.fake.meta_kernels import symbolic_part
from dynamo_lite.fake.plain_results import (
    NotKnown,
    Sizes,
    dense,
    exceeds,
    require,
    sizes_of,
    strides_of,
    told,
)
from dynamo_lite.symbols import integers as ints
from dynamo_lite.symbols.environment import Environment
from dynamo_lite.symbols.integers import Index
from dynamo_lite.symbols.nodes import symbolic_int

aten = torch.ops.aten


class Place(NamedTuple):
    """The layout of a view in its base's memory; `offset` counts from the base's first element."""

    sizes: Sizes
    strides: Sizes
    offset: Index = 0


def view_of(mode: Any, base: torch.Tensor, sizes: Sequence[Index], strides: Sequence[Index], offset: Index) -> Any:
    """A view of a fake tensor, made without dispatching to the mode.

    Args:
        offset: the view's offset in the storage.
    """
    env = mode.env
    view = symbolic_part(base, [symbolic_int(env, n) for n in sizes], [symbolic_int(env, n) for n in strides],
                         symbolic_int(env, offset))
    return FakeTensor(mode, view, base.fake_device)  # type: ignore[attr-defined]


def _whole(env: Environment, x: torch.Tensor) -> list[Place]:
    return [Place(sizes_of(x), strides_of(x))]


def _permuted(env: Environment, x: torch.Tensor, dims: Sequence[int]) -> list[Place]:
    sizes, strides = sizes_of(x), strides_of(x)
    order = [d % len(sizes) for d in dims]
    require(sorted(order) == list(range(len(sizes))))
    return [Place(tuple(sizes[d] for d in order), tuple(strides[d] for d in order))]


def _transposed(env: Environment, x: torch.Tensor, a: int, b: int) -> list[Place]:
    order = list(range(x.dim()))
    order[a], order[b] = order[b], order[a]
    return _permuted(env, x, order)


def _t(env: Environment, x: torch.Tensor) -> list[Place]:
    require(x.dim() == 2)
    return _permuted(env, x, (1, 0))


def _unsqueezed(env: Environment, x: torch.Tensor, dim: int) -> list[Place]:
    sizes, strides = sizes_of(x), strides_of(x)
    at = dim % (len(sizes) + 1)
    step = ints.mul(sizes[at], strides[at]) if at < len(sizes) else 1
    return [Place((*sizes[:at], 1, *sizes[at:]), (*strides[:at], step, *strides[at:]))]


def _squeezed(env: Environment, x: torch.Tensor, dim: int | Sequence[int]) -> list[Place]:
    sizes, strides = sizes_of(x), strides_of(x)
    given = {d % len(sizes) for d in ([dim] if isinstance(dim, int) else dim)}
    require(all(sizes[d] == 1 or exceeds(env, sizes[d], 1) for d in given))
    kept = [d for d in range(len(sizes)) if d not in given or sizes[d] != 1]
    return [Place(tuple(sizes[d] for d in kept), tuple(strides[d] for d in kept))]


def _expanded(env: Environment, x: torch.Tensor, size: Sequence[Any], implicit: bool = False) -> list[Place]:
    sizes, strides = sizes_of(x), strides_of(x)
    new = len(size) - len(sizes)
    require(new >= 0 and bool(sizes))
    out: list[Index] = [told(n) for n in size]
    steps: list[Index] = [0] * len(out)
    for d in reversed(range(len(out))):
        have = sizes[d - new] if d >= new else 1
        steps[d] = strides[d - new] if d >= new else ints.mul(out[d + 1], steps[d + 1])
        if out[d] == -1 and d >= new:
            out[d] = have
        if out[d] != have:
            require(have == 1 and exceeds(env, out[d], 1))
            steps[d] = 0
    return [Place(tuple(out), tuple(steps))]


def _selected(env: Environment, x: torch.Tensor, dim: int, index: Any) -> list[Place]:
    sizes, strides = sizes_of(x), strides_of(x)
    d, at = dim % len(sizes), told(index)
    if isinstance(at, int) and at < 0:
        at = ints.add(at, sizes[d])
    require(exceeds(env, at, -1) and exceeds(env, sizes[d], at))
    return [Place((*sizes[:d], *sizes[d + 1:]), (*strides[:d], *strides[d + 1:]), ints.mul(at, strides[d]))]


def _split(env: Environment, x: torch.Tensor, length: Any, dim: int = 0) -> list[Place]:
    whole = sizes_of(x)[dim]
    require(type(whole) is int and type(length) is int and 0 < length <= whole)
    assert isinstance(whole, int)
    lengths = [min(length, whole - at) for at in range(0, whole, length)]
    return _split_in(env, x, lengths, dim)


def _split_in(env: Environment, x: torch.Tensor, lengths: Sequence[Any], dim: int = 0) -> list[Place]:
    sizes, strides = sizes_of(x), strides_of(x)
    parts, d = [told(n) for n in lengths], dim % len(sizes)
    require(ints.sum_of(parts) == sizes[d] and all(exceeds(env, n, 0) for n in parts))
    places, at = [], 0
    for n in parts:
        places.append(Place((*sizes[:d], n, *sizes[d + 1:]), strides, ints.mul(at, strides[d])))
        at = ints.add(at, n)  # type: ignore[assignment]
    return places


def _unbound(env: Environment, x: torch.Tensor, dim: int = 0) -> list[Place]:
    count = sizes_of(x)[dim]
    if not isinstance(count, int):
        raise NotKnown
    return [_selected(env, x, dim, at)[0] for at in range(count)]


def _viewed(env: Environment, x: torch.Tensor, size: Sequence[Any]) -> list[Place]:
    sizes, strides = sizes_of(x), strides_of(x)
    new, whole = [told(n) for n in size], ints.product(sizes)
    if -1 in new:
        others = ints.product(n for n in new if n != -1)
        require(exceeds(env, others, 0))
        new[new.index(-1)] = ints.floordiv(whole, others)
    require(ints.product(new) == whole and all(exceeds(env, n, 0) for n in (*sizes, *new)))
    if strides == dense(sizes):
        return [Place(tuple(new), dense(new))]
    return [Place(tuple(new), _cut_anew(sizes, strides, new))]


def _cut_anew(sizes: Sizes, strides: Sizes, new: Sequence[Index]) -> Sizes:
    """The strides of a view, as in ``fake.strides.view_strides``: from the last dimension to the first, each run of
    dimensions that are contiguous to one another is divided into new dimensions."""
    out: list[Index] = [0] * len(new)
    at, step, have = len(new) - 1, strides[-1], 1
    for d in reversed(range(len(sizes))):
        have = ints.mul(have, sizes[d])  # type: ignore[assignment]
        if d and (sizes[d - 1] == 1 or strides[d - 1] == ints.mul(have, step)):
            continue
        made: Index = 1
        while at >= 0 and (made != have or new[at] == 1):
            out[at] = ints.mul(made, step)
            made = ints.mul(made, new[at])
            at -= 1
        require(made == have)
        if d:
            step, have = strides[d - 1], 1
    require(at < 0)
    return tuple(out)


RULES: dict[Any, Callable[..., list[Place]]] = {
    aten.alias.default: _whole, aten.detach.default: _whole, aten.permute.default: _permuted,
    aten.transpose.int: _transposed, aten.t.default: _t, aten.unsqueeze.default: _unsqueezed,
    aten.squeeze.dim: _squeezed, aten.squeeze.dims: _squeezed, aten.expand.default: _expanded,
    aten.select.int: _selected, aten.split.Tensor: _split, aten.split_with_sizes.default: _split_in,
    aten.unbind.int: _unbound, aten.view.default: _viewed, aten._unsafe_view.default: _viewed,
}


def result(mode: Any, expected: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The views that an operator returns for symbolic sizes; ``NotImplemented`` where no rule here knows them.

    Args:
        mode: the fake mode of the result.
        expected: the operator's result for the sizes of the traced call.
    """
    rule = RULES.get(func)
    parts = [expected] if isinstance(expected, torch.Tensor) else expected
    if rule is None or isinstance(expected, Exception) or torch.is_inference_mode_enabled():
        return NotImplemented
    env: Environment = mode.env
    try:
        found = rule(env, *args, **kwargs)
        start = told(args[0].storage_offset())
    except (NotKnown, TypeError, ValueError, IndexError):  # arguments that the rule does not take are left to torch
        return NotImplemented
    if len(found) != len(parts):
        return NotImplemented
    places = []
    for place, part in zip(found, parts):
        offset = ints.add(start, place.offset)
        if not all(map(env.is_computable, (*place.sizes, *place.strides, offset))):
            return NotImplemented
        if (tuple(map(env.value, place.sizes)), tuple(map(env.value, place.strides)), env.value(offset)) != (
                tuple(part.shape), part.stride(), part.storage_offset()):
            return NotImplemented
        places.append((place, offset))
    views = [view_of(mode, args[0], place.sizes, place.strides, offset) for place, offset in places]
    return views[0] if isinstance(expected, torch.Tensor) else type(expected)(views)
