"""The value model: one :class:`VariableTracker` stands for one Python value during symbolic evaluation.

Classes that represent values of certain Python types register how such a value is wrapped, beside the class
(:func:`wraps_type`, :func:`wraps_if`). `tx` in the methods below is the translator of the frame that is being
evaluated; it gives access to the output graph, the guards and inlining, so that values need not import the evaluator.

Invariants: a Python object that has an identity has one tracker during a trace; a tracker's method either gives
exactly what Python would give, raises :class:`ObservedException` where Python would raise, or raises
``exc.Unsupported``.
"""
from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import torch

from .._guards import MISSING
from ..exc import Unsupported
from ..guards.source import Source
from ..rules.class_table import ClassTable
from ..rules.table import Rule, decide

if TYPE_CHECKING:
    from .protocols import Codegen, Tracer


__all__ = ["MISSING", "IteratorVariable", "LazyVariable", "ObservedException", "VariableTracker",
           "instance_dict", "is_made_by_python", "realized", "type_name", "unsupported", "wrap_value", "wrapper_of",
           "wraps_if", "wraps_type"]


def is_made_by_python(cls: type) -> bool:
    """Whether a class statement (or a call of type) made the class; classes of C may be heap types, too."""
    if not cls.__flags__ & _HEAP_TYPE or cls.__flags__ & (_NOT_INSTANTIABLE | _IMMUTABLE):
        return False
    new = cls.__dict__.get("__new__")
    return not (isinstance(new, types.BuiltinFunctionType) and new.__self__ is cls)


def type_name(cls: type) -> str:
    """The class's name in CPython's messages (``tp_name``): classes of C in modules are named with the module."""
    if is_made_by_python(cls) or cls.__module__ == "builtins":
        return cls.__name__
    return f"{cls.__module__}.{cls.__name__}"


# Include/object.h: Py_TPFLAGS_HEAPTYPE, Py_TPFLAGS_DISALLOW_INSTANTIATION, Py_TPFLAGS_IMMUTABLETYPE
_HEAP_TYPE, _NOT_INSTANTIABLE, _IMMUTABLE = 1 << 9, 1 << 7, 1 << 8


class ObservedException(Exception):
    """An exception that the traced program raises.

    Args:
        value: the tracker of the exception object.
        chained: whether its context is what it is to be: it is raised again, or goes through frames.
    """

    def __init__(self, value: VariableTracker, chained: bool = False) -> None:
        super().__init__(value)
        self.value = value
        self.chained = chained


def unsupported(kind: str, detail: str, hint: str | None = None, visit: int | None = None) -> NoReturn:
    """Gives up on the instruction that is being evaluated, or on the root's n-th one; `kind` is an identifier of
    ``break_kinds``."""
    raise Unsupported(kind, detail, hint=hint, visit=visit)


class VariableTracker:
    """The base class; every method is what Python does with a value, and by default unsupported.

    Args:
        source: where the value lives, if it came into the frame from outside.
    """

    # Whether `is` has a meaning that the program may rely on, so that it has to be built once and shared.
    has_identity: ClassVar[bool] = False
    # Whether the value is a number that this call alone is known to have.
    is_symbolic: ClassVar[bool] = False
    # Of what an instance of a subclass of a builtin holds: the instance, which is what leaves the trace.
    holder: VariableTracker | None = None
    # The real object, where the tracker knows one.
    value: Any = None
    real: Any = None
    # What an instance of a subclass of a builtin holds.
    content: VariableTracker | None = None
    # The number of Python's that has the value of one of NumPy's, if that may differ from call to call.
    python_number: VariableTracker | None = None
    # Its exact class, of trackers that stand for values of several classes.
    cls: Any = None
    # Its node in the graph, of a tensor or of a number that is computed from tensors.
    node: Any = None
    # The dict of the attributes of an object made in the trace, once it has been asked for.
    own_dict: Any = None
    # Of an iterator: the sequence that it goes through.
    sequence: Any = None
    # Of an iterator: the StopIteration that ended its last step, if it was raised in the trace; what it returned.
    stopped: ObservedException | None = None
    returned: VariableTracker | None = None
    # When its change is replayed: iterators that take from others go before these, all of them before the containers.
    replayed = 2
    # The epoch of the last change of an attribute.
    changed_at = 0
    # Where its own dict is found, once that has been asked; `containers.spaces.dict_source` gives it.
    dict_source: Source | None = None

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    # -- what it is
    def python_type(self) -> type:
        """The value's exact type."""
        unsupported("unsupported_value", f"type() of {self.describe()}")

    def describe(self) -> str:
        """The value in words, for messages."""
        name = f" {self.source.name!r}" if self.source is not None else ""
        return f"{type(self).__name__.removesuffix('Variable').lower()}{name}"

    def is_constant(self) -> bool:
        """Whether :meth:`constant` gives the Python value itself."""
        return False

    def fix(self, tx: Tracer) -> None:
        """Guards what the text of a constant goes by that its identity does not tell."""

    def known_items(self) -> list[VariableTracker] | None:
        """The elements of a list, tuple or deque; None for anything else."""
        return None

    def is_method_of(self, owner: VariableTracker, name: str) -> bool:
        """Whether it is this method of a builtin's, bound to `owner`: a call asks the owner's :meth:`call_method`."""
        return False

    def constant(self) -> Any:
        """The Python value, for values that are wholly known and immutable."""
        unsupported("unsupported_value", f"{self.describe()} is not a constant")

    def as_index(self, tx: Tracer) -> Any:
        """The integer or slice that the value is as an index; None where it can't be one."""
        known = self.constant() if self.is_constant() else None
        return known if isinstance(known, (int, slice)) else None

    def to_plain(self, tx: Tracer) -> Any:
        """The Python value of a tracker made of constants, containers included."""
        if self.is_constant():
            self.check_plain(tx)
            return self.constant()
        unsupported("unsupported_builtin", f"a builtin function on {self.describe()}")

    def is_none(self) -> bool:
        """Whether the value is None. The type is asked first: the value of a symbolic number is a guard."""
        return self.is_constant() and self.python_type() is types.NoneType and self.constant() is None

    def is_not_implemented(self) -> bool:
        """Whether the value is NotImplemented."""
        return self.is_constant() and self.python_type() is types.NotImplementedType

    def example(self) -> Any:
        """A value of this one's type, for questions about the type alone."""
        return self.constant()

    def hash_key(self) -> Any:
        """What stands for the value as a key of a dict or member of a set."""
        unsupported("unsupported_value", f"{self.describe()} as a dict key")

    def guard_hash(self, tx: Tracer) -> None:
        """Guards what :meth:`hash_key` has relied on."""

    # -- what the class of a constant defines
    def own_method(self, tx: Tracer, name: str) -> Any:
        """The special method of the program's own by which Python would do something with a constant, so that it has
        to be evaluated; None where what Python does is known by the value alone. Guarded either way."""
        return None

    def call_own(self, tx: Tracer, name: str, *args: VariableTracker) -> VariableTracker | None:
        """What that method gives, None where there is none."""
        method = self.own_method(tx, name)
        if method is None:
            return None
        if not isinstance(method, (types.FunctionType, staticmethod, classmethod)):
            unsupported("unsupported_method", f"{name} of {self.describe()}, a {type(method).__qualname__}")
        return realized(tx, tx.classes.call_attribute(self, self.python_type(), name, method, list(args), {}))

    def asks_own(self, tx: Tracer, *names: str) -> bool:
        """Whether a constant, or a part of it, has one of these."""
        return False

    def own_comparison(self, tx: Tracer, op: str) -> str | None:
        """The name of the method of that kind by which a comparison is decided."""
        return None

    def check_plain(self, tx: Tracer, texts: bool = True) -> None:
        """Refuses to hand a constant to a function in C that may call such methods.

        Args:
            texts: whether it may ask for a text of the value.
        """

    def same_object(self, other: VariableTracker) -> bool | None:
        """Whether both are one object (`is`); None when that can't be told."""
        if self is other:
            return True
        return False if self.has_identity or other.has_identity else None

    def may_be_the_same(self, other: VariableTracker) -> bool | None:
        """:meth:`same_object` for what has a tracker for each place where it is found, though it may be one object."""
        twice = type(self) is type(other) and self is not other and None not in (self.source, other.source)
        return None if twice else self is other

    # -- the graph
    def as_argument(self, tx: Tracer) -> Any:
        """The value as an argument of a graph node."""
        unsupported("unsupported_torch_call", f"{self.describe()} as an argument of a torch function")

    def contains_tensor(self) -> bool:
        """Whether a tensor stands in the value, so that an operation on it belongs into the graph."""
        return False

    # -- generated code
    def reconstruct(self, cg: Codegen) -> None:
        """Emits code that pushes the value."""
        unsupported("unsupported_value", f"rebuilding {self.describe()} after the graph")

    # -- Python's protocols
    def initialize(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        """value.__init__(*args, **kwargs) of a builtin's; ``__new__`` has seen to what can't be changed."""
        if kwargs:
            tx.raise_error(TypeError, f"{self.python_type().__name__}() takes no keyword arguments")

    def truth(self, tx: Tracer) -> bool:
        """bool(value)."""
        unsupported("unsupported_value", f"truth of {self.describe()}")

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        """value.name; raises AttributeError as an ObservedException."""
        cls = self.python_type()
        if not hasattr(cls, name) and cls.__dictoffset__ == 0:
            tx.raise_error(AttributeError, f"{type_name(cls)!r} object has no attribute {name!r}")
        unsupported("unsupported_attribute", f"{self.describe()}.{name}")

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        """value.name = value."""
        unsupported("side_effect_unsupported", f"setting {name!r} of {self.describe()}")

    def delattr(self, tx: Tracer, name: str) -> None:
        """del value.name."""
        unsupported("side_effect_unsupported", f"deleting {name!r} of {self.describe()}")

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        """value(*args, **kwargs)."""
        unsupported("call_skipped", f"calling {self.describe()}")

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """value.name(*args, **kwargs)."""
        found = self.getattr(tx, name)
        if found.is_method_of(self, name) and name not in tx.special_methods:  # it would only call this again
            unsupported("unsupported_method", f"{self.describe()}.{name}()")
        return found.call(tx, args, kwargs)

    def length(self, tx: Tracer) -> VariableTracker:
        """len(value)."""
        return tx.call_special(self, "__len__")

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        """value[key]."""
        return tx.call_special(self, "__getitem__", key)

    def setitem(self, tx: Tracer, key: VariableTracker, value: VariableTracker) -> None:
        """value[key] = value."""
        tx.call_special(self, "__setitem__", key, value)

    def delitem(self, tx: Tracer, key: VariableTracker) -> None:
        """del value[key]."""
        tx.call_special(self, "__delitem__", key)

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        """item in value."""
        for candidate in self.iterate(tx):
            if tx.operators.same_or_equal(candidate, item):
                return True
        return False

    def iterate(self, tx: Tracer) -> Iterable[VariableTracker]:
        """The elements, each fetched as it is asked for."""
        iterator = tx.iteration.get_iter(self)
        while (item := iterator.next(tx)) is not None:
            yield item

    def iterator(self, tx: Tracer) -> VariableTracker:
        """iter(value): a tracker with :meth:`next`."""
        unsupported("unsupported_iteration", f"iterating over {self.describe()}")

    def reversed(self, tx: Tracer) -> VariableTracker:
        """reversed(value)."""
        tx.raise_error(TypeError, f"{type_name(self.python_type())!r} object is not reversible")

    def next(self, tx: Tracer) -> VariableTracker | None:
        """next(value), None when exhausted."""
        unsupported("unsupported_iteration", f"next() of {self.describe()}")

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        """value `op` other (other `op` value when reflected); None stands for NotImplemented."""
        return None

    def inplace(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        """value `op`= other where the type changes itself; None when it falls back to the plain operator."""
        return None

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        """value `op` other for a comparison; None stands for NotImplemented."""
        return None

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        """op value for one of ``- + ~``."""
        names = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}
        return tx.call_special(self, names[op])

    def __repr__(self) -> str:
        return f"<{self.describe()}>"


def instance_dict(value: Any) -> dict[str, Any] | None:
    """The object's own dict, found without running user code."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return own if isinstance(own, dict) else None


class IteratorVariable(VariableTracker):
    """The base of iterators of builtin types: each is its own iterator, and true."""

    has_identity = True

    def iterator(self, tx: Tracer) -> VariableTracker:
        return self

    def truth(self, tx: Tracer) -> bool:
        return True

    def check_replay(self, effects: Any) -> None:
        """Refuses to move the real iterator, if it is one from outside, where the program has left it."""

    def replay(self, cg: Codegen) -> None:
        """Emits what moves it there."""
        unsupported("side_effect_unsupported", f"taking from {self.describe()}")

    def hash_key(self) -> Any:
        return ("object", id(self))

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        return tx.builtin_method(self, name) if name in ("__next__", "__iter__") else super().getattr(tx, name)


# ---------------------------------------------------------------- from Python values to trackers
Wrapper = Callable[[Any, Any, Source], VariableTracker]
_BY_TYPE: ClassTable[Wrapper] = ClassTable("wrapped")
# Registers ``(tx, value, source) -> tracker`` for values of exactly these types.
wraps_type = _BY_TYPE.register
_BY_TEST: list[tuple[int, Callable[[Any], bool], Wrapper]] = []


def wraps_if(test: Callable[[Any], bool], rank: int) -> Callable[[Wrapper], Wrapper]:
    """Registers a wrapper for values that pass a test; lower ranks are asked first."""

    def register(wrapper: Wrapper) -> Wrapper:
        _BY_TEST.append((rank, test, wrapper))
        _BY_TEST.sort(key=lambda entry: entry[0])
        return wrapper

    return register


def _looks_itself_up(cls: type) -> bool:
    """Whether instances decide in Python what each of their attributes is, and are plain objects otherwise."""
    native = (torch.nn.Module, torch.Tensor, type)
    return isinstance(cls.__getattribute__, types.FunctionType) and not issubclass(cls, native)


def wrapper_of(value: Any) -> Wrapper | None:
    """What makes the tracker of a value from outside."""
    wrapper = _BY_TYPE.exact(type(value))
    if wrapper is None and _looks_itself_up(type(value)):
        return _BY_TEST[-1][2]  # the tests read attributes, __class__ at least, which would run the user's code
    return wrapper or next((candidate for _, test, candidate in _BY_TEST if test(value)), None)


def wrap_value(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    """The tracker of a value that lives at `source`, guarded; the caller has looked for an existing tracker."""
    wrapper = wrapper_of(value)
    if wrapper is not None:
        return wrapper(tx, value, source)
    unsupported("unsupported_value", f"{source.name} of type {type(value).__qualname__}")


class LazyVariable(VariableTracker):
    """A value at a source that nothing has looked at yet, so that it needs no guard yet."""

    has_identity = True

    def __init__(self, value: Any, source: Source) -> None:
        super().__init__(source)
        self.value = value

    def realize(self, tx: Tracer) -> VariableTracker:
        """The real tracker of the value."""
        assert self.source is not None
        return tx.output.wrap(tx, self.value, self.source)

    def reconstruct(self, cg: Codegen) -> None:
        decision = decide(self.value) if type(self.value) is types.FunctionType else None
        if decision is not None and decision.rule is Rule.STAND_IN:
            cg.emit.load_const(decision.calls)  # plain Python is to call it too
        else:
            cg.load_source(self.source)

    def contains_tensor(self) -> bool:
        return True  # unknown: ask after realize()


def realized(tx: Tracer, value: VariableTracker) -> VariableTracker:
    """`value`, looked at."""
    return value.realize(tx) if isinstance(value, LazyVariable) else value
