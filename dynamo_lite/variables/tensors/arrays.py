"""NumPy arrays and numbers that are made of constants while tracing, such as a table of positions.

NumPy itself computes them, as the results of its functions depend on their arguments alone. Where an array becomes a
tensor, a node of the graph makes the tensor. Invariant: an array that a tracker holds is never changed; operations that
would change one are not captured, or make another array.
"""
from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...guards.source import ComputedSource, Source
from ...rules.table import Rule, breaks, decide, handles, instances
from ...runtime.graph_calls import ArrayCall
from ..base import VariableTracker, realized, unsupported, wraps_if
from ..class_calls import constructs
from ..constant import UNARY, ConstantVariable
from ..numbers.numpy_numbers import TYPES, Operand, computed, is_followed, product_or_sum
from ..objects.objects import wrap_object
from ..torch_api.modules import SkippedFunctionVariable
from .numbers_of_tensors import holds_numbers, new_tensor
from .tensor import TensorVariable, call_in_graph, record, record_method

if TYPE_CHECKING:
    from ..objects.classes import ClassVariable
    from ..protocols import Codegen, Tracer

_KIND = "numpy_conversion"
OPERATORS: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "<<": operator.lshift, ">>": operator.rshift,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
    "getitem": operator.getitem,
}
_ATTRIBUTES = frozenset({"shape", "ndim", "size", "dtype", "T", "real", "imag", "itemsize", "nbytes"})
_OF_TYPES = frozenset({"name", "kind", "char", "num", "str", "type", "alignment", "byteorder", "isnative"})
METHODS = frozenset({
    "astype", "reshape", "sum", "mean", "tolist", "item", "copy", "transpose", "flatten", "ravel", "min", "max",
    "argmin", "argmax", "any", "all", "cumsum", "cumprod", "round", "clip", "dot", "squeeze", "repeat", "std", "var",
    "prod", "swapaxes", "diagonal", "trace", "argsort", "nonzero", "take", "fill", "__float__", "__int__",
    "__bool__", "__index__", "is_integer",
})
# Types of NumPy's functions.
_FUNCTIONS = (np.ufunc, type(np.linspace))
# NumPy's number types that torch treats like Python's.
_LIKE_PYTHON = (np.float64, np.int64)


class RunningArray(VariableTracker):
    """An array whose elements are known only when the graph runs."""

    def call_numpy(
        self, tx: Tracer, function: Any, args: Sequence[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """The result of a function of NumPy, one of whose arguments this array is."""
        raise NotImplementedError

    def tensor(self, tx: Tracer) -> TensorVariable:
        """The tensor in whose memory it lies."""
        raise NotImplementedError

    def as_tensor_index(self, tx: Tracer) -> VariableTracker:
        tensor = self.tensor(tx)
        is_index = tensor.fake.dim() and not (tensor.fake.is_floating_point() or tensor.fake.is_complex())
        # torch copies the array; in a graph, the index is read before what comes later is written.
        return tensor if is_index else self


RUNNING: list[Any] = []
"""The function that makes the trackers of arrays in the memory of a tensor of the graph."""


class ArrayVariable(VariableTracker):
    """An array, a number or a dtype of NumPy's."""

    has_identity = True
    # The trace and the storages of tensors that lie in its memory in eager; in the graph, they have copies of it.
    memory: tuple[Any, frozenset[int]] | None = None

    def __init__(self, value: Any, owner: ArrayVariable | None = None) -> None:
        super().__init__()
        self._value = value
        self.owner = owner  # the array in whose memory this one lies; None: it has memory of its own
        self.views: list[ArrayVariable] = []
        if owner is not None:
            owner.views.append(self)

    @property
    def value(self) -> Any:
        """The array. Breaks the graph where it may have been written to through a tensor."""
        root = self.owner or self
        if root.memory is not None and not root.memory[0].written_storages.isdisjoint(root.memory[1]):
            unsupported(_KIND, "an array that a tensor in its memory has written to")
        return self._value

    def python_type(self) -> type:
        return type(self._value)

    def describe(self) -> str:
        return f"NumPy's {type(self._value).__name__}"

    def is_constant(self) -> bool:
        return isinstance(self.value, (np.generic, np.dtype))

    def constant(self) -> Any:
        return self.value

    def as_argument(self, tx: Tracer) -> Any:
        if isinstance(self.value, _LIKE_PYTHON):
            return self.value.item()
        unsupported(_KIND, f"{self.describe()} as an argument of a torch function")

    def as_tensor(self, tx: Tracer) -> VariableTracker:
        """A tensor of the graph with the elements of the array."""
        return record(tx, "call_function", ArrayCall(torch.tensor, self.value), [], {})

    def as_tensor_index(self, tx: Tracer) -> VariableTracker:
        is_index = isinstance(self.value, np.ndarray) and self.value.ndim and self.value.dtype.kind in "biu"
        return self.as_tensor(tx) if is_index else self

    def hash_key(self) -> Any:
        return self.value if self.is_constant() else super().hash_key()

    def truth(self, tx: Tracer) -> bool:
        return bool(tx.run_python(bool, self.value))

    def length(self, tx: Tracer) -> VariableTracker:
        return ConstantVariable(tx.run_python(len, self.value))

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name in _ATTRIBUTES:
            value = getattr(self.value, name)
            return self if value is self.value else from_numpy(tx, value, [(self.value, self)])
        if name in _OF_TYPES and isinstance(self.value, np.dtype):
            return tx.values.from_result(getattr(self.value, name), name)
        if name in METHODS:
            return tx.builtin_method(self, name)
        unsupported(_KIND, f"{self.describe()}.{name}")

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name not in METHODS:
            return super().call_method(tx, name, args, kwargs)
        if name == "fill":
            return fill(tx, self, args, kwargs)
        if not isinstance(self.value, np.ndarray):
            return fold(tx, getattr(self.value, name), args, kwargs)
        return fold(tx, getattr(type(self.value), name), [self, *args], kwargs)

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        return fold(tx, operator.getitem, [self, key], {})

    def setitem(self, tx: Tracer, key: VariableTracker, value: VariableTracker) -> None:
        self._lie_in_graph(tx)
        self.setitem(tx, key, value)  # as a running array

    def inplace(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if not isinstance(self.value, np.ndarray):
            return None
        self._lie_in_graph(tx)
        return self.inplace(tx, op, other)

    def _lie_in_graph(self, tx: Tracer) -> None:
        """Becomes an array in the memory of a tensor of the graph, because it is written to, with all arrays in its
        memory: all references to them have these trackers. Breaks the graph if a tensor shares the memory."""
        root = self.owner or self
        whole = root.value
        if not isinstance(whole, np.ndarray) or root.memory is not None:
            unsupported(_KIND, f"writing to {self.describe()}, which shares its memory with a tensor")
        arrays = [root, *root.views]
        if not whole.flags.c_contiguous or any(a.value.dtype is not whole.dtype for a in arrays):
            unsupported(_KIND, f"writing to {self.describe()}, which has another layout than tensors")
        running = RUNNING[0](tx, root.as_tensor(tx), [a.value for a in arrays])
        for array, made in zip(arrays, running, strict=True):
            array.__dict__.clear()
            array.__class__ = type(made)
            array.__dict__.update(made.__dict__)

    def iterator(self, tx: Tracer) -> VariableTracker:
        given = [(self.value, self)]
        return tx.values.new_list([from_numpy(tx, v, given) for v in tx.run_python(list, self.value)]).iterator(tx)

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if isinstance(other, TensorVariable):
            # torch takes only the real part of a complex64, with a warning.
            if not isinstance(self.value, np.number) or isinstance(self.value, np.complex64):
                unsupported(_KIND, f"{self.describe()} {op} a tensor")
            number = ConstantVariable(self.value.item())
            return call_in_graph(tx, OPERATORS[op], [other, number] if reflected else [number, other], {})
        return fold(tx, OPERATORS[op], [other, self] if reflected else [self, other], {})

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        return self.binary(tx, op, other, False)

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        return from_numpy(tx, tx.run_python(UNARY[op], self.value))

    def reconstruct(self, cg: Codegen) -> None:
        if self.is_constant():
            cg.emit.load_const(self.value)
            return
        if (self.owner or self).memory is not None:
            unsupported(_KIND, "an array whose memory a tensor shares, as numbers of its own")
        if self.owner is not None:
            whole = self.owner
            if not whole.value.flags.c_contiguous:
                unsupported(_KIND, "an array in the memory of another one that is not contiguous")
            start, strides = _start(self.value) - _start(whole.value), self.value.strides
            arguments = [whole, ConstantVariable(self.value.shape), ArrayVariable(self.value.dtype),
                         ConstantVariable(start), ConstantVariable(strides)]
            cg.build_new(self, lambda: cg.call_function(_view_of, arguments, {}), lambda: None)
            return
        cg.build_new(self, lambda: cg.call_constant(np.array, lambda: cg.emit.load_const(self.value)), lambda: None)


def fill(
    tx: Tracer, array: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """``array.fill(value)``."""
    if len(args) != 1 or kwargs or array.python_type() is not np.ndarray:
        unsupported(_KIND, f"fill() of {array.describe()}")
    array.setitem(tx, ConstantVariable(Ellipsis), args[0])
    return ConstantVariable(None)


class NumpyNumber(ArrayVariable):
    """A NumPy number that may differ from call to call. Asking for its value fixes it, by a guard.

    Args:
        number: the Python number that has the same value.
        cls: the NumPy type.
    """

    has_identity = True

    def __init__(self, number: VariableTracker, cls: type) -> None:
        VariableTracker.__init__(self)
        self.python_number: VariableTracker = number
        self.cls = cls
        self.owner = None
        self.views = []

    @property
    def value(self) -> Any:
        """The number. Asking for it fixes it."""
        return self.cls(self.python_number.constant())

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"NumPy's {self.cls.__name__}"

    def is_constant(self) -> bool:
        return True

    def as_argument(self, tx: Tracer) -> Any:
        return self.python_number.as_argument(tx)

    def as_index(self, tx: Tracer) -> Any:
        return self.python_number.as_index(tx)

    def as_tensor_index(self, tx: Tracer) -> VariableTracker:
        return self

    def inplace(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        return None

    def truth(self, tx: Tracer) -> bool:
        return tx.truth(self.python_number)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name in ("shape", "ndim", "size", "dtype", "itemsize", "nbytes"):  # the same for all numbers of the type
            return from_numpy(tx, getattr(self.cls(), name))
        return self if name in ("T", "real") else super().getattr(tx, name)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if not args and not kwargs and name in ("item", "tolist"):
            return self.python_number
        return super().call_method(tx, name, args, kwargs)

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if isinstance(other, TensorVariable):
            operands = [other, self.python_number] if reflected else [self.python_number, other]
            return call_in_graph(tx, OPERATORS[op], operands, {})
        return super().binary(tx, op, other, reflected)

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        return fold(tx, UNARY[op], [self], {})

    def reconstruct(self, cg: Codegen) -> None:
        cg.build_new(self, lambda: cg.call_constant(self.cls, lambda: cg.push(self.python_number)), lambda: None)


def _with_numbers(tx: Tracer, function: Any, args: Sequence[VariableTracker]) -> VariableTracker | None:
    """A NumPy function of numbers, some of which may differ from call to call; None for other arguments."""
    if len(args) == 1 and (numbers := args[0].known_items()) is not None and issubclass(
            args[0].python_type(), (list, tuple)):
        found = product_or_sum(tx, function, numbers)
        return None if found is None else NumpyNumber(found, np.int64)
    operands = [_operand(a) for a in args]
    if None in operands or not any(is_followed(o[0]) for o in operands if o is not None):
        return None
    result = computed(tx, function, [o for o in operands if o is not None])
    if isinstance(result, bool):
        return from_numpy(tx, np.bool_(result))
    return None if result is None else NumpyNumber(*result)


def _operand(value: VariableTracker) -> Operand | None:
    if isinstance(value, NumpyNumber):
        return value.python_number, value.cls
    if isinstance(value, ArrayVariable):
        cls = type(value.value)
        return (ConstantVariable(value.value.item()), cls) if cls in TYPES else None
    is_number = is_followed(value) or type(value) is ConstantVariable and type(value.value) in (bool, int, float)
    return (value, None) if is_number else None


def _view_of(whole: Any, shape: tuple[int, ...], dtype: Any, start: int, strides: tuple[int, ...]) -> Any:
    """Makes an array in the memory of another one; called by generated code."""
    return np.ndarray(shape, dtype, whole, start, strides)


def _start(array: Any) -> int:
    return array.__array_interface__["data"][0]


def from_numpy(tx: Tracer, value: Any, given: Sequence[tuple[Any, ArrayVariable]] = ()) -> VariableTracker:
    """The tracker of a result that NumPy has computed.

    Args:
        given: pairs of an array that the result was computed from and the array's tracker: a result that lies in the
            array's memory is a view of it.
    """
    if isinstance(value, np.ndarray):
        for array, tracker in given:
            if array is value:
                return tracker
        for array, tracker in given:
            if value.size and np.shares_memory(array, value):
                inside = value
                if tracker.value is not array:  # `array` is a copy
                    offset = _start(value) - _start(array)
                    if not tracker.value.flags.c_contiguous:
                        return _refuse(value)
                    inside = np.ndarray(value.shape, value.dtype, tracker.value, offset, value.strides)
                return ArrayVariable(inside, tracker.owner or tracker)
        return ArrayVariable(value.copy("K")) if value.dtype != object else _refuse(value)
    if isinstance(value, (np.generic, np.dtype)):
        return ArrayVariable(value)
    if isinstance(value, (tuple, list)):
        return tx.values.new_sequence(type(value), [from_numpy(tx, item, given) for item in value])
    return tx.values.from_result(value, "a result of NumPy")


def _refuse(value: Any) -> VariableTracker:
    unsupported(_KIND, "an array of objects" if value.dtype == object else "a view of an array that is not contiguous")


def fold(tx: Tracer, function: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """Calls a function of NumPy while tracing."""
    if "out" in kwargs:
        unsupported(_KIND, "a NumPy function with out=")
    running = next(_running(tx, [*args, *kwargs.values()]), None)
    if running is not None:
        return running.call_numpy(tx, function, args, kwargs)
    if not kwargs and (tx.output.symbols.any or tx.output.scalars.met):
        number = _with_numbers(tx, function, args)
        if number is not None:
            return number
    plain = [_plain(tx, a) for a in args]
    named = {k: _plain(tx, v) for k, v in kwargs.items()}
    pairs = zip([*plain, *named.values()], [*args, *kwargs.values()])
    given = [(p, a) for p, a in pairs if isinstance(a, ArrayVariable) and isinstance(p, np.ndarray)]
    return from_numpy(tx, tx.run_python(function, *plain, **named), given)


def _running(tx: Tracer, values: Sequence[VariableTracker]) -> Iterator[RunningArray]:
    """The arrays among arguments, and in lists and tuples, whose elements are known only when the graph runs."""
    for value in (realized(tx, v) for v in values):
        if isinstance(value, RunningArray):
            yield value
        elif value.python_type() in (list, tuple) and (items := value.known_items()) is not None:
            yield from _running(tx, items)


@constructs(np.generic)
def _scalar(
    tx: Tracer, cls: ClassVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    return fold(tx, cls.value, args, kwargs)


def _plain(tx: Tracer, value: VariableTracker) -> Any:
    if isinstance(value, ArrayVariable):
        return value.value.copy("K") if isinstance(value.value, np.ndarray) else value.value
    if value.known_items() is not None and value.python_type() in (list, tuple):
        return value.python_type()(_plain(tx, item) for item in value.iterate(tx))
    if value.source is not None and not value.is_constant():
        unsupported(_KIND, f"a NumPy function of {value.describe()}")
    return tx.values.as_plain(value)


# NumPy's number types whose values a Python number represents exactly.
_NUMBERS = (np.bool_, np.integer, np.float16, np.float32, np.float64, np.complex64, np.complex128)


@wraps_if(lambda value: issubclass(type(value), np.generic), rank=1)
def _wrap_number(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    number = ComputedSource(source, np.generic.item, f"{source.name}.item()")
    if type(value).__module__ != "numpy" or not isinstance(value, _NUMBERS) or number.key in tx.output.dynamic:
        # For a number that changes from call to call, a guard on its value would make an entry for each value.
        return wrap_object(tx, value, source)
    tx.guard(source, "type_is", type(value))
    tx.guard(number, "const", value.item())
    made = ArrayVariable(value)
    made.source = source
    return made


_COPIES = (np.array, np.asarray, np.ascontiguousarray)  # of a tensor, they call its `__array__`


class NumpyFunctionVariable(SkippedFunctionVariable):
    """A function or class of NumPy that only computes a result from its arguments."""

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if self.value in _COPIES and args and isinstance(args[0], TensorVariable):
            args = [tx.call_method(args[0], "numpy", []), *args[1:]]
        if any(isinstance(a, TensorVariable) for a in (*args, *kwargs.values())):
            unsupported(_KIND, f"{self.describe()}() of a tensor")
        return fold(tx, self.value, args, kwargs)


instances(Rule.FOLD, *_FUNCTIONS, reason="NumPy computes it from its arguments alone")
breaks("call_skipped", *(f"numpy:{name}" for name in (
    "copyto", "put", "place", "putmask", "fill_diagonal", "put_along_axis", "save", "savez", "savez_compressed",
    "savetxt", "empty_like", "may_share_memory", "shares_memory", "apply_along_axis")),
    reason="it writes to an argument or a file, or its arguments do not decide its result")


@wraps_if(lambda value: issubclass(type(value), _FUNCTIONS), rank=1)
def _wrap_numpy_function(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    decision = decide(value)
    if decision.rule is Rule.FOLD:
        return NumpyFunctionVariable(value, _KIND, "NumPy", source)
    return SkippedFunctionVariable(value, decision.kind, decision.reason, source)


def _register_maker(function: Any) -> None:
    @handles(function)
    def make(tx: Tracer, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        return NumpyFunctionVariable(function, _KIND, "NumPy").call(tx, list(args), kwargs)


for _function in (*_COPIES, np.arange, np.zeros, np.ones, np.empty, np.full, np.eye, np.identity):
    _register_maker(_function)


# ---------------------------------------------------------------- to tensors
def _to_tensor(
    tx: Tracer, function: Any, tensor: TensorVariable, rest: Sequence[VariableTracker],
    kwargs: dict[str, VariableTracker],
) -> VariableTracker:
    """The tensor that a function makes of an array in the memory of another tensor."""
    alias = record_method(tx, "detach", tensor, [], {})
    if function is torch.from_numpy and not rest and not kwargs:
        return alias
    dtype = kwargs.get("dtype")
    if rest or kwargs.keys() - {"dtype"} or function is torch.from_numpy or not isinstance(alias, TensorVariable):
        unsupported(_KIND, f"{function.__name__}() of an array with options")
    own = tx.values.from_result(tensor.fake.dtype, "a dtype")
    options = {"dtype": own if dtype is None or dtype.is_none() else dtype}
    if function is torch.tensor:
        options["copy"] = ConstantVariable(True)
    return record_method(tx, "to", alias, [], options)


def _makes_tensors(function: Any, parameter: str | None) -> None:
    """Registers a function that makes a tensor of an array, which may be given under the name `parameter`."""
    @handles(function)
    def make(tx: Tracer, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        named = kwargs.pop(parameter) if parameter in kwargs and not args else None
        if not args and named is None:
            unsupported("unsupported_builtin", f"{function.__name__}() without data")
        data, *rest = args if named is None else (named,)
        if isinstance(data, RunningArray):
            return _to_tensor(tx, function, data.tensor(tx), rest, kwargs)
        if isinstance(data, ArrayVariable):
            made = record(tx, "call_function", ArrayCall(function, data.value), rest, kwargs)
            if function is not torch.tensor and isinstance(made, TensorVariable):
                root = data.owner or data
                before = root.memory[1] if root.memory is not None else frozenset()
                root.memory = tx.output, before | {made.fake.untyped_storage()._cdata}
            return made
        if function is torch.asarray and isinstance(data, TensorVariable):
            return record(tx, "call_function", function, [data, *rest], kwargs)
        if function is torch.asarray and holds_numbers(data) and kwargs.keys() <= {"dtype", "device"}:
            return new_tensor(tx, torch.tensor, data, rest, kwargs)  # it makes a new tensor of them, as torch.tensor
        if function in (torch.from_numpy, torch.asarray):
            unsupported(_KIND, function.__name__)
        return new_tensor(tx, function, data, rest, kwargs)


for _maker, _parameter in (
        (torch.tensor, "data"), (torch.as_tensor, "data"), (torch.from_numpy, None), (torch.asarray, "obj")):
    _makes_tensors(_maker, _parameter)
