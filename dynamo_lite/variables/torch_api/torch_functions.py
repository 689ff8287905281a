"""Torch's own functions: those that become nodes of the graph, those that read or set torch's state, and those that are
answered while tracing.

Invariant: a call becomes a node whose fake result is known, or is answered from facts that the guards fix, or breaks
the graph; changes that the trace makes to torch's global state are undone when the trace ends.
"""
from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...guards.source import ConstSource, Source
from ...rules.table import Decision, Level, Rule, breaks, decide, handles, is_torch_builtin, row
from ...torch_versions import LATER_SWITCHES
from ..base import VariableTracker, unsupported, wraps_if
from ..constant import ConstantVariable
from ..numbers.running_sizes import take_for_granted
from ..numbers.scalars import ScalarVariable
from ..objects.objects import ObjectVariable
from ..real_object import RealObjectVariable
from ..tensors.learned_elements import known_tensor, learn_or_refuse
from ..tensors.tensor import TensorVariable, record
from .torch_proxies import any_overrides, call_override

if TYPE_CHECKING:
    from ..protocols import Tracer

Handler = Callable[..., VariableTracker]


class TorchFunctionVariable(RealObjectVariable):
    """A torch function that a graph can hold."""

    def describe(self) -> str:
        module = getattr(self.value, "__module__", None) or "torch"
        return f"{module}.{getattr(self.value, '__name__', self.value)}"

    def as_argument(self, tx: Tracer) -> Any:
        return self.value

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        decision = decide(self.value)
        if decision.level is Level.USER and decision.rule not in (Rule.GRAPH, Rule.SKIP):
            marked = tx.values.wrap_marked(self.value, ConstSource(self.value, self.describe()))
            if marked is not None:
                return marked.call(tx, args, kwargs)
        handler = decision.calls if decision.rule is Rule.HANDLED else None
        operation = handler is None or decision.of_tensor
        if any_overrides(tx, [*args, *kwargs.values()]) and (operation or _is_overridable(self.value)):
            return call_override(tx, self.value, args, kwargs)
        if handler is None:
            self._refuse(tx, decision, args, kwargs)  # before modes see the call, as a mode may run the function
        if tx.output.overrides.active() and (operation or self.value in _ASKS_MODES):
            made = tx.output.overrides.call(tx, self.value, args, kwargs)
            if made is not None:
                return made
        if decision.of_tensor:
            if not args and isinstance(kwargs.get("input"), TensorVariable):
                args, kwargs = [kwargs["input"]], {name: value for name, value in kwargs.items() if name != "input"}
            if not (args and isinstance(args[0], TensorVariable)):
                handler = None
        if handler is not None:
            return tx.checked_call(handler, tx, *args, **kwargs)
        if _is_followed(self.value, [*args, *kwargs.values()]):
            return tx.call(tx.values.library_function(self.value), args, kwargs)
        out = kwargs.get("out")
        if out is not None and not isinstance(out, ConstantVariable):
            return self._write(tx, out, args, kwargs)
        return self.record(tx, args, kwargs)

    def _refuse(
        self, tx: Tracer, decision: Decision, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> None:
        """Breaks the graph if the function may not be called while tracing."""
        if decision.rule is Rule.SKIP:
            by_user = f": {decision.reason}" if decision.level is Level.USER and decision.reason else ""
            unsupported(decision.kind, f"{self.describe()}(){by_user}")
        captured = decision.kind == "dynamic_output_shape" and tx.output.captures_sizes
        if decision.rule is Rule.ELEMENTS and not captured and not _elements_known(tx, args, kwargs):
            learn_or_refuse(tx, decision.kind, self.describe(), [*args, *kwargs.values()])

    def _write(
        self, tx: Tracer, out: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """The call with ``out=``, which is one tensor or several."""
        single = isinstance(out, TensorVariable)
        targets = [out] if single else list(out.iterate(tx)) if out.python_type() in (tuple, list) else []
        if not targets or not all(isinstance(t, TensorVariable) for t in targets):
            unsupported("unsupported_torch_call", f"{self.describe()} with out=")
        before = [(t, t.fake.shape) for t in targets]  # type: ignore[attr-defined]
        made = self.record(tx, args, kwargs)
        changed = [t for t, shape in before if t.fake.shape != shape]  # type: ignore[attr-defined]
        if changed and (not single or out.source is not None):
            unsupported("input_mutation", f"{self.describe()} with out= of another shape")
        return made

    def record(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        """The call as a node of the graph."""
        for setter in _CHOSEN_BY.get(self.value, ()):
            _guard_choice(tx, setter)
        method = _METHODS.get(self.value) if isinstance(self.value, types.FunctionType) else None
        if method is not None and args:
            return record(tx, "call_method", method, args, kwargs)
        return record(tx, "call_function", self.value, args, kwargs)


def _is_followed(function: Any, args: list[VariableTracker]) -> bool:
    """Whether an argument of a Python function of torch's is the program's code or an object of its own, which no node
    of a graph holds: what the function does with it is followed."""
    return type(function) is types.FunctionType and any(
        isinstance(value, ObjectVariable) or issubclass(value.python_type(), _CODE) for value in args)


_CODE = (types.FunctionType, types.MethodType, functools.partial)


def _is_overridable(function: Any) -> bool:
    """Whether ``__torch_function__`` of an argument sees a call of a function that this package evaluates itself."""
    return function in _overridable()


@functools.cache
def _overridable() -> frozenset[Any]:
    return frozenset(torch.overrides.get_testing_overrides())


# Tensor methods that are written in Python, with their names: they can be reached only by their names in the class.
_METHODS = {value: name for name, value in vars(torch.Tensor).items() if isinstance(value, types.FunctionType)}
# Functions that this module handles, but that torch function modes see first.
_ASKS_MODES = (torch._C._set_grad_enabled,)


def _elements_known(tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> bool:
    """Whether the elements of all tensor arguments are known."""
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, TensorVariable)]
    return bool(tensors) and all(known_tensor(tx, t.fake) is not None for t in tensors)


# ---------------------------------------------------------------- torch's global state
# For each setter, a function that reads the arguments with which it would set the present state again.
StateReader = Callable[[], tuple[Any, ...]]
STATE: dict[Any, StateReader] = {
    torch._C._set_grad_enabled: lambda: (torch.is_grad_enabled(),),
    torch.set_autocast_cache_enabled: lambda: (torch.is_autocast_cache_enabled(),),
    torch.set_default_dtype: lambda: (torch.get_default_dtype(),),
    torch._C._set_deterministic_algorithms: lambda: (torch.are_deterministic_algorithms_enabled(),),
}
# State whose value at entry is guarded only if the program asks for it: for each setter, the getter.
_KERNEL_CHOICES: dict[Any, Any] = {
    torch._C._set_sdp_use_math: torch._C._get_math_sdp_enabled,
    torch._C._set_sdp_use_flash: torch._C._get_flash_sdp_enabled,
    torch._C._set_sdp_use_mem_efficient: torch._C._get_mem_efficient_sdp_enabled,
    torch._C._set_sdp_use_cudnn: torch._C._get_cudnn_sdp_enabled,
    torch._C._set_sdp_use_overrideable: torch._C._get_overrideable_sdp_enabled,
    torch._C._set_sdp_priority_order: torch._C._get_sdp_priority_order,
    torch._C._set_mkldnn_enabled: torch._C._get_mkldnn_enabled,
    torch._C._set_cudnn_enabled: torch._C._get_cudnn_enabled,
    torch._C._set_cudnn_benchmark: torch._C._get_cudnn_benchmark,
    torch._C._set_cudnn_deterministic: torch._C._get_cudnn_deterministic,
    torch._C._set_cudnn_allow_tf32: torch._C._get_cudnn_allow_tf32,
    **LATER_SWITCHES,
}
STATE |= {setter: lambda getter=getter: (getter(),) for setter, getter in _KERNEL_CHOICES.items()}
_DEVICE_TYPES = ("cpu", "cuda")
# Settings of the precision of float32 products, by kind of device and of operation.
_PRECISIONS = [("cuda", "all"), ("cuda", "conv"), ("cuda", "matmul"), ("cuda", "rnn")]


def state_now() -> dict[Any, tuple[Any, ...]]:
    """For each setter, the arguments that would restore the present state of torch in this thread."""
    state: dict[Any, tuple[Any, ...]] = {(setter, ()): read() for setter, read in STATE.items()}
    for device in _DEVICE_TYPES:
        state[(torch.set_autocast_enabled, (device,))] = (torch.is_autocast_enabled(device),)
        state[(torch.set_autocast_dtype, (device,))] = (torch.get_autocast_dtype(device),)
    for kind in _PRECISIONS:
        state[(torch._C._set_fp32_precision_setter, kind)] = (torch._C._get_fp32_precision_getter(*kind),)
    return state


def changes_between(
    before: dict[Any, tuple[Any, ...]], after: dict[Any, tuple[Any, ...]]
) -> list[tuple[Any, tuple[Any, ...]]]:
    """The calls (function, arguments) that lead from state `before` to state `after`."""
    return [(key[0], (*key[1], *value)) for key, value in after.items() if before[key] != value]


def set_state(state: dict[Any, tuple[Any, ...]]) -> None:
    """Restores a state that :func:`state_now` has returned."""
    for function, args in changes_between(state_now(), state):
        function(*args)


def _state_setter(function: Any) -> Handler:
    def handler(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        values = [tx.values.as_plain(a) for a in args]
        named = {k: tx.values.as_plain(v) for k, v in kwargs.items()}
        tx.run_python(function, *values, **named)
        tx.output.state_node(tx, function, tuple(values), named)
        return ConstantVariable(None)

    return handler


@handles(torch._C._set_fp32_precision_setter)
def _set_precision(tx: Tracer, *args: VariableTracker) -> VariableTracker:
    _kind_of_precision(tx, args[:2])
    return _state_setter(torch._C._set_fp32_precision_setter)(tx, *args)


@handles(torch._C._get_fp32_precision_getter)
def _precision(tx: Tracer, *args: VariableTracker) -> VariableTracker:
    kind, getter = _kind_of_precision(tx, args), torch._C._get_fp32_precision_getter
    (at_entry,) = tx.output.state_at_entry[torch._C._set_fp32_precision_setter, kind]
    tx.guard(ConstSource(getter, getter.__name__), "callable_eq", getter, kind, at_entry)
    return tx.values.from_result(getter(*kind), "torch state")


def _kind_of_precision(tx: Tracer, args: tuple[VariableTracker, ...]) -> tuple[Any, ...]:
    kind = tuple(tx.values.as_plain(a) for a in args)
    if kind not in _PRECISIONS:
        unsupported("torch_state", f"torch's precision of {kind}")
    return kind


for _setter in (*STATE, torch.set_autocast_enabled, torch.set_autocast_dtype):
    handles(_setter)(_state_setter(_setter))


def _answers_now(*functions: Any, guarded: bool = False) -> None:
    """Registers functions that read state which the guards fix: they are called while tracing."""

    def make(function: Any) -> Handler:
        def handler(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
            plain = [tx.values.as_plain(a) for a in args]
            named = {k: tx.values.as_plain(v) for k, v in kwargs.items()}
            answer = tx.run_python(function, *plain, **named)
            if guarded:
                tx.guard(ConstSource(function, function.__name__), "callable_eq", function, tuple(plain), answer)
            return tx.values.from_result(answer, "torch state")

        return handler

    for function in functions:
        handles(function)(make(function))


_answers_now(
    torch.is_grad_enabled, torch.is_inference_mode_enabled, torch.is_autocast_enabled, torch.get_autocast_dtype,
    torch.get_autocast_cpu_dtype, torch.get_autocast_gpu_dtype, torch.is_autocast_cpu_enabled,
    torch.is_autocast_cache_enabled, torch.get_default_dtype, torch.are_deterministic_algorithms_enabled,
    torch.is_deterministic_algorithms_warn_only_enabled, torch.promote_types, torch.can_cast,
    torch.cuda.is_available,
    torch._C._is_any_autocast_enabled, torch._C._get_privateuse1_backend_name,
    torch.amp.autocast_mode.is_autocast_available, torch.get_default_device,
    torch.cuda.device_count, torch._C._accelerator_getAccelerator, torch._C._nn._parse_to,
)
# These read state that no guard on torch's state fixes: their answers are guarded separately.
_answers_now(
    torch.get_num_threads, torch.is_warn_always_enabled, torch._C._get_float32_matmul_precision, guarded=True,
)


# Functions for which a backend chooses the kernel, at compile time, by these switches.
_CHOSEN_BY: dict[Any, tuple[Any, ...]] = {
    torch.nn.functional.scaled_dot_product_attention: (torch._C._set_sdp_use_flash, torch._C._set_sdp_use_math),
}


def _guard_choice(tx: Tracer, setter: Any) -> None:
    getter = _KERNEL_CHOICES[setter]
    (at_entry,) = tx.output.state_at_entry[setter, ()]
    tx.guard(ConstSource(getter, getter.__name__), "callable_eq", getter, (), at_entry)


def _kernel_choice(setter: Any, getter: Any) -> Handler:
    def handler(tx: Tracer) -> VariableTracker:
        _guard_choice(tx, setter)
        return tx.values.from_result(getter(), "torch state")

    return handler


def is_switch(getter: Any) -> bool:
    """Whether a function reads one of torch's switches."""
    return isinstance(getter, types.BuiltinFunctionType) and getter in _KERNEL_CHOICES.values()


for _setter, _getter in _KERNEL_CHOICES.items():
    handles(_getter)(_kernel_choice(_setter, _getter))


@handles(torch.autocast_increment_nesting)
def _enter_autocast(tx: Tracer) -> VariableTracker:
    tx.output.change_autocast_depth(tx, 1)
    return ConstantVariable(1)


@handles(torch.autocast_decrement_nesting)
def _leave_autocast(tx: Tracer) -> VariableTracker:
    # What the program does at depth 0 is part of the node, as the depth differs if the caller is in a context.
    tx.output.change_autocast_depth(tx, -1)
    return ConstantVariable(1)


@handles(torch.clear_autocast_cache)
def _clear_autocast_cache(tx: Tracer) -> VariableTracker:
    torch.clear_autocast_cache()
    tx.output.state_node(tx, torch.clear_autocast_cache, (), {})
    return ConstantVariable(None)


# ---------------------------------------------------------------- queries with one answer while capturing
def _constant_answer(value: Any) -> Handler:
    return lambda tx, *args, **kwargs: ConstantVariable(value)


_NOT_FOR_TORCHS_COMPILER = (torch.nn.Module._call_impl.__code__, torch.nn.TransformerEncoder.forward.__code__)


@handles(torch.compiler.is_compiling)
def _is_compiling(tx: Tracer) -> VariableTracker:
    # These functions ask in order to leave out what torch.compile can't do: hooks that are called when forward raises,
    # and the removal of padding at the end of sequences.
    return ConstantVariable(tx.code not in _NOT_FOR_TORCHS_COMPILER)


@handles(torch.compiler.cudagraph_mark_step_begin)
def _mark_step(tx: Tracer) -> VariableTracker:
    if torch.cuda.is_available():
        unsupported("call_skipped", "torch.compiler.cudagraph_mark_step_begin(), about CUDA graphs of torch.compile")
    return ConstantVariable(None)


handles(torch.compiler.is_dynamo_compiling)(_constant_answer(True))
handles(torch.compiler.is_exporting)(_constant_answer(False))
handles(torch.jit.is_scripting, torch.jit.is_tracing, torch._C._is_tracing)(_constant_answer(False))
handles(torch._C._get_tracing_state)(_constant_answer(None))
# Frames under a dispatch mode are not compiled; the mode that is active while tracing is the trace's own.
handles(torch._C._len_torch_dispatch_stack)(_constant_answer(0))
handles(torch._C._log_api_usage_once)(_constant_answer(None))


@handles(torch._assert_async)
def _assert_async(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    return record(tx, "call_function", torch._assert_async, list(args), kwargs)


@handles(
    torch._C._has_torch_function, torch._C._has_torch_function_unary, torch._C._has_torch_function_variadic,
)
def _has_torch_function(tx: Tracer, *args: VariableTracker) -> VariableTracker:
    return ConstantVariable(tx.output.overrides.active() or any_overrides(tx, args))


@handles(torch.overrides.handle_torch_function)
def _handle_torch_function(
    tx: Tracer, public_api: VariableTracker, relevant_args: VariableTracker, *args: VariableTracker,
    **kwargs: VariableTracker
) -> VariableTracker:
    if any_overrides(tx, [relevant_args]):
        return call_override(tx, public_api.constant(), list(args), kwargs)
    own = tx.values.library_function(torch.overrides.handle_torch_function)
    return tx.call(own, [public_api, relevant_args, *args], kwargs)


@handles(torch.is_tensor)
def _is_tensor(tx: Tracer, value: VariableTracker) -> VariableTracker:
    return ConstantVariable(issubclass(value.python_type(), torch.Tensor))


@handles(torch._C._infer_size)
def _infer_size(tx: Tracer, first: VariableTracker, second: VariableTracker) -> VariableTracker:
    sizes = torch.Size(tx.values.as_plain(first)), torch.Size(tx.values.as_plain(second))
    return tx.values.from_result(tx.run_python(torch._C._infer_size, *sizes), "a size")


@handles(torch.is_storage)
def _is_storage(tx: Tracer, value: VariableTracker) -> VariableTracker:
    return ConstantVariable(False)


@handles(torch._assert)
def _torch_assert(tx: Tracer, condition: VariableTracker, message: VariableTracker) -> VariableTracker:
    if isinstance(condition, TensorVariable):
        return record(tx, "call_function", torch._assert_async, [condition], {})
    if not tx.truth(condition):
        tx.errors.raise_value(AssertionError, [message])
    return ConstantVariable(None)


@handles(torch._check_tensor_all_with)
def _check_all(
    tx: Tracer, error_type: VariableTracker, cond: VariableTracker, message: VariableTracker | None = None
) -> VariableTracker:
    """If the condition does not hold, the graph raises; the frame then runs in plain Python, which raises the program's
    exception."""
    if not isinstance(cond, TensorVariable):
        tx.raise_error(TypeError, f"cond must be a tensor, but got {cond.python_type()}")
    if cond.fake.dtype is not torch.bool:
        tx.raise_error(TypeError, f"cond tensor must have dtype torch.bool, but got {cond.fake.dtype}")
    whole = record(tx, "call_method", "all", [cond], {})
    return record(tx, "call_function", torch._assert_async, [whole], {})


@handles(torch._check_is_size)
def _check_is_size(
    tx: Tracer, i: VariableTracker, message: VariableTracker | None = None, *, max: VariableTracker | None = None
) -> VariableTracker:
    for op, limit in ((">=", ConstantVariable(0)), ("<=", max)):
        if limit is not None and not limit.is_none():
            _torch_check(tx, tx.operators.compare(op, i, limit), message)
    return ConstantVariable(None)


@handles(torch._check)
def _torch_check(tx: Tracer, cond: VariableTracker, message: VariableTracker | None = None) -> VariableTracker:
    if isinstance(cond, ScalarVariable) and cond.origins is None and cond.cls is bool:
        take_for_granted(tx, cond)
        return ConstantVariable(None)
    if not tx.truth(cond):
        text = tx.call(message, [], {}) if message is not None else ConstantVariable("Expected cond to be True")
        tx.errors.raise_value(RuntimeError, [text])
    return ConstantVariable(None)


# ---------------------------------------------------------------- functions that break the graph
breaks("rng_state", torch.random.manual_seed, reason="it seeds generators")
breaks("torch_state", torch.set_num_threads, torch.set_default_device, torch.set_float32_matmul_precision,
       torch.set_default_tensor_type)
row(Rule.ELEMENTS, torch.nonzero, torch.masked_select, torch.bincount, torch.argwhere, torch.combinations,
    kind="dynamic_output_shape")
row(Rule.ELEMENTS, torch.is_nonzero, kind="tensor_to_python")
breaks("input_output", torch.save, torch.load, reason="it reads or writes files")
breaks("numpy_conversion", torch.frombuffer)
breaks("functorch", torch.func.linearize, torch.func.functionalize)


# ---------------------------------------------------------------- wrapping
@wraps_if(is_torch_builtin, rank=2)
def _wrap_torch_builtin(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return TorchFunctionVariable(value, source)
