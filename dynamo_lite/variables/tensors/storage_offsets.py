"""Operations that take an offset from the start of a storage (``x.as_strided(size, stride, 3)``), not from the tensor's
first element.

Where a tensor of the caller's lies in its storage is not guarded, and a fake tensor of symbolic sizes begins its
storage. Invariant: no graph holds an offset that counts from the start of a storage of the caller's.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from ...fake.mode import TraceFakeMode
from ..base import unsupported

# Where the operations take the offset.
_PLACES = {"as_strided": 3, "as_strided_": 3, "as_strided_copy": 3, "as_strided_scatter": 4}


def check_offset(mode: TraceFakeMode, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises where an operation has such an offset.

    Raises:
        exc.Unsupported: the operation's tensor lies in a storage that was there before the trace.
    """
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    place = _PLACES.get(name.partition(".")[0]) if isinstance(name, str) else None
    if place is None:
        return
    offset = args[place] if len(args) > place else kwargs.get("storage_offset")
    tensor = args[0] if args else kwargs.get("input", kwargs.get("self"))
    if offset is not None and isinstance(tensor, FakeTensor) and mode.lies_in_input(tensor):
        unsupported("data_ptr", f"{name} with an offset from the start of the storage of an input")
