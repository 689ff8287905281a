"""Metadata rules of operators, run on plain meta tensors in place of fake tensors.

torch's fake tensor mode gives a rule the fake tensors themselves and has them report the meta device. C++ asks Python
for the device each time, and the first time it imports ``torch.distributed.tensor``, to find out whether the tensor is
one of its own. That takes half a second, which nearly every model would pay for, and several where Python writes no
bytecode. Here a rule gets aliases: fake tensors of the same memory, sizes and strides that are on the meta device for
C++, too, so that C++ need not ask.

Invariant: this covers only operators and operands for which torch's mode would do nothing but run the rule; everything
else is left to torch's mode. Aliases are not visible outside of a rule.
"""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table, meta_table
from torch._subclasses.fake_impls import has_meta, op_implementations_checks
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
    torch_decomp_decompositions,
)
from torch.utils import _pytree as pytree

_NOT_PLAIN = (torch.SymInt, torch.SymFloat, torch.SymBool)


# torch's mode allows it to copy between devices, and returns the operand that is written to.
_COPY = torch.ops.aten.copy_.default


@functools.cache
def _runs_its_rule(func: Any) -> bool:
    """Whether torch's mode does nothing but run the rule of an operator on plain numbers and sizes."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten" or not has_meta(func):
        return False
    schema, name = func._schema, func.name()
    if {torch.Tag.inplace_view, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags):
        return False
    written = [at for at, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    if written not in ([], [0]) or schema.is_mutable and schema.overload_name == "out":
        return False
    if func is _COPY:
        return True
    if func in FakeTensorMode.lift_fns or any(check(func) for check, _ in op_implementations_checks):
        return False
    if torch._library.simple_registry.singleton.find(name).fake_impl.kernel is not None:
        return False
    if func in meta_table or torch.Tag.view_copy in func.tags:
        return True
    if func in decomposition_table and torch_decomp_decompositions(func):
        return False
    return not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")


def run(mode: FakeTensorMode, func: Any, args: Any, kwargs: Any) -> Any:
    """The operator's result; ``NotImplemented`` if torch's mode has to run it."""
    if not _runs_its_rule(func):
        return NotImplemented
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    if not tensors or not all(_is_plain(mode, x) for x in tensors) or any(isinstance(x, _NOT_PLAIN) for x in leaves):
        return NotImplemented
    if func is _COPY and tensors[0].device != tensors[1].device:
        return NotImplemented
    aliases = {id(x): _alias(x) for x in tensors}
    with_aliases = [aliases[id(x)] if isinstance(x, torch.Tensor) else x for x in leaves]
    own_args, own_kwargs = pytree.tree_unflatten(with_aliases, spec)
    with in_kernel_invocation_manager(mode):
        try:
            made = func(*own_args, **own_kwargs)
        except NotImplementedError:
            return NotImplemented
    if any(_layout(aliases[id(x)]) != _layout(x) for x in tensors):
        return NotImplemented  # an operator that changes the sizes of an operand that it writes to
    originals = {id(aliases[id(x)]): x for x in tensors}
    made = pytree.tree_map_only(FakeTensor, lambda x: originals.get(id(x), x), made)
    return mode.wrap_meta_outputs_with_default_device_logic(made, func, leaves, device=kwargs.get("device"))


def _is_plain(mode: FakeTensorMode, x: Any) -> bool:
    """Whether a rule can't tell an alias from the tensor. (An alias is an inference tensor only in inference mode.)"""
    return (type(x) is FakeTensor and x.fake_mode is mode and x.constant is None and x.layout is torch.strided
            and not x._has_symbolic_sizes_strides and not x.is_conj() and not x.is_neg() and not x.is_quantized
            and x.is_inference() is torch.is_inference_mode_enabled())


def _layout(x: torch.Tensor) -> tuple[Any, ...]:
    return x.shape, x.stride(), x.storage_offset()


def symbolic_part(x: torch.Tensor, sizes: Sequence[Any], strides: Sequence[Any], offset: Any) -> torch.Tensor:
    """A plain meta tensor in the memory of another one, whose sizes may be symbols; nothing is decided about them."""
    with torch._C._DisableTorchDispatch():
        base = torch.empty(0, dtype=x.dtype, device="meta")
        base.set_(x.untyped_storage(), 0, (0,), (1,))
        return torch.ops.aten.as_strided.default(base, sizes, strides, offset)


def _alias(x: torch.Tensor) -> FakeTensor:
    with torch._C._DisableTorchDispatch():
        elements = torch.empty((), dtype=x.dtype, device="meta")
        elements.set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())
    alias = torch.Tensor._make_subclass(FakeTensor, elements, x.requires_grad)
    alias.__dict__.update(x.__dict__)
    return alias
