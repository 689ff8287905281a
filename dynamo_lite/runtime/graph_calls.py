"""Callables that a graph holds for the user's own: functions that were traced to graphs of their own, and draws of
Python's random numbers.

A node calls such an object like any function of torch, so a backend that runs the graph as it is gets eager's
behaviour, and one that records what the graph does on fake tensors, autograd included, sees the user's formulas.

Invariant: a call reads nothing but its arguments, or the generator that it draws from; what else the user's code has
read is guarded, for a backward pass again when it runs.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
from torch import fx

_SECOND_DERIVATIVE = (
    "a gradient of {}, whose backward pass is not differentiable itself (once_differentiable, no_grad), was used"
)


class GraphCall:
    """The base class: what ``torch.fx`` asks of a function.

    Args:
        name: what the node is called.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.__name__}>"

    def checks(self) -> list[Callable[[], None]]:
        """To be called before the backward pass by whoever runs it in another form than this object's."""
        return []


class Draw(GraphCall):
    """A method of a ``random.Random`` that draws a number, or seeds the generator; or one of NumPy's RandomState.

    Args:
        function: the method, unbound.
        generator: what it is called on.
    """

    def __init__(self, function: Callable[..., Any], generator: Any) -> None:
        super().__init__(f"random_{function.__name__}")
        self._function = function
        self.generator = generator

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self.generator, *args, **kwargs)


@dataclasses.dataclass(frozen=True, slots=True)
class SavedValue:
    """A tensor that goes from the forward to the backward pass.

    Attributes:
        kind: "argument", "result" or "made", with an index into the call's arguments, or into what the forward graph
            returns.
        index: see `kind`.
        checked: whether it went through ``ctx.save_for_backward``, so that autograd watches it.
    """

    kind: str
    index: int
    checked: bool


@dataclasses.dataclass(frozen=True, slots=True)
class BackwardGraph:
    """The user's backward pass for one choice of incoming gradients.

    Attributes:
        graph: from the saved tensors, then the incoming gradients that are there, to the gradients of the arguments.
        layouts: the strides of incoming gradients that the trace relied on; None where it did not.
        error: what the user's function raised in place of that.
    """

    graph: fx.GraphModule | None
    layouts: tuple[tuple[int, ...], ...] | None = None
    error: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A traced ``torch.autograd.Function``.

    Attributes:
        forward: from the call's arguments to the results, then the tensors made for the backward pass alone.
        results: how many of these are results.
        inputs: how many of the arguments the user passed as such; the others have no gradient.
        saved: what the backward graphs read.
        dirty: arguments that the forward pass changes in place.
        fixed: results that are not differentiable.
        materialize: whether missing gradients come as zeros.
        backwards: by which results' gradients are there; empty where no gradient can be asked for.
        once: whether the backward pass switches grad mode, so that its gradients can't be differentiated again.
        once_by_wrapper: whether ``once_differentiable`` does; then they may where no incoming gradient requires grad.
        check: raises if something has changed that the backward pass read while it was traced; None if nothing can.
    """

    forward: fx.GraphModule
    results: int
    inputs: int
    saved: tuple[SavedValue, ...]
    dirty: tuple[int, ...]
    fixed: tuple[int, ...]
    materialize: bool
    backwards: dict[tuple[bool, ...], BackwardGraph]
    once: bool
    once_by_wrapper: bool
    check: Callable[[], None] | None


class FunctionCall(GraphCall):
    """A ``torch.autograd.Function`` of the user's: called with tensors, gives a tuple of tensors."""

    def __init__(self, name: str, spec: FunctionSpec) -> None:
        super().__init__(name)
        self.spec = spec
        self._function = _make_function(name, spec)

    def __call__(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not self.spec.backwards and torch._C._are_functorch_transforms_active():
            return self.spec.forward.forward(*args)  # no gradient, so no rule is needed
        return self._function.apply(*args)

    def checks(self) -> list[Callable[[], None]]:
        return [self.spec.check] if self.spec.check is not None else []


def _make_function(name: str, spec: FunctionSpec) -> type[torch.autograd.Function]:
    class Captured(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
            made = spec.forward.forward(*args)
            if spec.dirty:
                ctx.mark_dirty(*(args[i] for i in spec.dirty))
            if spec.fixed:
                ctx.mark_non_differentiable(*(made[i] for i in spec.fixed))
            if not spec.materialize:
                ctx.set_materialize_grads(False)
            values = [(args if s.kind == "argument" else made)[s.index] for s in spec.saved]
            ctx.save_for_backward(*(v for v, s in zip(values, spec.saved) if s.checked))
            ctx.plain = [v for v, s in zip(values, spec.saved) if not s.checked]
            return tuple(made[: spec.results])

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
            if spec.check is not None and _runs_for_real(grads):
                spec.check()
            found = spec.backwards.get(tuple(g is not None for g in grads))
            if found is None or found.graph is None:
                reason = found.error if found is not None else "gradients were not expected when it was captured"
                raise RuntimeError(f"backward of {name}: {reason}")
            incoming = [g for g in grads if g is not None]
            if found.layouts is not None:
                incoming = [_in_layout(g, s) for g, s in zip(incoming, found.layouts)]
            checked, plain = iter(ctx.saved_tensors), iter(ctx.plain)
            saved = [next(checked) if s.checked else next(plain) for s in spec.saved]
            with torch.set_grad_enabled(torch.is_grad_enabled()):  # its nodes set what was set in the trace
                made = found.graph.forward(*saved, *incoming)
            refused = spec.once and (not spec.once_by_wrapper or any(g.requires_grad for g in incoming))
            if refused and torch.is_grad_enabled():
                made = tuple(None if g is None else _refusing(g, name) for g in made)
            return (*made, *[None] * (len(ctx.needs_input_grad) - len(made)))

    Captured.__name__ = Captured.__qualname__ = name
    Captured._backward_cls.__name__ = f"{name}Backward"  # which torch's errors name
    return Captured


def checks_in(graph: fx.GraphModule) -> list[Callable[[], None]]:
    """The checks of all calls in a graph."""
    return [check for node in graph.graph.nodes if isinstance(node.target, GraphCall) for check in node.target.checks()]


def _runs_for_real(grads: tuple[torch.Tensor | None, ...]) -> bool:
    return not any(isinstance(g, torch._subclasses.FakeTensor) for g in grads)


def _in_layout(grad: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    if grad.stride() == strides:
        return grad
    return torch.empty_strided(grad.shape, strides, dtype=grad.dtype, device=grad.device).copy_(grad)


def _refusing(grad: torch.Tensor, name: str) -> torch.Tensor:
    error = torch._C._functions.DelayedError(_SECOND_DERIVATIVE.format(name).encode(), 1)
    return error(grad.detach().requires_grad_())


class CheckpointCall(GraphCall):
    """A function under ``torch.utils.checkpoint``: called with tensors, gives a tuple of tensors.

    Args:
        body: the function.
        options: of torch's checkpoint.
        written: places of the arguments that it writes to, which the second run does again. They are none of the user's
            arguments to the checkpoint, so that torch is not to see whether they have changed.
        run: what computes the body, if it has been compiled.
    """

    recomputed = True  # says to a backend that records it: what is in here is better computed again than saved

    def __init__(
        self, body: fx.GraphModule, options: dict[str, Any], written: tuple[int, ...] = (),
        run: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__("checkpoint")
        self.body = body
        self.options = options
        self.written = written
        self.recomputes = bool(written)  # says to a backend that records it: to be compiled apart, by :meth:`compiled`
        self._run = run or body.forward

    def compiled(self, backend: Callable[..., Callable[..., Any]]) -> CheckpointCall:
        """The same with a body that a backend has compiled."""
        examples = [n.meta["example_value"] for n in self.body.graph.find_nodes(op="placeholder")]
        return CheckpointCall(self.body, self.options, self.written, backend(self.body, examples))

    def __call__(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not torch.is_grad_enabled() or not _runs_for_real(args):
            return self.body.forward(*args)
        run, body, written = self._run, self._run, {place: args[place] for place in self.written}

        def with_written(*others: torch.Tensor) -> tuple[torch.Tensor, ...]:
            rest = iter(others)
            both = [written[i] if i in written else next(rest) for i in range(len(args))]
            return body(*both)

        if written:
            run, args_seen = with_written, [a for i, a in enumerate(args) if i not in written]
        else:
            args_seen = list(args)
        return torch.utils.checkpoint.checkpoint(
            run, *args_seen, use_reentrant=False, **self.options)

    def checks(self) -> list[Callable[[], None]]:
        return checks_in(self.body)


class TransformCall(GraphCall):
    """A transform of ``torch.func`` applied to a function and called: with tensors, gives a tuple of tensors.

    Args:
        name: what the node is called.
        transform: torch's function; None calls the function itself.
        body: the function, from the tensors that are transformed, then others, to a tuple of tensors.
        options: of the transform.
        differentiated: how many tensors are transformed, for those that differentiate.
    """

    def __init__(
        self, name: str, transform: Any, body: fx.GraphModule, options: dict[str, Any], differentiated: int = 0
    ) -> None:
        super().__init__(name)
        self.transform = transform
        self.body = body
        self.options = options
        self.differentiated = differentiated

    def checks(self) -> list[Callable[[], None]]:
        return checks_in(self.body)

    def __call__(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        function, n = self.body.forward, self.differentiated
        chosen = tuple(range(n))
        if self.transform is None:
            return function(*args)
        if self.transform is torch.vmap:
            return torch.vmap(function, **self.options)(*args)
        if self.transform is torch.func.grad_and_value:

            def first_and_rest(*inputs: torch.Tensor) -> Any:
                value, *aux = function(*inputs)
                return value, tuple(aux)

            grads, (value, aux) = torch.func.grad_and_value(first_and_rest, argnums=chosen, has_aux=True)(*args)
            return (*grads, value, *aux)
        if self.transform is torch.func.jvp:
            primals, tangents, rest = args[:n], args[n : 2 * n], args[2 * n :]
            made, derivatives = torch.func.jvp(lambda *inputs: function(*inputs, *rest), primals, tangents)
            return (*made, *derivatives)
        if self.transform is torch.func.vjp:
            count = len(args) - len(self.body.graph.find_nodes(op="placeholder"))
            cotangents, primals, rest = args[:count], args[count : count + n], args[count + n :]
            _, pullback = torch.func.vjp(lambda *inputs: function(*inputs, *rest), *primals)
            return pullback(cotangents)
        made = self.transform(lambda *inputs: function(*inputs)[0], argnums=chosen)(*args)
        return made[0] if self.transform is torch.func.hessian else made


class ArrayCall(GraphCall):
    """A tensor made of a NumPy array, or of a number of NumPy's, that is known; with memory of its own.

    Args:
        function: torch's, that makes it: ``torch.tensor`` and the like.
        data: the array.
    """

    def __init__(self, function: Any, data: Any) -> None:
        super().__init__(function.__name__)
        self.data = data

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.tensor(self.data, *args, **kwargs)


class BranchCall(GraphCall):
    """``torch.cond``: called with the condition, then tensors, gives a tuple of tensors.

    Args:
        true: from the tensors to the results.
        false: the same.
    """

    chooses = True  # says to a backend that records it: gradients of both branches, added, may be wrong

    def __init__(self, true: fx.GraphModule, false: fx.GraphModule) -> None:
        super().__init__("cond")
        self.true = true
        self.false = false

    def checks(self) -> list[Callable[[], None]]:
        return [*checks_in(self.true), *checks_in(self.false)]

    def __call__(self, condition: torch.Tensor, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batched = torch._C._functorch.is_batchedtensor(condition)  # torch, too, computes both for all of a batch
        if _runs_for_real((condition, *args)) and not batched:
            return (self.true if bool(condition) else self.false).forward(*args)
        # A backend that records computes both, which have no effects, and chooses.
        truth = condition.reshape(()).to(torch.bool)
        return tuple(torch.where(truth, a, b) for a, b in zip(self.true.forward(*args), self.false.forward(*args)))
