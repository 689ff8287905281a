"""Operations in terms of others: a table from an operator to a function of its arguments.

A decomposition runs under the recorder, so it may call any operator, in-place ones included; it computes what eager computes, in
eager's order of rounding, and returns ``NotImplemented`` for a case that it leaves to the library.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynamo_lite.backends.aot.decompositions import foreach

DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {**foreach.table()}
