"""Side effects: the traced program's changes of objects that exist outside of it, or that leave it.

Objects are found again by identity, so that one object has one tracker. Changes are made to trackers while tracing and
replayed by generated code after the graph: attributes, contents of lists, dicts and sets, cells, globals.

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
        # Dicts of attributes and globals: those with what their keeper has written, those that were looked at.
        self._keepers: dict[int, tuple[dict[str, Any], VariableTracker | None]] = {}
        self._spaces: dict[int, tuple[dict[str, Any], Source]] = {}
        self._watched: set[int] = set()  # trackers of which all parts are
        self._raised: dict[int, tuple[VariableTracker, int]] = {}
        self._touched: list[VariableTracker | None] = []
        self.calls: list[DeferredCall] = []
        self._generators: list[tuple[GeneratorVariable, int]] = []
        self._classes: dict[int, VariableTracker] = {}  # those with attributes that were set, by id
        self._class_names: set[str] = set()  # of these attributes
        self.watch = Watch()
        self._proxied: list[Any] = []
        self._behind_calls: dict[int, Any] = {}  # what deferred calls may change, by id
        self._iterated: list[tuple[Any, Source]] = []  # lists that are no trackers
        self.cells: list[CellVariable] = []  # of functions that the trace evaluates
        self.epoch = 0

    # -- identity
    def tracker_of(self, value: Any) -> VariableTracker | None:
        """The tracker of a real object that has been met in this trace."""
        known = self._trackers.get(id(value))
        return known[1] if known is not None else None

    def track(self, value: Any, tracker: VariableTracker) -> VariableTracker:
        """Remembers that `tracker` stands for `value`, which is kept alive so that its id stays its own."""
        if id(value) in self._behind_calls:
            raise Unsupported("side_effect_unsupported", f"{tracker.describe()}, which a call before may have changed")
        self._trackers[id(value)] = (value, tracker)
        return tracker

    def all_tracked(self) -> Collection[tuple[Any, VariableTracker]]:
        """The real objects that have been met, and what stands for them."""
        return self._trackers.values()

    def is_tracked(self, value: Any) -> bool:
        """Whether an object's contents may have been changed in this trace."""
        known = self.tracker_of(value)
        return known is not None and not self._mutated.keys().isdisjoint((id(known), id(dict_in(known))))

    def forget(self) -> None:
        """Lets go of all objects and trackers. To be called when the trace has ended."""
        # A function and its cell know each other.
        self.cells += (tracker for _, tracker in self._trackers.values() if isinstance(tracker, CellVariable))
        for cell in self.cells:
            cell.contents = MISSING
        for known in vars(self).values():
            if isinstance(known, (dict, list, set)):
                known.clear()
        self.watch = Watch()

    # -- parts of a trace
    def forget_trackers(self) -> tuple[dict[int, tuple[Any, VariableTracker]], dict[int, Any]]:
        """From now on every object from outside is met, and guarded, anew; gives what to call
        :meth:`remember_trackers` with."""
        known = self._trackers, self._keepers
        self._trackers, self._keepers = {}, {}
        return known

    def remember_trackers(self, known: tuple[dict[int, tuple[Any, VariableTracker]], dict[int, Any]]) -> None:
        """The trackers from before :meth:`forget_trackers`."""
        trackers, keepers = known
        # What a keeper has written to a dict is not in a tracker that the dict has got since.
        new = {key: entry for key, entry in self._trackers.items() if key not in trackers and key not in keepers}
        trackers.update(new)
        keepers.update((key, entry) for key, entry in self._keepers.items() if key not in keepers)
        self._trackers, self._keepers = trackers, keepers

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[VariableTracker | None]]:
        """Collects what is changed inside; None stands for globals."""
        outer, self._touched = self._touched, []
        try:
            yield self._touched
        finally:
            outer += self._touched
            self._touched = outer

    # -- changes
    def changed_objects(self) -> Iterator[Any]:
        """The objects from outside of which attributes or contents are changed, and the dicts of changed globals."""
        changed = (*(tracker for tracker, _ in self._attributes.values()), *self._mutated.values())
        yield from (tracker.value for tracker in changed if tracker.source is not None)
        yield from (space for space, _, _ in self._globals.values())

    def add_deferred(self, call: DeferredCall, behind: Iterable[Any]) -> None:
        """Has generated code make a call.

        Args:
            behind: objects that the call may change. They are not looked at in this trace.
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
        """What has been changed since that was the number; None: unknown."""
        return self._touched[count:] if count <= len(self._touched) else None

    def mutate(self, tracker: VariableTracker, replaced: Sequence[VariableTracker] | None = None) -> None:
        """Announces a change of the contents of a list, dict, set or cell; `replaced`: what it lets go of, if known."""
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
        """Whether the contents of something from outside are changed."""
        return id(tracker) in self._mutated

    def note_iterated(self, container: Any, source: Source) -> None:
        """Announces that the trace relies on what a list or dict from outside holds, at this time, without a tracker.
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
        """Announces a change of an object that exists in the trace alone, such as an iterator's position."""
        self.epoch += 1
        self._touched.append(tracker)

    def attributes_of(self, tracker: VariableTracker) -> dict[str, Any]:
        """The attributes written in this trace: name -> tracker, or MISSING where deleted."""
        entry = self._attributes.get(id(tracker))
        return entry[1] if entry is not None else {}

    def load_attr(self, tracker: VariableTracker, name: str) -> Any:
        """A written attribute; None when it has been deleted."""
        value = self._attributes[id(tracker)][1][name]
        return None if value is MISSING else value

    def written_attributes(self) -> dict[int, dict[str, Any]]:
        """What has been written so far, for :meth:`is_as_before`."""
        return {key: dict(written) for key, (_, written) in self._attributes.items()}

    def stored(self) -> Iterator[tuple[Source, Any, VariableTracker]]:
        """What was set of attributes that objects from outside had: where each is, its value before, and its new one.
        """
        for tracker, written in self._attributes.values():
            real, source = instance_dict(tracker.value), dict_source(tracker)
            if tracker.source is not None and real is not None and source is not None:
                for name, value in written.items():
                    if value is not MISSING and name in real:
                        yield DictItemSource(source, name), real[name], value

    def is_as_before(self, tracker: VariableTracker, before: dict[int, dict[str, Any]]) -> bool:
        """Whether an object from outside that has been changed since holds what it held then."""
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
        """Announces that an attribute is set, or deleted with MISSING."""
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
            written.pop(name, None)  # set anew, it comes last; set again, it keeps its place
        if value is not MISSING or tracker.source is not None:
            written[name] = value

    # -- dicts of attributes and globals
    def space_of(
        self, tx: Tracer, keeper: VariableTracker | None, real: dict[str, Any] | None, source: Source | None
    ) -> DictVariable | None:
        """The tracker of a dict of attributes that has another name besides its keeper's, None while it has none.

        Args:
            keeper: the object whose dict it is, None for a frame's globals.
            real: the dict, None if the object was made in the trace.
            source: where it is found.
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
        """Remembers that the trace has looked into a dict without a tracker."""
        self._spaces.setdefault(id(real), (real, source))

    def is_kept(self, value: Any) -> bool:
        """Whether a keeper has written to a dict that no tracker stands for yet."""
        return id(value) in self._keepers

    def take_over(self, tx: Tracer, real: dict[str, Any], tracker: VariableTracker) -> None:
        """Moves what the keeper of a dict has written to the dict's own tracker."""
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
        """Announces that an attribute of a class from outside is set; `make` gives its tracker, of which there may be
        several, where none holds such changes yet.

        Raises:
            Unsupported: the end of what stood there would be felt.
        """
        if any(mapping is class_dict(cls) for mapping in self._proxied):
            raise Unsupported("side_effect_unsupported", f"setting {cls.__qualname__}.{name}, read through a proxy too")
        holder = self._classes.get(id(cls)) or self._classes.setdefault(id(cls), make())
        if name not in self.attributes_of(holder) and finalizables_in(OWN_DICT(cls).get(name)):
            raise Unsupported("end_of_life", f"what {cls.__qualname__}.{name} has been")
        self._class_names.add(name)
        self.store_attr(holder, name, value)

    def class_attribute(self, cls: type, name: str) -> VariableTracker | None:
        """What a class finds under a name that was set in this trace; None if it finds what stood there before."""
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
        """Announces a call that generated code makes after the graph."""
        self.epoch += 1
        self._touched.append(None)
        self.calls.append(call)

    # -- exceptions
    def note_raised(self, tracker: VariableTracker, visit: int) -> None:
        """Remembers that the root's n-th instruction raised an exception, which therefore has a traceback."""
        self._raised.setdefault(id(tracker), (tracker, visit))

    def check_traceback(self, tracker: VariableTracker) -> None:
        """Refuses to rebuild an exception that has been raised in the trace: raised natively, it gets its traceback.

        Raises:
            Unsupported: with the visit at which to break so that this happens.
        """
        if id(tracker) in self._raised:
            visit = self._raised[id(tracker)][1]
            raise Unsupported("exception_handling", "an exception that is kept has a traceback", visit=visit)

    def check_outer_tracebacks(self) -> None:
        """The same for exceptions that exist outside of the trace: raised again, they get more of a traceback."""
        for tracker, _ in self._raised.values():
            if tracker.source is not None:
                self.check_traceback(tracker)

    # -- generators
    def note_started(self, generator: GeneratorVariable, visit: int) -> None:
        """Remembers that the root's n-th instruction began a generator."""
        self._generators.append((generator, visit))

    def check_generators(self) -> None:
        """Refuses to end a trace with a generator left inside ``try`` or ``with``: when the program lets go of it, its
        clean-up runs, and the trace does not see when that is.

        Raises:
            Unsupported: with the visit at which to break so that the generator runs natively.
        """
        for generator, visit in self._generators:
            if generator.has_clean_up():
                raise Unsupported("generator_frame", f"{generator.describe()}, left inside try or with", visit=visit)

    # -- globals
    def load_global(self, tx: Tracer, space: dict[str, Any], source: Source, name: str) -> Any:
        """A global written in this trace; None if it was not written, MISSING if it was deleted."""
        known = self.space_of(tx, None, space, source)
        if known is not None:
            return known.lookup(tx, ConstantVariable(name)) or MISSING
        entry = self._globals.get(id(space))
        if entry is None or name not in entry[2]:
            return None
        value = entry[2][name]
        return value if value is MISSING else realized(tx, value)

    def store_global(self, tx: Tracer, space: dict[str, Any], source: Source, name: str, value: Any) -> None:
        """Announces that a global is set, or deleted with MISSING."""
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
            written.pop(name, None)  # as in store_attr
        written[name] = value

    # -- what is held
    def outside_values(self) -> Iterator[VariableTracker]:
        """What changed objects hold that the frame is not the only one to hold, and what is stored there."""
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
        """What generated code changes outside of the function, in the user's names."""
        names = [t.source.name for t in self._mutated.values() if t.source is not None]
        for tracker, written in self._attributes.values():
            if tracker.source is not None:
                names += [f"{tracker.source.name}.{name}" for name in written]
        return names + [name for _, _, written in self._globals.values() for name in written]

    def guard_distinct(self, guards: GuardSet) -> None:
        """Objects that were changed must be other objects than those of their kind next time, too."""
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
                    known = self.tracker_of(real)  # of an object of a subclass, whose content is the list
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
        """A dict that was changed must be another one than all that were looked at, under whatever name."""
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
        """Emits the changes. Values are computed before any object is changed, so that order does not matter."""
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
    """Whether a path starts from the frame's arguments."""
    return source is not None and (isinstance(source, LocalSource) or any(map(_of_frame, source.parents())))


def _attribute(value: Any, name: str) -> Any:
    """What a real object has in its dict or slot of that name; None if there is nothing."""
    own = instance_dict(value)
    if own is not None and name in own:
        return own[name]
    for own in map(OWN_DICT, BASES(type(value))):
        slot = own.get(name)
        if isinstance(slot, types.MemberDescriptorType):
            with contextlib.suppress(AttributeError):
                return slot.__get__(value, type(value))
    return None
