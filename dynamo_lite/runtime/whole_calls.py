"""Calls of torch that a graph makes whole, forward and backward by eager's own kernels: recurrent networks.

C++ takes such a call apart into operations for each step of a sequence, so that each length would be a graph of its
own, of thousands of nodes. Invariant: a call named here is a function of its arguments and of random numbers.
"""
from __future__ import annotations

from typing import Any

import torch

_functions = torch._C._VariableFunctions
RECURRENT: dict[Any, int] = {
    _functions.lstm: 4, _functions.gru: 3, _functions.rnn_tanh: 1, _functions.rnn_relu: 1,
}
"""By function, how many rows of weights there are for each element of the hidden state."""


def is_whole(target: Any) -> bool:
    """Whether a graph makes a call of this function whole."""
    return type(target) is type(_functions.lstm) and target in RECURRENT
