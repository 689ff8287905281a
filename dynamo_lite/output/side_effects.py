"""Side effects: the traced program's changes to objects that exist outside the trace, or that outlive it.

Objects are looked up by identity, so that one object has one tracker. While tracing, changes are made to trackers.
Generated code replays them after the graph: on attributes, on the contents of lists, dicts, sets and cells, on globals.

Invariant: a real object is never changed while tracing.
"""
from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..exc import Unsupported
from ..guards import GuardSet
from ..guards.source import BASES, OWN_DICT, DictItemSource, LocalSource, Source
from ..variables.base import MISSING, IteratorVariable, VariableTracker, instance_dict, realized
from ..variables.cells import CellVariable
from ..variables.constant import ConstantVariable
from ..variables.containers.mappings import DictVariable
from ..variables.containers.resumed_loops import LoopIteratorVariable
from ..variables.containers.sequences import ListVariable
from ..variables.containers.sets import SetVariable
from ..variables.containers.spaces import dict_in, dict_source, set_anew, space_at
from ..variables.deferred_calls import DeferredCall
from ..variables.finalization import Watch, finalizables_in, parts_of
from ..variables.functions.generators import GeneratorVariable
from ..variables.objects.classes import class_dict, is_in_dict
from ..variables.objects.context_vars import ContextVarVariable

if TYPE_CHECKING:
    from ..variables.protocols import Codegen, Tracer

_REPLACED = (ListVariable, DictVariable, SetVariable, CellVariable)


class SideEffects:
    """The trackers of real objects, and the changes made to them in this trace."""

    def __init__(self) -> None:
        self._trackers: dict[int, tuple[Any, VariableTracker]] = {}
        self._attributes: dict[int, tuple[VariableTracker, dict[str, Any]]] = {}
        self._mutated: dict[int, VariableTracker] = {}
        self._globals: dict[int, tuple[dict[str, Any], Source, dict[str, Any]]] = {}
        # Attribute dicts and globals. `_keepers`: dicts whose owner ("keeper") has written to them, and the owner;
        # `_spaces`: dicts that the trace has looked into.
        self._keepers: dict[int, tuple[dict[str, Any], VariableTracker | None]] = {}
        self._spaces: dict[int, tuple[dict[str, Any], Source]] = {}
        self._watched: set[int] = set()  # trackers whose parts are all in `watch`
        self._raised: dict[int, tuple[VariableTracker, int]] = {}
        self._touched: list[VariableTracker | None] = []
        self.calls: list[DeferredCall] = []
        # By the id of a module from outside: the hooks before and after its forward that the trace has registered.
        self.added_hooks: dict[int, tuple[list[VariableTracker], list[VariableTracker]]] = {}
        self.hooked_calls: list[int] = []  # ids of the modules that are being called with hooks
        self._generators: list[tuple[GeneratorVariable, int]] = []
        self._classes: dict[int, VariableTracker] = {}  # classes with attributes that the trace has set, by id
        self._class_names: set[str] = set()  # names of these attributes
        self.watch = Watch()
        self._proxied: list[Any] = []
        self._behind_calls: dict[int, Any] = {}  # objects that deferred calls may change, by id
        self._iterated: list[tuple[Any, Source]] = []  # lists from outside that were iterated without a tracker
        self.cells: list[CellVariable] = []  # cells of functions that the trace evaluates
        self.epoch = 0

    # -- identity
    def tracker_of(self, value: Any) -> VariableTracker | None:
        """The tracker of a real object that has been met in this trace."""
        known = self._trackers.get(id(value))
        return known[1] if known is not None else None

    def check_unchanged(self, value: Any, tracker: VariableTracker) -> None:
        """Refuses a look at an object that a deferred call may change."""
        if id(value) in self._behind_calls:
            raise Unsupported("side_effect_unsupported", f"{tracker.describe()}, which a call before may have changed")

    def track(self, value: Any, tracker: VariableTracker) -> VariableTracker:
        """Records that `tracker` stands for `value`, and keeps `value` alive so that its id stays unique."""
        self.check_unchanged(value, tracker)
        self._trackers[id(value)] = (value, tracker)
        return tracker

    def all_tracked(self) -> Collection[tuple[Any, VariableTracker]]:
        """The real objects that have been met, with their trackers."""
        return self._trackers.values()

    def is_tracked(self, value: Any) -> bool:
        """Whether an object's contents may have been changed in this trace."""
        known = self.tracker_of(value)
        return known is not None and not self._mutated.keys().isdisjoint((id(known), id(dict_in(known))))

    def forget(self) -> None:
        """Drops all objects and trackers. To be called when the trace has ended."""
        # A function and a cell that holds it form a reference cycle.
        self.cells += (tracker for _, tracker in self._trackers.values() if isinstance(tracker, CellVariable))
        for cell in self.cells:
            cell.contents = MISSING
        for known in vars(self).values():
            if isinstance(known, (dict, list, set)):
                known.clear()
        self.watch = Watch()

    # -- parts of a trace
    def forget_trackers(self) -> tuple[dict[int, tuple[Any, VariableTracker]], dict[int, Any]]:
        """Forgets the trackers, so that every object from outside is wrapped and guarded anew. The result is the
        argument for :meth:`remember_trackers`."""
        known = self._trackers, self._keepers
        self._trackers, self._keepers = {}, {}
        return known

    def remember_trackers(self, known: tuple[dict[int, tuple[Any, VariableTracker]], dict[int, Any]]) -> None:
        """Restores the trackers from before :meth:`forget_trackers`."""
        trackers, keepers = known
        # A new tracker of a dict lacks its keeper's earlier writes, so it is dropped.
        new = {key: entry for key, entry in self._trackers.items() if key not in trackers and key not in keepers}
        trackers.update(new)
        keepers.update((key, entry) for key, entry in self._keepers.items() if key not in keepers)
        self._trackers, self._keepers = trackers, keepers

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[VariableTracker | None]]:
        """Collects the trackers that are changed inside the context; None stands for globals."""
        outer, self._touched = self._touched, []
        try:
            yield self._touched
        finally:
            outer += self._touched
            self._touched = outer

    # -- changes
    def changed_objects(self) -> Iterator[Any]:
        """The objects from outside whose attributes or contents have changed, and the dicts of changed globals."""
        changed = (*(tracker for tracker, _ in self._attributes.values()), *self._mutated.values())
        yield from (tracker.value for tracker in changed if tracker.source is not None)
        yield from (space for space, _, _ in self._globals.values())

    def add_deferred(self, call: DeferredCall, behind: Iterable[Any]) -> None:
        """Schedules a call for the generated code.

        Args:
            behind: objects that the call may change. The trace must not look at them.
        """
        for value in behind:
            if self.tracker_of(value) is not None:
                raise Unsupported("side_effect_unsupported", f"a call that may change a {type(value).__qualname__}")
            self._behind_calls[id(value)] = value
        self.add_call(call)

    def change_count(self) -> int:
        """How many changes have been announced."""
        return len(self._touched)

    def changed_since(self, count: int) -> list[VariableTracker | None] | None:
        """The changes since `change_count` returned `count`; None: unknown."""
        return self._touched[count:] if count <= len(self._touched) else None

    def mutate(self, tracker: VariableTracker, replaced: Sequence[VariableTracker] | None = None) -> None:
        """Announces a change to the contents of a list, dict, set or cell; `replaced`: the values removed, if known."""
        self.epoch += 1
        self._touched.append(tracker)
        if any(self.tracker_of(mapping) is tracker for mapping in self._proxied):
            raise Unsupported("side_effect_unsupported", f"a change of {tracker.describe()}, read through a proxy too")
        if tracker.source is not None and id(tracker) not in self._watched:
            if replaced is None:
                self._watched.add(id(tracker))
                replaced = parts_of(tracker)
            self.watch.add(*(part.value for part in replaced if not part.is_constant()))
            self._mutated[id(tracker)] = tracker

    def is_mutated(self, tracker: VariableTracker) -> bool:
        """Whether the contents of an object from outside have been changed."""
        return id(tracker) in self._mutated

    def note_iterated(self, container: Any, source: Source) -> None:
        """Announces that the trace relies on the current contents of a list or dict from outside that has no tracker.
        """
        if isinstance(container, dict):
            self.note_read(container, source)
        else:
            self._iterated.append((container, source))

    def note_proxied(self, mapping: Any) -> None:
        """Announces that the trace reads a mapping through a ``mappingproxy``, which is guarded by identity."""
        if self.is_tracked(mapping) or any(mapping is class_dict(t.value) for t in self._classes.values()):
            raise Unsupported("side_effect_unsupported", "reading a changed mapping through a proxy")
        self._proxied.append(mapping)

    def advance(self, tracker: VariableTracker) -> None:
        """Announces a change to an object that exists only in the trace, such as the position of an iterator."""
        self.epoch += 1
        self._touched.append(tracker)

    def attributes_of(self, tracker: VariableTracker) -> dict[str, Any]:
        """The attributes written in this trace: a map from name to tracker, or to MISSING if deleted."""
        entry = self._attributes.get(id(tracker))
        return entry[1] if entry is not None else {}

    def load_attr(self, tracker: VariableTracker, name: str) -> Any:
        """The value of a written attribute; None if it has been deleted."""
        value = self._attributes[id(tracker)][1][name]
        return None if value is MISSING else value

    def written_attributes(self) -> dict[int, dict[str, Any]]:
        """A copy of the attributes written so far, for :meth:`is_as_before`."""
        return {key: dict(written) for key, (_, written) in self._attributes.items()}

    def stored(self) -> Iterator[tuple[Source, Any, VariableTracker]]:
        """Writes to attributes that objects from outside already had: source, value before the trace, new tracker."""
        for tracker, written in self._attributes.values():
            real, source = instance_dict(tracker.value), dict_source(tracker)
            if tracker.source is not None and real is not None and source is not None:
                for name, value in written.items():
                    if value is not MISSING and name in real:
                        yield DictItemSource(source, name), real[name], value

    def is_as_before(self, tracker: VariableTracker, before: dict[int, dict[str, Any]]) -> bool:
        """Whether an object from outside holds the same values as when `before` was taken."""
        real = instance_dict(tracker.value)
        if tracker.source is None or real is None or id(tracker) in self._mutated:
            return False
        earlier = before.get(id(tracker), {})
        for name, value in self.attributes_of(tracker).items():
            if name in earlier:
                held = earlier[name]
                if value is not held and not (_is_constant(value) and _is_constant(held)
                                              and value.constant() is held.constant()):
                    return False
            elif not _is_constant(value) or name not in real or value.constant() is not real[name]:
                return False
        return True

    def store_attr(self, tracker: VariableTracker, name: str, value: Any) -> None:
        """Announces that an attribute is set, or deleted if `value` is MISSING."""
        self.epoch += 1
        tracker.changed_at = self.epoch
        self._touched.append(tracker)
        written = self._attributes.setdefault(id(tracker), (tracker, {}))[1]
        if tracker.source is not None and name not in written:
            real = tracker.value
            self.watch.add(_attribute(real, name))
            space = instance_dict(real)
            if space is not None and is_in_dict(type(real), name):
                self._keepers.setdefault(id(space), (space, tracker))
        if value is MISSING or written.get(name, MISSING) is MISSING:
            written.pop(name, None)  # a new attribute comes last; an existing one keeps its position
        if value is not MISSING or tracker.source is not None:
            written[name] = value

    # -- dicts of attributes and globals
    def space_of(
        self, tx: Tracer, keeper: VariableTracker | None, real: dict[str, Any] | None, source: Source | None
    ) -> DictVariable | None:
        """The tracker of an attribute dict that the program also reaches as a dict; None while it does not.

        Args:
            keeper: the object that owns the dict; None for a frame's globals.
            real: the dict; None if the object was made in the trace.
            source: the source of the dict.
        """
        if real is None:
            return keeper.own_dict if keeper is not None else None
        assert source is not None
        key = id(real)
        if key not in self._spaces:
            self._spaces[key] = (real, source)
        if key not in self._trackers and (key not in self._keepers or self._keepers[key][1] is keeper):
            return None
        return space_at(tx, real, source)

    def note_read(self, real: dict[str, Any], source: Source) -> None:
        """Records that the trace has looked into a dict that has no tracker."""
        self._spaces.setdefault(id(real), (real, source))

    def is_kept(self, value: Any) -> bool:
        """Whether a keeper has written to a dict that has no tracker yet."""
        return id(value) in self._keepers

    def take_over(self, tx: Tracer, real: dict[str, Any], tracker: VariableTracker) -> None:
        """Moves the keeper's writes to a dict into the dict's own tracker."""
        keeper = self._keepers.pop(id(real))[1]
        space = dict_in(tracker)
        assert space is not None and tracker.source is not None
        known = self._spaces[id(real)][1]
        if known != tracker.source:
            tx.guard(known, "tensor_same", tracker.source)
        if keeper is None:
            written = self._globals.pop(id(real))[2]
        else:
            held = self.attributes_of(keeper)
            cls = type(keeper.value)
            written = {name: held.pop(name) for name in list(held) if is_in_dict(cls, name)}
        for name, value in written.items():
            key = ConstantVariable(name)
            if value is not MISSING:
                space.store(tx, key, value)
            elif space.contains(tx, key):
                space.delitem(tx, key)

    # -- attributes of classes
    def store_class_attribute(
        self, cls: type, name: str, value: VariableTracker, make: Callable[[], VariableTracker]
    ) -> None:
        """Announces that an attribute of a class from outside is set. A class may have several trackers; the first
        tracker from `make` holds all changes to the class.

        Raises:
            Unsupported: the replaced value has a finalizer, whose time the program could observe.
        """
        if any(mapping is class_dict(cls) for mapping in self._proxied):
            raise Unsupported("side_effect_unsupported", f"setting {cls.__qualname__}.{name}, read through a proxy too")
        holder = self._classes.get(id(cls)) or self._classes.setdefault(id(cls), make())
        if name not in self.attributes_of(holder) and finalizables_in(OWN_DICT(cls).get(name)):
            raise Unsupported("end_of_life", f"what {cls.__qualname__}.{name} has been")
        self._class_names.add(name)
        self.store_attr(holder, name, value)

    def class_attribute(self, cls: type, name: str) -> VariableTracker | None:
        """The value of a class's attribute that was set in this trace; None if lookup finds the value from before."""
        if name not in self._class_names:
            return None
        for base in BASES(cls):
            holder = self._classes.get(id(base))
            if holder is not None and name in self.attributes_of(holder):
                return self.attributes_of(holder)[name]
            if name in OWN_DICT(base):
                return None
        return None

    def sets_class_attributes(self) -> bool:
        """Whether the trace has set an attribute of a class from outside."""
        return bool(self._class_names)

    def add_call(self, call: DeferredCall) -> None:
        """Announces a call that the generated code makes after the graph."""
        self.epoch += 1
        self._touched.append(None)
        self.calls.append(call)

    # -- exceptions
    def note_raised(self, tracker: VariableTracker, visit: int) -> None:
        """Records that the root's n-th instruction raised an exception, which therefore has a traceback."""
        self._raised.setdefault(id(tracker), (tracker, visit))

    def check_traceback(self, tracker: VariableTracker) -> None:
        """Refuses to rebuild an exception that was raised in the trace. Raised natively, it gets its traceback.

        Raises:
            Unsupported: with the visit at which to break so that it is raised natively.
        """
        if id(tracker) in self._raised:
            visit = self._raised[id(tracker)][1]
            raise Unsupported("exception_handling", "an exception that is kept has a traceback", visit=visit)

    def check_outer_tracebacks(self) -> None:
        """Refuses exceptions from outside the trace that were raised again: their tracebacks would lack entries."""
        for tracker, _ in self._raised.values():
            if tracker.source is not None:
                self.check_traceback(tracker)

    # -- generators
    def note_started(self, generator: GeneratorVariable, visit: int) -> None:
        """Records that the root's n-th instruction started a generator."""
        self._generators.append((generator, visit))

    def check_generators(self) -> None:
        """Refuses to end a trace while a generator is suspended inside ``try`` or ``with``: its clean-up code runs when
        the program drops it, at a time that the trace can't know.

        Raises:
            Unsupported: with the visit at which to break so that the generator runs natively.
        """
        for generator, visit in self._generators:
            if generator.has_clean_up():
                raise Unsupported("generator_frame", f"{generator.describe()}, left inside try or with", visit=visit)

    # -- globals
    def load_global(self, tx: Tracer, space: dict[str, Any], source: Source, name: str) -> Any:
        """A global that was written in this trace; None if it was not written, MISSING if it was deleted."""
        known = self.space_of(tx, None, space, source)
        if known is not None:
            return known.lookup(tx, ConstantVariable(name)) or MISSING
        entry = self._globals.get(id(space))
        if entry is None or name not in entry[2]:
            return None
        value = entry[2][name]
        return value if value is MISSING else realized(tx, value)

    def store_global(self, tx: Tracer, space: dict[str, Any], source: Source, name: str, value: Any) -> None:
        """Announces that a global is set, or deleted if `value` is MISSING."""
        known = self.space_of(tx, None, space, source)
        if known is None and value is not MISSING and id(space) in self._globals:
            if self._globals[id(space)][2].get(name) is MISSING:
                known = set_anew(tx, space, source, name)
        if known is not None:
            if value is MISSING:
                known.delitem(tx, ConstantVariable(name))
            else:
                known.store(tx, ConstantVariable(name), value)
            return
        self._keepers.setdefault(id(space), (space, None))
        self.epoch += 1
        self._touched.append(None)
        written = self._globals.setdefault(id(space), (space, source, {}))[2]
        if name not in written:
            self.watch.add(space.get(name))
        if written.get(name) is MISSING:
            written.pop(name, None)  # see store_attr
        written[name] = value

    # -- values that stay reachable
    def outside_values(self) -> Iterator[VariableTracker]:
        """Changed objects that are reachable from elsewhere than the frame's arguments, and the values stored there."""
        for tracker in self._mutated.values():
            if not _of_frame(tracker.source):
                yield tracker
        for tracker, written in self._attributes.values():
            if tracker.source is not None and not _of_frame(tracker.source):
                yield from (value for value in written.values() if value is not MISSING)
        for _, _, written in self._globals.values():
            yield from (value for value in written.values() if value is not MISSING)
        for call in self.calls:
            yield from (*call.args, *call.kwargs.values())

    # -- replay
    def has_changes(self) -> bool:
        """Whether generated code has anything to replay."""
        if self.calls or self._mutated or self._globals:
            return True
        return any(tracker.source is not None for tracker, _ in self._attributes.values())

    def changed_names(self) -> list[str]:
        """The user's names of everything outside the function that the generated code changes."""
        names = [t.source.name for t in self._mutated.values() if t.source is not None]
        for tracker, written in self._attributes.values():
            if tracker.source is not None:
                names += [f"{tracker.source.name}.{name}" for name in written]
        return names + [name for _, _, written in self._globals.values() for name in written]

    def guard_distinct(self, guards: GuardSet) -> None:
        """Guards that changed objects are distinct from the other objects of their type in later calls, too."""
        self._guard_spaces(guards)
        changed = [t for t in self._mutated.values() if t.source is not None and not isinstance(t, DictVariable)]
        changed += [
            t for t, written in self._attributes.values()
            if t.source is not None and any(not is_in_dict(type(t.value), name) for name in written)
        ]
        for tracker in changed:
            if tracker.is_constant():
                continue  # a module or class, guarded by identity
            if isinstance(tracker, ListVariable) and tracker.source is not None:
                for real, source in self._iterated:
                    known = self.tracker_of(real)  # tracks an object of a subclass, whose content is the list
                    if known is not tracker and (known is None or known.content is not tracker):
                        guards.add(tracker.source, "not_same", source)
            for _, other in self._trackers.values():
                if other is tracker or other.source is None or tracker.source is None:
                    continue
                if type(other) is not type(tracker):
                    continue
                if other.python_type() is tracker.python_type() and other.source != tracker.source:
                    guards.add(tracker.source, "not_same", other.source)

    def _guard_spaces(self, guards: GuardSet) -> None:
        """Guards that a changed dict is distinct from all dicts that were read, under whatever name."""
        found = {key: source for key, (_, source) in self._spaces.items()}
        for real, tracker in self._trackers.values():
            space = dict_in(tracker)
            if space is not None and tracker.source is not None:
                found[id(real)] = tracker.source
        trackers = self._trackers.values()
        changed = {id(real): tracker.source for real, tracker in trackers if id(dict_in(tracker)) in self._mutated}
        for key, (_, keeper) in self._keepers.items():
            if keeper is None or self.attributes_of(keeper):
                changed[key] = found.get(key)
        sources = [found[key] for key in changed if key in found]
        for source in sources:
            for mapping in self._proxied:
                guards.add(source, "is_not", mapping)
        count = len(sources)
        sources += [source for key, source in found.items() if key not in changed and not source.is_frozen]
        if count and len(sources) > 1:
            guards.add(sources[0], "apart", count, *sources[1:])

    def replay(self, cg: Codegen) -> None:
        """Emits the changes. All values are computed before any object is changed, so that order does not matter."""
        stores: list[Any] = []
        for tracker in sorted(self._mutated.values(), key=lambda tracker: tracker.replayed):
            stores.append(self._prepare_contents(cg, tracker))
        for tracker, written in self._attributes.values():
            if tracker.source is not None and written:
                stores.append(self._prepare_attributes(cg, tracker, written))
        for space, source, written in self._globals.values():
            stores.append(self._prepare_globals(cg, space, source, written))
        for store in stores:
            store()
        for call in self.calls:
            call.emit(cg)

    def _prepare_contents(self, cg: Codegen, tracker: VariableTracker) -> Any:
        if isinstance(tracker, CellVariable):
            if tracker.contents is MISSING:
                return lambda: cg.delete_cell(tracker)
            held = cg.hold(tracker.contents)
            return lambda: cg.store_cell(tracker, held)
        if isinstance(tracker, (IteratorVariable, LoopIteratorVariable)):
            tracker.check_replay(self)
            return lambda: tracker.replay(cg)
        if isinstance(tracker, ContextVarVariable):
            return tracker.prepare(cg)
        assert isinstance(tracker, _REPLACED)
        held = cg.hold_contents(tracker)
        return lambda: cg.replace_contents(tracker, held)

    def _prepare_attributes(self, cg: Codegen, tracker: VariableTracker, written: dict[str, Any]) -> Any:
        held = {name: value if value is MISSING else cg.hold(value) for name, value in written.items()}
        return lambda: cg.replay_attributes(tracker, held)

    def _prepare_globals(self, cg: Codegen, space: dict[str, Any], source: Source, written: dict[str, Any]) -> Any:
        held = {name: value if value is MISSING else cg.hold(value) for name, value in written.items()}
        return lambda: cg.replay_globals((space, source), held)


def _is_constant(value: Any) -> bool:
    return value is not MISSING and value.is_constant()


def _of_frame(source: Source | None) -> bool:
    """Whether a source starts at one of the frame's arguments."""
    return source is not None and (isinstance(source, LocalSource) or any(map(_of_frame, source.parents())))


def _attribute(value: Any, name: str) -> Any:
    """The contents of a real object's dict or slot under `name`; None if it is empty."""
    own = instance_dict(value)
    if own is not None and name in own:
        return own[name]
    for own in map(OWN_DICT, BASES(type(value))):
        slot = own.get(name)
        if isinstance(slot, types.MemberDescriptorType):
            with contextlib.suppress(AttributeError):
                return slot.__get__(value, type(value))
    return None
