"""Changes between two calls are noticed: tensors' metadata and the state of torch that a trace relies on."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from guard_cases import Case, Cases, X
from torch import nn

case = Cases()


def _tensor_case(name: str, old: Any, new: Any, fn: Callable[[Any], Any] = lambda x: x * 2) -> None:
    def make() -> Case:
        box = [old()]
        return lambda x: fn(box[0]), (X,), lambda: box.__setitem__(0, new())

    case.add(f"tensor_{name}", make)


_tensor_case("dtype", lambda: X, lambda: X.double())
_tensor_case("shape", lambda: X, lambda: torch.ones(3, 3))
_tensor_case("rank", lambda: X, lambda: torch.ones(3))
_tensor_case("strides", lambda: X, lambda: X.t().contiguous().t())
_tensor_case("requires_grad", lambda: X, lambda: X.clone().requires_grad_())
_tensor_case("parameter", lambda: X, lambda: nn.Parameter(X.clone()), lambda t: (t * 2, isinstance(t, nn.Parameter)))
_tensor_case("conj", lambda: torch.ones(2, dtype=torch.cfloat), lambda: torch.ones(2, dtype=torch.cfloat).conj(),
             lambda t: t.is_conj())
_tensor_case("conj_value", lambda: torch.ones(2, dtype=torch.cfloat) * 1j,
             lambda: (torch.ones(2, dtype=torch.cfloat) * 1j).conj(), lambda t: t * 2)
_tensor_case("neg", lambda: torch.ones(2), lambda: torch._neg_view(torch.ones(2)), lambda t: (t * 2, t.is_neg()))
_tensor_case("attribute", lambda: X.clone(), lambda: setattr(t := X.clone(), "tag", 3) or t,
             lambda t: (t * 2, getattr(t, "tag", 0)))
_tensor_case("grad", lambda: nn.Parameter(torch.ones(2)),
             lambda: setattr(p := nn.Parameter(torch.ones(2)), "grad", torch.ones(2)) or p,
             lambda t: (t.detach() * 2, t.grad is None))
_tensor_case("leaf", lambda: nn.Parameter(torch.ones(2)).data.requires_grad_(),
             lambda: torch.ones(2).requires_grad_() * 1, lambda t: (t.detach() * 2, t.is_leaf))
_tensor_case("subclass", lambda: X, lambda: X.as_subclass(type("T", (torch.Tensor,), {})),
             lambda t: (t.dtype, type(t).__name__))
_tensor_case("sparse", lambda: X, lambda: X.to_sparse(), lambda t: (t.is_sparse,))
_tensor_case("becomes_none", lambda: X, lambda: None, lambda t: X if t is None else t * 2)
_tensor_case("becomes_number", lambda: X, lambda: 3)


def _state_case(name: str, fn: Callable[..., Any], enter: Callable[[], Any]) -> None:
    def make() -> Case:
        class Change:
            def __call__(self) -> None:
                self.manager = enter()
                self.manager.__enter__()

            def undo(self) -> None:
                self.manager.__exit__(None, None, None)

        return fn, (X,), Change()

    case.add(f"state_{name}", make)


class _DefaultDtype:
    def __enter__(self) -> None:
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *args: Any) -> None:
        torch.set_default_dtype(torch.float32)


class _Deterministic:
    def __enter__(self) -> None:
        torch.use_deterministic_algorithms(True)

    def __exit__(self, *args: Any) -> None:
        torch.use_deterministic_algorithms(False)


P = torch.ones(3, requires_grad=True)
_state_case("no_grad", lambda x: x * P, torch.no_grad)
_state_case("no_grad_read", lambda x: (x * 2, torch.is_grad_enabled()), torch.no_grad)
_state_case("inference_mode", lambda x: (x * P, torch.is_inference_mode_enabled()), torch.inference_mode)
_state_case("autocast", lambda x: x @ x.t(), lambda: torch.autocast("cpu", dtype=torch.bfloat16))
_state_case("default_dtype", lambda x: x * 2 + torch.ones(3), _DefaultDtype)
_state_case("default_device", lambda x: torch.ones(2).device.type, lambda: torch.device("meta"))
_state_case("deterministic", lambda x: (x + 1, torch.are_deterministic_algorithms_enabled()), _Deterministic)


class _Threads:
    def __enter__(self) -> None:
        self.before = torch.get_num_threads()
        torch.set_num_threads(1 if self.before > 1 else 2)

    def __exit__(self, *args: Any) -> None:
        torch.set_num_threads(self.before)


_state_case("num_threads", lambda x: (x + 1, torch.get_num_threads()), _Threads)


class _Precision:
    def __enter__(self) -> None:
        torch.set_float32_matmul_precision("medium")

    def __exit__(self, *args: Any) -> None:
        torch.set_float32_matmul_precision("highest")


_state_case("matmul_precision", lambda x: (x + 1, torch.get_float32_matmul_precision()), _Precision)
_state_case("mkldnn_flags", lambda x: (x + 1, torch.backends.mkldnn.enabled),
    lambda: torch.backends.mkldnn.flags(enabled=False))


@pytest.mark.parametrize("name", case.all)
def test_a_change_is_noticed(name):
    case.check(name, globals())
