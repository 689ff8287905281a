"""Triton expressions for IR nodes, indices and casts.

Invariant: the expression of a node computes the value that ``ir.ops`` defines, rounded where the IR rounds, both
compiled and in Triton's interpreter.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from dynamo_lite.backends.inductor.codegen import indices
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.ops import OPS

# The types in memory, in the notation of kernel signatures.
POINTERS = {
    torch.float32: "*fp32", torch.float64: "*fp64", torch.bfloat16: "*bf16", torch.float16: "*fp16",
    torch.int64: "*i64", torch.int32: "*i32", torch.int16: "*i16", torch.int8: "*i8", torch.uint8: "*u8",
    torch.bool: "*i1"}
MEMORY = {
    torch.float32: "tl.float32", torch.float64: "tl.float64", torch.bfloat16: "tl.bfloat16",
    torch.float16: "tl.float16", torch.int64: "tl.int64", torch.int32: "tl.int32", torch.int16: "tl.int16",
    torch.int8: "tl.int8", torch.uint8: "tl.uint8", torch.bool: "tl.int1"}
# The types in registers: 16-bit floats are held in the type to which they are converted for arithmetic.
VALUE = {**MEMORY, torch.bfloat16: "tl.float32", torch.float16: "tl.float32"}

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "tdiv": "//", "tmod": "%", "and": "&", "or": "|", "xor": "^", "shl": "<<",
    "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# Functions that Triton itself has for float32 and float64.
_CALLS = {
    "floor": "tl.floor", "ceil": "tl.ceil", "exp": "tl.exp", "exp2": "tl.exp2", "log": "tl.log",
    "log2": "tl.log2", "sin": "tl.sin", "cos": "tl.cos", "erf": "tl.erf", "fma": "tl.fma"}
# Functions of ``helpers.py``; the second group is for float32 only.
HELPERS = frozenset({
    "trunc", "round", "expm1", "log10", "log1p", "tan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "erf_plus_one", "pow", "hypot", "copysign"})
HELPERS_OF_FLOAT32 = frozenset({"asin", "acos", "atan"})
# Functions that a GPU takes from libdevice, CUDA's math library, as eager's kernels do: the values are the same. The
# helpers compute by way of float64 to be as exact in the interpreter, which has no libdevice.
_LIBDEVICE = {name: name for name in (
    "trunc", "expm1", "log10", "log1p", "tan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "asin", "acos",
    "atan", "atan2", "erfc", "lgamma", "nextafter", "hypot", "copysign", "pow", "fmod")} | {"round": "rint"}
# Conversions of floats to smaller integers go through this type, which wraps as eager's conversions do.
_THROUGH = {torch.int8: "tl.int32", torch.int16: "tl.int32", torch.uint8: "tl.int64"}


def computes(node: Node) -> bool:
    """Whether the interpreter has an expression for the node."""
    op = node.op
    if op not in OPS or op in _INFIX or op in _CALLS or op in HELPERS:
        return True
    if op in HELPERS_OF_FLOAT32:
        return node.dtype is torch.float32
    return op in _WRITTEN


def computes_on_gpu(node: Node) -> bool:
    """Whether there is an expression for the node in a kernel that runs on a GPU."""
    return node.op in _LIBDEVICE or computes(node)


def index_text(x: ix.Index, names: Mapping[ix.Var, str], indirect: Callable[[Node], str]) -> str:
    """An index as a Triton expression of integers."""
    return indices.index_text(x, names, "//", indirect)


def const_text(value: bool | int | float, dtype: torch.dtype) -> str:
    """A constant in the register type of its dtype."""
    if dtype is torch.bool:
        return f"(tl.full((), {int(value)}, tl.int32) != 0)"  # a mask can't be made as int1 directly in the interpreter
    if dtype.is_floating_point:
        number = f'float("{value}")' if not math.isfinite(value) else repr(float(value))
    else:
        number = str(int(value))
    return f"tl.full((), {number}, {VALUE[dtype]})"


def literal_text(node: Node) -> str | None:
    """A constant as a plain number, if Triton gives it the other operand's type without changing its value."""
    if node.op != "const" or node.dtype not in (torch.float32, torch.int32, torch.int64):
        return None
    if node.dtype is torch.float32:
        return repr(float(node.attr)) if math.isfinite(node.attr) else None
    return str(node.attr) if abs(node.attr) < 1 << 31 else None


def operation_text(node: Node, args: list[str], gpu: bool = False) -> str:
    """The expression of a node that is not a leaf, given its operands' names, in the interpreter or on a GPU."""
    op, dtype = node.op, node.dtype
    if gpu and op in _LIBDEVICE:
        return f"libdevice.{_LIBDEVICE[op]}({', '.join(args)})"
    if gpu and op == "erf_plus_one":
        return f"libdevice.erfc(-{args[0]})"
    if op == "cast":
        return cast_text(node.args[0].dtype, dtype, args[0])
    source = node.args[0].dtype
    if source is torch.bool and op in _INFIX and OPS[op].result == "bool" and op not in ("and", "or", "xor"):
        args = [f"{a}.to(tl.int32)" for a in args]
    if op in _INFIX:
        texts = [literal_text(a) or t for a, t in zip(node.args, args)]
        if all(a.op == "const" for a in node.args):
            texts = args
        return f"{texts[0]} {_INFIX[op]} {texts[1]}"
    written = _WRITTEN.get(op)
    return f"{_CALLS.get(op) or op + '_'}({', '.join(args)})" if written is None else written(dtype, args)


def _extreme(name: str) -> Callable[[torch.dtype, list[str]], str]:
    """The text of a minimum or maximum that is NaN if either operand is NaN."""
    def text(dtype: torch.dtype, args: list[str]) -> str:
        nan = ", propagate_nan=tl.PropagateNan.ALL" if dtype.is_floating_point else ""
        return f"tl.{name}({', '.join(args)}{nan})"

    return text


def _complement(dtype: torch.dtype, x: str) -> str:
    if dtype is torch.bool:
        return f"{x} == 0"
    # Triton up to 3.7 computes ~ with the constant -1, which its interpreter refuses for unsigned numbers.
    return f"~{x}" if dtype.is_signed else f"{x} ^ {torch.iinfo(dtype).max}"


# Operations with a syntax of their own, given the result's dtype and the operands' names. For float32, Triton's default
# division and square root are approximations.
_WRITTEN: dict[str, Callable[[torch.dtype, list[str]], str]] = {
    "div": lambda dtype, x: f"tl.div_rn({x[0]}, {x[1]})" if dtype is torch.float32 else f"{x[0]} / {x[1]}",
    "fmod": lambda dtype, x: f"{x[0]} % {x[1]}",
    "sqrt": lambda dtype, x: f"tl.sqrt_rn({x[0]})" if dtype is torch.float32 else f"tl.sqrt({x[0]})",
    "neg": lambda dtype, x: f"neg_({x[0]})" if dtype.is_floating_point else f"-{x[0]}",
    "not": lambda dtype, x: _complement(dtype, x[0]),
    "where": lambda dtype, x: f"tl.where({', '.join(x)})",
    "abs": lambda dtype, x: x[0] if dtype is torch.uint8 else f"tl.abs({x[0]})",
    "philox": lambda dtype, x: f"philox({', '.join(x)})",
    "maximum": _extreme("maximum"),
    "minimum": _extreme("minimum"),
}


def cast_text(source: torch.dtype, dtype: torch.dtype, x: str) -> str:
    """The expression that converts ``x`` as eager does."""
    if dtype is torch.bool:
        return f"{x} != 0"
    if source.is_floating_point and dtype in _THROUGH:
        x = f"{x}.to({_THROUGH[dtype]})"
    if VALUE[source] != VALUE[dtype]:
        x = f"{x}.to({VALUE[dtype]})"
    if dtype is torch.bfloat16:
        return f"round_bf16({x})"
    return f"{x}.to(tl.float16).to(tl.float32)" if dtype is torch.float16 else x
