"""libdevice for Triton's interpreter, which has none: its functions as torch computes them, in float64.

Imported by ``gpu_programs`` in processes of tests' own, in which ``TRITON_INTERPRET=1``.
"""
import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

_FUNCTIONS = {
    "expm1": torch.expm1, "log10": torch.log10, "log1p": torch.log1p, "tan": torch.tan, "sinh": torch.sinh,
    "cosh": torch.cosh, "tanh": torch.tanh, "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh,
    "asin": torch.asin, "acos": torch.acos, "atan": torch.atan, "atan2": torch.atan2, "erfc": torch.erfc,
    "lgamma": torch.lgamma, "hypot": torch.hypot, "copysign": torch.copysign, "pow": torch.pow, "fmod": torch.fmod,
    "trunc": torch.trunc, "rint": torch.round}


def _on_blocks(fn, exact):
    def run(*args):
        arrays = np.broadcast_arrays(*(a.handle.data for a in args))
        given = [torch.from_numpy(np.array(a)) for a in arrays]
        result = fn(*given) if exact else fn(*(t.double() for t in given)).to(given[0].dtype)
        shape = list(np.broadcast_shapes(*(tuple(int(n) for n in a.shape) for a in args)))
        dtype = args[0].dtype.scalar
        handle = TensorHandle(result.numpy().reshape(shape or arrays[0].shape), dtype)
        return tl.tensor(handle, tl.block_type(dtype, shape) if shape else dtype)

    return run


class _Libdevice:
    nextafter = staticmethod(_on_blocks(torch.nextafter, True))


for _name, _fn in _FUNCTIONS.items():
    setattr(_Libdevice, _name, staticmethod(_on_blocks(_fn, False)))
libdevice = _Libdevice()
