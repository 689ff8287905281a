"""Operations on lists of tensors, one tensor after the other, as eager runs them on a CPU.

The order matters: ``_foreach_add_([x, y], [y, x])`` adds the new x to y.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

_SCALAR_KEYWORDS = {"addcdiv": "value", "addcmul": "value"}
"""Operations whose scalars are keywords when called on one tensor."""


def _one_by_one(op: Any, name: str) -> Callable[..., Any]:
    """A function of the arguments of ``op`` that calls ``name`` on each tensor."""
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


def table() -> dict[Any, Callable[..., Any]]:
    """For every list operation that is the same operation on each tensor."""
    found = {}
    skipped = {"norm", "max", "powsum", "pow"}
    for full_name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = full_name.partition("::")
        if namespace != "aten" or not rest.startswith("_foreach_"):
            continue
        packet_name, _, overload = rest.partition(".")
        name = packet_name.removeprefix("_foreach_")
        if name.removesuffix("_") in skipped or not hasattr(aten, name) or overload.endswith("out"):
            continue
        op = getattr(getattr(aten, packet_name), overload or "default")
        if overload == "Tensor" and name.startswith("addc"):
            continue  # the scalars come in a tensor: values, not metadata
        found[op] = _one_by_one(op, name)
    return found
