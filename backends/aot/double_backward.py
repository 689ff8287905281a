"""Double backward: gradients that are differentiated themselves (``create_graph=True``).

The compiled backward pass is not differentiable. If autograd asks for differentiable gradients, the captured graph runs
once more on its inputs: in eager, under autograd, which gives gradients of any order; or, from the second request on,
in a compiled graph that computes the gradients and has gradients of its own (``gradient_graph``).

Invariant: the second run has the inputs, aliases and random numbers of the first, and writes to nothing that the
program sees. The following is kept for it: inputs that the backward pass does not save, as aliases, which have the
memory and the history that the inputs had, and are used only if nobody has written to them since; inputs that the graph
itself writes to, as copies, unless no gradient depends on their old contents; the states of the generators.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node

from dynamo_lite.backends.aot import ambient, ops
from dynamo_lite.backends.aot.call_sizes import at_sizes
from dynamo_lite.backends.aot.gradient_graph import Differentiate
from dynamo_lite.backends.aot.graph import OutputAlias, ValueOutput
from dynamo_lite.backends.aot.inner_gradients import computes_gradients
from dynamo_lite.backends.aot.interface import Interface, Saved
from dynamo_lite.runtime.storage_extent import storage_extent

KeptInputs = list[Any]
Gradients = Callable[..., tuple[Any, ...]]
# Takes a function that differentiates, tensors like the incoming gradients, and indices of the inputs whose gradients
# are wanted. Returns a compiled function of the graph's inputs and the incoming gradients; None if there is none.
CompileGradients = Callable[[Differentiate, Sequence["torch.Tensor | None"], tuple[int, ...]], "Gradients | None"]


class _Alias(torch.autograd.Function):
    """A tensor with the same memory and history, but not a view, so that later in-place changes do not alter its
    history."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


class DoubleBackward:
    """Computes the differentiable gradients of a captured graph by running it again.

    To be constructed under the grad mode and autocast state that the graph is entered with.
    """

    def __init__(
        self, run: Callable[..., Any], interface: Interface, saved: Saved, examples: list[Any], idle: frozenset[int],
        compile_gradients: CompileGradients | None = None, inner: bool = False,
    ) -> None:
        self._run = run
        # If no computed value is saved, gradients depend on the saved inputs alone: others may have any values.
        free = all(i is not None for i in saved.inputs)
        self._free = [interface.sizes.formulas(_layout(e, i in idle)) if free or i in idle else None
                      for i, e in enumerate(examples)]
        self._random = interface.random
        self._count = interface.inputs
        self._mutated = frozenset(interface.mutated)
        self._idle = idle
        saved_inputs = {i: at for at, i in enumerate(saved.inputs) if i is not None}
        self._saved = tuple(saved_inputs.items())
        self._others = tuple(i for i in range(self._count) if i not in saved_inputs and i not in idle)
        # Without inner gradients, inputs that no gradient reaches may be passed detached.
        self._leaves = frozenset(i for i, e in enumerate(examples) if inner and _requires_grad(e))
        self._layouts = interface.layouts
        self._results = interface.results
        self._written = {written.value: written.input for written in interface.written}
        self._grad = torch.is_grad_enabled()
        self._casting = ambient.casting()
        plain = self._grad and not ambient.casts() and not interface.random and not interface.mutated
        self._compile = compile_gradients if plain else None
        self._compiled: dict[Any, Gradients | None] = {}
        self._asked: set[Any] = set()
        # Whether the graph is called with views of its inputs: from the first request on, unless it writes to inputs.
        self.by_views = False

    def views_among(self, inputs: tuple[Any, ...]) -> list[int]:
        """Indices of the tensors, if the graph is called with views of them; else none."""
        return [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)] if self.by_views else []

    def keep_inputs(self, inputs: tuple[Any, ...]) -> KeptInputs:
        """Whatever has to be kept of the inputs that are not saved, at entry of the graph."""
        found: KeptInputs = []
        for i in self._others:
            value = inputs[i]
            if not isinstance(value, torch.Tensor) or value.is_inference():
                found.append(value)  # inference tensors have no version counter that would tell of writes
            elif i in self._mutated:
                with torch.enable_grad():
                    found.append((value.clone(), 0))
            elif self._free[i] is not None or value.requires_grad and value.is_leaf:
                found.append((weakref.ref(value), value._version))  # not needed, or kept alive by autograd's graph
            elif not value.requires_grad:
                found.append((value.detach(), value._version))
            else:
                with torch.enable_grad():
                    found.append((_Alias.apply(value), value._version))
        if self._random:
            found.append(ambient.random_states())
        return found

    def gradients(
        self, kept: KeptInputs, saved: Sequence[torch.Tensor], grads: tuple[torch.Tensor | None, ...],
        needed: Sequence[bool], sizes: Sequence[int] = (),
    ) -> tuple[Any, ...] | None:
        """The gradient of each input that needs one, itself differentiable; None if they can't be computed.

        Args:
            kept: the result of `keep_inputs`.
            saved: the saved values.
            grads: the incoming gradients of the results.
            needed: for each input, whether its gradient is requested.
            sizes: the numbers of the call, read by `Interface.sizes`.
        """
        self.by_views = not self._mutated
        inputs = self._inputs(kept, saved, sizes)
        if inputs is None:
            return None
        wanted = tuple(i for i, v in enumerate(inputs) if needed[i] and isinstance(v, torch.Tensor) and v.requires_grad)
        if not wanted:
            return (None,) * self._count
        compiled = self._compiled_for(grads, wanted)
        if compiled is not None:
            return self._placed(wanted, compiled(*inputs, *[g for g in self._as_compiled(grads) if g is not None]))
        before = ambient.random_states()
        if self._random:
            ambient.set_random_states(kept[-1])
        with ambient.casting_as(self._casting):
            found = self._differentiated(inputs, grads, wanted, sizes)
        drawn = not ambient.same_random_states(ambient.random_states(), before)
        if drawn:
            ambient.set_random_states(before)
        return None if found is None or drawn and not self._random else self._placed(wanted, found)

    def _placed(self, wanted: Sequence[int], found: Sequence[Any]) -> tuple[Any, ...]:
        known = dict(zip(wanted, found))
        return tuple(known.get(i) for i in range(self._count))

    def _differentiated(
        self, inputs: list[Any], grads: Sequence[torch.Tensor | None], wanted: Sequence[int], sizes: Sequence[int] = ()
    ) -> tuple[Any, ...] | None:
        """Runs the captured graph on the inputs and differentiates it; None if a needed value can't be found."""
        further = torch.is_grad_enabled()
        with torch.enable_grad():
            # Aliases, because one input may have been computed from another: the gradients wanted are partial ones.
            own = [v.view_as(v) if isinstance(v, torch.Tensor) and v.requires_grad else v for v in inputs]
            for i in self._leaves.union(wanted):
                if not own[i].requires_grad:  # nothing that it depends on is affected by these gradients
                    own[i] = own[i].detach().requires_grad_()
            given = [own[i].clone() if i in self._mutated else own[i] for i in range(self._count)]
        with torch.set_grad_enabled(self._grad):
            results = self._run(*given)
        places = [i for i, grad in enumerate(grads) if grad is not None]
        heads = [self._value(i, given, results, sizes) for i in places]
        if any(head is None or not head.requires_grad for head in heads):
            return None
        return torch.autograd.grad(
            heads, [own[i] for i in wanted], [grads[i] for i in places],  # type: ignore[arg-type]
            create_graph=further, allow_unused=True)

    def _compiled_for(
        self, grads: Sequence[torch.Tensor | None], wanted: tuple[int, ...]
    ) -> Gradients | None:
        """The compiled gradients; None at the first request, since a single one is not worth compiling for."""
        if self._compile is None or not torch.is_grad_enabled() or ambient.casts() or any(map(is_wrapped, grads)):
            return None
        key = wanted, *(None if g is None else g.requires_grad for g in grads)
        if key in self._asked and key not in self._compiled:
            self._compiled[key] = self._compile(self._differentiated, self._as_compiled(grads), wanted)
        self._asked.add(key)
        return self._compiled.get(key)

    def _as_compiled(self, grads: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Incoming gradients in the layouts of the values, for a graph without symbols."""
        return [None if g is None else in_layout(g, *self._layouts[i]) for i, g in enumerate(grads)]

    def _value(
        self, index: int, inputs: list[Any], results: Sequence[Any], sizes: Sequence[int]
    ) -> torch.Tensor | None:
        """Value number ``index`` of the forward pass, from the second run; None if it can't be found."""
        if index in self._written:
            return inputs[self._written[index]]
        for result, made in zip(self._results, results):
            recipe = result.recipe
            if result.detached:
                continue
            if isinstance(recipe, ValueOutput) and recipe.index == index:
                return made
            if isinstance(recipe, OutputAlias) and recipe.base == ValueOutput(index) and made._is_view():
                base = made._base
                if (base.stride(), base.dtype) == at_sizes(self._layouts[index], sizes):
                    return base
        return None

    def _inputs(self, kept: KeptInputs, saved: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[Any] | None:
        """The inputs of the second run; None if one that the gradients depend on has been written to since."""
        inputs: list[Any] = [None] * self._count
        for i, at in self._saved:
            inputs[i] = saved[at]
        for i in self._idle:
            layout = self._free[i]
            if layout is None:
                return None
            inputs[i] = _any_values(*at_sizes(layout, sizes))
        for i, value in zip(self._others, kept):
            if isinstance(value, tuple):
                tensor = value[0]() if isinstance(value[0], weakref.ref) else value[0]
                if tensor is None or tensor._version != value[1]:
                    layout = self._free[i]
                    if layout is None:
                        return None
                    tensor = _any_values(*at_sizes(layout, sizes))
                inputs[i] = tensor
            elif isinstance(value, torch.Tensor):
                return None
            else:
                inputs[i] = value
        return inputs


def double_backward_of(
    gm: GraphModule, interface: Interface, saved: Saved, compile_gradients: CompileGradients | None = None
) -> DoubleBackward:
    """The double backward of a captured graph.

    Args:
        compile_gradients: compiles gradients; called at the second request for them.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    examples = [node.meta.get("example_value") for node in placeholders]
    idle = frozenset(i for i in interface.mutated if _is_idle(placeholders[i]) and _layout(examples[i], True))
    return DoubleBackward(gm.forward, interface, saved, examples, idle, compile_gradients, computes_gradients(gm))


_STATISTICS: dict[Any, tuple[int, int, int]] = {
    F.batch_norm: (1, 2, 5), torch.batch_norm: (3, 4, 5), F.instance_norm: (1, 2, 5)}
"""Positions of the statistics that functions update, and of the argument that tells them not to read them."""


def _is_idle(node: Node) -> bool:
    """Whether no gradient depends on the contents at entry of an input that the graph writes to, as for statistics and
    counters."""
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor) or value.requires_grad:
        return False
    return all(_only_updates(user, node) for user in node.users)


def _only_updates(user: Node, node: Node) -> bool:
    """Whether a call reads the node only in order to update it, as batch norm does with its running statistics."""
    if user.op == "output":
        return True
    statistics = _STATISTICS.get(user.target)
    if statistics is not None:
        *places, told = statistics
        training = user.args[told] if len(user.args) > told else user.kwargs.get("training", False)
        read = [a for at, a in enumerate(user.args) if at not in places]
        return training is True and node not in read
    written = bool(user.meta.get("impure")) and user.args and user.args[0] is node and node not in user.args[1:]
    return bool(written) and all(_only_updates(after, user) for after in user.users)


def _requires_grad(example: Any) -> bool:
    return isinstance(example, torch.Tensor) and example.requires_grad


def _layout(example: Any, idle: bool = False) -> tuple[Any, ...] | None:
    """The layout by which a tensor like an input can be made; None if the tensor can't have arbitrary values."""
    if not isinstance(example, torch.Tensor) or not (idle or example.is_floating_point() or example.is_complex()):
        return None
    if example.is_conj() or example.is_neg():
        return None
    return tuple(example.shape), tuple(example.stride()), example.dtype, example.device, example.requires_grad


def _any_values(
    shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: torch.device, requires_grad: bool
) -> torch.Tensor:
    flat = torch.ones(storage_extent(shape, stride), dtype=dtype, device=device)
    return flat.as_strided(shape, stride).requires_grad_(requires_grad)


def is_wrapped(grad: torch.Tensor | None) -> bool:
    """Whether a gradient is a wrapper of ``torch.func``'s, which has no memory of its own."""
    functorch = torch._C._functorch
    return grad is not None and (functorch.is_legacy_batchedtensor(grad) or functorch.is_functorch_wrapped_tensor(grad))


def in_layout(grad: torch.Tensor, stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An incoming gradient, which may have any layout, in the layout that the backward pass was compiled for."""
    if grad._is_zerotensor():
        grad = torch.zeros(grad.shape, dtype=dtype, device=grad.device)
    if grad.is_conj() or grad.is_neg():
        grad = grad.resolve_conj().resolve_neg()
    if grad.dtype != dtype:
        grad = grad.to(dtype)
    if grad.stride() != stride or grad.layout != torch.strided:
        grad = ops.copy_strided(grad.to_dense() if grad.layout != torch.strided else grad, stride)
    return grad
