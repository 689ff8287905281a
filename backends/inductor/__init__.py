"""The default backend: fused C++ kernels on a CPU, library operations for everything else.

`compile` is the backend; `pipeline` runs its passes in order: `lowering` produces the loop IR (`ir`), `scheduler` fuses
loops into kernels, `codegen` writes their source and the wrapper; `program` is the data structure between the two
halves. `codecache` keeps compiled libraries, `graph_cache` whole compiled graphs. ``register_lowering`` and
``register_decomposition`` add support for operators: docs/custom_operators.md.

May import `aot`; only `aot_eager` and the registry import it.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamo_lite.backends.aot.decompositions import register_decomposition
from dynamo_lite.backends.inductor import convolution_gradients as _convolution_gradients  # noqa: F401 - it registers
from dynamo_lite.backends.inductor.compile import inductor_lite

if TYPE_CHECKING:
    from dynamo_lite.backends.inductor.lowering import register_lowering
    from dynamo_lite.backends.inductor.lowering.activations import formula

__all__ = ["formula", "inductor_lite", "register_decomposition", "register_lowering"]


def __getattr__(name: str) -> Any:
    """Imports the functions that users register operators with when they are first asked for (PEP 562): our own
    lowerings are registered then, before the user's."""
    if name not in ("formula", "register_lowering"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dynamo_lite.backends.inductor import lowering

    return lowering.register_lowering if name == "register_lowering" else lowering.activations.formula
