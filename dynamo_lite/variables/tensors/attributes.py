"""Attributes of tensors, grouped by what reading them gives.

Invariant: a name is in at most one of the tables. Reading a name that is in none of them breaks the graph, unless it is
a method.
"""
from __future__ import annotations

import torch

# Attributes that are tensors, computed from the tensor.
VIEW_ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})

# Attributes whose values follow from the metadata that a tensor's guard fixes.
METADATA_ATTRIBUTES = frozenset({
    "dtype", "device", "ndim", "layout", "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_quantized", "is_mkldnn",
    "is_mps", "is_xpu", "is_vulkan", "is_nested", "is_sparse_csr", "is_maia", "is_mtia", "is_ipu", "is_xla", "itemsize",
    "nbytes", "requires_grad", "is_leaf", "names", "retains_grad",
})

# Classes of tensors that override none of torch's behavior.
PLAIN_TENSOR_TYPES = (torch.Tensor, torch.nn.Parameter)
