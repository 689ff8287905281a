"""Callables that stand for the user's own code in a graph: functions that were traced to graphs of their own, and draws
of Python's random numbers.

A node calls such an object like any function of torch. A backend that runs the graph unchanged thus has eager's
behavior, and one that records the graph's operations on fake tensors, including autograd, sees the user's formulas.

Invariant: a call reads only its arguments, or the generator that it draws from. All other state that the user's code
has read is guarded; for a backward pass it is checked again when that runs.
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
    """The base class, with the attributes that ``torch.fx`` expects of a function.

    Args:
        name: name of the node.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.__name__}>"

    def checks(self) -> list[Callable[[], None]]:
        """Checks that must be called before the backward pass if that is not run by this object itself."""
        return []


class Draw(GraphCall):
    """A method of a ``random.Random`` or of a NumPy RandomState that draws a number or seeds the generator.

    Args:
        function: the method, unbound.
        generator: the object that it is called on.
    """

    def __init__(self, function: Callable[..., Any], generator: Any) -> None:
        super().__init__(f"random_{function.__name__}")
        self._function = function
        self.generator = generator

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self.generator, *args, **kwargs)


@dataclasses.dataclass(frozen=True, slots=True)
class SavedValue:
    """A value that the forward pass saves for the backward pass.

    Attributes:
        kind: "argument" if `index` counts the call's arguments; "result" or "made" if it counts the outputs of the
            forward graph.
        index: see `kind`.
        checked: whether it was saved by ``ctx.save_for_backward``, so that autograd checks it for in-place mutation.
    """

    kind: str
    index: int
    checked: bool


@dataclasses.dataclass(frozen=True, slots=True)
class BackwardGraph:
    """The user's backward pass for one choice of incoming gradients.

    Attributes:
        graph: takes the saved tensors, then the incoming gradients that exist, and returns the gradients of the
            arguments; None if the user's function raised.
        layouts: the strides of incoming gradients that the trace relied on; None if it relied on none.
        error: the text of the exception that the user's function raised.
    """

    graph: fx.GraphModule | None
    layouts: tuple[tuple[int, ...], ...] | None = None
    error: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A traced ``torch.autograd.Function``.

    Attributes:
        forward: takes the call's arguments and returns the results, then the tensors that only the backward pass needs.
        results: number of results among the outputs of `forward`.
        inputs: number of the arguments that the user passed; the others have no gradient.
        saved: the values that the backward graphs read.
        dirty: indices of the arguments that the forward pass mutates in place.
        fixed: indices of the results that are not differentiable.
        materialize: whether missing gradients are passed as zeros.
        backwards: backward graphs, by which of the results have a gradient; empty if no gradient can be requested.
        once: whether the backward pass switches grad mode, so that its gradients can't be differentiated again.
        once_by_wrapper: whether ``once_differentiable`` switches it; then they can be differentiated again if no
            incoming gradient requires grad.
        check: raises if state that the backward pass read while it was traced has changed; None if there is none.
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
    """A call of the user's ``torch.autograd.Function``: takes tensors and returns a tuple of tensors."""

    def __init__(self, name: str, spec: FunctionSpec) -> None:
        super().__init__(name)
        self.spec = spec
        self._function = _make_function(name, spec)

    def __call__(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not self.spec.backwards and torch._C._are_functorch_transforms_active():
            return self.spec.forward.forward(*args)  # without gradients the transforms need no rule for the function
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
            with torch.set_grad_enabled(torch.is_grad_enabled()):  # restored afterwards: nodes may set grad mode
                made = found.graph.forward(*saved, *incoming)
            refused = spec.once and (not spec.once_by_wrapper or any(g.requires_grad for g in incoming))
            if refused and torch.is_grad_enabled():
                made = tuple(None if g is None else _refusing(g, name) for g in made)
            return (*made, *[None] * (len(ctx.needs_input_grad) - len(made)))

    Captured.__name__ = Captured.__qualname__ = name
    Captured._backward_cls.__name__ = f"{name}Backward"  # named in torch's error messages
    return Captured


def checks_in(graph: fx.GraphModule) -> list[Callable[[], None]]:
    """The checks of all callables in a graph."""
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
    """A function under ``torch.utils.checkpoint``: takes tensors and returns a tuple of tensors.

    Args:
        body: the graph of the function.
        options: keyword arguments of torch's checkpoint.
        written: indices of the arguments that the body mutates; the recomputation mutates them again. They are not
        among
            the user's arguments of the checkpoint, so torch must not check them for changes.
        run: the compiled body, if it has been compiled.
    """

    recomputed = True  # tells a backend that records the call to recompute the values inside rather than save them

    def __init__(
        self, body: fx.GraphModule, options: dict[str, Any], written: tuple[int, ...] = (),
        run: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__("checkpoint")
        self.body = body
        self.options = options
        self.written = written
        self.recomputes = bool(written)  # tells a backend that records the call to compile it by :meth:`compiled`
        self._run = run or body.forward

    def compiled(self, backend: Callable[..., Callable[..., Any]]) -> CheckpointCall:
        """The same call with a body that a backend has compiled."""
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
    """A transform of ``torch.func``, applied to a function and called: takes tensors and returns a tuple of tensors.

    Args:
        name: name of the node.
        transform: torch's function; None calls the function itself.
        body: the graph of the function; takes the transformed tensors, then others, and returns a tuple of tensors.
        options: keyword arguments of the transform.
        differentiated: for transforms that differentiate, the number of arguments with respect to which they do.
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
    """Makes a tensor, with memory of its own, from a NumPy array or NumPy scalar that is known when tracing.

    Args:
        function: the function of torch that the program calls, ``torch.tensor`` and the like.
        data: the array.
    """

    def __init__(self, function: Any, data: Any) -> None:
        super().__init__(function.__name__)
        self.data = data

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.tensor(self.data, *args, **kwargs)


class BranchCall(GraphCall):
    """A call of ``torch.cond``: takes the condition, then tensors, and returns a tuple of tensors.

    Args:
        true: graph of the branch for a true condition; takes the tensors and returns the results.
        false: graph of the branch for a false condition.
    """

    chooses = True  # tells a backend that records the call: the sum of both branches' gradients may be wrong

    def __init__(self, true: fx.GraphModule, false: fx.GraphModule) -> None:
        super().__init__("cond")
        self.true = true
        self.false = false

    def checks(self) -> list[Callable[[], None]]:
        return [*checks_in(self.true), *checks_in(self.false)]

    def __call__(self, condition: torch.Tensor, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batched = torch._C._functorch.is_batchedtensor(condition)  # torch, too, computes both branches for a batch
        if _runs_for_real((condition, *args)) and not batched:
            return (self.true if bool(condition) else self.false).forward(*args)
        # While a backend records the call, both branches, which have no effects, are computed and one is selected.
        truth = condition.reshape(()).to(torch.bool)
        return tuple(torch.where(truth, a, b) for a, b in zip(self.true.forward(*args), self.false.forward(*args)))
