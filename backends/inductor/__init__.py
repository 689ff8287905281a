"""The default backend: fused C++ kernels on a CPU, library operations for the rest.

``register_lowering`` and ``register_decomposition`` teach it operators: docs/custom_operators.md.
"""
from dynamo_lite.backends.aot.decompositions import register_decomposition
from dynamo_lite.backends.inductor.compile import inductor_lite
from dynamo_lite.backends.inductor.lowering import register_lowering
from dynamo_lite.backends.inductor.lowering.activations import formula

__all__ = ["formula", "inductor_lite", "register_decomposition", "register_lowering"]
