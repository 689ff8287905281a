"""C++ expressions for nodes and indices. The same text serves scalars and vectors, as ``vec.h`` overloads every
function.

Invariant: in every lane an expression computes what ``ir.ops`` defines for its node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from dynamo_lite.backends.inductor.codegen import indices
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.ops import OPS

# C++ type of an element in memory.
STORAGE = {
    torch.float32: "float",
    torch.float64: "double",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b8",
}
# C++ type of a value in a register.
VALUE = {**STORAGE, torch.bfloat16: "float", torch.float16: "float", torch.bool: "bool"}

# Function that rounds a value to its type in memory.
ROUND = {torch.bfloat16: "round_bf16", torch.float16: "round_f16"}

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "tdiv": "/",
    "tmod": "%",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
# Largest divisor of ``quotient`` in ``vec.h``: up to it, all quotients have been compared with those of a division.
MAX_DIVISOR = 1024
_CALL = {"maximum": "max_", "minimum": "min_"}
# Types whose operations C++ promotes to int.
_PROMOTES = {torch.int8, torch.uint8, torch.int16}


def index_text(x: ix.Index, names: Mapping[ix.Var, str], indirect: Callable[[Node], str] | None = None) -> str:
    """An index as a C++ expression of ``i64`` variables.

    Args:
        x: the index.
        names: the C++ names of loop variables.
        indirect: the C++ text of a node whose value is part of the index.
    """
    return indices.index_text(x, names, "/", indirect)


def const_text(value: bool | int | float, dtype: torch.dtype) -> str:
    """A constant as a scalar of its register type."""
    if dtype is torch.bool:
        return "true" if value else "false"
    if dtype.is_floating_point:
        kind = VALUE[dtype]
        if math.isnan(value):
            return f"({kind})NAN"
        if math.isinf(value):
            return f"({kind}){'-' if value < 0 else ''}INF"
        text = repr(float(value))
        if kind == "float":
            short = f"{value:.9g}"
            text = short if "." in short or "e" in short else short + ".0"
            return text + "f"
        return text
    if value == -(2**63):
        return "(i64)(-9223372036854775807l - 1)"
    return f"({VALUE[dtype]}){value}{'l' if dtype is torch.int64 else ''}"


def operation_text(node: Node, args: list[str], vector: bool) -> str:
    """The C++ expression of a node with operands, whose texts are ``args``. ``vector``: the operands are vectors."""
    op, dtype = node.op, node.dtype
    if op == "cast":
        return _cast_text(node.args[0].dtype, dtype, args[0])
    source = node.args[0].dtype
    if source is torch.bool:
        if op in ("and", "or", "xor", "not"):
            return f"mask_{op}({', '.join(args)})"
        if OPS[op].result == "bool":
            return f"from_mask<i32>({args[0]}) {_INFIX[op]} from_mask<i32>({args[1]})"
    if op == "where":
        return _choice_text(node, args)
    if op == "div" and vector and dtype is torch.float32 and _is_whole_divisor(node.args[1]):
        return f"quotient<{int(node.args[1].attr)}>({args[0]})"
    if op in _INFIX:
        text = f"{args[0]} {_INFIX[op]} {args[1]}"
        return f"({VALUE[dtype]})({text})" if not vector and dtype in _PROMOTES else text
    if op in ("neg", "not"):
        text = f"~{args[0]}" if op == "not" else f"-{args[0]}" if args[0][:1] != "-" else f"-({args[0]})"
        return f"({VALUE[dtype]})({text})" if not vector and dtype in _PROMOTES else text
    return f"{_CALL.get(op, op + '_')}({', '.join(args)})"


def _choice_text(node: Node, args: list[str]) -> str:
    condition = node.args[0]
    if node.dtype is torch.bool:
        return f"mask_sel({', '.join(args)})"
    if condition.op in _EXTREMES and condition.args == node.args[1:]:
        return f"{_EXTREMES[condition.op]}({args[1]}, {args[2]})"
    return f"sel({', '.join(args)})"


# Comparisons that choose between the very numbers they compare: the function of ``vec.h`` that does both.
_EXTREMES = {"gt": "greater", "lt": "lesser"}


def _is_whole_divisor(n: Node) -> bool:
    """Whether ``quotient`` in ``vec.h`` divides by ``n``: if it is an integer constant, but no power of two, for which
    the compiler multiplies anyway."""
    if n.op != "const" or not 2 < n.attr <= MAX_DIVISOR or n.attr != int(n.attr):
        return False
    return int(n.attr) & int(n.attr) - 1 != 0


def _cast_text(source: torch.dtype, dtype: torch.dtype, x: str) -> str:
    if source is torch.bool:
        return f"from_mask<{VALUE[dtype]}>({x})"
    if dtype is torch.bool:
        return f"{x} != 0"
    if VALUE[source] != VALUE[dtype]:
        x = f"to<{VALUE[dtype]}>({x})"
    return f"{ROUND[dtype]}({x})" if dtype in ROUND else x
