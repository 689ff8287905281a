"""Well-formedness checks of loop nests and kernel bodies.

Tests run them at the entry and the exit of passes. The error message quotes the nest.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import LoopNest
from dynamo_lite.backends.inductor.ir.nodes import Node, walk
from dynamo_lite.backends.inductor.ir.ops import OPS, REDUCTIONS, SPECIAL


class MalformedIR(AssertionError):
    """A nest that breaks a rule of the IR."""


def check_nest(nest: LoopNest) -> None:
    """Raises ``MalformedIR`` if the nest breaks a rule."""
    try:
        _check_nest(nest)
    except MalformedIR as e:
        raise MalformedIR(f"{e}\n{nest.describe()}") from None


def _check_nest(nest: LoopNest) -> None:
    dims = set(nest.dims)
    require(len(dims) == len(nest.dims), "a loop variable stands twice")
    require(set(nest.reduced) <= dims, "a reduced variable is no loop of the nest")
    require(ix.free_vars(nest.index) <= dims - set(nest.reduced), "the store's index names a variable that isn't kept")
    require(
        (nest.kind is None) == (not nest.reduced) or nest.kind is not None, "reduced variables without a reduction"
    )
    require(nest.kind is None or nest.kind in REDUCTIONS, f"no reduction is called {nest.kind}")
    positions = nest.kind is not None and nest.kind.startswith("arg")
    require(
        nest.buffer.dtype is (torch.int64 if positions else nest.value.dtype), "the value's dtype is not the buffer's"
    )
    check_nodes(walk(nest.roots() if nest.scan is not None else (nest.value,)), dims)
    require((nest.value.op == "update") == (nest.update is not None), "an update of nothing, or none of something")
    if nest.update is not None:
        check_nodes(walk((nest.update.value,)), set(nest.update.dims))
    carried = () if nest.scan is None else nest.scan.carried
    require(nest.scan is None or nest.scan.over in dims and not nest.reduced, "a scan along no loop of the nest")
    for c in carried:
        require(c.start.op == "const" and c.start.dtype is c.value.dtype, f"{c.name} does not begin as a constant")
    found = {n.attr for n in walk(nest.roots()) if n.op == "acc"}
    require(found <= {c.name for c in carried}, f"nothing carries {found}")


def check_nodes(nodes: Iterable[Node], variables: Set[ix.Var]) -> None:
    """Raises ``MalformedIR`` if a node breaks a rule; ``variables`` are those of the enclosing loops."""
    for node in nodes:
        require(node.vars <= variables, f"{node} names a variable of no loop: {set(node.vars) - set(variables)}")
        require(all(a.id < node.id for a in node.args), f"{node} comes before its operands")
        if node.op in SPECIAL:
            require(node.op != "bounded" or node.args[0].dtype is torch.int64, f"{node} bounds no int64")
            require(node.op != "cast" or node.args[0].dtype is not node.dtype, f"{node} casts to its own dtype")
            continue
        info = OPS.get(node.op)
        if info is None:
            raise MalformedIR(f"{node} is no operation")
        require(len(node.args) == info.arity, f"{node} takes {info.arity} operands")
        operands = node.args
        if node.op == "where":
            require(operands[0].dtype is torch.bool, f"{node} chooses by {operands[0]}")
            operands = operands[1:]
        require(len({a.dtype for a in operands}) == 1, f"{node} mixes dtypes: {list(operands)}")
        require(operands[0].dtype in info.dtypes, f"{node} can't be computed in {operands[0].dtype}")
        expected = torch.bool if info.result == "bool" else operands[0].dtype
        require(node.dtype is expected, f"{node} should be {expected}")


def require(condition: bool, message: str) -> None:
    """Raises ``MalformedIR`` with the message if the condition does not hold."""
    if not condition:
        raise MalformedIR(message)
