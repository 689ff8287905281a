"""User-defined ``torch.autograd.Function``: a node whose forward and backward pass were evaluated to graphs.

The forward pass is evaluated as part of the frame, without gradients, as torch runs it. Then the backward pass is
evaluated for stand-ins of the incoming gradients. Both become a :class:`graph_calls.FunctionCall`, which the graph
calls, so that the gradients are the user's, not those of the operations in the forward pass.

Invariant: the backward pass of a captured function has no effect but its gradients, and reads nothing that may have
changed by the time it runs, unless that is checked then. A function for which this can't be ensured breaks the graph.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ...exc import Unsupported
from ...guards import Guard, build_program
from ...guards.source import AttrSource, Source
from ...rules.table import handles
from ...rules.trace_rules import is_library
from ...runtime.graph_calls import BackwardGraph, FunctionCall, FunctionSpec, SavedValue
from ...torch_versions import FUNCTION_APPLY, apply_takes_keywords
from ..base import ObservedException, VariableTracker, realized, unsupported, wraps_if
from ..constant import ConstantVariable
from ..containers.sequences import TupleVariable
from ..functions.functions import BaseFunctionVariable
from ..numbers.scalars import ScalarVariable
from ..objects.classes import ClassVariable
from ..objects.objects import ObjectVariable
from ..tensors.subclasses import refuse_subclasses
from ..tensors.tensor import TensorVariable, record
from .subgraphs import (
    NodeVariable,
    Part,
    as_graph,
    fixes_a_value,
    is_of_the_frame,
    own_guards,
    reachable,
    read_from_outside,
    remove,
    tensors_in,
    torch_state,
    without_numbers,
)
from .torch_functions import state_now

if TYPE_CHECKING:
    from ..protocols import Tracer

_Base = torch.autograd.Function
_KIND = "autograd_in_graph"
_ONCE_CODE = torch.autograd.function.once_differentiable(lambda ctx: None).__code__
# Prefixes of torch's own functions that consist of nothing but tensor operations; others act on the autograd engine or
# on processes.
_CAPTURED_OF_TORCH = ("torch.distributions.", "torch._dynamo._trace_wrapped_higher_order_op")
_MOST_CHOICES = 8  # largest number of combinations of present and absent incoming gradients, each evaluated separately


class FunctionContextVariable(VariableTracker):
    """The ``ctx`` argument of a forward and backward pass.

    Args:
        name: the function's name, for messages.
        needs: for each argument, whether it needs a gradient.
    """

    has_identity = True

    def __init__(self, name: str, needs: tuple[bool, ...]) -> None:
        super().__init__()
        self.name = name
        self.needs = needs
        self.attributes: dict[str, VariableTracker] = {}
        self.saved: list[VariableTracker] = []
        self.dirty: list[VariableTracker] = []
        self.fixed: list[VariableTracker] = []
        self.materialize = True
        self.in_backward = False

    def python_type(self) -> type:
        return torch.autograd.function.BackwardCFunction

    def describe(self) -> str:
        return f"ctx of {self.name}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def reconstruct(self, cg: Any) -> None:
        unsupported(_KIND, f"{self.describe()} is used outside of its forward and backward pass")

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name in self.attributes:
            value = self.attributes[name] = realized(tx, self.attributes[name])
            if self.in_backward:
                _refuse_changeable(value, f"{self.describe()}.{name}")
            return value
        if name == "needs_input_grad":
            return TupleVariable([ConstantVariable(n) for n in self.needs])
        if name == "saved_tensors":
            if not self.in_backward:
                unsupported(_KIND, f"saved_tensors of {self.describe()} in its forward pass")
            return TupleVariable(list(self.saved))
        if name == "materialize_grads":
            return ConstantVariable(self.materialize)
        if name in _METHODS:
            return tx.builtin_method(self, name)
        if hasattr(torch.autograd.function.BackwardCFunction, name):
            unsupported(_KIND, f"{name} of {self.describe()}")
        tx.raise_error(AttributeError, f"'{self.name}Backward' object has no attribute {name!r}")

    def begin_backward(self) -> None:
        """Switches to the backward pass, which reads the attributes that the forward pass has set."""
        self.in_backward = True
        for name, value in self.attributes.items():
            if isinstance(value, ConstantVariable) and value.is_constant():
                # A number that changes from call to call is fixed by this, through the frame's guards.
                self.attributes[name] = ConstantVariable(value.value)

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        if self.in_backward:
            unsupported(_KIND, f"{self.describe()}.{name} is set in the backward pass")
        if name == "materialize_grads":
            self.materialize = tx.truth(value)
        elif hasattr(torch.autograd.function.BackwardCFunction, name):
            unsupported(_KIND, f"{self.describe()}.{name} is set")
        else:
            tx.output.effects.epoch += 1
            self.attributes[name] = value

    def delattr(self, tx: Tracer, name: str) -> None:
        if self.in_backward or name not in self.attributes:
            unsupported(_KIND, f"{self.describe()}.{name} is deleted")
        tx.output.effects.epoch += 1
        del self.attributes[name]

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name not in _METHODS or name in self.attributes:
            return tx.call(self.getattr(tx, name), args, kwargs)
        if self.in_backward or kwargs:
            unsupported(_KIND, f"{name}() of {self.describe()}")
        tx.output.effects.epoch += 1
        if name == "set_materialize_grads":
            self.materialize = tx.truth(args[0])
            return ConstantVariable(None)
        for value in args:
            if not isinstance(value, TensorVariable) and not (name == "save_for_backward" and value.is_none()):
                unsupported(_KIND, f"{name}() of {value.describe()}")
        setattr(self, _METHODS[name], list(args))
        return ConstantVariable(None)


_METHODS = {"save_for_backward": "saved", "mark_dirty": "dirty", "mark_non_differentiable": "fixed",
            "set_materialize_grads": "materialize"}


def _refuse_changeable(value: VariableTracker, what: str) -> None:
    """Breaks the graph for a list or object from outside, which may have changed when the backward pass reads it."""
    for part in reachable([value]).values():
        if isinstance(part, (TensorVariable, ScalarVariable)):
            continue
        if part.source is not None and not part.is_constant():
            if not (isinstance(part, TupleVariable) and is_of_the_frame(part.source)):
                unsupported(_KIND, f"the backward pass reads {what}, {part.describe()}, which may have changed by then")


@handles(FUNCTION_APPLY)
def _apply(tx: Tracer, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """Function.apply (torch/autograd/function.py and torch/csrc/autograd/python_function.cpp, THPFunction_apply)."""
    if not isinstance(cls, ClassVariable) or not issubclass(cls.value, _Base):
        unsupported(_KIND, f"apply() of {cls.describe()}")
    if is_library(cls.value.__module__) and not cls.value.__module__.startswith(_CAPTURED_OF_TORCH):
        unsupported(_KIND, f"{cls.value.__qualname__}.apply() of torch's own")
    if torch._C._are_functorch_transforms_active():
        unsupported("functorch", f"{cls.value.__qualname__}.apply() under a transform")
    tx.output.overrides.refuse_later(f"{cls.value.__qualname__}.apply()")
    refuse_subclasses(tensors_in([*args, *kwargs.values()]), f"{cls.value.__qualname__}.apply()")
    return _Capture(tx, cls, list(args), kwargs).run()


class _Capture:
    """The capture of one call of ``apply``."""

    def __init__(
        self, tx: Tracer, cls: ClassVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> None:
        self.tx = tx
        self.cls = cls
        self.name = cls.value.__name__
        self.forward = tx.getattr(cls, "forward")
        tx.classes.lookup(cls.value, "setup_context")
        function: Any = cls.value
        self.with_setup = function.setup_context is not _Base.setup_context
        self.args = self._bind(args, kwargs)
        self.tensors = [a for a in self.args if isinstance(a, TensorVariable)]
        needs = tuple(isinstance(a, TensorVariable) and a.fake.requires_grad for a in self.args)
        self.ctx = FunctionContextVariable(self.name, needs)
        self.layout_asked = False

    def _bind(self, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> list[VariableTracker]:
        if kwargs and not (self.with_setup and apply_takes_keywords()):
            unsupported(_KIND, f"{self.name}.apply() with keyword arguments")
        if not self.with_setup:
            return args
        if not isinstance(self.forward, BaseFunctionVariable):
            unsupported(_KIND, f"{self.name}.forward, {self.forward.describe()}")
        code = self.forward.code()
        if code.co_kwonlyargcount or code.co_flags & 0x08:
            unsupported(_KIND, f"{self.name}.forward has keyword-only parameters")
        bound = self.forward.bind(self.tx, args, kwargs)
        flat = [realized(self.tx, bound[name]) for name in code.co_varnames[: code.co_argcount]]
        if code.co_flags & 0x04:
            flat += bound[code.co_varnames[code.co_argcount]].iterate(self.tx)
        return flat

    def run(self) -> VariableTracker:
        output = self.tx.output
        part = Part(output)
        returned = self._run_forward()
        nodes = without_numbers(part.close())
        items = list(returned.items) if isinstance(returned, TupleVariable) else [returned]
        items = [realized(self.tx, item) for item in items]
        results = [item for item in items if isinstance(item, TensorVariable)]
        if not results or any(not isinstance(i, TensorVariable) and not _is_plain(i) for i in items):
            unsupported(_KIND, f"{self.name}.forward returns {returned.describe()}")
        traced: dict[tuple[bool, ...], tuple[list[fx.Node], list[fx.Node], list[Any]] | str] = {}
        check: Callable[[], None] | None = None
        if torch.is_grad_enabled() and any(self.ctx.needs):
            self.ctx.begin_backward()
            traced, check = self._run_backwards(items, results)
        call, arguments = self._build(nodes, results, traced, check)
        made = record(self.tx, "call_function", call, arguments, {})
        made_items = iter(made.items)  # type: ignore[attr-defined]
        final = [next(made_items) if isinstance(item, TensorVariable) else item for item in items]
        return TupleVariable(final) if isinstance(returned, TupleVariable) else final[0]

    # -- forward
    def _run_forward(self) -> VariableTracker:
        tx = self.tx
        try:
            with torch_state(grad=False):
                before = state_now()
                if self.with_setup:
                    returned = tx.call(self.forward, self.args, {})
                    setup = tx.getattr(self.cls, "setup_context")
                    tx.call(setup, [self.ctx, TupleVariable(list(self.args)), returned], {})
                else:
                    returned = tx.call(self.forward, [self.ctx, *self.args], {})
                if state_now() != before:
                    unsupported(_KIND, f"{self.name}.forward leaves torch's state changed")
        except ObservedException as error:
            unsupported(_KIND, f"{self.name}.forward raises {error.value.python_type().__qualname__}")
        if type(returned) is not TupleVariable and not isinstance(returned, TensorVariable):
            unsupported(_KIND, f"{self.name}.forward returns {returned.describe()}")
        return returned

    # -- backward
    def _run_backwards(
        self, items: list[VariableTracker], results: list[TensorVariable]
    ) -> tuple[dict[tuple[bool, ...], Any], Callable[[], None] | None]:
        tx, output = self.tx, self.tx.output
        traced: dict[tuple[bool, ...], Any] = {}
        fixed = {id(t) for t in self.ctx.fixed}
        choices = [(True,) if self.ctx.materialize else (True, False) for _ in results]
        if not self.ctx.materialize:
            choices = [(False,) if id(r) in fixed or not _is_differentiable(r) else c for r, c in zip(results, choices)]
        patterns = list(itertools.product(*choices))
        if len(patterns) > _MOST_CHOICES:
            unsupported(_KIND, f"{self.name} with {len(results)} results and set_materialize_grads(False)")
        known = reachable([*self.args, *self.ctx.attributes.values(), *items], output.effects)
        for value in known.values():
            if isinstance(value, ScalarVariable):
                _ = value.node  # a number that the forward pass has kept becomes an input here
        inputs = len(output.inputs)
        asked = output.layout_questions
        with own_guards(output) as guards, output.effects.watched() as touched:
            for pattern in patterns:
                part = Part(output)
                try:
                    incoming, gradients = self._run_backward(items, pattern)
                    traced[pattern] = (part.close(), incoming, gradients)
                except ObservedException as error:
                    if pattern == patterns[0]:
                        unsupported(_KIND, f"{self.name}.backward raises {error.value.python_type().__qualname__}")
                    remove(part.close())
                    traced[pattern] = f"it raises {error.value.python_type().__qualname__} for gradients that are None"
                except Unsupported as error:
                    if pattern == patterns[0] or error.kind != "fake_tensor_error":
                        raise
                    remove(part.close())
                    traced[pattern] = f"for gradients that are None, {error.detail}"
            needed = guards.all()
        self.layout_asked = output.layout_questions != asked
        if len(output.inputs) != inputs:
            unsupported(_KIND, f"{self.name}.backward reads a tensor from outside, which may have changed by then")
        for tracker in touched:
            if tracker is None or tracker.source is not None or id(tracker) in known:
                what = "globals" if tracker is None else tracker.describe()
                unsupported(_KIND, f"{self.name}.backward changes {what} when it runs")
        for guard in needed:
            if is_of_the_frame(guard.source):
                unsupported(_KIND, f"{self.name}.backward reads {guard.source.name}, which may have changed by then")
        values = [guard for guard in needed if fixes_a_value(guard)]
        return traced, _checker(self.name, values, tx.root.globals[0]) if values else None

    def _run_backward(
        self, items: list[VariableTracker], pattern: tuple[bool, ...]
    ) -> tuple[list[fx.Node], list[fx.Node | None]]:
        tx, output = self.tx, self.tx.output
        given = iter(pattern)
        grads: list[VariableTracker] = []
        for item in items:
            if isinstance(item, TensorVariable) and next(given):
                grads.append(self._incoming(item))
            else:
                grads.append(ConstantVariable(None))
        incoming = [g.node for g in grads if isinstance(g, TensorVariable)]
        backward = tx.getattr(self.cls, "backward")
        attributes = dict(self.ctx.attributes)
        with torch_state(grad=False, autocast=False):
            before = state_now()
            returned = tx.call(backward, [self.ctx, *grads], {})
            if state_now() != before or output.open_modes:
                unsupported(_KIND, f"{self.name}.backward leaves torch's state changed")
        self.ctx.attributes = attributes
        return incoming, self._gradients(returned)

    def _incoming(self, result: TensorVariable) -> TensorVariable:
        output = self.tx.output
        fake = result.fake
        with output.fake_mode, torch.no_grad():
            grad = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
        node = output.graph.create_node("call_function", incoming_gradient, (), name="grad")
        node.meta["example_value"] = grad
        return output.register_tensor(TensorVariable(node, grad))

    def _gradients(self, returned: VariableTracker) -> list[fx.Node | None]:
        """For each tensor argument, the node of its gradient."""
        items = list(returned.items) if isinstance(returned, TupleVariable) else [returned]
        items = [realized(self.tx, item) for item in items]
        if len(items) < len(self.args) or not all(item.is_none() for item in items[len(self.args):]):
            unsupported(_KIND, f"{self.name}.backward returns {len(items)} gradients for {len(self.args)} arguments")
        found: list[fx.Node | None] = []
        for arg, grad, needed in zip(self.args, items, self.ctx.needs):
            if not isinstance(grad, TensorVariable) and not grad.is_none():
                unsupported(_KIND, f"{self.name}.backward returns {grad.describe()} as a gradient")
            if isinstance(arg, TensorVariable):
                found.append(grad.node if needed and isinstance(grad, TensorVariable) else None)
            elif not grad.is_none():
                unsupported(_KIND, f"{self.name}.backward returns a gradient for an argument that is no tensor")
        return found

    # -- the call
    def _build(
        self, nodes: list[fx.Node], results: list[TensorVariable], traced: dict[tuple[bool, ...], Any],
        check: Callable[[], None] | None,
    ) -> tuple[FunctionCall, list[VariableTracker]]:
        output = self.tx.output
        own = set(nodes)
        arguments = [t.node for t in self.tensors]
        read = read_from_outside(nodes, [r.node for r in results])
        backward_reads: dict[fx.Node, None] = {}
        for entry in traced.values():
            if not isinstance(entry, str):
                backward_nodes, incoming, gradients = entry
                skipped = set(incoming)
                outside = read_from_outside([n for n in backward_nodes if n not in skipped], gradients)
                backward_reads.update(dict.fromkeys(n for n in outside if n not in skipped))
        for node in (*read, *(n for n in backward_reads if n not in own)):
            if node not in arguments:
                arguments.append(node)
        returned = [r.node for r in results]
        made = returned + [n for n in backward_reads if n in own and n not in returned]
        checked = {t.node for t in self.ctx.saved if isinstance(t, TensorVariable)}
        saved = []
        for node in backward_reads:
            if node in arguments:
                saved.append(SavedValue("argument", arguments.index(node), node in checked))
            else:
                index = made.index(node)
                saved.append(SavedValue("result" if index < len(returned) else "made", index, node in checked))
        dirty = tuple(self._position(arguments, t, "mark_dirty") for t in self.ctx.dirty)
        fixed = tuple(self._position(returned, t, "mark_non_differentiable") for t in self.ctx.fixed)
        forward = as_graph(nodes, arguments, made, output.fake_mode)
        backwards: dict[tuple[bool, ...], BackwardGraph] = {}
        once = False
        for pattern, entry in traced.items():
            if isinstance(entry, str):
                backwards[pattern] = BackwardGraph(None, error=entry)
                continue
            backward_nodes, incoming, gradients = entry
            inner = [n for n in backward_nodes if n not in set(incoming)]
            once = once or any(n.target is torch._C._set_grad_enabled for n in inner)
            graph = as_graph(inner, [*backward_reads, *incoming], gradients, output.fake_mode)
            layouts = tuple(n.meta["example_value"].stride() for n in incoming) if self.layout_asked else None
            backwards[pattern] = BackwardGraph(graph, layouts)
        for entry in reversed(traced.values()):
            if not isinstance(entry, str):
                remove(entry[0])
        remove(nodes)
        spec = FunctionSpec(
            forward, len(returned), len(self.tensors), tuple(saved), dirty, fixed, self.ctx.materialize, backwards,
            once, self._is_once_differentiable(), check,
        )
        return FunctionCall(self.name, spec), [NodeVariable(node) for node in arguments]

    def _is_once_differentiable(self) -> bool:
        function: Any = self.cls.value
        code = getattr(function.backward, "__code__", None)
        return code is _ONCE_CODE

    def _position(self, nodes: list[fx.Node], tensor: VariableTracker, what: str) -> int:
        assert isinstance(tensor, TensorVariable)
        if tensor.node not in nodes:
            unsupported(_KIND, f"{what}() of {self.name} names a tensor that is neither an argument nor a result")
        return nodes.index(tensor.node)


# ---------------------------------------------------------------- frames that torch calls
class OuterContextVariable(ObjectVariable):
    """The ``ctx`` of a forward or backward pass that torch itself has called: an object from outside, part of whose
    state is kept in C."""

    def generic_getattr(self, tx: Tracer, name: str) -> VariableTracker | None:
        written = tx.output.effects.attributes_of(self)
        if name in _KEPT_IN_C and name in written:
            return written[name]
        if name == "needs_input_grad" and tx.classes.lookup(self.cls, name) is _FunctionBase.needs_input_grad:
            assert self.source is not None
            return tx.values.wrap_at(self.value.needs_input_grad, AttrSource(self.source, name))
        return super().generic_getattr(tx, name)

    def generic_setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        if name in _KEPT_IN_C and tx.classes.lookup(self.cls, name) is getattr(_FunctionBase, name):
            tx.output.effects.store_attr(self, name, value)
        else:
            super().generic_setattr(tx, name, value)


_FunctionBase: Any = torch._C._FunctionBase
_KEPT_IN_C = ("to_save", "dirty_tensors", "non_differentiable", "materialize_grads")


@wraps_if(lambda value: issubclass(type(value), torch.autograd.function.BackwardCFunction), rank=60)
def _wrap_context(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    return OuterContextVariable(type(value), value, source)


def incoming_gradient() -> None:
    """Stands for an incoming gradient in the trace; never called."""


def _is_differentiable(tensor: TensorVariable) -> bool:
    return tensor.fake.is_floating_point() or tensor.fake.is_complex()


def _is_plain(value: VariableTracker) -> bool:
    return value.is_constant()


def _checker(name: str, guards: list[Guard], globals: dict[str, Any]) -> Callable[[], None]:
    program, texts = build_program(guards, None, [])

    def check() -> None:
        holds, step = program.check((), None, globals, {})
        if not holds:
            raise RuntimeError(
                f"the backward pass of {name} was compiled with values that have changed since its forward pass ran: "
                f"required was {texts[step]}"
            )

    return check


__all__ = ["FunctionContextVariable", "Unsupported"]
