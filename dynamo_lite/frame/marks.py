"""Marks that users put on functions: disable, allow_in_graph, disallow_in_graph, assume_constant_result,
graph_break, is_compiling, run, and marks on tensors' sizes.

Invariant: a mark affects how calls are captured, never what the function does in plain Python.
"""
from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from .. import _eval_frame
from ..rules import trace_rules
from ..rules.table import Decision, Rule, handles, row
from ..variables.base import unsupported
from ..variables.constant import ConstantVariable
from ..variables.tensors.symbolic_sizes import MARKS, SizeMark
from .callers import code_of
from .compiled_module import CompiledModule, running_module
from .decide import disable_code
from .eval_frame import hooks_alive, innermost
from .stance import Running

if TYPE_CHECKING:
    from ..variables.base import VariableTracker
    from ..variables.protocols import Tracer


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Runs a function in plain Python, and with `recursive` also all functions that it calls.

    Of several nested decorators the outermost takes effect: ``compile(disable(f))`` compiles f.

    Args:
        fn: a function, a module, a class (whose instances are made and called in plain Python); None makes a decorator.
        recursive: False: the functions that it calls are captured again.
        reason: shown where the graph breaks.

    Returns:
        with `recursive`, a function to call in place of `fn`; otherwise `fn` itself, marked. A module or class is
        returned itself, with its methods replaced.

    Raises:
        TypeError: `fn` can't be called.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(disable(fn.__func__, recursive, reason=reason))
    fn = innermost(fn)
    if not callable(fn):
        raise TypeError(f"disable takes a function or an nn.Module, not {fn!r}")
    if isinstance(fn, torch.nn.Module):
        fn.forward = disable(fn.forward, recursive, reason=reason)
        return fn
    if isinstance(fn, type):
        for name in ("__init__", "forward" if issubclass(fn, torch.nn.Module) else "__call__"):
            method = inspect.getattr_static(fn, name, None)
            # Methods of `object` need no disabling. Marking an inherited function would affect other classes.
            if isinstance(method, types.FunctionType) and (recursive or name in vars(fn)):
                setattr(fn, name, disable(method, recursive, reason=reason))
        return fn
    if not recursive:
        _mark(fn, Decision(Rule.SKIP, "disabled_function", reason or ""))
        code = getattr(fn, "__code__", None)
        if code is not None:
            disable_code(code)
        return fn

    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        previous = _eval_frame.set_active(None)
        try:
            return _eval_frame.unhook(fn(*args, **kwargs))
        finally:
            _eval_frame.set_active(previous)

    trace_rules.mark_disabled(disabled, fn, reason or "")
    return disabled


def run(fn: Any = None) -> Any:
    """Calls a function with existing compiled code only: nothing is compiled, and frames that fit no entry run in plain
    Python.

    Args:
        fn: a result of ``compile``, or a function for which code has been compiled; None makes a decorator, which can
            also be used as a context manager.

    Returns:
        a function; for a module, a module.

    Raises:
        TypeError: `fn` can't be called.
    """
    if fn is None:
        return Running()
    if not callable(fn):
        raise TypeError(f"run takes a function or an nn.Module, not {fn!r}")
    if isinstance(fn, CompiledModule):
        return running_module(fn)
    if not isinstance(fn, _eval_frame.CompiledFunction):
        code = code_of(fn)
        hook = next((h for h in hooks_alive() if code is not None and _eval_frame.entries(code, h)), None)
        if hook is not None:
            fn = functools.wraps(fn)(_eval_frame.CompiledFunction(fn, hook))
    return Running()(fn)


def _mark(fn: Any, decision: Decision) -> None:
    if not callable(fn):
        raise TypeError(f"not a function: {fn!r}")
    trace_rules.mark(getattr(fn, "__func__", fn), decision)


def allow_in_graph(fn: Any) -> Any:
    """Puts calls of a function into the graph without tracing into it. The user vouches that this is correct.

    Args:
        fn: the function, or a list or tuple of functions.

    Returns:
        the argument, so that this function can be used as a decorator.

    Raises:
        TypeError: `fn` can't be called.
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(f) for f in fn]
    _mark(fn, Decision(Rule.GRAPH))
    return fn


def disallow_in_graph(fn: Any) -> Any:
    """Breaks the graph at calls of a function, torch's functions included.

    Args:
        fn: the function, or a list or tuple of functions.

    Returns:
        the argument, so that this function can be used as a decorator.

    Raises:
        TypeError: `fn` can't be called.
    """
    if isinstance(fn, (list, tuple)):
        return [disallow_in_graph(f) for f in fn]
    _mark(fn, Decision(Rule.SKIP, "disallowed_function"))
    return fn


def assume_constant_result(fn: Any) -> Any:
    """Calls a function once, while compiling, and treats its result as a constant from then on.

    Tensors in the result are the objects that this call returned: writing to them changes the constant.

    Args:
        fn: the function. Its arguments must be known while compiling.

    Returns:
        the function, so that this function can be used as a decorator.

    Raises:
        TypeError: `fn` can't be called.
    """
    _mark(fn, Decision(Rule.CONSTANT))
    return fn


def graph_break(msg: str = "") -> None:
    """Breaks the graph here. Does nothing in plain Python.

    Args:
        msg: shown as the break's reason.
    """


def is_compiling() -> bool:
    """False in plain Python, True in a function while it is captured."""
    return False


@handles(graph_break)
def _graph_break(tx: Tracer, msg: VariableTracker | None = None) -> NoReturn:
    unsupported("explicit_break", msg.constant() if msg is not None else "")


@handles(is_compiling)
def _is_compiling(tx: Tracer) -> VariableTracker:
    return ConstantVariable(True)


# ---------------------------------------------------------------- sizes
def mark_dynamic(
    t: torch.Tensor, index: int | Sequence[int], *, min: int | None = None, max: int | None = None
) -> None:
    """Declares that dimensions of a tensor will change from call to call: one compile serves all sizes from the start.

    Args:
        index: the dimension, or several.
        min, max: bounds of the size. Conditions that hold for all sizes within the bounds need no guards. A tensor
            whose size is out of bounds gets another compile.

    Raises:
        IndexError: the tensor has no such dimension.
        TypeError: `t` is no tensor, or a dimension or a bound is no int.
        ValueError: the tensor's size is not within the bounds.
    """
    dims = _dims(t, index)
    for dim in dims:
        for bound, wrong in ((min, int.__lt__), (max, int.__gt__)):
            if bound is not None and wrong(t.shape[dim], bound):
                raise ValueError(f"dimension {dim} has size {t.shape[dim]}, which is not within {min} to {max}")
    _mark_sizes(t, dims, SizeMark("dynamic", min, max))


def maybe_mark_dynamic(t: torch.Tensor, index: int | Sequence[int]) -> None:
    """Declares that dimensions of a tensor may change from call to call, as with ``mark_dynamic``."""
    _mark_sizes(t, _dims(t, index), SizeMark("maybe dynamic"))


def mark_unbacked(t: torch.Tensor, index: int | Sequence[int]) -> None:
    """Declares that dimensions of a tensor will change from call to call, and that one graph is to serve all sizes
    except 0 and 1. Where the program depends on a comparison of such a size, the graph breaks instead of being
    specialized for one outcome; with fullgraph=True, an error names the line. ``torch._check`` states facts to assume.

    Args:
        index: the dimension, or several.

    Raises:
        IndexError: the tensor has no such dimension.
        TypeError: `t` is no tensor, or a dimension is no int.
    """
    _mark_sizes(t, _dims(t, index), SizeMark("unbacked"))


def mark_static(t: torch.Tensor, index: int | Sequence[int] | None = None) -> None:
    """Declares that dimensions of a tensor are to be compiled for their exact sizes; None: all dimensions."""
    _mark_sizes(t, _dims(t, range(t.dim()) if index is None else index), SizeMark("static"))


def _dims(t: torch.Tensor, index: int | Sequence[int]) -> list[int]:
    """The dimensions as non-negative numbers."""
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"sizes of tensors are marked, not of {t!r}")
    dims = []
    for dim in [index] if isinstance(index, int) else index:
        if type(dim) is not int:
            raise TypeError(f"a dimension is an int, not {dim!r}")
        if not -t.dim() <= dim < t.dim():
            raise IndexError(f"dimension {dim} of a tensor with {t.dim()}")
        dims.append(dim % t.dim())
    return dims


def _mark_sizes(t: torch.Tensor, dims: Sequence[int], mark: SizeMark) -> None:
    setattr(t, MARKS, {**getattr(t, MARKS, {}), **dict.fromkeys(dims, mark)})


# The functions of the same names in torch's compiler.
row(Rule.SUBSTITUTED, "torch._dynamo.decorators:graph_break", calls=graph_break, reason="it is dynamo_lite.graph_break")
row(Rule.SUBSTITUTED, "torch._dynamo.external_utils:is_compiling", "torch._utils:is_compiling", calls=is_compiling,
    reason="it is dynamo_lite.is_compiling")
