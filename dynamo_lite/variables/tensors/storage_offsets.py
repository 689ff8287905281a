"""Operations that take an offset from the start of a storage (``x.as_strided(size, stride, 3)``), not from the tensor's
first element, and ``x.storage_offset()``.

Where a tensor of the caller's lies in its storage is guarded only where such an operation is met. A fake tensor of
symbolic sizes begins its storage, so that an offset means the same in it only if the real tensor does, too. Invariant:
where a graph holds an offset that counts from the start of a storage of the caller's, guards fix where the inputs of
the graph begin in that storage, and the fake tensors begin there.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ...guards.source import ComputedSource
from ..base import unsupported

# Where the operations take the offset.
_PLACES = {"as_strided": 3, "as_strided_": 3, "as_strided_copy": 3, "as_strided_scatter": 4}

_offset_of = torch.Tensor.storage_offset


def check_offset(output: Any, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Guards where the operands of an operation with such an offset begin in their storage.

    Raises:
        exc.Unsupported: the fake tensors begin elsewhere in theirs.
    """
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    place = _PLACES.get(name.partition(".")[0]) if isinstance(name, str) else None
    if place is None:
        return
    offset = args[place] if len(args) > place else kwargs.get("storage_offset")
    tensor = args[0] if args else kwargs.get("input", kwargs.get("self"))
    if offset is not None and isinstance(tensor, FakeTensor):
        guard_offset(output, tensor, f"{name} with an offset from the start of the storage of an input")


def guard_offset(output: Any, fake: torch.Tensor, what: str) -> None:
    """Guards where the inputs that share memory with a fake tensor begin in their storage.

    Raises:
        exc.Unsupported: their fake tensors begin elsewhere, or no input of the graph is known to have this memory.
    """
    if not output.fake_mode.lies_in_input(fake):
        return
    storage = fake.untyped_storage()._cdata
    inputs = [t for t in output.inputs if getattr(t, "value", None) is not None
              and t.fake.untyped_storage()._cdata == storage]
    for tensor in inputs:
        begins = tensor.fake.storage_offset()
        if tensor.source is None or type(begins) is not int or begins != tensor.value.storage_offset():
            unsupported("data_ptr", f"{what}, which has symbolic sizes and does not begin its storage")
    if not inputs:
        unsupported("data_ptr", what)
    for tensor in inputs:
        source = ComputedSource(tensor.source, _offset_of, f"{tensor.source.name}.storage_offset()")
        output.guards.add(source, "const", tensor.fake.storage_offset())
