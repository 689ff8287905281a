"""How generated Python calls library operations with the least overhead.

``torch.mm`` and similar functions parse their arguments in half the time of ``torch.ops.aten.mm.default``. So an
operation is called through its Python binding if the binding takes the operator's arguments as they are and can't mean
another overload: this holds for operations with one overload, and for some others, which are listed here.

Invariant: a call's results and errors are those of the operator itself.
"""
from __future__ import annotations

import functools
from typing import Any

import torch

from dynamo_lite.backends.aot.ops import RandomFill, copy_strided
from dynamo_lite.backends.inductor.device_random import reserve
from dynamo_lite.backends.inductor.random import fast_form

aten = torch.ops.aten

_SAME_ARGUMENTS = (
    "mm", "addmm", "bmm", "baddbmm", "sort", "scatter", "where", "softmax", "tanh", "exp", "sqrt",
    "repeat_interleave", "upsample_nearest2d", "upsample_bilinear2d", "bernoulli",
)


def _bindings() -> dict[Any, tuple[str, Any]]:
    """The Python bindings, with their names, of the operators that are listed here."""
    table: dict[Any, tuple[str, Any]] = {}
    for name in _SAME_ARGUMENTS:
        packet = getattr(aten, name, None)
        binding = getattr(torch._C._VariableFunctions, name, None) or getattr(torch._C._nn, name, None)
        if packet is not None and binding is not None and "default" in packet.overloads():
            table[packet.default] = (name, binding)
    for name in ("add", "sub", "mul", "div"):
        table[getattr(aten, name).Tensor] = (name, getattr(torch._C._VariableFunctions, name))
    return table


_BINDINGS = _bindings()
_PLAIN = frozenset({
    "Tensor", "Optional[Tensor]", "List[Tensor]", "int", "Optional[int]", "List[int]", "Optional[List[int]]", "float",
    "Optional[float]", "bool", "Optional[bool]", "str", "Optional[str]", "number"})
"""Types of arguments that bindings treat like operators do. For other types, dtypes and devices among them, a binding
combines several arguments or has its own default."""


@functools.cache
def _only_binding(target: torch._ops.OpOverload) -> Any:
    """The binding of an operator that has only one overload (apart from ``out``) and plain arguments; else None."""
    packet = target._overloadpacket
    schemas = [getattr(packet, name)._schema for name in packet.overloads()]
    functional = [s for s in schemas if not any(a.is_out for a in s.arguments)]
    if target.namespace != "aten" or functional != [target._schema] or target._schema.is_mutable:
        return None
    # If the default is the name of a reduction, bindings take no number (``set_default_str`` in torch/csrc/utils).
    if not all(str(a.type) in _PLAIN and a.name != "reduction" for a in target._schema.arguments):
        return None
    names = ("_VariableFunctions", "_nn", "_linalg", "_fft", "_special")
    places = [getattr(torch._C, name) for name in names]
    return next((getattr(p, packet.__name__) for p in places if hasattr(p, packet.__name__)), None)

_CERTAIN_LAYOUTS = frozenset({
    aten.linear.default, aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default,
    aten.embedding.default, aten.native_layer_norm.default, aten.cat.default, aten.index.Tensor, aten.gather.default})


def layout_is_certain(target: Any) -> bool:
    """Whether results always have the strides that the fake tensors have promised, whatever the arguments are."""
    return target in _CERTAIN_LAYOUTS or isinstance(target, RandomFill) or target in (copy_strided, reserve)


def callable_of(target: Any) -> tuple[str, Any]:
    """A name for ``target`` in generated code, and the callable."""
    known = _BINDINGS.get(target)
    if known is not None:
        return known
    fast = fast_form(target)
    if fast is not None:
        return fast.__name__, fast
    if isinstance(target, torch._ops.OpOverload):
        binding = _only_binding(target)
        if binding is not None:
            return str(target._overloadpacket.__name__), binding
        name = target._schema.name.replace("::", "_") + ("" if target._overloadname == "default"
                                                         else "_" + target._overloadname)
        # The overload's C++ entry, without the Python method around it.
        return name, target._op
    return getattr(target, "__name__", "call").replace("<", "").replace(">", ""), target
