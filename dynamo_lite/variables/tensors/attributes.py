"""Attributes of tensors by what reading one gives.

Invariant: a name stands in one of the tables; what is in none breaks the graph, or is a method.
"""
from __future__ import annotations

import torch

# Attributes that are tensors computed from the tensor.
VIEW_ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})

# Attributes that tell nothing that a guard on the metadata does not fix.
METADATA_ATTRIBUTES = frozenset({
    "dtype", "device", "ndim", "layout", "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_quantized", "is_mkldnn",
    "is_mps", "is_xpu", "is_vulkan", "is_nested", "is_sparse_csr", "is_maia", "is_mtia", "is_ipu", "is_xla", "itemsize",
    "nbytes", "requires_grad", "is_leaf", "names", "retains_grad",
})

# Classes of tensors that override nothing of torch's.
PLAIN_TENSOR_TYPES = (torch.Tensor, torch.nn.Parameter)
