"""What trackers may ask of the evaluator and of the code generator, which they get as arguments and don't import.

:class:`Tracer` is the frame that is being evaluated (``tx``); its parts own one topic each. The evaluator
(``interpreter``) is checked against these protocols. Invariant: every cycle of imports that types alone make goes
through this module.
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
    """From Python values to trackers and back."""

    def wrap_at(self, value: Any, source: Source) -> VariableTracker:
        """The value at a source, not looked at yet; every attribute that a class has comes by here."""

    def wrap_now(self, value: Any, source: Source) -> VariableTracker:
        """The value at a source, looked at."""

    def wrap_slot(self, source: Source, cls: type, value: Any, name: str) -> VariableTracker:
        """A member that a builtin object stores, such as ``slice.start``."""

    def wrap_cell(self, cell: types.CellType, source: Source, name: str) -> CellVariable:
        """The tracker of a real cell, one per cell."""

    def wrap_function(self, value: types.FunctionType, source: Source, trusted: bool = False) -> VariableTracker:
        """A Python function: one to inline, one for the graph, or one to call in plain Python."""

    def wrap_marked(self, value: Any, source: Source) -> VariableTracker | None:
        """A function written in C about which the user decided; None for everything else."""

    def wrap_class_part(self, value: Any, source: Source) -> VariableTracker:
        """What a class attribute wraps (the function of a property, classmethod or staticmethod)."""

    def bound_class_function(
        self, owner: VariableTracker, cls: type, name: str, value: types.FunctionType
    ) -> VariableTracker:
        """A function that a class defines, bound to an instance."""

    def library_function(self, value: Callable[..., Any]) -> VariableTracker:
        """A function of the standard library or of ours to inline, which nobody replaces."""

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
    """Raising exceptions and what they are."""

    def new_exception(
        self, cls: type, args: list[VariableTracker], initialize: bool = True, by_interpreter: bool = False
    ) -> ObjectVariable:
        """cls.__new__(cls, *args) for an exception class without a constructor of its own."""

    def init_exception(self, value: ObjectVariable, args: list[VariableTracker]) -> None:
        """The builtin base's ``__init__`` of an exception."""

    def raise_value(self, cls: type, args: list[VariableTracker]) -> NoReturn:
        """Raises an exception of the program with arguments."""

    def raise_stop_iteration(self, value: VariableTracker) -> NoReturn:
        """Raises StopIteration, with the return value of a generator."""

    def raise_python(self, error: BaseException) -> NoReturn:
        """Raises in the program what a Python function that was run while tracing has raised."""

    def exception_to_raise(self, args: list[VariableTracker]) -> ObservedException:
        """The exception of ``raise x`` or ``generator.throw(x)``."""

    def current_exception(self) -> VariableTracker | None:
        """The exception that is being handled here or in a caller."""

    def exception_attribute(self, owner: ObjectVariable, name: str) -> VariableTracker:
        """An attribute that exceptions store in C."""

    def exception_text(self, value: ObjectVariable, conversion: str) -> VariableTracker:
        """str() or repr() of an exception whose class does not define them."""


class Iteration(Protocol):
    """Iterators and what is taken from them."""

    def close_generator(self, generator: GeneratorVariable) -> VariableTracker:
        """generator.close() (Objects/genobject.c, gen_close)."""

    def get_iter(self, value: VariableTracker) -> VariableTracker:
        """iter(value)."""

    def steps(self, iterator: VariableTracker) -> Iterator[VariableTracker]:
        """What an iterator still gives; unlike a loop over it, asks it for no iterator."""

    def steps_with_hint(self, items: VariableTracker) -> Iterator[VariableTracker]:
        """The elements one by one, after the question how many there are."""

    def listed(self, items: VariableTracker, into: type = list) -> list[VariableTracker]:
        """The elements as list() and tuple() take them."""

    def fast_sequence(self, items: VariableTracker, said: str, owner: Any = None) -> list[VariableTracker]:
        """The elements as functions take them that need all at once (PySequence_Fast); `said`: the text
        of the TypeError where there is no iterator. `owner` is the list that they go to."""

    def iterator_or(self, items: VariableTracker, said: str) -> VariableTracker:
        """iter(items), where a TypeError is raised with another text."""

    def plain_dict(self, value: VariableTracker) -> dict[Any, tuple[VariableTracker, VariableTracker]] | None:
        """The entries of exactly a dict, by hash key; None for other values."""

    def next_of(self, iterator: VariableTracker) -> VariableTracker:
        """next(iterator), StopIteration at its end."""

    def length_hint(self, owner: VariableTracker) -> VariableTracker | None:
        """What an object says of its length, None if it does not (Objects/abstract.c, PyObject_LengthHint)."""


class Construction(Protocol):
    """Calls of classes."""

    def construct(
        self, cls: ClassVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker], by_type: bool = False
    ) -> VariableTracker:
        """cls(*args, **kwargs); `by_type`: as type.__call__ does it, whatever the metaclass defines."""

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
        """A method that a user's class inherits from a class written in C."""


class Classes(Protocol):
    """What classes define, read and guarded."""

    def call_attribute(
        self,
        owner: VariableTracker,
        cls: type,
        name: str,
        attribute: Any,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker],
    ) -> VariableTracker:
        """Calls what `cls` defines under `name` with `owner` as first argument, as the protocols of C do."""

    def read(self, cls: ClassVariable, name: str) -> VariableTracker:
        """cls.name (Objects/typeobject.c, type_getattro)."""

    def class_of(self, value: VariableTracker, is_class: bool) -> VariableTracker:
        """The class to which super() binds class methods."""

    def getitem(self, cls: ClassVariable, key: VariableTracker) -> VariableTracker:
        """cls[key]."""

    def iterator(self, cls: ClassVariable) -> VariableTracker:
        """iter(cls), by the metaclass."""

    def lookup(self, cls: type, name: str, default: Any = None, data: bool = False) -> Any:
        """What `cls` or a base of it defines under a name, guarded; `default` if none does."""

    def special(self, cls: type, name: str) -> Any:
        """What the interpreter calls for a special method of `cls`, None if none defines it; one that is None itself
        raises as calling it does."""

    def guard_mro(self, cls: type) -> None:
        """Requires that a class has the bases that it has."""

    def builtin_attribute(self, owner: VariableTracker, cls: type, name: str) -> VariableTracker:
        """An attribute that a builtin object has from its class."""


class ClassChecks(Protocol):
    """isinstance and issubclass."""

    def is_instance(self, value: VariableTracker, classes: VariableTracker) -> bool:
        """isinstance(value, classes) (Objects/abstract.c, object_recursive_isinstance)."""

    def classes_it_names(self, value: VariableTracker) -> list[type]:
        """What an object whose class defines ``__class__`` gives there (Objects/abstract.c, object_isinstance)."""

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
        """left is right, guarded where guards on structure do not decide it."""

    def as_index(self, key: VariableTracker, owner: str = "") -> Any:
        """An index or slice as Python has it; `owner` is the kind of sequence that is asked."""

    def dict_content(self, value: VariableTracker) -> DictVariable | None:
        """The entries of a dict or of an object that is one; None for other values."""

    def hash_key(self, value: VariableTracker, place: str = "dict key") -> Any:
        """What stands for the value as a "dict key" or "set element", guarded; TypeError in the program if it is
        unhashable."""

    def hash_of(self, value: VariableTracker) -> int:
        """hash(value) of a constant."""

    def as_hash(self, said: VariableTracker) -> int:
        """What hash() makes of the result of ``__hash__`` (Objects/typeobject.c, slot_tp_hash)."""

    def is_held(self, value: VariableTracker) -> bool:
        """Whether the program holds an object besides what it has just handed over."""

    def frames_values(self) -> list[VariableTracker]:
        """What this frame and its callers in the trace hold."""

    def with_number(self, value: VariableTracker) -> VariableTracker:
        """A value whose number is needed, where it is an id."""

    def identity_number(self, value: VariableTracker) -> VariableTracker:
        """id(value): the number where the object itself is guarded, else something that only compares."""


class Texts(Protocol):
    """str(), repr(), format()."""

    def function_text(self, function: VariableTracker) -> str:
        """A function as messages about its call name it (Objects/object.c, _PyObject_FunctionStr)."""

    def to_text(self, value: VariableTracker, conversion: str) -> VariableTracker:
        """str(value), repr(value) or ascii(value) for conversions s, r, a."""

    def format_value(self, value: VariableTracker, conversion: str, spec: str) -> VariableTracker:
        """The text of ``f"{value!conversion:spec}"``."""

    def is_made_by_classes(self, value: VariableTracker, seen: tuple[VariableTracker, ...] = ()) -> bool:
        """Whether the text of a constant, or of one in a container, is made by its class in Python."""

    def format_string(
        self, template: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """template.format(*args, **kwargs)."""

    def fill(self, template: str | bytes, values: VariableTracker) -> VariableTracker:
        """template % values."""

    def join(self, separator: str | bytes, items: Sequence[VariableTracker]) -> VariableTracker | None:
        """separator.join(items) where some of the texts are not read; None for others."""


class Tracer(Protocol):
    """What a value may ask of the frame that is being evaluated: to record, guard, call, look up, raise."""

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
        """Requires something of the value at a source."""

    def guard_result(self, function: Any, args: tuple[Any, ...], result: Any) -> None:
        """Requires that a call of a real function gives this constant again."""

    def raise_error(self, cls: type, message: str) -> NoReturn:
        """Raises an exception of the program with a text."""

    def run_python(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a pure Python function on real values; what it raises, the program sees."""

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
        """type(owner).name(owner, *args), TypeError if the type has no such method."""

    def checked_call(self, handler: Callable[..., VariableTracker], /, *args: Any, **kwargs: Any) -> VariableTracker:
        """Calls a handler of ours with the program's arguments; a mismatch is the program's TypeError."""

    def bind_function(self, function: VariableTracker, owner: VariableTracker) -> VariableTracker:
        """function.__get__(owner)."""

    def builtin_method(self, owner: VariableTracker, name: str) -> VariableTracker:
        """A method of a builtin object, not called yet."""

    def call_opaque(
        self, owner: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """A call of an object whose class is written in C."""

    def call_unbound(
        self, method: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """``list.append(x, y)``, ``torch.Tensor.add(x, y)``: a method taken from its class."""

    def call_method_of_value(
        self, owner: Any, method: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """A bound method written in C, of an object that is a constant."""

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
        """A global or builtin, lazily."""

    def root_visit(self) -> int:
        """The number of the instruction that the root is at."""

    def user_stack(self) -> list[traceback.FrameSummary]:
        """Where the program is, outermost call first."""

    def stack_text(self) -> str:
        """The user's stack as text in the form of tracebacks, for graph nodes."""

    def overrides_torch(self, values: Any) -> bool:
        """Whether an argument among these has ``__torch_function__``."""

    def call_override(
        self, function: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Calls the ``__torch_function__`` of an argument."""

    def reduced(self, owner: VariableTracker, *, as_new: bool = False) -> VariableTracker:
        """owner.__reduce_ex__(4)."""

    def reduced_ex(self, owner: VariableTracker, protocol: VariableTracker) -> VariableTracker:
        """owner.__reduce_ex__(protocol)."""

    def deep_copied(self, owner: VariableTracker, memo: VariableTracker) -> VariableTracker:
        """owner.__deepcopy__(memo) of a tensor."""
