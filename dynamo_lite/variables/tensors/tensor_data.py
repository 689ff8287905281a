"""``x.data = y``: the tensor keeps its autograd metadata, and lies in the memory of another tensor from then on; checks
of what later operations do to such tensors, to views of leaves, and to tensors with hooks.

In the trace, ``x`` becomes ``y.detach()``; views that were taken of it before keep the old memory. For a tensor from
outside, `data` is really set after the graph. Invariant: a tensor from outside that requires gradients is not used with
gradients enabled until the trace has ended: a backward pass reads what a leaf's `data` is by then, and a graph could
only keep what it was in the forward pass.
"""
from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ..base import unsupported

if TYPE_CHECKING:
    from ..protocols import TensorVariable, Tracer

_KIND = "input_mutation"


def is_same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two fake tensors have the same elements at the same addresses."""
    return (
        a.untyped_storage()._cdata == b.untyped_storage()._cdata and a.storage_offset() == b.storage_offset()
        and a.shape == b.shape and a.stride() == b.stride() and a.dtype is b.dtype
        and a.is_conj() == b.is_conj() and a.is_neg() == b.is_neg()
    )


def set_data(tx: Tracer, tensor: TensorVariable, value: TensorVariable) -> None:
    """tensor.data = value."""
    what = f"setting {tensor.describe()}.data"
    if is_same_memory(tensor.fake, value.fake):
        return  # conversions return the tensor itself where there is nothing to convert
    output = tx.output
    if output.overrides.active() or output.examples or value.alternatives or any(
            tensor is other for choice in output.choices.made for other in choice.tensor.alternatives):
        unsupported(_KIND, what)
    old, new = tensor.fake, value.fake
    if new.device != old.device or new.layout is not old.layout or new.is_inference() or old.is_inference():
        unsupported(_KIND, f"{what} to {value.describe()}")
    if old.requires_grad and (tensor.source is None or not old.is_leaf or not new.is_floating_point()):
        unsupported(_KIND, f"{what}, which requires gradients")
    if _is_view_with_gradient(output, tensor):
        unsupported(_KIND, f"{what}, a view of what requires gradients")
    if tensor.source is not None:
        if "grad" in output.effects.attributes_of(tensor):
            unsupported(_KIND, f"{what} behind its gradient")
        # Not `value`: its own data may have been replaced by the time this is really set.
        output.effects.store_attr(tensor, "data", _rebind(tx, tensor, value))
    else:
        output.effects.advance(tensor)
        _rebind(tx, tensor, value)


def _is_view_with_gradient(output: Any, tensor: TensorVariable) -> bool:
    """Whether a tensor may be a view, taken without gradients, of a tensor that requires them: it would become part of
    autograd's graph again."""
    for seen in (tensor.value, tensor.fake):
        if seen is not None and seen._is_view():
            base = seen._base
            if base is None or base.requires_grad or any(other.fake.requires_grad for other in output.rebound):
                return True
    return False


def _is_view_of(tensor: TensorVariable, other: torch.Tensor) -> bool:
    own = tensor.node.meta["example_value"]
    return other is not own and other.untyped_storage()._cdata == own.untyped_storage()._cdata


def _rebind(tx: Tracer, tensor: TensorVariable, value: TensorVariable) -> TensorVariable:
    """Makes a tensor lie in the memory of another one; returns its new data, a tensor of the graph."""
    output = tx.output
    made: Any = value.call_method(tx, "detach", [], {})
    requires_grad = tensor.fake.requires_grad
    if tensor.source is not None:
        # Reading `data` again does not count as a use of the tensor itself.
        made, tensor.plain = made.call_method(tx, "detach", [], {}), made
    if tensor.source is not None and not any(tensor is other for other in output.rebound):
        # Guards and the memory of inputs still refer to the placeholder.
        output.replace_input(tensor, copy.copy(tensor))
    output.replaced.append(tensor.fake)
    tensor.node, tensor.fake = made.node, made.fake
    output.register_tensor(tensor)
    output.rebound.append(tensor)
    if requires_grad:
        with output.fake_mode, torch.enable_grad():
            tensor.fake = made.fake.detach().requires_grad_()
        output.register_tensor(tensor)
    return made


def check_uses(output: Any, target: Any, arguments: Any, result: Any, impure: bool) -> None:
    """Refuses uses of a tensor whose data was set that the graph would get wrong: operations for which the tensor from
    outside would need its gradient, or that make views of it; and in-place mutation under autograd, as views see it
    through the tensor that they were taken of, whatever that tensor's data is by then."""
    if target in _DETACHING:
        return
    used = {leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, fx.Node)}
    made = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    if impure and torch.is_grad_enabled():
        fakes = [node.meta.get("example_value") for node in used]
        if any(isinstance(fake, torch.Tensor) and fake.requires_grad for fake in (*fakes, *made)):
            unsupported(_KIND, "a change in place under autograd behind setting Tensor.data")
    for tensor in output.rebound:
        if tensor.plain is None or tensor.node not in used:
            continue
        what = f"{tensor.describe()}, whose Tensor.data was set, is used where"
        if tensor.fake.requires_grad and torch.is_grad_enabled():
            unsupported(_KIND, f"{what} it gets a gradient")
        if any(_is_view_of(tensor, other) for other in made):
            unsupported(_KIND, f"{what} it is the base of a view")


_DETACHING = ("detach", torch.detach, torch.Tensor.detach)


def check_leaf_views(output: Any, written: frozenset[int], operands: list[Any]) -> None:
    """Breaks the graph where an operation writes to a view from outside that requires gradients and whose base is a
    leaf. Eager refuses that, also for another view of the leaf that has been made to require gradients. The fake tensor
    is no view, so tracing would not raise, and by the time the graph raised it might have written to other tensors."""
    if not torch.is_grad_enabled():
        return
    for tensor in output.inputs:
        seen = tensor.value
        if not isinstance(seen, torch.Tensor) or not seen.requires_grad or seen.is_leaf or not seen._is_view():
            continue
        base, storage = seen._base, tensor.fake.untyped_storage()._cdata
        if base is None or not base.is_leaf or storage not in written:
            continue
        if any(isinstance(fake, torch.Tensor) and fake.requires_grad and fake.untyped_storage()._cdata == storage
               for fake in operands):
            what = f"a write to {tensor.describe()}, a view of a leaf that requires gradients"
            unsupported("grad_mode_mismatch", what)


def check_hooked(output: Any, changed: frozenset[int]) -> None:
    """Breaks the graph where an operation gives a tensor another history on which a hook has been registered, since
    generated code registers it behind the graph.

    Args:
        changed: the storages that the operation writes to, or whose autograd metadata it changes.
    """
    if not torch.is_grad_enabled():
        return
    for call in output.effects.calls:
        if call.hooks is not None and call.hooks.fake.untyped_storage()._cdata in changed:
            unsupported("autograd_in_graph", f"a change of {call.hooks.describe()} behind its hook")
