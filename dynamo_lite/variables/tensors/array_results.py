"""Arrays in the memory of a graph's tensors: ``x.numpy()``, arrays from outside, and what NumPy computes from them.

The array lies in the tensor's memory and sees what is written there, before and behind the place where the program asks
for it, so generated code makes it behind the graph. What NumPy computes is a node, by which the graph calls NumPy
itself (``runtime/array_operator.py``); a view is one of torch's views, with NumPy's shape and strides; a write is a
write to the tensor.

Invariant: the tensor is a view of its own, so that the array lies in eager's memory even where the program gives the
tensor other data afterwards; and no view has other strides than NumPy's.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...guards.source import ComputedSource, Source
from ...runtime import array_operator
from ...runtime.array_operator import DTYPES, Operand
from ..base import VariableTracker, realized, unsupported, wraps_if
from ..constant import UNARY, ConstantVariable
from ..numbers.symbolic_ints import size_variable
from ..objects.objects import wrap_object
from .arrays import METHODS, OPERATORS, RUNNING, ArrayVariable, NumpyNumber, RunningArray, fill, from_numpy
from .inputs import wrap_tensor
from .method_calls import handles_method
from .symbolic_sizes import symbolic_dims
from .tensor import TensorVariable, call_in_graph, record, record_method

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer

_KIND = "numpy_conversion"
_SIZE_FUNCTIONS = (np.shape, np.ndim, np.size)
_SIZES = ("shape", "ndim", "size", "dtype", "itemsize", "nbytes")
# NumPy's number types that torch treats like Python's.
_LIKE_PYTHON = (np.float64, np.int64)


class TensorArrayVariable(RunningArray):
    """An array in the memory of a tensor, or a number of NumPy's that is a tensor's only element.

    Args:
        tensor: the tensor; None for an array from outside, until the program looks at it.
        cls: ``numpy.ndarray``, or the number's type.
    """

    has_identity = True

    def __init__(self, tensor: VariableTracker | None, cls: type = np.ndarray) -> None:
        super().__init__()
        self._tensor = tensor
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        if self.source is not None:
            return f"array {self.source.name!r}"
        return f"the array of {self._tensor.describe()}" if self._tensor is not None else "an array"

    def contains_tensor(self) -> bool:
        return True

    def tensor(self, tx: Tracer) -> TensorVariable:
        """The tensor in whose memory it lies."""
        assert isinstance(self._tensor, TensorVariable)
        return self._tensor

    def reconstruct(self, cg: Codegen) -> None:
        assert self._tensor is not None
        whole = [self._tensor]
        if self.cls is np.ndarray:
            cg.build_new(self, lambda: cg.call_function(Tensor.numpy, whole, {}), lambda: None)
        else:
            cg.build_new(self, lambda: cg.call_function(_number_of, whole, {}), lambda: None)

    # -- metadata
    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name in _SIZES:
            return self._size(tx, name)
        if name == "T" and self.cls is np.ndarray:
            return self.call_numpy(tx, array_operator.transposed, [self], {})
        if name in ("real", "imag") and self.cls is np.ndarray and self.tensor(tx).fake.is_complex():
            return TensorArrayVariable(call_in_graph(tx, getattr, [self.tensor(tx), ConstantVariable(name)], {}))
        if name == "real":
            return self
        if name in METHODS:
            return tx.builtin_method(self, name)
        if not hasattr(self.cls, name):
            tx.raise_error(AttributeError, f"'numpy.{self.cls.__name__}' object has no attribute {name!r}")
        unsupported(_KIND, f"{self.describe()}.{name}")

    def _size(self, tx: Tracer, name: str) -> VariableTracker:
        fake = self.tensor(tx).fake
        if name == "shape":
            return tx.values.new_sequence(tuple, [size_variable(n, tx.output) for n in fake.shape])
        if name == "ndim":
            return ConstantVariable(fake.dim())
        if name == "itemsize":
            return ConstantVariable(fake.itemsize)
        dtype, shape, _ = _layout(tx, self)
        if name == "dtype":
            return from_numpy(tx, dtype)
        count = int(np.prod(shape, dtype=np.int64))
        return ConstantVariable(count if name == "size" else count * fake.itemsize)

    def length(self, tx: Tracer) -> VariableTracker:
        fake = self.tensor(tx).fake
        if not fake.dim():
            tx.raise_error(TypeError, "len() of unsized object")
        return size_variable(fake.shape[0], tx.output)

    def truth(self, tx: Tracer) -> bool:
        fake = self.tensor(tx).fake
        if fake.dim():
            unsupported("data_dependent_branch", f"bool() of {self.describe()}")
        return self.tensor(tx).truth(tx)

    # -- what NumPy computes
    def call_numpy(
        self, tx: Tracer, function: Any, args: Sequence[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return _called(tx, function, args, kwargs)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name in ("item", "tolist") and not args and not kwargs:
            return self.tensor(tx).call_method(tx, name, [], {})
        if name == "fill":
            return fill(tx, self, args, kwargs)
        method = getattr(np.ndarray, name, None) if name in METHODS else None
        if self.cls is not np.ndarray or method is None:
            unsupported(_KIND, f"{name}() of {self.describe()}")
        return self.call_numpy(tx, method, [self, *args], kwargs)

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        return self.call_numpy(tx, OPERATORS["getitem"], [self, key], {})

    def setitem(self, tx: Tracer, key: VariableTracker, value: VariableTracker) -> None:
        if self.cls is not np.ndarray:
            unsupported(_KIND, f"writing to {self.describe()}")
        tensor = self.tensor(tx)
        view = self._place(tx, key)
        if view is None:
            made = self.call_numpy(tx, array_operator.assigned, [self, key, value], {})
            _copy(tx, tensor, made)
            return
        dtype, shape, _ = _layout(tx, view)
        filled = self.call_numpy(tx, np.full, [
            ConstantVariable(shape), value, from_numpy(tx, dtype)], {}) if _has_array(value) else None
        if filled is None:
            made = self.call_numpy(tx, array_operator.assigned, [view, ConstantVariable(Ellipsis), value], {})
            _copy(tx, view.tensor(tx), made)
        else:
            _copy(tx, view.tensor(tx), filled)

    def _place(self, tx: Tracer, key: VariableTracker) -> TensorArrayVariable | None:
        """The view that an index selects; None if it selects elements by other arrays or by lists."""
        keys = [realized(tx, k) for k in key.iterate(tx)] if key.python_type() is tuple else [key]
        if not all(k.python_type() in (int, slice, type(None), type(Ellipsis)) for k in keys):
            return None
        if not any(k.python_type() is type(Ellipsis) for k in keys):
            keys.append(ConstantVariable(Ellipsis))
        found = self.getitem(tx, tx.values.new_sequence(tuple, keys))
        return found if isinstance(found, TensorArrayVariable) else None

    def iterator(self, tx: Tracer) -> VariableTracker:
        if not self.tensor(tx).fake.dim():
            tx.raise_error(TypeError, "iteration over a 0-d array")
        rows = range(_layout(tx, self)[1][0])
        return tx.values.new_list([self.getitem(tx, ConstantVariable(row)) for row in rows]).iterator(tx)

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if isinstance(other, TensorVariable):
            if self.cls not in _LIKE_PYTHON:
                unsupported(_KIND, f"{self.describe()} {op} a tensor")
            number = self.call_method(tx, "item", [], {})
            return call_in_graph(tx, OPERATORS[op], [other, number] if reflected else [number, other], {})
        return self.call_numpy(tx, OPERATORS[op], [other, self] if reflected else [self, other], {})

    def inplace(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if self.cls is not np.ndarray:
            return self.binary(tx, op, other, False)
        tensor = self.tensor(tx)
        made = self.call_numpy(tx, array_operator.updated, [ConstantVariable(op), self, other], {})
        _copy(tx, tensor, made)
        return self

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        return self.binary(tx, op, other, False)

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        return self.call_numpy(tx, UNARY[op], [self], {})

    # -- what is not followed
    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        unsupported(_KIND, f"setting an attribute of {self.describe()}")

    def delattr(self, tx: Tracer, name: str) -> None:
        unsupported(_KIND, f"deleting an attribute of {self.describe()}")

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        unsupported(_KIND, f"`in` on {self.describe()}")

    def as_argument(self, tx: Tracer) -> Any:
        if self.cls in _LIKE_PYTHON:
            return self.call_method(tx, "item", [], {}).as_argument(tx)
        unsupported(_KIND, f"{self.describe()} as an argument of a torch function")


def _in_memory(tx: Tracer, tensor: VariableTracker, arrays: list[Any]) -> list[TensorArrayVariable]:
    """The trackers of known arrays, the first of which the tensor has the elements of; the others lie in its memory."""
    first, *views = arrays
    assert isinstance(tensor, TensorVariable)
    made = [TensorArrayVariable(tensor)]
    for view in views:
        layout = array_operator.layout_of(view)
        if layout is None or not view.flags.writeable or not view.size:
            unsupported(_KIND, "writing to an array of which there is a view that no tensor's memory can be seen as")
        offset = (_start(view) - _start(first)) // first.itemsize
        made.append(TensorArrayVariable(_seen_as(tx, tensor, layout[1], layout[2], offset)))
    return made


RUNNING.append(_in_memory)


class OuterArrayVariable(TensorArrayVariable):
    """An array from outside. It is an input of the graph as soon as the program looks at it."""

    def __init__(self, value: Any, source: Source) -> None:
        super().__init__(None)
        self.value = value
        self.source = source

    def tensor(self, tx: Tracer) -> TensorVariable:
        if self._tensor is None:
            assert self.source is not None
            value = _tensor_of(self.value)
            where = ComputedSource(self.source, _tensor_of, f"torch.from_numpy({self.source.name})")
            if value is None:
                unsupported(_KIND, f"{self.describe()}, whose type or layout no tensor has, or which is read-only")
            if symbolic_dims(tx, value, where, False):
                unsupported(_KIND, f"{self.describe()}, whose shape has changed between calls")
            made = wrap_tensor(tx, value, where)
            assert isinstance(made, TensorVariable)
            self._tensor = made
        assert isinstance(self._tensor, TensorVariable)
        return self._tensor

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_source(self.source)


@wraps_if(lambda value: type(value) is np.ndarray, rank=1)
def _wrap_array(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", np.ndarray)
    if value.dtype.hasobject or _tensor_of(value) is None:
        return wrap_object(tx, value, source)
    return OuterArrayVariable(value, source)


def _tensor_of(array: Any) -> Tensor | None:
    """The tensor in an array's memory; None if there is none. Guard programs call it."""
    if array_operator.dtype_of_tensor(array.dtype) is None or not array.flags.writeable:
        return None
    return torch.from_numpy(array) if array_operator.layout_of(array) is not None else None


def _number_of(tensor: Tensor) -> Any:
    """The number of NumPy's that is a tensor's only element; called by generated code."""
    return tensor.numpy()[()]


# ---------------------------------------------------------------- calls
def _layout(tx: Tracer, array: TensorArrayVariable) -> array_operator.Layout:
    fake = array.tensor(tx).fake
    if fake._has_symbolic_sizes_strides:
        unsupported(_KIND, f"what NumPy does with {array.describe()}, whose sizes are symbols")
    return array_operator.layout_of_tensor(fake)


def _called(
    tx: Tracer, function: Any, args: Sequence[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """The result of a function of NumPy, some of whose arguments are arrays of the graph."""
    if len(args) == 1 and not kwargs and isinstance(args[0], TensorArrayVariable) and function in _SIZE_FUNCTIONS:
        return args[0].getattr(tx, function.__name__)
    words = f"{getattr(function, '__name__', function)}() of an array"
    if not array_operator.is_callable(function) or not kwargs.keys().isdisjoint(("out", "where", "subok", "like")):
        unsupported(_KIND, f"{words}, which no graph calls")
    if tx.output.parts or tx.output.examples or torch._C._are_functorch_transforms_active():
        unsupported(_KIND, f"{words} in a function that torch calls by itself")
    if tx.output.overrides.active():
        unsupported(_KIND, f"{words} under a torch function mode")
    given: list[TensorArrayVariable] = []
    try:
        plain = [_frozen(tx, a, given) for a in args]
        named = {name: _frozen(tx, value, given) for name, value in kwargs.items()}
        text = array_operator.text_of(function, plain, named)
    except array_operator.NotInText as error:
        unsupported(_KIND, f"{words} with {error}")
    if function is OPERATORS["getitem"] and any(a.tensor(tx).fake.dtype is torch.bool for a in given[1:]):
        unsupported("dynamic_output_shape", "an index of truths")
    layouts = [_layout(tx, a) for a in given]
    try:
        found, zeros = array_operator.example(text, layouts)
        shared = array_operator.shares_memory(found, zeros)
        if shared:  # is it read-only, as a diagonal is?
            found, zeros = array_operator.example(text, layouts, writeable=True)
        decided = not shared and type(found) not in (list, tuple) and array_operator.depends_on_elements(text, layouts)
    except Exception as error:
        unsupported(_KIND, f"{words}: {type(error).__name__}: {error}")
    if decided or shared and len(given) > 1:
        unsupported("dynamic_output_shape", f"{words}, whose elements decide about the result's shape or place")
    if type(found) in (list, tuple):
        parts = [_view(tx, part, zeros, given) for part in found]
        if not all(parts):
            unsupported(_KIND, f"{words}, which gives several arrays")
        return tx.values.new_sequence(type(found), [part for part in parts if part is not None])
    view = _view(tx, found, zeros, given)
    if view is not None:
        return view
    cls = type(found)
    if cls is not np.ndarray and not issubclass(cls, np.generic) or array_operator.dtype_of_tensor(found.dtype) is None:
        unsupported(_KIND, f"{words}, which gives a {cls.__name__} of {getattr(found, 'dtype', cls)}")
    made = record(tx, "call_function", array_operator.array_call(), [
        ConstantVariable(text), tx.values.new_list([a.tensor(tx) for a in given])], {})
    return TensorArrayVariable(made, cls)


def _view(
    tx: Tracer, found: Any, zeros: list[Any], given: list[TensorArrayVariable]
) -> VariableTracker | None:
    """The tracker of a result that is an operand or lies in its memory; None if it has memory of its own."""
    for array, tracker in zip(zeros, given, strict=True):
        if found is array:
            return tracker
        if type(found) is not np.ndarray or not found.size or not np.may_share_memory(found, array):
            continue
        layout = array_operator.layout_of(found)
        offset, rest = divmod(_start(found) - _start(array), array.itemsize)
        if layout is None or rest or found.dtype != array.dtype or not found.flags.writeable:
            unsupported(_KIND, "a view of an array that is read-only, or that no tensor's memory can be seen as")
        return TensorArrayVariable(_seen_as(tx, tracker.tensor(tx), layout[1], layout[2], offset))
    return None


def _seen_as(
    tx: Tracer, tensor: TensorVariable, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> VariableTracker:
    """A view with a given layout, by the operation that backends know best."""
    own = tuple(tensor.fake.shape), tuple(tensor.fake.stride())
    if not offset:
        if own == (shape, strides):
            return record_method(tx, "detach", tensor, [], {})
        pairs = [*zip(*own, strict=True)]
        wanted = [*zip(shape, strides, strict=True)]
        if len(set(pairs)) == len(pairs) and set(pairs) == set(wanted) and len(wanted) == len(pairs):
            order = [pairs.index(pair) for pair in wanted]
            return record_method(tx, "permute", tensor, [ConstantVariable(dim) for dim in order], {})
        dense = torch.empty(shape, device="meta").stride()
        if tensor.fake.is_contiguous() and strides == dense and np.prod(shape) == tensor.fake.numel():
            return record_method(tx, "view", tensor, [ConstantVariable(n) for n in shape], {})
    start = ConstantVariable(tensor.fake.storage_offset() + offset)
    sizes = [tx.values.new_sequence(tuple, [ConstantVariable(n) for n in part]) for part in (shape, strides)]
    return call_in_graph(tx, torch.as_strided, [tensor, *sizes, start], {})


def _start(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _frozen(tx: Tracer, value: VariableTracker, given: list[TensorArrayVariable]) -> Any:
    """An argument as a call's text holds it. Arrays are added to `given`."""
    value = realized(tx, value)
    if isinstance(value, TensorArrayVariable):
        at = next((i for i, known in enumerate(given) if known is value), len(given))
        if at == len(given):
            given.append(value)
        value.tensor(tx)
        return Operand(at, value.cls is not np.ndarray)
    if isinstance(value, NumpyNumber):
        raise array_operator.NotInText("a number that may change")
    if isinstance(value, ArrayVariable) and isinstance(value.value, np.ndarray):
        if not value.value.flags.c_contiguous or array_operator.dtype_of_tensor(value.value.dtype) is None:
            raise array_operator.NotInText("such an array")
        made = _constant(tx, value)
        given.append(made)
        return Operand(len(given) - 1)
    if value.known_items() is not None and value.python_type() in (list, tuple):
        return value.python_type()(_frozen(tx, item, given) for item in value.iterate(tx))
    if value.python_type() is slice and not value.is_constant():
        return slice(*(_frozen(tx, value.getattr(tx, name), given) for name in ("start", "stop", "step")))
    if value.is_constant():
        return value.constant()
    cls = value.python_type()
    if isinstance(value, TensorVariable) or not issubclass(cls, type):
        raise array_operator.NotInText(f"a {cls.__name__}")
    return tx.values.as_plain(value)


def _constant(tx: Tracer, array: ArrayVariable) -> TensorArrayVariable:
    """An array that is known while tracing, as one of the graph. The arrays that the trace holds are never changed."""
    tensor = array.as_tensor(tx)
    return TensorArrayVariable(tensor)


def _has_array(value: VariableTracker) -> bool:
    return isinstance(value, TensorArrayVariable)


def _copy(tx: Tracer, tensor: TensorVariable, made: VariableTracker) -> None:
    """Writes a computed array to the memory of a tensor."""
    assert isinstance(made, TensorArrayVariable)
    source = made.tensor(tx)
    if source.fake.dtype is not tensor.fake.dtype or source.fake.shape != tensor.fake.shape:
        unsupported(_KIND, "a write that changes an array's type or shape")
    record_method(tx, "copy_", tensor, [source], {})


# ---------------------------------------------------------------- from and to tensors
@handles_method(Tensor.numpy)
def _numpy(tx: Tracer, tensor: TensorVariable, **options: VariableTracker) -> VariableTracker:
    fake = tensor.fake
    if options:
        unsupported(_KIND, "Tensor.numpy() with options")
    if tx.output.parts or tx.output.examples or torch._C._are_functorch_transforms_active():
        unsupported(_KIND, "Tensor.numpy() in a function that torch calls by itself")
    if fake.requires_grad or fake.is_conj() or fake.is_neg() or fake.device.type != "cpu" or fake.dtype not in DTYPES:
        unsupported(_KIND, f"Tensor.numpy() of {tensor.describe()}, which raises")
    return TensorArrayVariable(record_method(tx, "detach", tensor, [], {}))
