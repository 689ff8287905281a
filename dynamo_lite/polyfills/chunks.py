"""``torch.vmap`` over a batch in chunks (``_chunked_vmap`` in ``torch._functorch.vmap``).

Invariant: the function runs for one chunk after the other; the last one is smaller if the batch is no multiple.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def chunked_vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int,
) -> Callable[..., Any]:
    """``torch.vmap(func, ..., chunk_size=chunk_size)``."""
    if chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    mapped = torch.vmap(func, in_dims, out_dims, randomness)

    def in_chunks(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_dims, int) and len(args) == 1 and isinstance(args[0], torch.Tensor):
            return _joined([mapped(part, **kwargs) for part in args[0].split(chunk_size, in_dims)], out_dims)
        leaves, spec = pytree.tree_flatten(args)
        dims = pytree._broadcast_to_and_flatten(list(in_dims) if isinstance(in_dims, tuple) else in_dims, spec)
        if dims is None:
            return mapped(*args, **kwargs)  # raises the error about what does not fit
        sizes = [leaf.size(dim) for leaf, dim in zip(leaves, dims) if dim is not None]
        size = sizes[0] if sizes else 0
        if size <= chunk_size or any(other != size for other in sizes):
            return mapped(*args, **kwargs)
        made = []
        for start in range(0, size, chunk_size):
            part = [leaf if dim is None else leaf.narrow(dim, start, min(chunk_size, size - start))
                    for leaf, dim in zip(leaves, dims)]
            made.append(mapped(*pytree.tree_unflatten(part, spec), **kwargs))
        return _joined(made, out_dims)

    return in_chunks


def _joined(made: list[Any], out_dims: Any) -> Any:
    """The function's result for the whole batch, joined from its results for the chunks."""
    if isinstance(out_dims, int) and isinstance(made[0], torch.Tensor):
        return torch.cat(made, out_dims)
    form = pytree.tree_structure(made[0])
    columns = zip(*[pytree.tree_leaves(one) for one in made])
    places = pytree._broadcast_to_and_flatten(out_dims, form) or ()
    return pytree.tree_unflatten([torch.cat(list(column), dim=dim) for column, dim in zip(columns, places)], form)
