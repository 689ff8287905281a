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
    """Whether a class statement (or a call of ``type``) made the class; classes written in C may be heap types, too."""
    if not cls.__flags__ & _HEAP_TYPE or cls.__flags__ & (_NOT_INSTANTIABLE | _IMMUTABLE):
        return False
    new = cls.__dict__.get("__new__")
    return not (isinstance(new, types.BuiltinFunctionType) and new.__self__ is cls)


def type_name(cls: type) -> str:
    """The class's name in CPython's messages (``tp_name``): that of a class written in C includes its module."""
    if is_made_by_python(cls) or cls.__module__ == "builtins":
        return cls.__name__
    return f"{cls.__module__}.{cls.__name__}"


# Include/object.h: Py_TPFLAGS_HEAPTYPE, Py_TPFLAGS_DISALLOW_INSTANTIATION, Py_TPFLAGS_IMMUTABLETYPE
_HEAP_TYPE, _NOT_INSTANTIABLE, _IMMUTABLE = 1 << 9, 1 << 7, 1 << 8


class ObservedException(Exception):
    """An exception that the traced program raises.

    Args:
        value: the tracker of the exception object.
        chained: whether its ``__context__`` is final, because it is raised again or propagates through frames.
    """

    def __init__(self, value: VariableTracker, chained: bool = False) -> None:
        super().__init__(value)
        self.value = value
        self.chained = chained


def unsupported(kind: str, detail: str, hint: str | None = None, visit: int | None = None) -> NoReturn:
    """Raises a graph break at the instruction that is being evaluated, or at the root frame's instruction number
    `visit`; `kind` is an identifier of ``break_kinds``."""
    raise Unsupported(kind, detail, hint=hint, visit=visit)


class VariableTracker:
    """The base class: each method implements an operation of Python on the value, and by default is unsupported.

    Args:
        source: where the value lives, if it came into the frame from outside.
    """

    # Whether the program may rely on the value's identity (`is`), so that the object is built once and shared.
    has_identity: ClassVar[bool] = False
    # Whether the value is a symbolic number: known for this call, possibly different in other calls.
    is_symbolic: ClassVar[bool] = False
    # Where the tracker is the content of an instance of a subclass of a builtin: that instance, which is the object
    # that leaves the trace.
    holder: VariableTracker | None = None
    # The real object, where the tracker knows one.
    value: Any = None
    real: Any = None
    # The builtin value inside an instance of a subclass of a builtin.
    content: VariableTracker | None = None
    # Where the value is a NumPy number that may differ from call to call: the Python number of equal value.
    python_number: VariableTracker | None = None
    # The value's exact class, for trackers that stand for values of several classes.
    cls: Any = None
    # The graph node of a tensor or of a number that is computed from tensors.
    node: Any = None
    # The tracker of the ``__dict__`` of an object made in the trace, once it has been read.
    own_dict: Any = None
    # Iterators: the sequence that is iterated over.
    sequence: Any = None
    # Iterators: the StopIteration that ended the last step, if it was raised in the trace, and the value in it.
    stopped: ObservedException | None = None
    returned: VariableTracker | None = None
    # Order in which changes are replayed: iterators that take from other iterators first, then these, then containers.
    replayed = 2
    # The epoch in which an attribute was last changed.
    changed_at = 0
    # The source of its own ``__dict__``, cached by `containers.spaces.dict_source`.
    dict_source: Source | None = None

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    # -- type, constant value, hash key
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
        """Adds the guards that the text of a constant needs beyond those on its identity."""

    def known_items(self) -> list[VariableTracker] | None:
        """The elements of a list, tuple or deque; None for anything else."""
        return None

    def is_method_of(self, owner: VariableTracker, name: str) -> bool:
        """Whether this is method `name` of a builtin bound to `owner`, so that a call goes to
        ``owner.call_method``."""
        return False

    def constant(self) -> Any:
        """The Python value, for values that are fully known and immutable."""
        unsupported("unsupported_value", f"{self.describe()} is not a constant")

    def as_index(self, tx: Tracer) -> Any:
        """The integer or slice that the value stands for as an index; None where it can't be used as one."""
        known = self.constant() if self.is_constant() else None
        return known if isinstance(known, (int, slice)) else None

    def as_tensor_index(self, tx: Tracer) -> VariableTracker:
        """The value as an index of a tensor: a tensor for an array of NumPy's."""
        return self

    def to_plain(self, tx: Tracer) -> Any:
        """The Python value of a tracker made of constants, containers included."""
        if self.is_constant():
            self.check_plain(tx)
            return self.constant()
        unsupported("unsupported_builtin", f"a builtin function on {self.describe()}")

    def is_none(self) -> bool:
        """Whether the value is None. The type is tested first, as reading the value of a symbolic number guards it."""
        return self.is_constant() and self.python_type() is types.NoneType and self.constant() is None

    def is_not_implemented(self) -> bool:
        """Whether the value is NotImplemented."""
        return self.is_constant() and self.python_type() is types.NotImplementedType

    def example(self) -> Any:
        """A value of the same type, for questions that depend on the type alone."""
        return self.constant()

    def hash_key(self) -> Any:
        """A hashable object that represents the value as a key of a dict or member of a set."""
        unsupported("unsupported_value", f"{self.describe()} as a dict key")

    def guard_hash(self, tx: Tracer) -> None:
        """Adds guards on the facts that :meth:`hash_key` relied on."""

    # -- special methods that the class of a constant defines
    def own_method(self, tx: Tracer, name: str) -> Any:
        """The special method `name` that the program defines for the class of a constant and that Python would call,
        so that it has to be evaluated; None where the value alone determines the result. Guarded either way."""
        return None

    def call_own(self, tx: Tracer, name: str, *args: VariableTracker) -> VariableTracker | None:
        """The result of calling :meth:`own_method`; None where there is none."""
        method = self.own_method(tx, name)
        if method is None:
            return None
        if not isinstance(method, (types.FunctionType, staticmethod, classmethod)):
            unsupported("unsupported_method", f"{name} of {self.describe()}, a {type(method).__qualname__}")
        return realized(tx, tx.classes.call_attribute(self, self.python_type(), name, method, list(args), {}))

    def asks_own(self, tx: Tracer, *names: str) -> bool:
        """Whether a constant, or a part of it, has a special method of the program's with one of these names."""
        return False

    def own_comparison(self, tx: Tracer, op: str) -> str | None:
        """The name of the program's own method that decides the comparison `op`, None where there is none."""
        return None

    def check_plain(self, tx: Tracer, texts: bool = True) -> None:
        """Breaks the graph if a constant has methods of the program's that a function written in C might call.

        Args:
            texts: whether the function may call the methods that make a text of the value.
        """

    def same_object(self, other: VariableTracker) -> bool | None:
        """Whether both are one object (`is`); None when that can't be told."""
        if self is other:
            return True
        return False if self.has_identity or other.has_identity else None

    def may_be_the_same(self, other: VariableTracker) -> bool | None:
        """:meth:`same_object` for values that get a tracker for each place where they are found, though these may hold
        one object."""
        twice = type(self) is type(other) and self is not other and None not in (self.source, other.source)
        return None if twice else self is other

    # -- the graph
    def as_argument(self, tx: Tracer) -> Any:
        """The value as an argument of a graph node."""
        unsupported("unsupported_torch_call", f"{self.describe()} as an argument of a torch function")

    def contains_tensor(self) -> bool:
        """Whether the value is or contains a tensor, so that an operation on it belongs in the graph."""
        return False

    # -- generated code
    def reconstruct(self, cg: Codegen) -> None:
        """Emits code that pushes the value."""
        unsupported("unsupported_value", f"rebuilding {self.describe()} after the graph")

    # -- Python's protocols
    def initialize(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        """value.__init__(*args, **kwargs) of a builtin class; ``__new__`` has set the parts that are immutable."""
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
        if found.is_method_of(self, name) and name not in tx.special_methods:  # its call would only call this again
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
        """The elements, each taken when it is requested."""
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
        """value `op`= other where the type mutates the value; None when Python falls back to the plain operator."""
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
    """The object's own ``__dict__``, read without running user code."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return own if isinstance(own, dict) else None


class IteratorVariable(VariableTracker):
    """The base class of iterators of builtin types: each is its own iterator, and its truth is True."""

    has_identity = True

    def iterator(self, tx: Tracer) -> VariableTracker:
        return self

    def truth(self, tx: Tracer) -> bool:
        return True

    def check_replay(self, effects: Any) -> None:
        """Breaks the graph if the real iterator, where it came from outside, can't be advanced to the position at which
        the program left it."""

    def replay(self, cg: Codegen) -> None:
        """Emits code that advances the real iterator to that position."""
        unsupported("side_effect_unsupported", f"taking from {self.describe()}")

    def hash_key(self) -> Any:
        return ("object", id(self))

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        return tx.builtin_method(self, name) if name in ("__next__", "__iter__") else super().getattr(tx, name)


# ---------------------------------------------------------------- from Python values to trackers
Wrapper = Callable[[Any, Any, Source], VariableTracker]
_BY_TYPE: ClassTable[Wrapper] = ClassTable("wrapped")
# Registers a wrapper ``(tx, value, source) -> tracker`` for values of exactly these types.
wraps_type = _BY_TYPE.register
_BY_TEST: list[tuple[int, Callable[[Any], bool], Wrapper]] = []


def wraps_if(test: Callable[[Any], bool], rank: int) -> Callable[[Wrapper], Wrapper]:
    """Registers a wrapper for values that pass a test; tests of lower rank run first."""

    def register(wrapper: Wrapper) -> Wrapper:
        _BY_TEST.append((rank, test, wrapper))
        _BY_TEST.sort(key=lambda entry: entry[0])
        return wrapper

    return register


def _looks_itself_up(cls: type) -> bool:
    """Whether the class defines ``__getattribute__`` in Python and its instances are otherwise plain objects."""
    native = (torch.nn.Module, torch.Tensor, type)
    return isinstance(cls.__getattribute__, types.FunctionType) and not issubclass(cls, native)


def wrapper_of(value: Any) -> Wrapper | None:
    """The function that makes the tracker of a value from outside."""
    wrapper = _BY_TYPE.exact(type(value))
    if wrapper is None and _looks_itself_up(type(value)):
        return _BY_TEST[-1][2]  # the tests read attributes, at least __class__, which would run the user's code
    return wrapper or next((candidate for _, test, candidate in _BY_TEST if test(value)), None)


def wrap_value(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    """A new tracker, with guards, of a value that lives at `source`; the caller has found no existing tracker."""
    wrapper = wrapper_of(value)
    if wrapper is not None:
        return wrapper(tx, value, source)
    unsupported("unsupported_value", f"{source.name} of type {type(value).__qualname__}")


class LazyVariable(VariableTracker):
    """A value at a source that the trace has not read yet, so that it needs no guard yet."""

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
            cg.emit.load_const(decision.calls)  # plain Python has to call the stand-in, too
        else:
            cg.load_source(self.source)

    def contains_tensor(self) -> bool:
        return True  # unknown before realize()


def realized(tx: Tracer, value: VariableTracker) -> VariableTracker:
    """`value` itself, or its real tracker if it is lazy."""
    return value.realize(tx) if isinstance(value, LazyVariable) else value
