"""OrderedDicts from outside, which have attributes beside their entries (``_metadata`` of a module's state dict).

Invariant: each attribute that is read is guarded, and so is the absence of one; writes of attributes break the graph.
"""
from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from ...guards.source import InstanceDictSource, Source
from ..base import VariableTracker, wraps_type
from .dict_wrapping import dict_at
from .mappings import DictVariable
from .spaces import read_own, space_at

if TYPE_CHECKING:
    from ..protocols import Tracer


class OrderedDictVariable(DictVariable):
    """An OrderedDict from outside: its entries and its ``__dict__``.

    Args:
        real: the OrderedDict.
        entries: the tracker that holds its entries, made as for any dict from outside; nothing else refers to it.
    """

    def __init__(self, real: Any, entries: DictVariable) -> None:
        super().__init__(
            entries._entries, entries.source, entries.cls, guard_keys=entries._guard_keys)
        self._own: dict[str, Any] = vars(real)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        assert self.source is not None
        place = InstanceDictSource(self.source)
        if name == "__dict__":
            return space_at(tx, self._own, place)
        if not hasattr(self.cls, name):
            own = read_own(tx, self, self._own, place, name)
            if own is not None:
                return own
        return super().getattr(tx, name)


@wraps_type(collections.OrderedDict)
def _wrap_ordered_dict(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    return OrderedDictVariable(value, dict_at(tx, value, source, collections.OrderedDict))
