"""Stand-ins for parts of ``torch.distributions`` that look at a tensor's values to decide what to compute.

Invariant: each has the same result as torch's own function.
"""
from __future__ import annotations

from typing import Any

import torch
from torch.distributions import constraints

from ..rules.table import stands_in_for


@stands_in_for("torch.distributions.distribution:_all_true_or_runtime_assert")
def all_true(valid: torch.Tensor, error_message: str) -> Any:
    """The check whether parameters are valid, a function since torch 2.15. It returns the tensor, so that the branch
    on its truth is seen to be one of which a side raises."""
    return torch._is_all_true(valid)


@stands_in_for(constraints._Symmetric.check)
def is_symmetric(self: Any, value: torch.Tensor) -> torch.Tensor:
    """``constraints.symmetric.check``: whether matrices are square is known without looking at the values."""
    if value.shape[-2] != value.shape[-1] and value.shape[:-2].numel():
        return super(constraints._Symmetric, self).check(value)
    return torch.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)


@stands_in_for(constraints._PositiveSemidefinite.check)
def is_positive_semidefinite(self: Any, value: torch.Tensor) -> torch.Tensor:
    """``constraints.positive_semidefinite.check``."""
    symmetric = super(constraints._PositiveSemidefinite, self).check(value)
    return torch.where(symmetric.all(), torch.linalg.eigvalsh(value).ge(0).all(-1), symmetric)


@stands_in_for(constraints._PositiveDefinite.check)
def is_positive_definite(self: Any, value: torch.Tensor) -> torch.Tensor:
    """``constraints.positive_definite.check``: if not all matrices are symmetric, torch does not try to factorize."""
    symmetric = super(constraints._PositiveDefinite, self).check(value)
    return torch.where(symmetric.all(), torch.linalg.cholesky_ex(value).info.eq(0), symmetric)
