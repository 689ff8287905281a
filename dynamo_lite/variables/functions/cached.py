"""Functions under ``functools.lru_cache``.

Invariant: a cached function is called while tracing only for known arguments, and a guard calls it again to check that
the result is the same. A cached result is one object, which the program may mutate or compare by identity.
"""
from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...guards.source import AttrSource, ComputedSource, ConstSource, Source, WeakrefSource
from ..base import MISSING, VariableTracker, instance_dict, realized, unsupported, wraps_type
from ..constant import is_constant_value
from ..containers.mappings import DictVariable
from ..containers.sequences import ListVariable, TupleVariable
from ..containers.sets import SetVariable
from ..deferred_calls import defer_call
from ..numbers.scalars import ScalarVariable
from ..objects.objects import ObjectVariable
from ..real_object import RealObjectVariable
from .cached_calls import TUPLES, CachedCall, Open, Parts
from .cached_effects import may_change_something
from .cached_sizes import call_source, can_be_open, with_expressions

if TYPE_CHECKING:
    from ..protocols import Tracer

class CachedFunctionVariable(RealObjectVariable):
    """A function under ``functools.lru_cache`` or ``functools.cache``."""

    def describe(self) -> str:
        return f"cached function {getattr(self.value, '__qualname__', self.value)}"

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        """Calls the cached function if the arguments are known; otherwise evaluates the function inside the cache, if
        the program can't observe the difference."""
        for argument in _elements([*args, *kwargs.values()]):
            if isinstance(argument, ScalarVariable):
                argument.refuse("an argument of a cached function")
            if _is_new(argument):
                # The cache keeps the result of the first call even if the object changes.
                what = f"{self.describe()} keeps what it gives for {argument.describe()}, made here"
                unsupported("call_skipped", what)
        sized = all(map(_is_known, (*args, *kwargs.values()))) and (
            can_be_open(tx, self.value.__wrapped__, [*_elements([*args, *kwargs.values()])]))
        constant = not sized and all(a.is_constant() for a in (*args, *kwargs.values()))
        if constant and not may_change_something(self.value.__wrapped__):
            return self._ask(tx, tuple(a.constant() for a in args), {k: v.constant() for k, v in kwargs.items()})
        calls, unchanged = tx.output.effects.calls, _is_as_at_entry(tx.output)
        begun, operations, nodes = len(calls), tx.output.operations, len(tx.output.graph.nodes)
        with tx.output.effects.watched() as touched:
            result = tx.call(self._inside(tx), args, kwargs)
        if len(calls) > begun:
            # The function logs once for these arguments, so the cached function itself is called after the graph.
            if not result.is_none():
                unsupported("print_or_log", f"{self.describe()} logs and returns something")
            del calls[begun:]
            defer_call(tx, self.value, args, kwargs)
        elif any(t is None or t.source is not None for t in touched):
            unsupported("call_skipped", f"{self.describe()} changes something, once for these arguments")
        elif constant:
            if len(tx.output.graph.nodes) > nodes:
                unsupported("call_skipped", f"{self.describe()} draws random numbers or makes tensors, once")
            return self._ask(tx, tuple(a.constant() for a in args), {k: v.constant() for k, v in kwargs.items()})
        elif tx.output.operations == operations and all(map(_is_known, (*args, *kwargs.values()))):
            return self._ask_for_objects(tx, args, kwargs, result)
        elif unchanged and not sized and all(map(_is_known, (*args, *kwargs.values()))) and not any(
                node.meta.get("impure") for node in list(tx.output.graph.nodes)[nodes:]):
            # It makes tensors, once, of what is there already; the nodes that were recorded here have no use.
            return self._ask_known(tx, args, kwargs, _known_arguments(args, kwargs), result)
        elif sized or not (result.is_constant() and is_constant_value(result.constant())):
            # The cache returns the same object each time, which may have been changed since.
            unsupported("call_skipped", f"{self.describe()} keeps an object, for {_first_unknown(args, kwargs)}")
        return result

    def _ask_for_objects(
        self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker], result: VariableTracker
    ) -> VariableTracker:
        """The cached result for objects of the program and symbolic sizes, if it equals `result`, the result of the
        function itself."""
        known = _known_arguments(args, kwargs)
        # The function itself is called first, as that leaves the cache unchanged: the program may have changed state
        # that the function reads, and a call of the cached function now would keep a result from before that change.
        for function in (self.value.__wrapped__, self.value):
            if not _Comparison(tx).stands_for(result, tx.run_python(CachedCall(function, *known).ask)):
                if all(a.is_constant() for a in (*args, *kwargs.values())):
                    break  # only sizes: the cache is called for these constants below
                what = "keeps what was made before a change" if function is self.value else "reads what was changed"
                unsupported("call_skipped", f"{self.describe()} {what}, for {_first_unknown(args, kwargs)}")
        else:
            return self._ask_known(tx, args, kwargs, known, result)
        return self._ask(tx, tuple(a.constant() for a in args), {k: v.constant() for k, v in kwargs.items()})

    def _ask_known(
        self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker], known: tuple[Any, Any],
        result: VariableTracker,
    ) -> VariableTracker:
        """The same, where `result` is known to equal the cached result; `known` are the arguments of this call."""
        given = [a for a in _elements([*args, *kwargs.values()]) if a.is_symbolic or not a.is_constant()]
        sized = any(a.is_symbolic for a in given)
        if sized or len(given) == 1 and given[0] in (*args, *kwargs.values()):
            # At each call the cache is called with the argument of that call, so that another object with an equal
            # result needs no other graph.
            return self._at_open_call(tx, args, kwargs, given, result if sized else None)
        for argument in given:
            assert argument.source is not None
            tx.guard(argument.source, "tensor_same", WeakrefSource(_reference(argument)))
        return self._at_cache(tx, CachedCall(self.value, *known))

    def _at_open_call(
        self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker],
        given: list[VariableTracker], made: VariableTracker | None,
    ) -> VariableTracker:
        """The cached result, where each call passes its own objects and sizes for those in `given`; the numbers in the
        result are the expressions in `made`."""
        opened = tuple(_opened(a, given) for a in args), {name: _opened(a, given) for name, a in kwargs.items()}
        asked = CachedCall(self.value, *opened)
        value = asked.ask(*(a.example() if a.is_symbolic else a.value for a in given))
        if made is None:
            where = given[0].source
            assert where is not None
            return realized(tx, tx.values.wrap_at(value, ComputedSource(where, asked, asked.words(where.name))))
        kept = tx.values.wrap_at(value, call_source(tx, asked, given))
        return with_expressions(tx, made, kept)

    def _inside(self, tx: Tracer) -> VariableTracker:
        inside = self.value.__wrapped__
        if type(inside) is types.FunctionType:
            return tx.values.library_function(inside)
        where = ConstSource(self.value, self.describe())
        return realized(tx, tx.values.wrap_at(inside, AttrSource(where, "__wrapped__")))

    def _ask(self, tx: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> VariableTracker:
        """The cached result for known arguments; guards call the cached function again at each call."""
        result = tx.run_python(self.value, *args, **kwargs)
        if is_constant_value(result) and not kwargs:
            tx.guard_result(self.value, args, result)
            return tx.values.from_result(result, self.describe())
        return self._at_cache(tx, CachedCall(self.value, args, kwargs))

    def _at_cache(self, tx: Tracer, asked: CachedCall) -> VariableTracker:
        """The tracker of a cached result, with a source through which guards reach it."""
        source = AttrSource(ConstSource(asked, asked.words()), "result")
        return realized(tx, tx.values.wrap_at(asked.result, source))

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name in ("cache_info", "cache_clear", "cache_parameters"):
            unsupported("unsupported_attribute", f"{self.describe()}.{name}")
        return super().getattr(tx, name)


def _elements(arguments: Iterable[VariableTracker]) -> Iterator[VariableTracker]:
    """The arguments, with tuples replaced by their elements."""
    for argument in arguments:
        if _is_tuple(argument):
            yield from _elements(argument.items)  # type: ignore[attr-defined]
        else:
            yield argument


def _is_new(argument: VariableTracker) -> bool:
    """Whether an argument is an object that was made in the trace."""
    return argument.source is None and isinstance(argument, ObjectVariable)


def _is_tuple(argument: VariableTracker) -> bool:
    if not isinstance(argument, TupleVariable) or argument.python_type() not in TUPLES:
        return False
    return not argument.is_constant() or any(part.is_symbolic for part in _elements(argument.items))


def _is_known(argument: VariableTracker) -> bool:
    """Whether a cache can find an argument again: constants, sizes, objects from outside that compare by identity, and
    tuples of these."""
    if argument.is_constant():
        return True
    if _is_tuple(argument):
        return all(map(_is_known, argument.items))  # type: ignore[attr-defined]
    value = argument.value
    cls = type(value)
    return argument.source is not None and value is not None and cls.__hash__ is object.__hash__ and (
        cls.__eq__ is object.__eq__ and cls.__weakrefoffset__ != 0 and not isinstance(value, type))


def _real(argument: VariableTracker) -> Any:
    if argument.is_symbolic:
        return argument.example()
    if _is_tuple(argument):
        return Parts(argument.python_type(), [_real(part) for part in argument.items])  # type: ignore[attr-defined]
    return argument.constant() if argument.is_constant() else weakref.ref(argument.value)


def _known_arguments(
    args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(map(_real, args)), {name: _real(a) for name, a in kwargs.items()}


def _is_as_at_entry(output: Any) -> bool:
    """Whether a function that is called now, while tracing, finds what it finds when the program calls it: the trace
    has changed no object or tensor from outside and no state of torch, and is in no function that torch calls."""
    return not (output.effects.has_changes() or output.written_storages or output.rebound or output.state_changes()
                or output.open_modes or output.parts or output.examples)


def _opened(argument: VariableTracker, given: list[VariableTracker]) -> Any:
    if _is_tuple(argument):
        parts = [_opened(part, given) for part in argument.items]  # type: ignore[attr-defined]
        return Parts(argument.python_type(), parts)
    return Open(given.index(argument)) if argument in given else _real(argument)


def _reference(argument: VariableTracker) -> Source:
    return ConstSource(_real(argument), f"a weak reference to {argument.source.name}")  # type: ignore[union-attr]


class _Comparison:
    """A structural comparison of a result made in the trace with a cached result: both have to consist of the same
    objects from outside and equal constants, in containers and new objects that correspond one to one."""

    def __init__(self, tx: Tracer) -> None:
        self.tx = tx
        self.met: dict[int, Any] = {}  # the values to which trackers of containers correspond, by the trackers' ids

    def stands_for(self, tracker: VariableTracker, value: Any) -> bool:
        """Whether `tracker` corresponds to `value`."""
        tracker = realized(self.tx, tracker)
        if tracker.source is not None and not tracker.is_constant():
            return self.tx.output.effects.tracker_of(value) is tracker
        if tracker.is_symbolic:
            return type(value) is int and value == tracker.example()
        if tracker.is_constant() and not isinstance(tracker, TupleVariable):
            return type(value) is type(tracker.constant()) and value == tracker.constant()
        if id(tracker) in self.met:
            return self.met[id(tracker)] is value
        self.met[id(tracker)] = value
        return type(value) is tracker.python_type() and self._same_parts(tracker, value)

    def _same_parts(self, tracker: VariableTracker, value: Any) -> bool:
        if isinstance(tracker, (TupleVariable, ListVariable)) and type(value) in (list, *TUPLES):
            return len(tracker.items) == len(value) and all(map(self.stands_for, tracker.items, value))
        if isinstance(tracker, DictVariable) and type(value) is dict:
            keys, values = tracker.keys(), tracker.values(self.tx)
            return len(keys) == len(value) and all(map(self.stands_for, keys, value)) and (
                all(map(self.stands_for, values, value.values())))
        if isinstance(tracker, SetVariable):
            constants = all(member.is_constant() for member in tracker.members.values())
            return constants and {member.constant() for member in tracker.members.values()} == value
        if isinstance(tracker, ObjectVariable) and tracker.content is None:
            made, own = self.tx.output.effects.attributes_of(tracker), instance_dict(value)
            if own is None or self.tx.classes.lookup(tracker.cls, "__slots__") is not None or made.keys() != own.keys():
                return False
            return all(part is not MISSING and self.stands_for(part, own[name]) for name, part in made.items())
        return False


def _first_unknown(args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> str:
    return next(a for a in _elements([*args, *kwargs.values()]) if not a.is_constant()).describe()


@wraps_type(functools._lru_cache_wrapper)
def _wrap_cached_function(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return CachedFunctionVariable(value, source)
