"""Calls of torch that a graph leaves undecomposed, forward and backward, to eager's own kernels: recurrent networks.

C++ decomposes such a call into operations for each step of a sequence, so that each length would have a graph of its
own with thousands of nodes. Invariant: a call listed here depends only on its arguments and on random numbers.
"""
from __future__ import annotations

from typing import Any

import torch

_functions = torch._C._VariableFunctions
RECURRENT: dict[Any, int] = {
    _functions.lstm: 4, _functions.gru: 3, _functions.rnn_tanh: 1, _functions.rnn_relu: 1,
}
"""For each function the number of gates: rows of its weights per element of the hidden state."""


def is_whole(target: Any) -> bool:
    """Whether a graph leaves calls of this function undecomposed."""
    return type(target) is type(_functions.lstm) and target in RECURRENT
