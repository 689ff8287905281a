"""Writes arguments and results as Python source, according to their types.

Invariant: a text evaluates to the value; a value without a literal form is bound in the namespace of the wrapper.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from dynamo_lite.backends.inductor.ir.symbolic import index_of
from dynamo_lite.backends.inductor.program import BufferRef, BufferSpec, Decision, Expr, SizeRef
from dynamo_lite.symbols.integers import Expr as Expression
from dynamo_lite.symbols.nodes import IntNode

# Variable: returns the variable of a buffer. Bind: binds a value in the namespace and returns its name there.
Variable = Callable[[str], str]
Bind = Callable[[str, Any], str]


def value_text(value: Any, variable: Variable, bind: Bind) -> str:
    """A value as a Python expression."""
    for cls in type(value).__mro__:
        if cls in _TEXTS:
            return _TEXTS[cls](value, variable, bind)
    assert not pytree.tree_any(lambda leaf: isinstance(leaf, (BufferRef, SizeRef)), value), f"can't write {value!r}"
    return bind("constant", value)


def size_text(expr: Expr) -> str:
    """A size as Python source."""
    if isinstance(expr, torch.SymInt):
        expr = index_of(expr)
    return repr(expr) if isinstance(expr, int) else str(expr)


def tuple_text(items: list[str]) -> str:
    """A tuple of the given expressions."""
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def shape_text(values: Sequence[Expr]) -> str:
    """Sizes or strides as a Python tuple."""
    return tuple_text([size_text(v) for v in values])


def strided_text(base: str, size: Sequence[Expr], stride: Sequence[Expr], offset: Expr) -> str:
    """A view of the tensor that an expression gives, with an offset from its first element."""
    origin = base.removesuffix(".detach()")
    place = "" if isinstance(offset, int) and offset == 0 else f", {origin}.storage_offset() + {size_text(offset)}"
    return f"{base}.as_strided({shape_text(size)}, {shape_text(stride)}{place})"


def empty_text(spec: BufferSpec, bind: Bind) -> str:
    """A new tensor with a buffer's layout."""
    empty = bind("empty_strided", torch._C._VariableFunctions.empty_strided)
    return (f"{empty}({shape_text(spec.size)}, {shape_text(spec.stride)}, dtype={_named(spec.dtype, str, bind)}, "
            f"device={_device(spec.device, str, bind)})")


def decision_text(decision: Decision, variable: Variable, bind: Bind) -> str:
    """The assignment that computes the numbers of a decision."""
    function = bind(decision.function.__name__, decision.function)
    return f"{', '.join(decision.names)} = {function}({value_text(decision.argument, variable, bind)})"


def same_value(a: Any, b: Any) -> bool:
    """Whether one name in the namespace may stand for both values."""
    return a is b or (isinstance(a, torch.device) and isinstance(b, torch.device) and a == b)


def _literal(value: Any, variable: Variable, bind: Bind) -> str:
    return repr(value)


def _number(value: Any, variable: Variable, bind: Bind) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'{bind("float", float)}("{value}")'
    return repr(value) if type(value) in (int, float) else bind("constant", value)


def _computed(value: Any, variable: Variable, bind: Bind) -> str:
    """The expression of a float that is computed from sizes."""
    node = value.node if isinstance(value, torch.SymFloat) else value
    if isinstance(node, IntNode):
        return size_text(node.expr)
    if node.function == "constant":
        return _number(node.hint, variable, bind)
    function = bind(getattr(node.function, "__name__", "function"), node.function)
    return f"{function}({', '.join(_computed(a, variable, bind) for a in node.args)})"


def _list(value: Any, variable: Variable, bind: Bind) -> str:
    return f"[{', '.join(value_text(item, variable, bind) for item in value)}]"


def _tuple(value: Any, variable: Variable, bind: Bind) -> str:
    return tuple_text([value_text(item, variable, bind) for item in value])


def _named(value: Any, variable: Variable, bind: Bind) -> str:
    return bind(str(value).removeprefix("torch."), value)


def _device(value: Any, variable: Variable, bind: Bind) -> str:
    return bind(f"device_{value.type}{'' if value.index is None else value.index}", value)


_TEXTS: dict[type, Callable[[Any, Variable, Bind], str]] = {
    BufferRef: lambda value, variable, bind: variable(value.name),
    SizeRef: lambda value, variable, bind: size_text(value.expr),
    Expression: lambda value, variable, bind: size_text(value),
    torch.SymFloat: _computed,
    torch.SymInt: lambda value, variable, bind: size_text(value),
    type(None): _literal, bool: _literal, str: _literal,
    int: _number, float: _number,
    list: _list, tuple: _tuple,
    torch.dtype: _named, torch.memory_format: _named, torch.layout: _named,
    torch.device: _device,
}
