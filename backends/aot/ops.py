"""Operations of the aten graph that aten lacks, as plain functions on real tensors.

They are copies and views by strides, random fills, and functional forms of operations that write to their arguments. A
program runs them as library calls where lowerings don't turn them into loops.

Invariant: except for ``overwrite``, none changes its arguments.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dynamo_lite import log


def copy_strided(x: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """A copy of ``x`` with the given strides."""
    out = torch.empty_strided(x.shape, stride, dtype=x.dtype, device=x.device)
    return out.copy_(x)


def overwrite(x: torch.Tensor, value: torch.Tensor, versions: int) -> torch.Tensor:
    """Copies a value to an input and increments its version by ``versions``: one for each write that the program has
    made, none for writes through ``.data``."""
    if not versions:
        x.data.copy_(value)
        return x
    x.copy_(value)
    for _ in range(versions - 1):
        torch.autograd.graph.increment_version(x)
    return x


def as_promised(x: torch.Tensor, stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A copy of a library call's result in the layout that the call's metadata rule has promised, which is the layout
    that kernels read. If the dtype differs, that rule is wrong, and the log says so."""
    if x.dtype is not dtype and log.first_time("fallbacks", f"{x.dtype} for {dtype}"):
        log.artifact("fallbacks").warning("a library call gave %s, not %s, and is converted", x.dtype, dtype)
    return copy_strided(x.to(dtype), stride)


def as_strided(x: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> torch.Tensor:
    """``x.as_strided`` with an offset that counts from the first element of ``x``, not from the start of its storage.
    """
    return x.as_strided(size, stride, x.storage_offset() + offset)


def as_strided_scatter(
    x: torch.Tensor, src: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> torch.Tensor:
    """A copy of ``x`` in which ``src`` is written to the elements of ``as_strided(x, size, stride, offset)``."""
    out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
    out.as_strided(size, stride, offset).copy_(src)
    return out


class RandomFill:
    """An in-place random operation in functional form: it fills new memory.

    The numbers drawn depend on the layout of the filled tensor, not on its contents, so the layout is an argument.
    """

    def __init__(self, op: Any) -> None:
        self.op = op
        self.__name__ = f"filled_by_{op._schema.name.removeprefix('aten::')}"

    def __call__(
        self, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: torch.device, *args: Any,
        **kwargs: Any,
    ) -> torch.Tensor:
        return self.op(torch.empty_strided(size, stride, dtype=dtype, device=device), *args, **kwargs)

    def __repr__(self) -> str:
        return self.__name__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RandomFill) and other.op is self.op

    def __hash__(self) -> int:
        return hash(self.op)


class Functionalized:
    """The functional form of a mutating operation that has none in aten: works on copies and returns them.

    Calling it returns the operation's own results (those that are not mutated arguments) followed by the copies.
    """

    def __init__(self, op: Any, mutated: tuple[int | str, ...]) -> None:
        self.op = op
        self.mutated = mutated
        self.__name__ = f"functionalized_{op._schema.name.replace('::', '_')}"

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        new_args, new_kwargs = list(args), dict(kwargs)
        copies = []
        for place in self.mutated:
            target: Any = new_args if isinstance(place, int) else new_kwargs
            value = target[place]
            copy: Any = [_copy(t) for t in value] if isinstance(value, (list, tuple)) else _copy(value)
            target[place] = copy
            copies.extend(copy if isinstance(copy, list) else [copy])
        result = self.op(*new_args, **new_kwargs)
        results = result if isinstance(result, (tuple, list)) else () if result is None else (result,)
        own = [r for r in results if not any(r is c for c in copies)]
        return (*own, *copies)

    def __repr__(self) -> str:
        return self.__name__

    def __hash__(self) -> int:
        return hash((self.op, self.mutated))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Functionalized) and (self.op, self.mutated) == (other.op, other.mutated)


def _copy(t: torch.Tensor | None) -> torch.Tensor | None:
    return None if t is None else copy_strided(t, t.stride())


VIEW_LIKE: frozenset[Callable[..., Any]] = frozenset({as_strided})
"""Functions of this module whose result shares memory with the first argument."""
