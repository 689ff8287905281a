"""The default backend: fused C++ kernels on a CPU, library operations for the rest."""
from dynamo_lite.backends.inductor.compile import inductor_lite

__all__ = ["inductor_lite"]
