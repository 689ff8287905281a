"""Softmax between two products, in a form that one pass over blocks of columns can compute (Milakov and Gimelshein,
2018; Dao et al., 2022): the largest score and the sum of exponentials so far are carried along, and what has been
summed is scaled when a larger score is found.

Invariant: the statements of ``OnlineSoftmax`` give what the kernels between the products compute, for whole rows.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dynamo_lite.backends.inductor.ir.nodes import Builder, Node, walk
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, OnlineSoftmax, Store
from dynamo_lite.backends.inductor.scheduler.row_cases import by_cases


def online_softmax(builder: Builder, parts: Sequence[Kernel], local: Mapping[str, object]) -> OnlineSoftmax | None:
    """The softmax that the parts of a chain (``row_blocks``) compute; None if they compute something else.

    Args:
        local: names of the buffers between the parts.
    """
    values: dict[str, Node] = {}
    reductions: list[Accumulate] = []
    stores: list[Store] = []
    for number, part in enumerate(parts[:-1]):
        product = number == 0
        for stage in part.stages[1 if product else 0:]:
            for s in stage.statements:
                value = _with_values(builder, s.value, values)
                if isinstance(s, Accumulate):
                    reductions.append(dataclasses.replace(s, value=value))
                elif s.buffer in local or s.buffer in part.scratch:
                    values[s.buffer] = value
                elif stage.inner:
                    return None  # elements of rows are stored
                else:
                    stores.append(Store(s.buffer, s.index, value))
    (sum_,) = parts[-1].stages[0].statements
    (product_,) = parts[0].stages[0].statements
    assert isinstance(sum_, Accumulate) and isinstance(product_, Accumulate)
    if sum_.value.op != "mul":
        return None
    a, b = (_with_values(builder, factor, values) for factor in sum_.value.args)
    weight, other = (a, b) if _reduced(a, product_.acc) else (b, a)
    return _matched(builder, weight, other, reductions, stores, product_.acc)


def _with_values(builder: Builder, node: Node, values: Mapping[str, Node]) -> Node:
    """The node with loads of local buffers replaced by what has been stored there. (Each element is read by the
    iteration of its row and column.)"""
    moved = {n: values[n.attr[0]] for n in walk((node,)) if n.op == "load" and n.attr[0] in values}
    return builder.substitute(node, {}, moved) if moved else node


def _reduced(node: Node, product: str) -> set[str]:
    """The reductions of a row that a node depends on."""
    return {n.attr for n in walk((node,)) if n.op == "acc"} - {product}


def _matched(
    builder: Builder, weight: Node, values: Node, reductions: Sequence[Accumulate], stores: Sequence[Store],
    product: str,
) -> OnlineSoftmax | None:
    plain = {a.acc: a for a in reductions if not _reduced(a.value, product)}
    if any(a.kind not in ("max", "min", "any", "all", "sum") for a in plain.values()):
        return None
    e, empty, divisor = _undone(weight)
    total = next((a for a in reductions if a.acc == divisor and a.kind == "sum" and a.value is e), None)
    largest = next((a for a in plain.values() if a.kind == "max" and _is_exponential(e, a)), None)
    if total is None or largest is None:
        return None
    stored: list[Store] = []
    for s in stores:
        value: Node | None = s.value
        if not _reduced(s.value, product) <= {*plain, total.acc}:
            value = by_cases(builder, s.value, largest, total, reductions)
        if value is None:
            return None
        stored.append(Store(s.buffer, s.index, value))
    conditions = {name for condition in empty for name in _of_rows(condition)}
    if not conditions <= plain.keys():
        return None
    used = conditions.union(*(_reduced(s.value, product) for s in stored))
    others = [a for a in plain.values() if a is not largest and a.acc in used]
    return OnlineSoftmax(largest, total, others, empty, stored, values)


def _undone(weight: Node) -> tuple[Node, list[Node], str | None]:
    """The exponential of a score of which a weight is made, the conditions of rows in which the weight is 0 instead,
    and the reduction by which it is divided; None if it is none, or not the last thing that is done."""
    empty: list[Node] = []
    while True:
        if weight.op == "cast" and (weight.dtype in HALF or weight.args[0].dtype in HALF):
            weight = weight.args[0]  # rounding to 16 bits, which the product's operands are rounded to anyway
        elif weight.op == "where" and _is_zero(weight.args[1]):
            empty.append(weight.args[0])
            weight = weight.args[2]
        elif weight.op == "div" and weight.args[1].op == "acc":
            return weight.args[0], empty, weight.args[1].attr
        else:
            return weight, empty, None


def _of_rows(node: Node) -> set[str]:
    """The reductions and buffers that a node reads."""
    return {n.attr if n.op == "acc" else n.attr[0] for n in walk((node,)) if n.op in ("acc", "load")}


def _is_exponential(e: Node, largest: Accumulate) -> bool:
    """Whether a value is the exponential of a score minus the largest one."""
    if e.op != "exp" or e.args[0].op != "sub":
        return False
    score, most = e.args[0].args
    return score is largest.value and most.op == "acc" and most.attr == largest.acc


def _is_zero(n: Node) -> bool:
    return n.op == "const" and n.attr == 0
