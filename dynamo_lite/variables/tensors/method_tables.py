"""Tables of tensors' methods and attributes by what becomes of them in a trace.

Invariant: a name stands in one of the tables; what is in none is an operation of the graph.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    pass


# Methods that hand data to Python, and the kind of break each is.
DATA_METHODS = {
    "item": "tensor_to_python", "tolist": "tensor_to_python", "__bool__": "tensor_to_python",
    "__int__": "tensor_to_python", "__float__": "tensor_to_python", "__index__": "tensor_to_python",
    "__complex__": "tensor_to_python", "is_nonzero": "tensor_to_python", "__contains__": "tensor_to_python",
    "numpy": "numpy_conversion", "__array__": "numpy_conversion",
    "is_inference": "unsupported_method", "data_ptr": "data_ptr", "untyped_storage": "data_ptr", "storage": "data_ptr",
    "__dlpack__": "data_ptr",
    "share_memory_": "data_ptr", "is_shared": "data_ptr", "pin_memory": "data_ptr", "is_pinned": "data_ptr",
    "storage_offset": "data_ptr", "_typed_storage": "data_ptr", "typed_storage": "data_ptr",
    "backward": "autograd_in_graph", "register_hook": "autograd_in_graph", "retain_grad": "autograd_in_graph",
    "register_post_accumulate_grad_hook": "autograd_in_graph",
    "set_": "input_mutation", "resize_": "input_mutation", "resize_as_": "input_mutation", "swap_": "input_mutation",
    "__repr__": "tensor_formatting", "__str__": "tensor_formatting", "__format__": "tensor_formatting",
    "to_sparse": "sparse_or_quantized", "to_mkldnn": "sparse_or_quantized", "to_sparse_csr": "sparse_or_quantized",
    "coalesce": "sparse_or_quantized", "to_dense": "sparse_or_quantized",
    "nonzero": "dynamic_output_shape", "unique": "dynamic_output_shape", "unique_consecutive": "dynamic_output_shape",
    "masked_select": "dynamic_output_shape", "bincount": "dynamic_output_shape", "argwhere": "dynamic_output_shape",
    "__reduce_ex__": "unsupported_method", "__deepcopy__": "unsupported_method", "map_": "unsupported_method",
    "apply_": "unsupported_method", "map2_": "unsupported_method", "_is_view": "unsupported_method",
}


# Changes of an input's metadata, which the caller sees; on intermediates they are just operations.
METADATA_METHODS = frozenset({
    "t_", "transpose_", "unsqueeze_", "squeeze_", "swapaxes_", "swapdims_", "as_strided_", "detach_", "rename_",
    "resize_",
})


# Attributes that are tensors computed from the tensor.
VIEW_ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})


# Attributes that tell nothing that a guard on the metadata does not fix.
METADATA_ATTRIBUTES = frozenset({
    "dtype", "device", "ndim", "layout", "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_quantized", "is_mkldnn",
    "is_mps", "is_xpu", "is_vulkan", "is_nested", "is_sparse_csr", "is_maia", "is_mtia", "is_ipu", "is_xla", "itemsize",
    "nbytes", "requires_grad", "is_leaf", "names", "retains_grad",
})


LAYOUT_QUESTIONS = frozenset({"stride", "is_contiguous", "is_non_overlapping_and_dense", torch.Tensor.stride})


# They change what autograd knows of a tensor, and no memory.
AUTOGRAD_CHANGES = ("detach_", torch.Tensor.detach_, torch.detach_)


PLAIN_TENSOR_TYPES = (torch.Tensor, torch.nn.Parameter)
