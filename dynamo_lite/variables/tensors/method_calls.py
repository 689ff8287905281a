"""Methods of tensors that are more than nodes of the graph: rows of the table of calls, with their implementations.

A row is about the method in its class (``torch.Tensor.item``), however it is called: ``x.item()``,
``torch.Tensor.item(x)``. A method without a row is an operation of the graph. Invariant: before a function of this
module is called, torch's overrides and modes have had their say, and its first argument is a tensor of the trace.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from ...polyfills.optimizers import METHODS as WITH_NUMBERS
from ...rules.table import Rule, breaks, handles, row
from ...rules.torch_marks import setting
from ..base import VariableTracker, realized, unsupported
from ..constant import ConstantVariable
from ..numbers.scalars import NUMBER_METHODS, ScalarVariable, number_in
from ..numbers.symbolic_ints import size_variable
from .learned_elements import known_tensor, learn, learn_or_refuse
from .storage_offsets import guard_offset
from .tensor import TensorVariable, is_unknown_number, record, record_method

if TYPE_CHECKING:
    from ..protocols import Tracer

Method = Callable[..., VariableTracker]
F = TypeVar("F", bound=Method)


def handles_method(*methods: Any) -> Callable[[F], F]:
    """Registers ``(tx, tensor, *args, **kwargs) -> tracker`` for methods of tensors."""
    return handles(*methods, of_tensor=True)


# ---------------------------------------------------------------- methods that break the graph
breaks("tensor_to_python", Tensor.__complex__, Tensor.is_nonzero, Tensor.__contains__)
breaks("numpy_conversion", Tensor.__array__)
breaks("data_ptr", Tensor.data_ptr, Tensor.untyped_storage, Tensor.storage, Tensor._typed_storage,
       Tensor.__dlpack__, Tensor.share_memory_, Tensor.is_shared, Tensor.pin_memory,
       Tensor.is_pinned)
breaks("autograd_in_graph", Tensor.backward)
breaks("input_mutation", Tensor.set_, Tensor.resize_, Tensor.resize_as_, reason="it gives a tensor other memory")
breaks("tensor_formatting", Tensor.__repr__, torch.nn.Parameter.__repr__, Tensor.__format__)
breaks("sparse_or_quantized", Tensor.to_sparse, Tensor.to_mkldnn, Tensor.to_sparse_csr, Tensor.coalesce,
       Tensor.to_dense)
breaks("unsupported_method", Tensor.__reduce_ex__, torch.nn.Parameter.__reduce_ex__, Tensor.map_, Tensor.apply_,
       Tensor.map2_, Tensor._is_view, Tensor.is_inference, Tensor.__hash__)
row(Rule.ELEMENTS,
    Tensor.nonzero, Tensor.unique, Tensor.unique_consecutive, Tensor.masked_select, Tensor.bincount, Tensor.argwhere,
    kind="dynamic_output_shape")


@handles_method(Tensor.storage_offset)
def _storage_offset(tx: Tracer, tensor: TensorVariable) -> VariableTracker:
    what = f"storage_offset() of {tensor.describe()}"
    if not tx.output.fake_mode.lies_in_input(tensor.fake):
        unsupported("data_ptr", what)  # kernels may leave room that the rules for fake tensors don't know of
    guard_offset(tx.output, tensor.fake, what)
    return size_variable(tensor.fake.storage_offset(), tx.output)


# ---------------------------------------------------------------- numbers
def _is_captured(tx: Tracer, tensor: TensorVariable) -> bool:
    """Whether the number in a tensor is to become a number of the graph: always if the setting says so; with fullgraph
    where the tensor's elements can't be guarded."""
    if setting("capture_scalar_outputs"):
        return True
    return tx.output.captures_numbers and not (tensor.node is not None and learn(tx, [tensor.node]))


def _as_number(name: str) -> Method:
    """The implementation of a method that hands a tensor's elements to Python."""

    def method(tx: Tracer, tensor: TensorVariable) -> VariableTracker:
        known = known_tensor(tx, tensor.fake)
        if known is None and name in NUMBER_METHODS and _is_captured(tx, tensor):
            number = number_in(tx, tensor, name)
            if number is not None:
                return number
        if known is None:
            learn_or_refuse(tx, "tensor_to_python", f"Tensor.{name}()", [tensor])
            known = known_tensor(tx, tensor.fake)
        if known is None:
            unsupported("tensor_to_python", f"Tensor.{name}()")
        # The elements were made from Python numbers in this very trace, or are guarded by value.
        return tx.values.from_result(tx.run_python(getattr(known, name)), f"Tensor.{name}()")

    return method


for _name in ("item", "tolist", "__bool__", "__int__", "__float__", "__index__"):
    handles_method(getattr(Tensor, _name))(_as_number(_name))


def _with_number(name: str, equivalent: Callable[..., Any], argument: str) -> Method:
    """The implementation of an operation with an argument that may be a number known only to the running graph."""

    def method(
        tx: Tracer, tensor: TensorVariable, *args: VariableTracker, **kwargs: VariableTracker
    ) -> VariableTracker:
        number = kwargs.get(argument) if len(kwargs) == 1 else None
        if argument == "weight" and len(args) == 2 and not kwargs:
            number = args[1]
        if number is not None and is_unknown_number(tx, number) and _takes(tx, tensor, args, number, argument):
            return tx.call(tx.values.library_function(equivalent), [tensor, *args], kwargs)
        return record_method(tx, name, tensor, list(args), kwargs)

    return method


def _takes(
    tx: Tracer, tensor: TensorVariable, args: tuple[VariableTracker, ...], number: VariableTracker, argument: str
) -> bool:
    """Whether the equivalent function computes eager's result. Eager refuses fractions for integral tensors, and
    computes narrow types with a weight of a wider type."""
    number = realized(tx, number)
    others = [value.fake for value in (realized(tx, arg) for arg in args)
              if isinstance(value, TensorVariable) and value is not number]
    types = {fake.dtype for fake in (tensor.fake, *others)}
    if argument == "weight":
        return isinstance(number, ScalarVariable) and len(types) == 1 and types <= {torch.float32, torch.float64}
    narrow = tensor.fake.dtype in (torch.float16, torch.bfloat16)
    if narrow and argument == "alpha" and isinstance(number, ScalarVariable):
        return False  # torch's rounding of the product depends on the tensors' memory layout, so torch's own call runs
    fraction = number.python_type() is float or (
        isinstance(number, TensorVariable) and number.fake.is_floating_point())
    return not fraction or any(dtype.is_floating_point or dtype.is_complex for dtype in types)


for _name, (_equivalent, _argument) in WITH_NUMBERS.items():
    handles_method(getattr(Tensor, _name))(_with_number(_name, _equivalent, _argument))


# ---------------------------------------------------------------- sizes, strides, elements
@handles_method(Tensor.size)
def _size(tx: Tracer, tensor: TensorVariable, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    if kwargs:
        return record_method(tx, "size", tensor, list(args), kwargs)
    shape = tx.values.new_size([size_variable(n, tx.output) for n in tensor.fake.shape])
    return shape.getitem(tx, args[0]) if args else shape


def _layout_question(name: str) -> Method:
    """The implementation of a query of a tensor's memory layout. They are counted, for the trace of a backward pass."""

    def method(
        tx: Tracer, tensor: TensorVariable, *args: VariableTracker, **kwargs: VariableTracker
    ) -> VariableTracker:
        tx.output.layout_questions += 1
        return record_method(tx, name, tensor, list(args), kwargs)

    return method


for _name in ("stride", "is_contiguous"):
    handles_method(getattr(Tensor, _name))(_layout_question(_name))


@handles_method(Tensor.__len__)
def _length(tx: Tracer, tensor: TensorVariable) -> VariableTracker:
    return tensor.by_torch().length(tx)


@handles_method(Tensor.__getitem__)
def _item(tx: Tracer, tensor: TensorVariable, key: VariableTracker) -> VariableTracker:
    return tensor.by_torch().getitem(tx, key)


@handles_method(Tensor.__setitem__)
def _set_item(tx: Tracer, tensor: TensorVariable, key: VariableTracker, value: VariableTracker) -> VariableTracker:
    tensor.by_torch().setitem(tx, key, value)
    return ConstantVariable(None)


@handles_method(Tensor.new)
def _new(tx: Tracer, tensor: TensorVariable, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """Sizes give an uninitialized tensor of these sizes; a list or tuple gives a tensor of these elements."""
    if kwargs or any(a.contains_tensor() for a in args):
        unsupported("unsupported_torch_call", "Tensor.new() of a tensor")
    plain = [tx.values.as_plain(a) for a in args]
    if len(plain) == 1 and type(plain[0]) in (list, tuple):
        dtype: dict[str, VariableTracker] = {"dtype": ConstantVariable(tensor.fake.dtype)}
        return record(tx, "call_method", "new_tensor", [tensor, args[0]], dtype)
    sizes = plain[0] if len(plain) == 1 and isinstance(plain[0], torch.Size) else plain or [0]
    shape = tx.values.new_list([ConstantVariable(n) for n in sizes])
    return record(tx, "call_method", "new_empty", [tensor, shape], {})


# ---------------------------------------------------------------- mutation of a tensor's metadata
def _metadata_change(name: str) -> Method:
    """The implementation of a change of a tensor's metadata. The caller sees it if the tensor is an input, so that it
    breaks the graph; on other tensors it is an ordinary operation."""

    def method(
        tx: Tracer, tensor: TensorVariable, *args: VariableTracker, **kwargs: VariableTracker
    ) -> VariableTracker:
        if tensor.source is not None:
            unsupported("input_mutation", f"Tensor.{name} of the input {tensor.source.name!r}")
        return record_method(tx, name, tensor, list(args), kwargs)

    return method


for _name in ("t_", "transpose_", "unsqueeze_", "squeeze_", "swapaxes_", "swapdims_", "as_strided_", "detach_"):
    handles_method(getattr(Tensor, _name))(_metadata_change(_name))


@handles_method(Tensor.requires_grad_)
def _requires_grad(
    tx: Tracer, tensor: TensorVariable, requires_grad: VariableTracker | None = None
) -> VariableTracker:
    """Makes a tensor of the trace a leaf."""
    wanted = requires_grad is None or tx.truth(requires_grad)
    if wanted == tensor.fake.requires_grad:
        return tensor
    if tensor.source is not None or not tensor.fake.is_leaf:
        unsupported("grad_mode_mismatch", f"requires_grad_({wanted}) of {tensor.describe()}")
    tx.output.run_fake(tx, "call_method", "requires_grad_", (tensor.fake, wanted), {})
    tx.output.create_node(tx, "call_method", "requires_grad_", (tensor.node, wanted), {}, tensor.fake, True)
    return tensor
