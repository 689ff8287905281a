"""Steps of torch's optimizers as one graph.

An optimizer's step is ordinary Python over tensors, with a few exceptions: it times itself, it breaks the graph or asks
not to be traced for the sake of torch's own compiler, it reads its step counts as Python numbers, it passes numbers on
as arguments that have to be Python numbers, and it groups its tensors in C++. Here the counts stay tensors, of double
precision, which is the precision of Python's floats.

Invariant: no graph depends on the value of a count, so no step needs a graph of its own.
"""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.optim.optimizer import _get_value, _use_grad_for_differentiable

from ...guards.source import ConstSource, Source
from ...polyfills import optimizers as polyfills
from ...rules.table import handles, looks_at
from ..base import VariableTracker, realized
from ..constant import ConstantVariable
from ..functions.functions import MethodVariable
from ..numbers.scalars import ScalarVariable
from ..tensors.tensor import TensorVariable, is_unknown_number
from .torch_functions import TorchFunctionVariable

if TYPE_CHECKING:
    from ..protocols import Tracer

_STEP_CODE = next(
    c for c in _use_grad_for_differentiable.__code__.co_consts
    if isinstance(c, types.CodeType) and not c.co_name.startswith("__")  # the annotations are code, too (PEP 649)
)


@looks_at(_STEP_CODE)
def _step(tx: Tracer, value: types.FunctionType, source: Source) -> VariableTracker:
    """The step of an optimizer, under the decorator that all optimizers use."""
    cells = dict(zip(value.__code__.co_freevars, value.__closure__ or ()))
    step = cells["func"].cell_contents
    inner = tx.values.wrap_function(step, ConstSource(step, step.__qualname__), trusted=True)
    tx.guard(source, "is", value)
    return MethodVariable(tx.values.library_function(polyfills.use_grad), inner, source)


@handles(_get_value)
def _value(tx: Tracer, x: VariableTracker) -> VariableTracker:
    if isinstance(x, TensorVariable) and x.fake.is_floating_point():
        return x.call_method(tx, "to", [ConstantVariable(torch.float64)], {})
    return x


@handles(torch._C._group_tensors_by_device_and_dtype)
def _group(tx: Tracer, *args: VariableTracker) -> VariableTracker:
    return tx.call(tx.values.library_function(polyfills.group_tensors), list(args), {})


class _ForeachCall(NamedTuple):
    """The way in which a call of an operation on lists of tensors takes a number.

    Args:
        lists: the number of tensor lists that come first.
        argument: the number's keyword in a call of the tensors' method; None: it is the last positional argument there.
        keyword: its keyword in this call; None: it has none.
        positional: whether it may be a positional argument after the lists.
    """

    lists: int
    argument: str | None
    keyword: str | None
    positional: bool


_FOREACH: dict[str, tuple[_ForeachCall, ...]] = {
    **{name: (_ForeachCall(1, None, "scalar", True), _ForeachCall(2, "alpha", "alpha", False))
       for name in ("add", "sub")},
    **{name: (_ForeachCall(1, None, "scalar", True),) for name in ("mul", "div")},
    **{name: (_ForeachCall(3, "value", "value", True), _ForeachCall(3, "value", "scalars", True))
       for name in ("addcmul", "addcdiv")},
    "lerp": (_ForeachCall(2, None, "weight", True),),
}


def _foreach(name: str, end: str) -> None:
    """Registers an operation on lists of tensors. Calls with numbers that only the running graph knows become calls for
    each tensor; so do calls of `addcmul_` and `addcdiv_` with the numbers in a tensor."""
    packet = name + end
    function = getattr(torch, f"_foreach_{packet}")
    plain = TorchFunctionVariable(function)
    replacement = polyfills.foreach_with_numbers_ if end else polyfills.foreach_with_numbers

    @handles(function)
    def _call(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if name.startswith("addc") and end and len(args) == 4 and not kwargs and isinstance(
                realized(tx, args[3]), TensorVariable):
            polyfill = tx.values.library_function(polyfills.foreach_with_tensor_)
            return tx.call(polyfill, [ConstantVariable(packet), *args], kwargs)
        for form in _FOREACH[name]:
            number = _number_of(form, args, kwargs)
            if number is not None and _is_known_later(tx, number, form) and _are_as_many(tx, number, args[:form.lists]):
                given = [ConstantVariable(packet), ConstantVariable(form.argument), number, *args[:form.lists]]
                return tx.call(tx.values.library_function(replacement), given, {})
        return plain.record(tx, list(args), kwargs)


def _number_of(
    form: _ForeachCall, args: tuple[VariableTracker, ...], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    if form.positional and len(args) == form.lists + 1 and not kwargs:
        return args[-1]
    return kwargs[form.keyword] if len(args) == form.lists and form.keyword and set(kwargs) == {form.keyword} else None


def _is_known_later(tx: Tracer, number: VariableTracker, form: _ForeachCall) -> bool:
    """Whether it is a number that only the running graph knows, or a list that contains one. For `alpha` a tensor
    counts as such a number, too; in place of other numbers torch takes tensors itself."""
    number = realized(tx, number)
    items = number.known_items()
    if items is not None:
        return any(isinstance(realized(tx, item), ScalarVariable) for item in items)
    return is_unknown_number(tx, number) if form.argument == "alpha" else isinstance(number, ScalarVariable)


def _are_as_many(tx: Tracer, number: VariableTracker, lists: tuple[VariableTracker, ...]) -> bool:
    """Whether all lists have the same, positive length; torch refuses other lists."""
    found = [realized(tx, each).known_items() for each in lists]
    numbers = realized(tx, number).known_items()
    counts = {None if items is None else len(items) for items in (*found, numbers if numbers is not None else found[0])}
    return len(counts) == 1 and not counts & {None, 0}


for _name in _FOREACH:
    _foreach(_name, "")
    _foreach(_name, "_")
