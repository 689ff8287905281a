"""All differences between the versions of torch, 2.11 to 2.15, that the compiler has to know, each with its reason.

Whether a version has a feature is found out from torch itself, never from its version number, so that this also works
for a build between two versions; the number only decides whether torch is too old. Invariant: importing this module
imports nothing of torch that ``import torch`` has not imported, so that it can be imported before the rest.
"""
from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import _symbolic_trace
from torch.utils._python_dispatch import TorchDispatchMode

from dynamo_lite.runtime.neutral_state import neutral_state, probe

OLDEST = (2, 11)


def refusal(version: str) -> str | None:
    """Why the compiler does not run with this version of torch, in one sentence; None if it does."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) >= OLDEST:
        return None
    return f"dynamo_lite needs torch {OLDEST[0]}.{OLDEST[1]} or later, and this is torch {version}"


# A class method in Python up to 2.14. From 2.15 on it is one in C, which is identified by its descriptor.
_apply = torch.autograd.Function.__dict__["apply"]
FUNCTION_APPLY: Callable[..., Any] = getattr(_apply, "__func__", _apply)


class _Identity(torch.autograd.Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass


@probe
def apply_takes_keywords() -> bool:
    """Whether ``apply`` of autograd functions with a ``setup_context`` takes keyword arguments; not in 2.11."""
    try:
        _Identity.apply(x=None)
    except TypeError:
        return False
    return True


# Whether torch.fx keeps the flag that it is tracing per thread (from 2.15 on) or per module (up to 2.14).
FX_TRACES_BY_THREAD = hasattr(_symbolic_trace, "_is_fx_tracing_tls")

# Whether autograd unpacks the saved tensors of a node one by one, comparing versions. It does not in 2.11, where the
# compiler records the versions itself, so that mutating a saved tensor is an error only for gradients that need it.
SAVED_ONE_BY_ONE = hasattr(torch._C._autograd.SavedTensor, "unpack")

# Switches of kernels that newer versions have: setter -> getter. That of cuDNN's depthwise convolutions is from 2.13
# on.
LATER_SWITCHES: dict[Any, Any] = {
    getattr(torch._C, f"_set_{name}"): getattr(torch._C, f"_get_{name}")
    for name in ("cudnn_depthwise_kernel",) if hasattr(torch._C, f"_set_{name}")
}


class _Asked(torch.Tensor):
    """A tensor that records whether its sizes are requested as numbers, which is not possible for symbolic sizes."""

    held: torch.Tensor
    numbers_asked = False

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> _Asked:
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dispatch_sizes_strides_policy="sizes")

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None,
    ) -> Any:
        if func in (torch.ops.aten.size.default, torch.ops.aten.numel.default):
            args[0].numbers_asked = True
        return func(*[a.held if isinstance(a, cls) else a for a in args], **kwargs or {})


class _Asking(TorchDispatchMode):
    """Passes all operations to ``_Asked``. If an operation reached it as a tensor's class instead, torch would import
    ``torch.distributed.tensor`` and sympy, which adds a second to the first call with symbolic sizes.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Keeps TorchDispatchMode.__init_subclass__ from importing torch._dynamo at the first call.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _Asked.__torch_dispatch__(func, types, args, kwargs)


def asks_for_numbers(operation: Callable[[torch.Tensor], Any]) -> bool:
    """Whether an operation requests the sizes of its argument, a tensor of three dimensions, as numbers."""
    with neutral_state(), _Asking():
        asked = _Asked(torch.zeros(2, 3, 4))
        operation(asked)
    return asked.numbers_asked


@probe
def matmul_asks_for_numbers() -> bool:
    """Whether ``matmul`` as C++ decomposes it (and therefore ``linear`` without a bias) rejects symbolic sizes, as in
    2.11.

    Its decomposition in Python, which torch uses while its Python dispatcher is enabled, accepts them.
    """
    other = torch.zeros(4, 4)
    return asks_for_numbers(lambda asked: torch.matmul(asked, other))


@probe
def spectra_take_sorted_dims() -> bool:
    """Whether torch's metadata rule for an FFT along several dimensions gives overlapping strides if these dimensions
    are not sorted, as in 2.11. Their order changes no result.
    """
    x = torch.empty(3, 5, 7, dtype=torch.complex64, device="meta")
    one, other = (torch.ops.aten._fft_c2c.default(x, dims, 0, True) for dims in ([0, 2], [2, 0]))
    return one.stride() != other.stride()


@probe
def norms_take_dims_from_the_front() -> bool:
    """Whether torch's metadata rule for ``linalg.vector_norm`` keeps dimensions of size 1 that are given by negative
    indices, as in 2.11.
    """
    x = torch.empty(7, 1, device="meta")
    norm: torch.Tensor = torch.ops.aten.linalg_vector_norm.default(x, 2, [-1])
    return norm.dim() == 2


@probe
def clamp_ignores_nan() -> bool:
    """Whether ``clamp`` with a single bound that is NaN returns its input, as in 2.11; later versions return NaN."""
    return not torch.ones(1).clamp(max=math.nan).isnan().item()


class _Divided(int):
    """A number that records whether its remainder is requested."""

    remainder_asked = False

    def __mod__(self, other: int) -> int:
        self.remainder_asked = True
        return int(self) % other


@functools.cache
def mend_sizes_of_pooling() -> None:
    """Makes torch's metadata rules for pooling divide sizes by ``//``, which gives the same numbers. In 2.11 they ask
    whether there is a remainder, and each answer would be a guard on the size.
    """
    from torch import _meta_registrations as rules

    divide = getattr(rules, "div_rtn", None)
    probe = _Divided(7)
    if divide is not None and divide(probe, 2) == 3 and probe.remainder_asked:
        rules.div_rtn = operator.floordiv
