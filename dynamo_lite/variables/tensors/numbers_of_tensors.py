"""Tensors made of numbers that are symbols, as in ``torch.tensor(x.shape[0])`` and ``x.new_tensor([h, w])``.

C++ asks for the value of an int there, which would fix it; ``scalar_tensor`` takes a symbol. Invariant: a tensor made
here has the values, the dtype and the shape that eager gives it in each call.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..base import VariableTracker, realized
from ..constant import ConstantVariable
from ..containers.sequences import SequenceVariable
from ..numbers.scalars import EXAMPLES, ScalarVariable
from ..numbers.symbolic_ints import SymbolicIntVariable
from .attributes import PLAIN_TENSOR_TYPES
from .learned_elements import known_tensor
from .method_calls import handles_method
from .tensor import TensorVariable, call_in_graph, record, record_method

if TYPE_CHECKING:
    from ..protocols import Tracer

_DEEPEST = 64  # nesting depth of lists up to which numbers are looked for (torch allows less); a list may hold itself
_OF_ANY_INTEGER = frozenset({torch.int64, torch.float32, torch.float64})
"""Dtypes to which every 64-bit int can be converted; eager refuses to convert some ints to others."""


def _numbers(data: VariableTracker, depth: int = 0) -> Iterator[VariableTracker]:
    if isinstance(data, SequenceVariable) and depth < _DEEPEST:
        for item in data.items:
            yield from _numbers(item, depth + 1)
    else:
        yield data


def _shape(data: VariableTracker) -> tuple[int, ...] | None:
    """The shape of nested sequences; None if sequences at one level differ in shape, or have none."""
    if not isinstance(data, SequenceVariable):
        return ()
    parts = {_shape(item) for item in data.items}
    part = parts.pop() if len(parts) == 1 else None
    return None if part is None else (len(data.items), *part)


def _example(number: VariableTracker) -> Any:
    """A number of the same type; None if it is not a number."""
    if isinstance(number, SymbolicIntVariable):
        return 0
    if isinstance(number, ScalarVariable):
        return EXAMPLES.get(number.python_type())
    return number.value if type(number) is ConstantVariable and type(number.value) in EXAMPLES else None


def holds_numbers(data: VariableTracker) -> bool:
    """Whether it is a number, or nested sequences of numbers."""
    return all(_example(number) is not None for number in _numbers(data))


def _tensor_of_symbols(
    tx: Tracer, data: VariableTracker, options: dict[str, VariableTracker]
) -> VariableTracker | None:
    """``torch.tensor(data, **options)``; None where no symbol is among the numbers, or eager may refuse a value."""
    numbers = [*_numbers(data)]
    if not any(isinstance(n, SymbolicIntVariable) for n in numbers) or not options.keys() <= {"dtype", "device"}:
        return None
    examples = [_example(n) for n in numbers]
    shape = _shape(data)
    if shape is None or any(e is None for e in examples):
        return None
    dtype = tx.values.as_plain(options["dtype"]) if "dtype" in options else None
    dtype = torch.tensor(examples).dtype if dtype is None else dtype
    if dtype not in _OF_ANY_INTEGER:
        return None
    options = {**options, "dtype": tx.values.from_result(dtype, "a type of tensors")}
    made = [
        call_in_graph(tx, torch.scalar_tensor if isinstance(n, SymbolicIntVariable) else torch.tensor, [n], options)
        for n in numbers]
    if not shape:
        return made[0]
    flat = call_in_graph(tx, torch.stack, [tx.values.new_list(made)], {})
    assert math.prod(shape) == len(made)
    return flat if len(shape) == 1 else record(
        tx, "call_method", "view", [flat, *map(ConstantVariable, shape)], {})


def _tensor_of_tensors(
    tx: Tracer, data: VariableTracker, options: dict[str, VariableTracker]
) -> VariableTracker | None:
    """``torch.tensor([x.sum(), y.mean()])``: a list of numbers that only the running graph knows, each in a tensor
    without dimensions; None for other lists: a number is converted otherwise there, torch warns, or guards may fix the
    elements, as they do for whole numbers."""
    if options or data.python_type() not in (list, tuple) or not (found := data.known_items()):
        return None
    items = [realized(tx, item) for item in found]
    if not all(isinstance(item, TensorVariable) and _is_plain_number(tx, item) for item in items):
        return None
    fakes = [item.fake for item in items if isinstance(item, TensorVariable)]
    if any(fake.dtype is not fakes[0].dtype for fake in fakes) or all(known_tensor(tx, f) is not None for f in fakes):
        return None
    made = call_in_graph(tx, torch.stack, [tx.values.new_list(items)], {})
    return record(tx, "call_method", "detach", [made], {})


def _is_plain_number(tx: Tracer, item: TensorVariable) -> bool:
    fake = item.fake
    return (item.python_type() in PLAIN_TENSOR_TYPES and fake.is_floating_point() and not fake.dim()
            and fake.device.type == "cpu" and not fake.requires_grad
            and not tx.output.overrides.active() and not tx.output.open_modes
            and fake.layout is torch.strided)


def new_tensor(
    tx: Tracer, function: Any, data: VariableTracker, args: Sequence[VariableTracker],
    kwargs: dict[str, VariableTracker],
) -> VariableTracker:
    """``function(data, *args, **kwargs)`` for ``torch.tensor`` and ``torch.as_tensor``."""
    made = _tensor_of_symbols(tx, data, kwargs) or _tensor_of_tensors(tx, data, kwargs) if not args else None
    return made if made is not None else record(tx, "call_function", function, [data, *args], kwargs)


@handles_method(torch.Tensor.new_tensor)
def _new_tensor(
    tx: Tracer, tensor: TensorVariable, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    """``torch.tensor`` with the dtype and device of a tensor."""
    made = None
    if not args and "data" in kwargs:
        args, kwargs = (kwargs["data"],), {name: value for name, value in kwargs.items() if name != "data"}
    if len(args) == 1:
        options = dict(kwargs)
        for name, own in (("dtype", tensor.fake.dtype), ("device", tensor.fake.device)):
            given = options.get(name)
            if given is None or isinstance(given, ConstantVariable) and given.value is None:
                options[name] = tx.values.from_result(own, f"the tensor's {name}")
        made = _tensor_of_symbols(tx, args[0], options)
    return made if made is not None else record_method(tx, "new_tensor", tensor, list(args), kwargs)
