"""Decompositions of operators on lists of tensors into one call for each tensor, in order, as eager runs them on a CPU.

The order matters: ``_foreach_add_([x, y], [y, x])`` adds the new x to y.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

_SCALAR_KEYWORDS = {"addcdiv": "value", "addcmul": "value"}
"""Keyword of the scalar argument of the operator on single tensors, where it is keyword-only."""

_OTHERS = frozenset({"norm", "max", "powsum", "pow"})
"""List operators that do not, or do not always, apply the operator of that name to each tensor."""


def _one_by_one(op: Any, name: str) -> Callable[..., Any]:
    """A function of the arguments of the list operator ``op`` that calls the operator ``name`` on each tensor."""
    packet = getattr(aten, name)
    schema = op._schema
    names = [a.name for a in schema.arguments]
    lists = {a.name for a in schema.arguments if str(a.type) in ("List[Tensor]", "List[Scalar]", "List[number]")}
    keyword = _SCALAR_KEYWORDS.get(name.removesuffix("_"))
    keyword_only = {a.name for a in schema.arguments if a.kwarg_only}

    def run(*args: Any, **kwargs: Any) -> Any:
        bound = dict(zip(names, args), **kwargs)
        count = next(len(bound[n]) for n in names if n in lists and isinstance(bound[n], (list, tuple)))
        results = []
        for i in range(count):
            own, own_kwargs = [], {}
            for n, value in bound.items():
                item = value[i] if n in lists else value
                if n in keyword_only:
                    own_kwargs[n] = item
                elif keyword and n in ("scalars", "value"):
                    own_kwargs[keyword] = item
                else:
                    own.append(item)
            results.append(packet(*own, **own_kwargs))
        return results if schema.returns else None

    return run


@functools.cache
def one_by_one(op: Any) -> Callable[..., Any] | None:
    """The decomposition of a list operator that applies the operator of that name to each tensor; None for any other
    operator. It is made on demand, because most programs use none, and making those of all list operators of torch
    would cost 10 ms at the first call.
    """
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten":
        return None
    packet_name, overload = op.overloadpacket.__name__, op._overloadname
    name = packet_name.removeprefix("_foreach_")
    if name == packet_name or name.removesuffix("_") in _OTHERS or not hasattr(aten, name) or overload.endswith("out"):
        return None
    if overload == "Tensor" and name.startswith("addc"):
        return None  # the scalars come in a tensor: values, not metadata
    return _one_by_one(op, name)
