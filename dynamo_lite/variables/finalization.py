"""Finalization of objects where the program can observe it: ``__del__``, a generator's clean-up, a weak reference that
dies.

CPython finalizes an object at the instruction that drops the last reference to it. A trace drops no references: the
frame's arguments hold objects from outside until its code ends, and objects that the program removes from a container
or overwrites are removed only when the changes are replayed. So the trace watches each object from outside whose
finalization has an effect and to which this frame may hold the last reference: the instruction after which the traced
program no longer holds it runs in plain Python.

Invariant: which objects are watched depends on real objects as they are while tracing; an object that is neither
watched nor read by the trace stays referenced, and is never released early.
"""
from __future__ import annotations

import collections
import functools
import gc
import io
import itertools
import types
import weakref
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..exc import Unsupported
from .base import MISSING, LazyVariable, VariableTracker, instance_dict
from .constant import ConstantVariable
from .containers.iterators import IteratorAdapterVariable
from .functions.functions import BaseFunctionVariable
from .functions.generators import GeneratorVariable
from .objects.classes import is_made_by_python
from .objects.objects import ObjectVariable
from .objects.weakrefs import WeakrefVariable

if TYPE_CHECKING:
    from .protocols import Tracer

# Limits of a search for objects that are finalized together with an object that holds them: the number of objects
# examined, and the number of references followed, those to atoms included.
_MOST_PARTS = 300
_MOST_PASSED = 3000

# Classes whose instances are finalized without an observable effect and hold nothing that would be finalized with them.
_ATOMS = (
    str, bytes, int, float, complex, type(None), type(Ellipsis), type(NotImplemented), range, type, types.ModuleType,
    types.CodeType, types.FrameType, types.TracebackType, torch.dtype, torch.device, torch.layout, torch.memory_format,
    torch.Tensor, torch.nn.Module, torch.Size, torch.Generator,
)
# Classes in C whose instances are finalized without an effect other than the release of the objects that they hold.
_HOLDERS = (
    list, tuple, dict, set, frozenset, slice, types.FunctionType, types.MethodType, types.BuiltinFunctionType,
    types.CellType, types.MappingProxyType, enumerate, zip, map, filter, reversed, collections.deque,
    functools.partial, BaseException,
)
_HOLDER_MODULES = frozenset({
    "builtins", "collections", "functools", "operator", "re", "datetime", "decimal", "numpy", "types", "typing",
    "_thread", "_struct", "_contextvars", "contextvars", "array",
})
_ITERTOOLS = tuple(c for c in vars(itertools).values() if isinstance(c, type))
SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


def ends_with_effect(value: Any) -> bool:
    """Whether finalization of this object may have an effect: a finalizer of the user's, a generator's clean-up, the
    death of weak references to it, or the deallocator of a class in C, which may leave a mode of torch, close a file,
    or release a buffer that must not be resized meanwhile."""
    cls = type(value)
    if issubclass(cls, (*SUSPENDED, memoryview)):
        return True
    if is_made_by_python(cls):
        if hasattr(cls, "__del__") or issubclass(cls, io.IOBase):
            return True
    if issubclass(cls, _ATOMS):
        return False
    if weakref.getweakrefcount(value) > 0:
        return True
    if cls is weakref.ref:
        return value.__callback__ is not None  # its callback is no longer called
    if is_made_by_python(cls) or issubclass(cls, (*_HOLDERS, *_ITERTOOLS)):
        return False
    return cls.__module__.partition(".")[0] not in _HOLDER_MODULES


def _is_atom(value: Any) -> bool:
    """Whether the object's finalization is unobservable, so that a search does not follow its references."""
    cls = type(value)
    return issubclass(cls, _ATOMS) and not (is_made_by_python(cls) and ends_with_effect(value))


def _parts(value: Any) -> Iterable[Any]:
    """The objects to which an object refers."""
    if issubclass(type(value), types.FunctionType):
        return (*(value.__closure__ or ()), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    if issubclass(type(value), (types.BuiltinFunctionType, BaseException)):
        own = getattr(value, "__self__", None)
        return () if own is None else (own,)
    return gc.get_referents(value)


class Finalizable:
    """An object whose finalization has an effect.

    Args:
        value: the object.
        holders: the objects from which it is reachable, by id.
    """

    def __init__(self, value: Any, holders: dict[int, Any]) -> None:
        self.value = value
        self.holders = holders
        self.way: Way | None = None  # the path on which it was reached last

    def within(self, value: Any) -> bool:
        """Whether a real object is this one or holds it."""
        return value is self.value or id(value) in self.holders


class Way:
    """A reference path from a tracker that the frame holds to a finalizable object. It stays valid while the frame
    holds its first tracker and nothing on it has been changed. That is a cheap check; a walk over all objects of the
    trace after each instruction would take quadratic time.

    Args:
        steps: the trackers and real objects on the path, from the finalizable object to the first tracker.
    """

    def __init__(self, effects: Any, steps: list[Any]) -> None:
        self.root = steps[-1]
        self._trackers = {id(step): step for step in steps if issubclass(type(step), VariableTracker)}
        self._reals = [step for step in steps if not issubclass(type(step), VariableTracker)]
        # Generators and iterators over other iterators advance without being recorded as changed.
        moving = (GeneratorVariable, IteratorAdapterVariable)
        self._fixed = not any(isinstance(tracker, moving) for tracker in self._trackers.values())
        self._changes = effects.change_count()
        self._met = len(effects.all_tracked())

    def stands(self, effects: Any, roots: Collection[int]) -> bool:
        """Whether the path is still valid, given the ids of the trackers that the frame holds."""
        if not self._fixed or id(self.root) not in roots:
            return False
        if self._changes != effects.change_count():
            changed = effects.changed_since(self._changes)
            if changed is None or any(id(tracker) in self._trackers for tracker in changed):
                return False
            self._changes = effects.change_count()
        if self._met != len(effects.all_tracked()):
            if any(effects.tracker_of(real) is not None for real in self._reals):
                return False  # the object has got a tracker since, and may have been changed
            self._met = len(effects.all_tracked())
        return True


def finalizables_in(root: Any) -> list[Finalizable]:
    """The objects whose finalization has an effect, among `root` and the objects reachable from it."""
    return _search(root, _MOST_PASSED)[0]


def _search(root: Any, left: int) -> tuple[list[Finalizable], int]:
    """The same where at most `left` references are followed; also returns the number that remains of them."""
    if _is_atom(root):
        return [], left
    known: dict[int, Any] = {id(root): root}
    holders: dict[int, set[int]] = {id(root): set()}
    found: list[Any] = []
    pending = [root]
    while pending and len(known) < _MOST_PARTS:
        value = pending.pop()
        if ends_with_effect(value):
            found.append(value)
            continue
        for part in itertools.islice(_parts(value), left):
            left -= 1
            if _is_atom(part):
                continue
            if id(part) not in known:
                known[id(part)] = part
                holders[id(part)] = set()
                pending.append(part)
            holders[id(part)].add(id(value))
    return [Finalizable(value, {i: known[i] for i in _ancestors(id(value), holders)}) for value in found], left


def _ancestors(start: int, parents: dict[int, set[int]]) -> set[int]:
    seen: set[int] = set()
    pending = [start]
    while pending:
        for parent in parents[pending.pop()]:
            if parent not in seen:
                seen.add(parent)
                pending.append(parent)
    return seen


class Watch:
    """The finalizations that a captured frame may cause."""

    def __init__(self) -> None:
        self._finalizables: list[Finalizable] = []
        self._looked_at: dict[int, Any] = {}
        self._let_go: set[int] = set()
        self._given: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._finalizables)

    def add(self, *values: Any) -> None:
        """Watches the objects that would be finalized if the frame released these real objects. Each of them is
        examined; the limit on followed references applies to all of them together."""
        self._let_go.update(map(id, values))
        left = _MOST_PASSED
        for value in values:
            if id(value) in self._looked_at:
                continue  # real objects stay as they are while the trace goes on
            self._looked_at[id(value)] = value
            found, left = _search(value, left)
            self._finalizables += [e for e in found if not any(e.value is known.value for known in self._finalizables)]

    def add_arguments(self, values: Iterable[Any]) -> None:
        """The same for the frame's arguments, which nothing has released yet."""
        self.add(*values)
        self._let_go.clear()
        self._given = set(self._looked_at)

    def may_have_ended(self, tx: Tracer, value: Any) -> bool:
        """Whether an unwatched object (a tensor or module) may have been finalized, as the traced program has replaced
        it or no longer holds it; a weak reference to it may then be dead."""
        if id(value) not in self._let_go | self._given or ends_with_effect(value):
            return False
        return id(value) in self._let_go or not self._is_held(tx, value)

    def _is_held(self, tx: Tracer, value: Any) -> bool:
        """Whether a frame of the trace holds a real object, directly or by way of objects that the trace holds."""
        frames = tx.operators.frames_values()
        if any(_real_object(tracker) is value for tracker in frames):
            return True
        return self._way(tx.output.effects, frames, Finalizable(value, {})) is not None

    def check(self, tx: Tracer) -> None:
        """Breaks the graph before the instruction that has just been evaluated if it released a watched object.

        Raises:
            Unsupported: with the visit number of that instruction.
        """
        frame = frame_values(tx)
        held = set(map(id, frame))
        openly = {id(_real_object(tracker)) for tracker in frame}
        for finalizable in self._finalizables:
            if (
                id(finalizable.value) in openly
                or finalizable.way is not None
                and finalizable.way.stands(tx.output.effects, held)
            ):
                continue
            finalizable.way = self._way(tx.output.effects, frame, finalizable)
            if finalizable.way is None:
                text = f"{type(finalizable.value).__qualname__}, which ends here"
                raise Unsupported("end_of_life", text, user_stack=tx.user_stack(), visit=tx.visits - 1)

    @staticmethod
    def _way(effects: Any, frame: list[VariableTracker], finalizable: Finalizable) -> Way | None:
        """A path to the object from the values that the frame, or a changed object outside of it, holds now. It goes
        through trackers, and through real objects that have no tracker."""
        roots: list[Any] = [*frame, *effects.outside_values()]
        if finalizable.way is not None:
            last = finalizable.way.root
            roots.sort(key=lambda root: root is not last)
        seen: set[int] = set()
        for root in roots:
            steps = Watch._steps(effects, root, finalizable, seen)
            if steps:
                return Way(effects, steps)
        return None

    @staticmethod
    def _steps(effects: Any, root: VariableTracker, finalizable: Finalizable, seen: set[int]) -> list[Any]:
        """The steps of a path to the object from one tracker, empty if there is none. The search skips the ids in
        `seen` and adds those that it visits."""
        pending: list[tuple[Any, int]] = [(root, -1)]  # the object to visit, and its holder's index in `met`
        met: list[tuple[Any, int]] = []
        while pending:
            found, holder = pending.pop()
            if not issubclass(type(found), VariableTracker):  # isinstance would read __class__ of the user's objects
                known = effects.tracker_of(found)
                if known is None and found is not finalizable.value:
                    if id(found) in finalizable.holders and id(found) not in seen:
                        seen.add(id(found))
                        met.append((found, holder))
                        pending += ((part, len(met) - 1) for part in _parts(found))
                    continue
                met.append((found, holder))
                holder = len(met) - 1
                found = known
            if found is None or _real_object(found) is finalizable.value:
                steps = [] if found is None else [found]
                while holder >= 0:
                    step, holder = met[holder]
                    steps.append(step)
                return steps
            if id(found) in seen:
                continue
            seen.add(id(found))
            met.append((found, holder))
            here = len(met) - 1
            real = _real_object(found)
            if isinstance(found, LazyVariable):
                pending.append((real, here))
                continue
            written = effects.attributes_of(found)
            pending += ((v, here) for v in (*written.values(), *parts_of(found)) if v is not MISSING)
            if isinstance(found, ObjectVariable) and real is not None:
                own = instance_dict(real)
                if effects.tracker_of(own) is not None:
                    pending.append((own, here))
                pending += ((part, here) for part in _unwritten(effects, real, written))
            elif id(real) in finalizable.holders:
                pending += ((part, here) for part in _parts(real))
        return []


def _unwritten(effects: Any, value: Any, written: dict[str, Any]) -> Iterator[Any]:
    """The attributes of a real object that the trace has not set, except those in a dict that has its own tracker."""
    own = instance_dict(value) or {}
    if effects.tracker_of(own) is None:
        yield from (part for name, part in own.items() if name not in written)
    known = {id(own), *map(id, own.values())}
    yield from (part for part in gc.get_referents(value) if id(part) not in known)


def _real_object(tracker: VariableTracker) -> Any:
    """The real object behind a tracker, None for constants: reading the value of some of these adds a guard."""
    return None if isinstance(tracker, ConstantVariable) else tracker.value


# ---------------------------------------------------------------- references between trackers
def frame_values(frame: Any) -> list[VariableTracker]:
    """The trackers that a frame under evaluation holds: its stack, variables and handled exceptions."""
    handled = (e for e in frame.exceptions if e is not None)
    return [*frame.stack, *frame.locals.values(), *frame.cells.values(), *handled]


# Attributes in which trackers keep real objects: containers in these hold no trackers and may be large.
_REAL = ("value", "_value", "_globals", "_before", "_changes")


def parts_of(tracker: VariableTracker) -> list[VariableTracker]:
    """The trackers that a tracker holds, except for attributes that the trace has set on its object."""
    if isinstance(tracker, GeneratorVariable):
        if tracker.finished:
            return [tracker.returned]
        own = frame_values(tracker.frame) if tracker.started else list(tracker.arguments.values())
        return [tracker.function, *own, *tracker.frame.free_cells]
    if isinstance(tracker, WeakrefVariable):
        return []
    found: list[VariableTracker] = []
    pending: list[Any] = [part for name, part in vars(tracker).items() if name not in _REAL]
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        cls = type(value)  # not isinstance, which reads __class__ of the user's objects
        if issubclass(cls, VariableTracker):
            found.append(value)
        elif id(value) in seen:
            continue  # a real container that contains itself
        elif issubclass(cls, (dict, list, tuple, set, frozenset, collections.deque)):
            seen.add(id(value))
            pending += value
            if issubclass(cls, dict):
                pending += value.values()
    return found


def held_by(effects: Any, values: Iterable[VariableTracker]) -> dict[int, VariableTracker]:
    """All trackers that are reachable from `values`, these included, by id."""
    pending = list(values)
    seen: dict[int, VariableTracker] = {}
    while pending:
        tracker = pending.pop()
        if id(tracker) not in seen:
            seen[id(tracker)] = tracker
            # Constants and lazy values hold no trackers; a list may contain thousands of them.
            if isinstance(tracker, LazyVariable):
                known = effects.tracker_of(tracker.value)
                pending += [] if known is None else [known]
                continue
            if isinstance(tracker, ConstantVariable):
                continue
            pending += parts_of(tracker)
            pending += (v for v in effects.attributes_of(tracker).values() if v is not MISSING)
    return seen


def may_be_finalized(tracker: VariableTracker, points: bool) -> bool:
    """Whether plain Python that gets a reference to an object can make its finalization observable, by starting a
    generator, or by a weak reference or finalizer callback.

    Args:
        points: whether the program may create weak references. Without them the finalization of a tensor or module is
            unobservable, and it may be large.
    """
    if isinstance(tracker, (GeneratorVariable, IteratorAdapterVariable)):
        return True
    if isinstance(tracker, ConstantVariable):
        return False
    if isinstance(tracker, ObjectVariable) and tracker.source is None and tracker.exception is None:
        return True
    cls = type(tracker.value) if isinstance(tracker, LazyVariable) else tracker.python_type()
    if not cls.__weakrefoffset__ or issubclass(cls, type):
        return False
    return points or not issubclass(cls, _ATOMS)


def is_pointed_at(value: Any) -> bool:
    """Whether a value is a tensor or module with weak references, so that its finalization is observable."""
    return issubclass(type(value), (torch.Tensor, torch.nn.Module)) and weakref.getweakrefcount(value) > 0


def points_weakly(tracker: VariableTracker) -> bool:
    """Whether an object or function belongs to the module weakref, or is a function whose code names such an object
    among its globals, directly or in a function that it names. Plain Python may call it, as it does a comprehension
    that breaks."""
    if isinstance(tracker, BaseFunctionVariable):
        return _names_weakref(tracker.code(), tracker.globals()[0], True)
    return _is_of_weakref(_real_object(tracker))


# Their ids, so that no object of the program is compared with them.
_OF_WEAKREF = frozenset(map(id, (weakref, *filter(callable, vars(weakref).values()))))


def _is_of_weakref(value: Any) -> bool:
    return id(value) in _OF_WEAKREF or id(type(value)) in _OF_WEAKREF


def _names_weakref(code: types.CodeType, space: dict[str, Any], further: bool) -> bool:
    named = [dict.get(space, name) for name in code.co_names]
    if any(map(_is_of_weakref, named)):
        return True
    inside = (part for part in code.co_consts if isinstance(part, types.CodeType))
    return any(_names_weakref(part, space, further) for part in inside) or further and any(
        _names_weakref(f.__code__, f.__globals__, False) for f in named if type(f) is types.FunctionType)
