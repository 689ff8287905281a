"""The code generated to run after the graph: it rebuilds the values that leave the frame and replays side effects.

Generated code does not look up values from outside: the guard program passes them in one tuple, graph inputs first.
Code is generated twice: the first pass finds the tensors and outside values that are needed, the second emits the code.

Invariant: an object that has an identity is built once, and every later use loads that object.
"""
from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ..bytecode.emit import Emitter, in_order
from ..exc import Unsupported
from ..guards.source import BASES, ConstSource, GlobalsSource, LocalSource, Source, found_in_bases
from ..variables.base import MISSING, LazyVariable, VariableTracker
from ..variables.cells import CellVariable
from ..variables.constant import ConstantVariable
from ..variables.containers.deques import DequeVariable
from ..variables.containers.mappings import DictVariable
from ..variables.containers.sequences import ListVariable
from ..variables.containers.set_tables import SetState, replay_set
from ..variables.containers.sets import SetVariable
from ..variables.containers.user_keys import check_rebuildable
from ..variables.numbers.dynamic_values import GrowingListVariable
from ..variables.numbers.scalars import ScalarVariable
from ..variables.objects.classes import MadeClassVariable
from ..variables.tensors.tensor import TensorVariable
from .side_effects import SideEffects

INPUTS = ".inputs"
OUTPUTS = ".outputs"


class Plan:
    """Values that generated code needs from the graph and the guard program. The first pass fills it, the second
    reads it."""

    def __init__(self) -> None:
        self.outputs: dict[int, int] = {}
        self.output_list: list[TensorVariable | ScalarVariable] = []
        self.extras: dict[Any, int] = {}
        self.extra_list: list[Source] = []

    def output_index(self, value: TensorVariable | ScalarVariable) -> int:
        """The index of a value among the graph's outputs, to which it is added if need be."""
        if id(value) not in self.outputs:
            self.outputs[id(value)] = len(self.output_list)
            self.output_list.append(value)
        return self.outputs[id(value)]

    def extra_index(self, source: Source) -> int:
        """The index of the value at `source` among the values that the guard program collects after the graph inputs.
        """
        if source.key not in self.extras:
            self.extras[source.key] = len(self.extra_list)
            self.extra_list.append(source)
        return self.extras[source.key]


class Codegen:
    """Emits code that pushes trackers' values.

    Args:
        emit: the emitter that takes the instructions.
        plan: the values needed from the graph and from outside.
        effects: the side effects of the trace.
        graph_inputs: number of values at the front of the inputs tuple that belong to the graph; extras follow.
        arguments: names of the frame's arguments that are plain locals in the generated code.
        own_cells: the frame's own cells, for which the generated code has a variable.
        cell_arguments: names of the frame's arguments that are cell variables.
    """

    def __init__(
        self, emit: Emitter, plan: Plan, effects: SideEffects, graph_inputs: int, arguments: Iterable[str],
        own_cells: Iterable[CellVariable], cell_arguments: Iterable[str],
    ) -> None:
        self.emit = emit
        self.plan = plan
        self.effects = effects
        self.graph_inputs = graph_inputs
        self.arguments = frozenset(arguments)
        self.cell_arguments = frozenset(cell_arguments)
        self._own_cells = {id(cell) for cell in own_cells}
        self._built: dict[int, str] = {}
        self._keep: list[VariableTracker | SetState] = []
        self._making: set[int] = set()  # ids of objects under construction, which have no local yet
        self._unfilled: list[tuple[str, Callable[[], Any]]] | None = None  # see `refers_only`

    # -- values
    def push(self, value: VariableTracker) -> None:
        """Emits code that pushes the value."""
        if value.holder is not None:
            value = value.holder
        if id(value) in self._built:
            self.emit.load_fast(self._built[id(value)])
        elif isinstance(value, (ConstantVariable, LazyVariable)):
            value.reconstruct(self)
        elif value.source is not None:
            self.load_source(value.source)
        else:
            value.reconstruct(self)

    def push_all(self, values: Iterable[VariableTracker]) -> None:
        for value in values:
            self.push(value)

    def hold(self, value: VariableTracker) -> str:
        """Emits code that computes the value now; returns the name of the local that holds it."""
        self.push(value)
        name = self.emit.temporary()
        self.emit.store_fast(name)
        return name

    def load_source(self, source: Source | None) -> None:
        """Pushes a value from outside."""
        assert source is not None
        if isinstance(source, LocalSource) and source.local in self.arguments:
            self.emit.load_fast(source.local)
            return
        if type(source) is ConstSource and type(source.value) is tuple:
            self.emit.load_const(source.value)
            return
        self._subscript(INPUTS, self.graph_inputs + self.plan.extra_index(source))

    def load_output(self, value: TensorVariable | ScalarVariable) -> None:
        """Pushes a tensor or number that the graph computes, with the attributes that the program has given it."""
        if self.attributes_of(value):
            self.build_new(value, lambda: self.load_computed(value), lambda: self.store_attributes(value))
        else:
            self.load_computed(value)

    def load_computed(self, value: TensorVariable | ScalarVariable) -> None:
        """Pushes a tensor or number as the graph returns it."""
        self._subscript(OUTPUTS, self.plan.output_index(value))

    def _subscript(self, local: str, index: int) -> None:
        self.emit.load_fast(local)
        self.emit.load_const(index)
        self.emit.subscr()

    def build_new(
        self, value: VariableTracker | SetState, make: Callable[[], Any], fill: Callable[[], Any],
        refers_only: bool = False,
    ) -> None:
        """Pushes an object that generated code builds once: `make` pushes it empty, `fill` adds its contents. Contents
        may refer back to the object.

        Args:
            refers_only: whether `make` only stores references to the object's parts, as a function does to its cells.
                The parts are then filled after `make`, since they may hold the object itself.

        Raises:
            Unsupported: the object is needed in order to make itself.
        """
        name = self._built.get(id(value))
        if name is not None:
            self.emit.load_fast(name)
            return
        if id(value) in self._making:
            raise Unsupported("unsupported_value", f"rebuilding {value.describe()}, which is needed to make itself")
        outer = self._unfilled
        unfilled: list[tuple[str, Callable[[], Any]]] = []
        if not refers_only:
            self._fill(outer)  # `make` may look into these objects, so they must be complete
            if id(value) in self._built:  # one of them holds this object
                self.emit.load_fast(self._built[id(value)])
                return
            self._unfilled = None
        elif outer is None:
            self._unfilled = unfilled
        self._making.add(id(value))
        make()
        self._making.remove(id(value))
        self._unfilled = outer
        name = self.emit.temporary()
        self.emit.dup()
        self.emit.store_fast(name)
        self._built[id(value)] = name
        self._keep.append(value)
        if outer is not None:
            outer.append((name, fill))
        else:
            fill()
            self._fill(unfilled)

    def _fill(self, objects: list[tuple[str, Callable[[], Any]]] | None) -> None:
        """Emits the contents of objects that have been made empty."""
        outer, self._unfilled = self._unfilled, None
        while objects:
            name, fill = objects.pop(0)
            self.emit.load_fast(name)
            fill()
            self.emit.pop()
        self._unfilled = outer

    def dict_of(self, entries: dict[str, VariableTracker]) -> DictVariable:
        """A dict tracker from names and values."""
        return DictVariable({name: (ConstantVariable(name), value) for name, value in entries.items()})

    # -- calls
    def call_constant(self, function: Any, arguments: Callable[[], Any], count: int = 1) -> None:
        """Pushes ``function(*arguments)``; `arguments` pushes `count` values."""
        self.emit.load_function(function)
        arguments()
        self.emit.call(count)

    def call_function(self, function: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        """Pushes ``function(*args, **kwargs)``."""
        self.emit.load_function(function)
        self.push_all(args)
        self.push_all(kwargs.values())
        self.emit.call(len(args), tuple(kwargs))

    def call_top(self, argument: Callable[[], Any]) -> None:
        """Calls the callable on top of the stack with one argument and replaces it by the result."""
        self.emit.ready_to_call()
        argument()
        self.emit.call(1)

    def call_constant_on_top(self, function: Any, arguments: Callable[[], Any], count: int = 1) -> None:
        """With an object on the stack, calls ``function(object, *arguments)`` for its effect; the object stays."""
        self.emit.load_function(function)
        self.emit.copy(3)
        arguments()
        self.emit.call(count + 1)
        self.emit.pop()

    def push_of_top(self, function: Any) -> None:
        """With an object on the stack, pushes ``function(object)``; the object stays."""
        self.emit.load_function(function)
        self.emit.copy(3)
        self.emit.call(1)

    def load_globals(self, space: tuple[dict[str, Any], Source]) -> None:
        """Pushes a function's globals."""
        if isinstance(space[1], GlobalsSource):
            self.load_source(space[1])
        else:
            self.emit.load_const(space[0])

    # -- objects
    def store_attributes(self, value: VariableTracker) -> None:
        """Emits the attributes of the new object on top of the stack, which stays there."""
        for name, attribute in self.attributes_of(value).items():
            self.call_constant_on_top(
                object.__setattr__, in_order(partial(self.emit.load_const, name), partial(self.push, attribute)), 2
            )

    def attributes_of(self, value: VariableTracker) -> dict[str, VariableTracker]:
        """The attributes that the trace has given an object."""
        return {name: v for name, v in self.effects.attributes_of(value).items() if v is not MISSING}

    def load_class(self, cls: type) -> None:
        """Pushes a class. For a class that the program makes, pushes the one made in this run."""
        made = self.effects.tracker_of(cls)
        if isinstance(made, MadeClassVariable):
            self.push(made)
        else:
            self.emit.load_const(cls)

    # -- cells
    def owns_cell(self, cell: CellVariable) -> bool:
        """Whether a cell is one that the frame's own code makes."""
        return id(cell) in self._own_cells

    def fill_cell(self, cell: CellVariable) -> None:
        """Binds one of the frame's own cells to its value at the end of the trace."""
        self.push(cell)
        self.emit.pop()

    def store_cell(self, cell: CellVariable, held: str) -> None:
        """Stores the value of a local in a cell from outside."""
        self.emit.load_fast(held)
        self.load_source(cell.source)
        self.emit.store_attr("cell_contents")

    def delete_cell(self, cell: CellVariable) -> None:
        """Empties a cell from outside."""
        self.load_source(cell.source)
        self.emit.delete_attr("cell_contents")

    # -- replayed changes
    def hold_contents(self, value: VariableTracker) -> str:
        """Computes a changed container's new contents, as a tuple in a local."""
        if isinstance(value, GrowingListVariable) and value.only_grows:
            self.push_all(value.added)
            self.emit.build_tuple(len(value.added))
        elif isinstance(value, ListVariable):
            self.push_all(value.items)
            self.emit.build_tuple(len(value.items))
        elif isinstance(value, SetVariable):
            value.hold_changes(self)
        else:
            assert isinstance(value, DictVariable)
            self._push_steps(value)
        name = self.emit.temporary()
        self.emit.store_fast(name)
        return name

    def _push_steps(self, value: DictVariable) -> None:
        """Pushes the changes made to a dict from outside, for `change_dict`; or all its entries, for `replace_dict`."""
        steps = value.changes()
        if steps is None:
            check_rebuildable(value.items, "a dict")
            steps = list(value.items.values())
        for step in steps:
            if step is None:
                self.emit.load_const(None)
            else:
                self.push_all(step)
                self.emit.build_tuple(len(step))
        self.emit.build_tuple(len(steps))

    def replace_contents(self, value: VariableTracker, held: str) -> None:
        """Gives a container from outside its new contents, bypassing overrides in subclasses."""
        function = {ListVariable: replace_list, SetVariable: replay_set, DictVariable: replace_dict}[_kind(value)]
        if isinstance(value, DictVariable) and value.changes() is not None:
            function = change_dict
        if isinstance(value, GrowingListVariable) and value.only_grows:
            function = list.extend
        if isinstance(value, DequeVariable):
            function = replace_deque if value.state else set_in_deque

        def arguments() -> None:
            self.load_source(value.source)
            self.emit.load_fast(held)

        self.call_constant(function, arguments, count=2)
        self.emit.pop()

    def replay_attributes(self, value: VariableTracker, held: dict[str, Any]) -> None:
        """Sets and deletes attributes of an object from outside, bypassing its ``__setattr__``, which was traced.
        """
        for name, local in held.items():
            def arguments(name: str = name, local: Any = local) -> None:
                self.load_source(value.source)
                self.emit.load_const(name)
                if local is not MISSING:
                    self.emit.load_fast(local)

            if local is MISSING:
                self.call_constant(delete_attribute, arguments, count=2)
            else:
                self.call_constant(set_attribute, arguments, count=3)
            self.emit.pop()

    def replay_globals(self, space: tuple[dict[str, Any], Source], held: dict[str, Any]) -> None:
        """Sets and deletes globals."""
        for name, local in held.items():
            if local is MISSING:
                # The global may not exist: the program may have set it itself before deleting it.
                self.call_constant(
                    dict.pop,
                    in_order(partial(self.load_globals, space), partial(self.emit.load_const, name),
                             partial(self.emit.load_const, None)),
                    3,
                )
                self.emit.pop()
            else:
                self.emit.load_fast(local)
                self.load_globals(space)
                self.emit.load_const(name)
                self.emit.store_subscr()


def _kind(value: VariableTracker) -> type:
    for kind in (ListVariable, SetVariable, DictVariable):
        if isinstance(value, kind):
            return kind
    raise AssertionError(value)


# ---------------------------------------------------------------- called by generated code
def replace_list(target: list[Any], items: tuple[Any, ...]) -> None:
    """Replaces the contents of a list by `items`, bypassing overrides in subclasses."""
    list.__setitem__(target, slice(None), items)


def replace_deque(target: collections.deque[Any], items: tuple[Any, ...]) -> None:
    """Replaces the contents of a deque by `items`."""
    collections.deque.clear(target)
    collections.deque.extend(target, items)


def set_in_deque(target: collections.deque[Any], items: tuple[Any, ...]) -> None:
    """Replaces elements of a deque in place, which keeps its iterators valid."""
    for index, item in enumerate(items):
        if collections.deque.__getitem__(target, index) is not item:
            collections.deque.__setitem__(target, index, item)



def replace_dict(target: dict[Any, Any], entries: tuple[tuple[Any, Any], ...]) -> None:
    """Replaces the entries of a dict by `entries`, in this order."""
    change_dict(target, (None, *entries))


def change_dict(target: dict[Any, Any], steps: tuple[tuple[Any, ...] | None, ...]) -> None:
    """Applies the changes made to a dict in the trace, step by step: stores a key with a value (two elements), deletes
    a key (one), removes the last entry (none), or clears the dict (None)."""
    base: Any = next(cls for cls in BASES(type(target)) if not cls.__flags__ & (1 << 9))
    done = (base.popitem, base.__delitem__, base.__setitem__)
    for step in steps:
        if step is None:
            base.clear(target)
        else:
            done[len(step)](target, *step)


def set_attribute(target: Any, name: str, value: Any) -> None:
    """Stores an attribute in the object itself, as the traced code decided."""
    cls = type(target)  # reads nothing from the object: its class may define __getattribute__
    if issubclass(cls, type):
        type.__setattr__(target, name, value)
    elif cls.__setattr__ is object.__setattr__ or not cls.__dictoffset__:
        object.__setattr__(target, name, value)
    else:
        _store_past_class(target, name, value)


def _store_past_class(target: Any, name: str, value: Any) -> None:
    attribute = found_in_bases(type(target), name, None)
    if attribute is not None and hasattr(type(attribute), "__set__"):
        type(attribute).__set__(attribute, target, value)  # a slot
    else:
        object.__getattribute__(target, "__dict__")[name] = value


def delete_attribute(target: Any, name: str) -> None:
    """Deletes an attribute of the object itself. It may not exist: the program may have set it before deleting it."""
    own = object.__getattribute__(target, "__dict__") if type(target).__dictoffset__ else {}
    if name in own:
        del own[name]
        return
    slot = found_in_bases(type(target), name, None)
    if hasattr(type(slot), "__delete__"):
        with contextlib.suppress(AttributeError):
            object.__delattr__(target, name)


__all__ = ["INPUTS", "OUTPUTS", "Codegen", "LazyVariable", "Plan"]
