"""The ``autograd.Function`` of a pair of compiled graphs, forward and backward.

Invariant: for autograd the pair is one operation, whose results, versions, saved tensors and gradients behave like
those of eager's many operations: saved tensors are freed with the graph, a saved input that was written since is
reported, an undefined incoming gradient gives undefined gradients, and views of inputs and of results are views that
autograd knows.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from dynamo_lite import torch_versions
from dynamo_lite.backends.aot import ambient
from dynamo_lite.backends.aot.call_sizes import at_sizes, has_formulas
from dynamo_lite.backends.aot.double_backward import DoubleBackward, in_layout, is_wrapped
from dynamo_lite.backends.aot.graph import ValueOutput
from dynamo_lite.backends.aot.independence import IndependentResults, given_to_kernels, independent, unwritten
from dynamo_lite.backends.aot.interface import Interface, Saved, at_call
from dynamo_lite.backends.aot.results import Results
from dynamo_lite.backends.aot.tangent_layouts import Strides, as_they_come
from dynamo_lite.backends.aot.usual_backward import UsualBackward

Call = Callable[..., tuple[Any, ...]]
MakeBackward = Callable[["tuple[bool, ...]", "Strides | None"], "Call | None"]
NO_DOUBLE_BACKWARD = (
    "a gradient that dynamo_lite compiled can't itself be differentiated (create_graph=True, double backward) if "
    "an input of the graph has been written to since; run the function uncompiled")


def training_function(
    interface: Interface, forward: Call, saved: Saved, backward_for: MakeBackward,
    checks: Sequence[Callable[[], None]] = (), double_backward: DoubleBackward | None = None,
) -> Call:
    """The function of the captured graph's inputs, which takes part in autograd.

    Args:
        interface: the interface of the traced graph.
        forward: computes the joint graph's values, followed by the saved ones.
        saved: the values that are saved for the backward pass.
        backward_for: returns the compiled backward pass for the values that gradients come in for, and for layouts of
            these (``tangent_layouts``; None: as recorded); it is called once for each such set and at most two layouts,
            when they first occur. The backward pass takes a list of the saved values, the
            numbers of `interface.sizes` and the gradients, and empties it. None: there is no compiled one, and
            `double_backward` computes the gradients.
        checks: called before each backward pass; they raise if it must not run as it was compiled.
        double_backward: computes gradients that are to be differentiated themselves.

    To be called under the grad mode that the returned function will be called with.
    """
    if not any(interface.differentiable):
        return _results(interface, _without_autograd(forward))
    if not interface.requiring:
        forward = _without_a_leaf(forward)
    apply = _entry(_autograd_function(interface, forward, saved, backward_for, checks, double_backward))
    if double_backward is not None:
        apply = _through_views(apply, double_backward)
    if interface.unreached:
        apply = _without(apply, interface.unreached)
    if not interface.requiring:
        apply = _with_a_leaf(apply)
    if not torch.is_grad_enabled():
        apply = _with_grad_mode(apply)
    plain = [result.recipe for result in interface.results]
    if plain == [ValueOutput(i) for i in range(len(interface.layouts))]:
        return apply
    return _results(interface, apply)


def _results(interface: Interface, values: Call) -> Call:
    if not has_formulas(interface.results):
        return Results(interface.results, values, interface.written)

    def run(*inputs: Any) -> tuple[Any, ...]:
        results = at_call(interface.results, interface.sizes.of(inputs))
        return Results(results, values, interface.written)(*inputs)

    return run


def _without_autograd(forward: Call) -> Call:
    def run(*inputs: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            return forward(*inputs)

    return run


def _without(apply: Call, places: tuple[int, ...]) -> Call:
    """For inputs that gradients of the results don't reach: detaches them, so that no node before them runs in the
    backward pass.
    """

    def run(*inputs: Any) -> tuple[Any, ...]:
        known = list(inputs)
        for place in places:
            known[place] = known[place].detach()
        return apply(*known)

    return run


def _with_a_leaf(apply: Call) -> Call:
    """Adds a leaf as an input, for a graph whose results require grad only because of leaves that the graph makes
    itself and that are not visible outside."""

    def run(*inputs: Any) -> tuple[Any, ...]:
        return apply(*inputs, torch.empty(0, device="cpu", requires_grad=True))

    return run


def _without_a_leaf(forward: Call) -> Call:
    """The forward pass of such a graph, which ignores the leaf."""
    return lambda *inputs: forward(*inputs[:-1])


def _through_views(apply: Call, double_backward: DoubleBackward) -> Call:
    """For a graph whose gradients are differentiated: makes each input the result of a view operation, as the engine
    tells which gradients it needs for operations, but not for leaves."""

    def run(*inputs: Any) -> tuple[Any, ...]:
        if not double_backward.by_views:
            return apply(*inputs)
        return apply(*[x.view_as(x) if isinstance(x, torch.Tensor) and x.requires_grad else x for x in inputs])

    return run


def _needed(ctx: Any) -> tuple[bool, ...]:
    """Flags for the inputs whose gradients are needed, as far as is known."""
    if not ctx.tensors:
        return tuple(ctx.needs_input_grad)
    executed = torch._C._will_engine_execute_node
    asked = {i for i, (node, _) in zip(ctx.tensors, ctx.next_functions) if node is not None and executed(node)}
    return tuple(i in asked for i in range(len(ctx.needs_input_grad)))


def _with_grad_mode(apply: Call) -> Call:
    """For a graph that is entered with grad mode off and switches it on itself."""

    def run(*inputs: Any) -> tuple[Any, ...]:
        with torch.enable_grad():
            return apply(*inputs)

    return run


class _BackwardCalls:
    """The backward passes of a graph, by the results that gradients come in for and by layouts; compiled when first
    needed. For each set of results there is one for the layouts that come first, and where these are not those that
    were recorded, one for these, to which all other gradients are copied."""

    def __init__(self, make: MakeBackward) -> None:
        self._make = make
        self._made: dict[tuple[bool, ...], dict[Strides | None, Call | None]] = {}
        self._lock = threading.RLock()

    def get(self, given: tuple[bool, ...], strides: Strides | None = None) -> tuple[Call | None, Strides | None]:
        """A backward pass, and the layouts that it takes; those are ``strides``, or None for those recorded."""
        known = self._made.get(given)
        found = known.get(strides) if known is not None else None
        if found is not None:
            return found, strides
        with self._lock:
            made = self._made.setdefault(given, {})
            if made and strides not in made:
                strides = None
            if strides not in made:
                made[strides] = self._make(given, strides)
            return made[strides], strides


def _autograd_function(
    interface: Interface, forward: Call, saved: Saved, backward_for: MakeBackward,
    checks: Sequence[Callable[[], None]], double_backward: DoubleBackward | None,
) -> type[torch.autograd.Function]:
    """The ``autograd.Function`` of the pair; the arguments are those of ``training_function``."""
    count = len(interface.layouts)
    fixed = [i for i, differentiable in enumerate(interface.differentiable) if not differentiable]
    sources = tuple(zip(saved.inputs, saved.values))
    sizes = interface.sizes
    keeps_versions = not torch_versions.SAVED_ONE_BY_ONE and sum(interface.differentiable) > 1
    usual = UsualBackward(bool(sources))
    any_backward = _AnyBackward(interface, saved, _BackwardCalls(backward_for), checks, double_backward, usual)

    class Compiled(torch.autograd.Function):
        """One call of the compiled graph."""

        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> tuple[Any, ...]:
            if double_backward is not None:
                ctx.kept = double_backward.keep_inputs(inputs)
                if double_backward.by_views:
                    ctx.tensors = double_backward.views_among(inputs)
            if sizes:
                ctx.sizes = sizes.of(inputs)
            computed = forward(*inputs)
            values = computed[:count]
            ctx.set_materialize_grads(False)
            if sources:
                tensors = [inputs[i] if i is not None else computed[v] for i, v in sources]
                ctx.save_for_backward(*tensors)
                if keeps_versions:
                    ctx.versions = [t._version for t in tensors]
            if fixed:
                ctx.mark_non_differentiable(*[values[i] for i in fixed])
            return values

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
            made = usual.run(ctx, grads)
            return any_backward.run(ctx, grads) if made is None else made

    # What the engine calls. The class's own ``apply`` first finds out which method of `Compiled` to call.
    Compiled._backward_cls.apply = Compiled.backward  # type: ignore[attr-defined]
    Compiled._backward_cls.tensors = ()  # type: ignore[attr-defined]
    return Compiled


class _AnyBackward:
    """The backward pass of a pair, for whatever gradients come in; the arguments are those of ``training_function``.

    Args:
        usual: takes note of the gradients that nearly every call gets.
    """

    def __init__(
        self, interface: Interface, saved: Saved, calls: _BackwardCalls, checks: Sequence[Callable[[], None]],
        double_backward: DoubleBackward | None, usual: UsualBackward,
    ) -> None:
        self._interface, self._saved, self._calls, self._checks = interface, saved, calls, checks
        self._double_backward, self._usual = double_backward, usual
        self._sources = tuple(zip(saved.inputs, saved.values))
        self._independence = independent(interface.differentiable, saved.readers, saved.together)
        self._has_usual = not (interface.sizes or checks or interface.freed) and interface.requiring

    def _required(self, given: tuple[bool, ...]) -> tuple[Call, None]:
        found, _ = self._calls.get(given)
        if found is None:
            raise RuntimeError(NO_DOUBLE_BACKWARD)
        return found, None

    def run(self, ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients of the inputs."""
        interface, saved = self._interface, self._saved
        if _needs_nothing(interface, ctx, grads):
            return (None,) * len(ctx.needs_input_grad)
        for check in self._checks:
            check()
        given = tuple(grad is not None for grad in grads)
        sizes = ctx.sizes if interface.sizes else ()
        # vmap computes batches of gradients; these have no memory that kernels could read.
        call, strides = None, None
        if not torch.is_grad_enabled() and not any(map(is_wrapped, grads)):
            call, strides = self._calls.get(given, as_they_come(grads, interface.layouts) if interface.adapts else None)
        if call is None and self._double_backward is not None:
            known = _all_saved(ctx, self._sources)
            if known is not None:
                found = self._double_backward.gradients(ctx.kept, known, grads, _needed(ctx), sizes)
                if found is not None:
                    return found
        if call is None:
            call, strides = self._required(given)
        given_to_call: list[Any] = []
        if self._sources:  # where eager saves nothing, it may run again even if the graph is not retained
            count = len(interface.layouts)
            given_to_call += _take(ctx, self._independence, given, interface.differentiable, saved, count)
            # The call frees saved values after their last use; nobody else holds them unless the graph is retained.
            ctx.maybe_clear_saved_tensors()
        given_to_call += sizes
        now = at_sizes(interface.layouts, sizes) if sizes else interface.layouts
        own = strides or (None,) * len(grads)
        come = [g if own[i] is not None else in_layout(g, *now[i]) for i, g in enumerate(grads) if g is not None]
        given_to_call += come
        if self._has_usual and given == interface.differentiable:
            self._usual.learn(grads, come, call)
        del come
        if not torch.is_grad_enabled():
            return _call_backward(call, given_to_call)
        with torch.no_grad():
            made = _call_backward(call, given_to_call)
        # Differentiating the gradients again is an error only if it happens.
        return tuple(None if g is None else _marked(g) for g in made)


def _entry(function: type[torch.autograd.Function]) -> Call:
    """The call of an autograd function, without the steps in Python that ask for transforms of ``torch.func``: guards
    keep calls under these, and tensors wrapped by these, out of compiled graphs."""
    bound: Call = torch._C._FunctionBase.__dict__["apply"].__get__(None, function)
    return bound


def _needs_nothing(interface: Interface, ctx: Any, grads: Sequence[Any]) -> bool:
    """Whether a backward pass needs no saved value.

    Raises:
        RuntimeError: eager's error, if it needs something that the graph itself has freed.
    """
    for at, freed in interface.freed:
        if grads[at] is not None and (freed.before_inputs or _goes_to_all_leaves(ctx)):
            raise RuntimeError(freed.error)
    return not interface.requiring or all(grad is None for grad in grads)


def _all_saved(ctx: Any, sources: Sequence[Any]) -> Sequence[Any] | None:
    """The saved values of these sources; None if a backward pass from another result has freed some of them."""
    if not sources:
        return ()
    try:
        found: Sequence[Any] = ctx.saved_tensors
    except RuntimeError:
        if getattr(ctx, "rest", None) is None:
            raise
        return None
    return found


def _goes_to_all_leaves(ctx: Any) -> bool:
    """Whether the running backward pass was started by ``backward()``, judging by the leaves before the graph."""
    for node, _ in ctx.next_functions:
        while node is not None and node.next_functions:
            node = node.next_functions[0][0]
        try:
            if node is not None and not torch._C._will_engine_execute_node(node):
                return False
        except RuntimeError:
            return False  # raised for a leaf whose gradient alone is requested
    return True


def _take(
    ctx: Any, independence: IndependentResults | None, given: tuple[bool, ...], differentiable: tuple[bool, ...],
    saved: Saved, count: int,
) -> Sequence[Any]:
    """The saved values for the gradients of some results. Those that other results need outlive this backward pass."""
    if independence is None:
        tensors, _ = _saved_tensors(ctx, given, saved, count)
        return tensors
    rest = getattr(ctx, "rest", None)
    if rest is not None and rest.serves(given):
        tensors = rest.tensors(given)
        stays = rest.after(given)
    else:
        tensors, known = _saved_tensors(ctx, given, saved, count)
        stays = independence.rest(known, given, {i for i, able in enumerate(differentiable) if able})
    if not torch._C._autograd._get_current_graph_task_keep_graph():
        ctx.rest = stays
    return tensors


def _saved_tensors(
    ctx: Any, given: tuple[bool, ...], saved: Saved, count: int
) -> tuple[Sequence[torch.Tensor], Sequence[Any]]:
    """The tensors that kernels get for the saved values, and the saved values as far as they are known.

    Raises:
        RuntimeError: torch's error for a second backward pass, or for a needed value that has been written to.
    """
    try:
        tensors = ctx.saved_tensors
        return tensors, tensors
    except RuntimeError:
        if not torch_versions.SAVED_ONE_BY_ONE and not hasattr(ctx, "versions"):
            raise  # the node has only one result, whose gradient reads all saved values
    # Behind the handler: what is raised here is eager's error, which follows from no other.
    own = [place is None and value < count for place, value in zip(saved.inputs, saved.values)]
    known = unwritten(ctx, saved.readers, given, own)
    return given_to_kernels(known), known


def backward_checks(gm: GraphModule) -> list[Callable[[], None]]:
    """The checks of user functions in a captured graph that have to run before their gradients are computed."""
    return [check for node in gm.graph.nodes if node.op == "call_function"
            for check in getattr(node.target, "checks", list)()]


def _call_backward(call: Call, values: list[Any]) -> tuple[Any, ...]:
    if ambient.casts():
        # The graph already contains autocast's casts.
        with torch._C._DisableAutocast():
            return call(values)
    return call(values)


def _marked(grad: torch.Tensor) -> torch.Tensor:
    """The gradient, with a history that raises if it is differentiated."""
    error = torch._C._functions.DelayedError(NO_DOUBLE_BACKWARD.encode(), 1)
    return error(grad.detach().requires_grad_())
