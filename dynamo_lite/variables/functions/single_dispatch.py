"""Generic functions of ``functools.singledispatch``: which implementation is called for an argument's class.

``dispatch`` looks the implementation up once for each class and keeps it in a dict of weak references. It is asked
while tracing, and again by a guard at each call. If its instructions were followed instead, the first call for a class
would break the graph, since it fills that dict, and all later calls would run the code with the break.

Invariant: the program can't tell when the dict was filled, since its entries follow from the registered classes alone
and it is emptied whenever one is registered. Where the trace has changed any of that, ``dispatch`` is followed.
"""
from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING

from ...guards.source import ConstSource
from ...polyfills.tracing import nested_code
from ...rules.table import looks_at
from ..base import VariableTracker, realized
from ..objects.classes import ClassVariable
from .functions import FunctionVariable

if TYPE_CHECKING:
    from ...guards.source import Source
    from ..protocols import Tracer

_DISPATCH = nested_code(functools.singledispatch.__code__, "dispatch")
_STATE = ("registry", "dispatch_cache")


class DispatchVariable(FunctionVariable):
    """The function ``dispatch`` of a generic function."""

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        cls = args[0].value if len(args) == 1 and type(args[0]) is ClassVariable else None
        if cls is None or kwargs or self._is_changed(tx):
            return super().call(tx, args, kwargs)
        found = tx.run_python(self.value, cls)
        if type(found) is not types.FunctionType:
            return super().call(tx, args, kwargs)  # a guard would compare it by a method of the program's
        assert self.source is not None
        tx.guard(self.source, "is", self.value)
        tx.guard_result(self.value, (cls,), found)
        return realized(tx, tx.values.wrap_at(found, ConstSource(found, found.__qualname__)))

    def _is_changed(self, tx: Tracer) -> bool:
        """Whether the trace has registered a class, so that the real function does not know of it yet."""
        cells = dict(zip(self.value.__code__.co_freevars, self.value.__closure__ or ()))
        state = [cells[name].cell_contents for name in _STATE]
        state += [vars(state[1]).get("data")]
        return any(changed is part for changed in tx.output.effects.changed_objects() for part in state)


@looks_at(_DISPATCH)
def _dispatch(tx: Tracer, value: types.FunctionType, source: Source) -> VariableTracker:
    """The tracker of a generic function's ``dispatch``."""
    tx.guard(source, "code_is", value.__code__)
    return DispatchVariable(value, source)
