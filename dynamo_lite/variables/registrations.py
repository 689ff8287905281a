"""Imports the modules of trackers that no other module imports, so that their registrations take effect: wrappers of
values, and rows of the table of calls.

Invariant: this module has been imported before a frame is evaluated.
"""
from __future__ import annotations

from . import equality
from .containers import builtin_iteration, outer_iterators
from .functions import compiled_functions, introspected, scripted, single_dispatch
from .numbers import symbolic_ranges
from .objects import context_vars, enum_classes, thread_locals
from .tensors import array_results, arrays, inputs, legacy_tensors, method_calls, tensor_hooks
from .torch_api import (
    autograd_function,
    branches,
    checkpointing,
    composed_functions,
    composed_matrices,
    inner_gradients,
    lazy_modules,
    module_hooks,
    optimizers,
    sampled_gradients,
    sized_functions,
    spectral,
    transforms,
)

__all__ = [
    "array_results", "arrays", "autograd_function", "branches", "builtin_iteration", "checkpointing",
    "compiled_functions", "composed_functions", "composed_matrices", "context_vars", "enum_classes", "equality",
    "inner_gradients", "inputs", "introspected", "lazy_modules", "legacy_tensors", "method_calls", "module_hooks",
    "optimizers", "outer_iterators", "sampled_gradients", "scripted", "single_dispatch", "sized_functions", "spectral",
    "symbolic_ranges", "tensor_hooks", "thread_locals", "transforms",
]
