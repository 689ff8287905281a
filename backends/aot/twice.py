"""Gradients that are to be differentiated themselves (``create_graph=True``): the captured graph runs again, in eager.

The compiled backward pass knows no gradients of its own. Where autograd asks for some, the captured graph is evaluated
once more on its inputs, under autograd, and its gradients are autograd's, of any order.

Invariant: the second run sees what the first has seen. Inputs that the backward pass does not need anyway are held
weakly, and only used if they live and nobody has written to them; random numbers are drawn from the generator as it
was; a graph that writes to its inputs is not run again.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

from dynamo_lite.backends.aot.graph import ValueOutput
from dynamo_lite.backends.aot.joint import Interface
from dynamo_lite.backends.aot.partition import Saved

Noted = list[Any]


class SecondRun:
    """A captured graph that can be run again for its gradients' sake.

    It is made with grad mode and autocast as they are when the graph is entered.
    """

    def __init__(
        self, run: Callable[..., Any], face: Interface, saved: Saved, random: bool, examples: list[Any]
    ) -> None:
        self._run = run
        # Where nothing computed is saved, gradients hang on the saved inputs alone: others may have any values.
        free = all(i is not None for i in saved.inputs)
        self._free = [_layout(e) if free else None for e in examples]
        self._random = random
        self._count = face.inputs
        saved_inputs = {i: at for at, i in enumerate(saved.inputs) if i is not None}
        self._saved = tuple(saved_inputs.items())
        self._others = tuple(i for i in range(self._count) if i not in saved_inputs)
        self._result_of = {r.recipe.index: at for at, r in reversed(list(enumerate(face.results)))
                           if isinstance(r.recipe, ValueOutput) and not r.detached}
        self._grad = torch.is_grad_enabled()
        self._autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def note(self, inputs: tuple[Any, ...]) -> Noted:
        """What has to be known of the inputs that are not saved, before the first run."""
        found: Noted = []
        for i in self._others:
            value = inputs[i]
            # Of a tensor made in inference mode torch does not say whether it was written.
            plain = isinstance(value, torch.Tensor) and not value.is_inference()
            found.append((weakref.ref(value), value._version) if plain else value)
        if self._random:
            found.append(torch.get_rng_state())
        return found

    def gradients(
        self, noted: Noted, saved: list[torch.Tensor], grads: tuple[torch.Tensor | None, ...]
    ) -> tuple[Any, ...] | None:
        """The gradient of each input, itself differentiable; None if it can't be had."""
        given = [i for i, grad in enumerate(grads) if grad is not None]
        if any(i not in self._result_of for i in given):
            return None
        inputs = self._inputs(noted, saved)
        if inputs is None:
            return None
        further = torch.is_grad_enabled()
        with torch.enable_grad():
            # Aliases, since one input may have been computed of another: the gradients are partial ones.
            own = [v.view_as(v) if isinstance(v, torch.Tensor) and v.requires_grad else v for v in inputs]
        before = torch.get_rng_state()
        if self._random:
            torch.set_rng_state(noted[-1])
        enabled, dtype = self._autocast
        with torch.autocast("cpu", dtype, enabled=enabled), torch.set_grad_enabled(self._grad):
            results = self._run(*own)
        drawn = not torch.equal(torch.get_rng_state(), before)
        if drawn:
            torch.set_rng_state(before)
        if drawn and not self._random:
            return None
        heads = [results[self._result_of[i]] for i in given]
        wanted = [i for i, v in enumerate(own) if isinstance(v, torch.Tensor) and v.requires_grad]
        found = torch.autograd.grad(heads, [own[i] for i in wanted], [grads[i] for i in given], create_graph=further,
                                    allow_unused=True)
        made: list[Any] = [None] * self._count
        for i, grad in zip(wanted, found):
            made[i] = grad
        return tuple(made)

    def _inputs(self, noted: Noted, saved: list[torch.Tensor]) -> list[Any] | None:
        inputs: list[Any] = [None] * self._count
        for i, at in self._saved:
            inputs[i] = saved[at]
        for i, value in zip(self._others, noted):
            if isinstance(value, tuple):
                tensor = value[0]()
                if tensor is None or tensor._version != value[1]:
                    layout = self._free[i]
                    if layout is None:
                        return None
                    tensor = _any_values(*layout)
                inputs[i] = tensor
            elif isinstance(value, torch.Tensor):
                return None
            else:
                inputs[i] = value
        return inputs


def second_run(gm: GraphModule, face: Interface, saved: Saved) -> SecondRun | None:
    """How a captured graph is run again; None where that would do something else."""
    if face.mutated:
        return None
    examples = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    return SecondRun(gm.forward, face, saved, face.random, examples)


def _layout(example: Any) -> tuple[Any, ...] | None:
    """What it takes to make a tensor like an input; None for those whose values may not be just any."""
    if not isinstance(example, torch.Tensor) or not (example.is_floating_point() or example.is_complex()):
        return None
    if example.is_conj() or example.is_neg() or not all(type(n) is int for n in (*example.shape, *example.stride())):
        return None
    return tuple(example.shape), tuple(example.stride()), example.dtype, example.device, example.requires_grad


def _any_values(
    shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: torch.device, requires_grad: bool
) -> torch.Tensor:
    extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if 0 not in shape else 0
    flat = torch.ones(extent, dtype=dtype, device=device)
    return flat.as_strided(shape, stride).requires_grad_(requires_grad)
