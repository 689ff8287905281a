"""Protocols of the evaluator and the code generator, which trackers get as arguments and don't import.

:class:`Tracer` is the frame that is being evaluated (``tx``); each of its parts covers one topic. The type checker
checks the evaluator (``interpreter``) against these protocols. Invariant: every import cycle that exists for types
alone goes through this module.
"""

from __future__ import annotations

import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:
    from ..bytecode.instructions import Instruction
    from ..guards.source import Source
    from ..output.codegen import Codegen as Codegen
    from ..output.output_graph import OutputGraph as OutputGraph
    from .base import ObservedException, VariableTracker
    from .cells import CellVariable
    from .containers.mappings import DictVariable as DictVariable
    from .containers.sequences import SequenceVariable as SequenceVariable
    from .functions.functions import BaseFunctionVariable as BaseFunctionVariable
    from .functions.generators import GeneratorVariable
    from .objects.classes import ClassVariable
    from .objects.objects import ObjectVariable as ObjectVariable
    from .tensors.tensor import TensorVariable as TensorVariable


class Values(Protocol):
    """Conversion between Python values and trackers."""

    def wrap_at(self, value: Any, source: Source) -> VariableTracker:
        """The tracker of the value at a source, possibly lazy; all reads of class attributes go through this."""

    def wrap_now(self, value: Any, source: Source) -> VariableTracker:
        """The tracker of the value at a source, realized."""

    def wrap_slot(self, source: Source, cls: type, value: Any, name: str) -> VariableTracker:
        """A member that a builtin object stores, such as ``slice.start``."""

    def wrap_cell(self, cell: types.CellType, source: Source, name: str) -> CellVariable:
        """The tracker of a real cell, one per cell."""

    def wrap_function(self, value: types.FunctionType, source: Source, trusted: bool = False) -> VariableTracker:
        """The tracker of a Python function, whose calls are inlined, become graph nodes, or run in plain Python."""

    def wrap_marked(self, value: Any, source: Source) -> VariableTracker | None:
        """The tracker of a function written in C that a rule of the user's covers; None for everything else."""

    def wrap_class_part(self, value: Any, source: Source) -> VariableTracker:
        """The tracker of the function inside a class attribute (property, classmethod or staticmethod)."""

    def bound_class_function(
        self, owner: VariableTracker, cls: type, name: str, value: types.FunctionType
    ) -> VariableTracker:
        """A function that a class defines, bound to an instance."""

    def library_function(self, value: Callable[..., Any]) -> VariableTracker:
        """A function of the standard library or of ours that is inlined and that nobody replaces, so unguarded."""

    def from_result(self, value: Any, what: str, source: Source | None = None) -> VariableTracker:
        """The tracker of a value that Python computed while tracing."""

    def as_plain(self, value: VariableTracker) -> Any:
        """The Python value of a tracker made of constants, containers included."""

    def frozen(self, value: Any) -> VariableTracker:
        """The tracker of an object that Python made while tracing and that nobody changes."""

    def real_function(self, value: VariableTracker) -> Any:
        """The real function or bound method behind a tracker, None if there is none."""

    def as_real(self, value: VariableTracker) -> Any:
        """The real object behind a tracker: a value from outside as it is, or a constant."""

    def new_list(self, items: list[VariableTracker]) -> VariableTracker: ...

    def new_tuple(self, items: list[VariableTracker]) -> VariableTracker: ...

    def new_size(self, items: list[VariableTracker]) -> VariableTracker: ...

    def new_dict(self, entries: dict[VariableTracker, VariableTracker]) -> DictVariable:
        """A new dict of these keys and values."""

    def new_sequence(self, cls: type, items: list[VariableTracker]) -> VariableTracker:
        """A new sequence of a builtin class or a named tuple."""


class Errors(Protocol):
    """Raising exceptions, and their attributes and texts."""

    def new_exception(
        self, cls: type, args: list[VariableTracker], initialize: bool = True, by_interpreter: bool = False
    ) -> ObjectVariable:
        """cls.__new__(cls, *args) for an exception class without a constructor of its own."""

    def init_exception(self, value: ObjectVariable, args: list[VariableTracker]) -> None:
        """``__init__`` of an exception's builtin base class."""

    def raise_value(self, cls: type, args: list[VariableTracker]) -> NoReturn:
        """Raises an exception of the program with arguments."""

    def raise_stop_iteration(self, value: VariableTracker) -> NoReturn:
        """Raises StopIteration, with the return value of a generator."""

    def raise_python(self, error: BaseException) -> NoReturn:
        """Raises in the program an exception that a Python function raised when it was run while tracing."""

    def exception_to_raise(self, args: list[VariableTracker]) -> ObservedException:
        """The exception of ``raise x`` or ``generator.throw(x)``."""

    def current_exception(self) -> VariableTracker | None:
        """The exception that is being handled here or in a caller."""

    def exception_attribute(self, owner: ObjectVariable, name: str) -> VariableTracker:
        """An attribute that exceptions store in C."""

    def exception_text(self, value: ObjectVariable, conversion: str) -> VariableTracker:
        """str() or repr() of an exception whose class does not define them."""


class Iteration(Protocol):
    """Iterators and the elements that they yield."""

    def close_generator(self, generator: GeneratorVariable) -> VariableTracker:
        """generator.close() (Objects/genobject.c, gen_close)."""

    def get_iter(self, value: VariableTracker) -> VariableTracker:
        """iter(value)."""

    def steps(self, iterator: VariableTracker) -> Iterator[VariableTracker]:
        """The remaining elements of an iterator; unlike a for loop, this does not call its ``__iter__``."""

    def steps_with_hint(self, items: VariableTracker) -> Iterator[VariableTracker]:
        """The elements one by one, after a call of ``__length_hint__``."""

    def listed(self, items: VariableTracker, into: type = list) -> list[VariableTracker]:
        """The elements in a list, collected as list() and tuple() do it."""

    def fast_sequence(self, items: VariableTracker, said: str, owner: Any = None) -> list[VariableTracker]:
        """The elements as functions in C collect them that need all at once (PySequence_Fast). `said` is the text
        of the TypeError where the value is not iterable; `owner` is the list that receives the elements."""

    def iterator_or(self, items: VariableTracker, said: str) -> VariableTracker:
        """iter(items), except that the TypeError has the text `said`."""

    def plain_dict(self, value: VariableTracker) -> dict[Any, tuple[VariableTracker, VariableTracker]] | None:
        """The entries of exactly a dict, by hash key; None for other values."""

    def next_of(self, iterator: VariableTracker) -> VariableTracker:
        """next(iterator); raises StopIteration in the program at its end."""

    def length_hint(self, owner: VariableTracker) -> VariableTracker | None:
        """The length or length hint of an object, None if it has neither (Objects/abstract.c, PyObject_LengthHint)."""


class Construction(Protocol):
    """Calls of classes."""

    def construct(
        self, cls: ClassVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker], by_type: bool = False
    ) -> VariableTracker:
        """cls(*args, **kwargs); with `by_type` as ``type.__call__`` does it, whatever the metaclass defines."""

    def new_object(
        self, cls: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """cls.__new__(cls, *args) of a builtin base."""

    def call_native_method(
        self,
        owner: VariableTracker,
        name: str,
        function: Any,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker],
    ) -> VariableTracker:
        """Calls a method that a user's class inherits from a class written in C."""


class Classes(Protocol):
    """Reads of class attributes, with guards."""

    def call_attribute(
        self,
        owner: VariableTracker,
        cls: type,
        name: str,
        attribute: Any,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker],
    ) -> VariableTracker:
        """Calls `attribute`, which `cls` defines under `name`, bound to `owner`, as C calls special methods."""

    def read(self, cls: ClassVariable, name: str) -> VariableTracker:
        """cls.name (Objects/typeobject.c, type_getattro)."""

    def class_of(self, value: VariableTracker, is_class: bool) -> VariableTracker:
        """The class to which super() binds class methods."""

    def getitem(self, cls: ClassVariable, key: VariableTracker) -> VariableTracker:
        """cls[key]."""

    def iterator(self, cls: ClassVariable) -> VariableTracker:
        """iter(cls), by the metaclass."""

    def lookup(self, cls: type, name: str, default: Any = None, data: bool = False) -> Any:
        """The attribute that `cls` or a base of it defines under a name, guarded; `default` if none does."""

    def special(self, cls: type, name: str) -> Any:
        """The special method of `cls` that the interpreter would call, None if neither `cls` nor a base defines it; a
        method set to None raises TypeError as a call of it does."""

    def guard_mro(self, cls: type) -> None:
        """Guards that the bases of a class stay the same."""

    def builtin_attribute(self, owner: VariableTracker, cls: type, name: str) -> VariableTracker:
        """An attribute of a builtin object that its class defines."""


class ClassChecks(Protocol):
    """isinstance and issubclass."""

    def is_instance(self, value: VariableTracker, classes: VariableTracker) -> bool:
        """isinstance(value, classes) (Objects/abstract.c, object_recursive_isinstance)."""

    def classes_it_names(self, value: VariableTracker) -> list[type]:
        """The value of ``__class__`` of an object whose class defines it (Objects/abstract.c, object_isinstance)."""

    def is_subclass(self, cls: type, candidate: Any) -> bool:
        """issubclass(cls, candidate), guarded where classes may be registered as virtual subclasses."""

    def asks_metaclass(self, candidate: Any, name: str) -> bool:
        """Whether the user's metaclass of a class defines this check; guarded."""


class Operators(Protocol):
    """Operators, comparisons, keys and identity."""

    def binary(
        self, op: str, left: VariableTracker, right: VariableTracker, shown: str | None = None
    ) -> VariableTracker:
        """left op right (Objects/abstract.c, binary_op1); `shown` is the operator in messages."""

    def inplace(self, op: str, left: VariableTracker, right: VariableTracker) -> VariableTracker:
        """left op= right."""

    def compare(self, op: str, left: VariableTracker, right: VariableTracker) -> VariableTracker:
        """left op right for a comparison (Objects/object.c, do_richcompare)."""

    def same_or_equal(self, left: VariableTracker, right: VariableTracker) -> bool:
        """``left is right or left == right``, the comparison of containers."""

    def is_same(self, left: VariableTracker, right: VariableTracker) -> bool:
        """left is right, guarded where the guards on types and values do not imply it."""

    def as_index(self, key: VariableTracker, owner: str = "") -> Any:
        """The Python integer or slice of an index; `owner` is the kind of sequence that is indexed."""

    def dict_content(self, value: VariableTracker) -> DictVariable | None:
        """The tracker of a dict's entries, for a dict or an instance of a subclass; None for other values."""

    def hash_key(self, value: VariableTracker, place: str = "dict key") -> Any:
        """The hashable representation of a value that is used as `place` ("dict key" or "set element"), guarded;
        raises TypeError in the program if the value is unhashable."""

    def hash_of(self, value: VariableTracker) -> int:
        """hash(value) of a constant."""

    def as_hash(self, said: VariableTracker) -> int:
        """The result of hash() for the result `said` of ``__hash__`` (Objects/typeobject.c, slot_tp_hash)."""

    def is_held(self, value: VariableTracker) -> bool:
        """Whether the program holds an object apart from the reference that it has just passed."""

    def frames_values(self) -> list[VariableTracker]:
        """The trackers that this frame and its callers in the trace hold."""

    def with_number(self, value: VariableTracker) -> VariableTracker:
        """The value itself, or the number of a symbolic id."""

    def identity_number(self, value: VariableTracker) -> VariableTracker:
        """id(value): the number where the object is guarded by identity, else a symbolic id."""


class Texts(Protocol):
    """str(), repr(), format()."""

    def function_text(self, function: VariableTracker) -> str:
        """A function's name in error messages about its call (Objects/object.c, _PyObject_FunctionStr)."""

    def to_text(self, value: VariableTracker, conversion: str) -> VariableTracker:
        """str(value), repr(value) or ascii(value) for conversions s, r, a."""

    def format_value(self, value: VariableTracker, conversion: str, spec: str) -> VariableTracker:
        """The text of ``f"{value!conversion:spec}"``."""

    def is_made_by_classes(self, value: VariableTracker, seen: tuple[VariableTracker, ...] = ()) -> bool:
        """Whether a Python method makes the text of the constant, or of a constant in the container."""

    def format_string(
        self, template: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """template.format(*args, **kwargs)."""

    def fill(self, template: str | bytes, values: VariableTracker) -> VariableTracker:
        """template % values."""

    def join(self, separator: str | bytes, items: Sequence[VariableTracker]) -> VariableTracker | None:
        """separator.join(items) where some items are texts that the trace can't read; None for other items."""


class Tracer(Protocol):
    """The operations of the frame under evaluation that trackers use: recording, guards, calls, lookups, exceptions."""

    output: OutputGraph
    values: Values
    errors: Errors
    iteration: Iteration
    construction: Construction
    classes: Classes
    checks: ClassChecks
    operators: Operators
    texts: Texts
    special_methods: Mapping[str, Any]
    code: types.CodeType
    globals: tuple[dict[str, Any], Source]
    locals: dict[str, VariableTracker]
    stack: list[VariableTracker]
    cells: dict[str, CellVariable]
    exceptions: list[VariableTracker | None]
    parent: Tracer | None
    root: Tracer
    visits: int
    free_cells: list[CellVariable]
    current: Instruction

    def guard(self, source: Source, kind: str, *expected: Any) -> None:
        """Adds a guard of a kind on the value at a source."""

    def guard_result(self, function: Any, args: tuple[Any, ...], result: Any) -> None:
        """Adds a guard that a call of a real function gives this constant again."""

    def raise_error(self, cls: type, message: str) -> NoReturn:
        """Raises an exception of the program with a text."""

    def run_python(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a pure Python function on real values; an exception of it is raised in the program."""

    def call(
        self, function: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """function(*args, **kwargs)."""

    def call_method(
        self,
        owner: VariableTracker,
        name: str,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker] | None = None,
    ) -> VariableTracker:
        """owner.name(*args, **kwargs)."""

    def call_special(self, owner: VariableTracker, name: str, *args: VariableTracker) -> VariableTracker:
        """type(owner).name(owner, *args); raises TypeError in the program if the type has no such method."""

    def checked_call(self, handler: Callable[..., VariableTracker], /, *args: Any, **kwargs: Any) -> VariableTracker:
        """Calls a handler of ours with the program's arguments; if they don't fit its signature, raises TypeError in
        the program."""

    def bind_function(self, function: VariableTracker, owner: VariableTracker) -> VariableTracker:
        """function.__get__(owner)."""

    def builtin_method(self, owner: VariableTracker, name: str) -> VariableTracker:
        """A method of a builtin object, not called yet."""

    def call_opaque(
        self, owner: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Calls an object whose class is written in C."""

    def call_unbound(
        self, method: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Calls a method read from its class: ``list.append(x, y)``, ``torch.Tensor.add(x, y)``."""

    def call_method_of_value(
        self, owner: Any, method: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Calls a bound method written in C of an object that is a constant."""

    def getattr(self, owner: VariableTracker, name: str) -> VariableTracker:
        """owner.name."""

    def attribute_or_none(self, owner: VariableTracker, name: str) -> VariableTracker | None:
        """owner.name, read once; None where that raises AttributeError."""

    def has_attribute(self, owner: VariableTracker, name: str) -> bool:
        """hasattr(owner, name)."""

    def truth(self, value: VariableTracker) -> bool:
        """bool(value)."""

    def inline(
        self, function: BaseFunctionVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Evaluates a call of a Python function."""

    def run_generator(
        self, frame: Any, sent: VariableTracker | None, raised: ObservedException | None
    ) -> VariableTracker | None:
        """Runs a generator's frame to its next yield; None when it returns."""

    def zero_argument_super(self) -> tuple[VariableTracker, VariableTracker]:
        """The class and first argument of ``super()`` (Objects/typeobject.c, super_init_without_args)."""

    def load_global(self, name: str) -> VariableTracker:
        """The tracker of a global or builtin, possibly lazy."""

    def root_visit(self) -> int:
        """The visit number of the root frame's current instruction."""

    def user_stack(self) -> list[traceback.FrameSummary]:
        """The program's call stack, outermost call first."""

    def stack_text(self) -> str:
        """The user's stack as text in the form of tracebacks, for graph nodes."""

    def overrides_torch(self, values: Any) -> bool:
        """Whether an argument among these has ``__torch_function__``."""

    def call_override(
        self, function: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Calls the ``__torch_function__`` of an argument."""

    def call_override_operator(self, function: Any, args: list[VariableTracker]) -> VariableTracker | None:
        """Calls the ``__torch_function__`` of an operator's operand; None for NotImplemented."""

    def reduced(self, owner: VariableTracker, *, as_new: bool = False) -> VariableTracker:
        """owner.__reduce_ex__(4)."""

    def reduced_ex(self, owner: VariableTracker, protocol: VariableTracker) -> VariableTracker:
        """owner.__reduce_ex__(protocol)."""

    def deep_copied(self, owner: VariableTracker, memo: VariableTracker) -> VariableTracker:
        """owner.__deepcopy__(memo) of a tensor."""
