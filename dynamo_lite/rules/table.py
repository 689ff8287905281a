"""What becomes of a call that is traced: the table from callables and modules to rules, and the function that reads it,
:func:`decide`.

A row is written next to its implementation, by a decorator (``handles``, ``replaces``, ``stands_in_for``, ``looks_at``)
or a call (``row``, ``module``, ``breaks``); rows that need no implementation are in ``trace_rules``. The most specific
row applies. In order: the user's rule for the callable, its own row, the row of the class's method that it binds, the
row of its class, that of the longest prefix of its module's name, and a default (``docs/design/calls.md``).

Invariants: a callable has one row, and a second one is an error at import. The decision depends only on the callable
and on the user's rules for it, so it is the same at every call. Nothing here knows how calls are traced.
"""
from __future__ import annotations

import dataclasses
import enum
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import torch

from .. import config, log
from ..break_kinds import BREAK_KINDS
from . import torch_marks


class Rule(enum.Enum):
    """What the compiler makes of a call."""

    __hash__ = object.__hash__  # implemented in C: rules are keys of tables that are read at each call

    GRAPH = "a graph node"
    ELEMENTS = "a graph node where its tensors' elements are known, and a break elsewhere"
    INLINE = "inlined"
    SKIP = "called in plain Python, which breaks the graph"
    CONSTANT = "called once, while compiling"
    FOLD = "computed while compiling, from constants"
    DEFERRED = "called after the graph, if its arguments are known"
    ASKED = "asked while compiling, and by a guard at every call"
    HANDLED = "evaluated by a function of the compiler's"
    RANDOM = "drawn by the graph each time it runs"
    REPLACED = "traced as the Python equivalent of a function or class written in C"
    STAND_IN = "a call of another function, in plain Python behind a break, too"
    SUBSTITUTED = "traced as a call of another function"
    BELOW = "a call of the function of torch's that it wraps"
    COMPILED = "a call of what torch.compile was given"
    LOOKED_AT = "what a function of the compiler's makes of it when it is looked at"
    CONSTRUCTED = "constructed: __new__ and __init__ of the class are followed"
    RECEIVER = "evaluated by the value whose method it is; a break, if it is no method"


class Level(enum.IntEnum):
    """How specific a decision is: if several apply, that of the lowest level is taken."""

    USER = 0
    CALLABLE = 1
    METHOD = 2
    CLASS = 3
    MODULE = 4
    DEFAULT = 5


@dataclasses.dataclass(frozen=True)
class Decision:
    """A rule with its details.

    Attributes:
        rule: what becomes of a call.
        kind: the kind of break, if the call breaks the graph.
        reason: the reason, in words.
        calls: the function that evaluates the call or is called in its place; None if the rule needs none.
        bound: whether the row of a method also applies to the method of a known object, such as ``random.random``.
        of_tensor: whether it is an operation on its first argument, a tensor: torch's overrides and modes are asked
            before it is evaluated, and a call whose first argument is something else is left to torch.
        level: the kind of row that gave the decision.
        subject: the callable, code or name that the row is about.
        place: file and line where the row is written.
    """

    rule: Rule
    kind: str = "call_skipped"
    reason: str = ""
    calls: Any = None
    bound: bool = False
    of_tensor: bool = False
    level: Level = Level.DEFAULT
    subject: Any = None
    place: tuple[str, int] | None = None

    def where(self) -> str:
        """The place where the row is written, as ``file:line``."""
        return f"{self.place[0]}:{self.place[1]}" if self.place is not None else "the defaults of rules.table"


class RuleError(ValueError):
    """A row that is not possible: a second one for a callable, or one with contradictory details."""


F = TypeVar("F", bound=Callable[..., Any])

# Rows by the id of a callable or its code. A row holds its subject, so that the id is not reused.
_rows: dict[Any, Decision] = {}
# Rows that apply to all instances of a class.
_instances: dict[type, Decision] = {}
# Rows by the prefix of a module's name for functions written in Python, by the whole name for functions written in C.
_modules: dict[str, Decision] = {}
# Rows whose callable is given by name, as its module may not be imported yet: module -> name in it -> the row.
_waiting: dict[str, dict[str, Decision]] = {}
# Rules of users: for callables (with a weak reference where possible), and for modules and names.
_of_users: dict[int, tuple[Callable[[], Any], Decision]] = {}
_modules_of_users: dict[str, Decision] = {}
_waiting_of_users: dict[str, dict[str, Decision]] = {}
# Remembered results of :func:`decide_module`.
_by_module: dict[str, Decision] = {}

_BREAKING = (Rule.SKIP, Rule.ELEMENTS)
_CALLING = (Rule.HANDLED, Rule.RANDOM, Rule.REPLACED, Rule.STAND_IN, Rule.SUBSTITUTED, Rule.LOOKED_AT)
_NATIVE = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
           types.ClassMethodDescriptorType, torch._ops.OpOverload, torch._ops.OpOverloadPacket)


# ---------------------------------------------------------------- registering
def _caller() -> tuple[str, int]:
    """The file and line outside this module from which the current registration was called."""
    frame = sys._getframe(1)
    while frame.f_globals is globals() and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _key(subject: Any) -> Any:
    """The key of a row. A class method written in C is bound to a new object at each attribute access, so its key is
    the class's id and the name."""
    owner = getattr(subject, "__self__", None) if type(subject) is types.BuiltinFunctionType else None
    return id(subject) if owner is None or isinstance(owner, types.ModuleType) else (id(owner), subject.__name__)


def describe(subject: Any) -> str:
    """Text for a callable or name."""
    if isinstance(subject, (str, types.CodeType)):
        return subject if isinstance(subject, str) else f"the code of {subject.co_qualname}"
    module = getattr(subject, "__module__", None) or getattr(getattr(subject, "__objclass__", None), "__module__", None)
    name = getattr(subject, "__qualname__", None) or getattr(subject, "__name__", None) or repr(subject)
    return name if module in (None, "builtins") else f"{module}.{name}"


def _add(rows: dict[Any, Decision], key: Any, new: Decision) -> None:
    """Adds a row to a table; it is an error if the table has another one under the key."""
    known = rows.setdefault(key, new)
    if known is not new:
        _refuse_second(known, new)


def _refuse_second(known: Decision, new: Decision) -> NoReturn:
    same = (known.rule, known.kind, known.calls) == (new.rule, new.kind, new.calls)
    what = "is registered twice" if same else (
        f"has contradictory rules: {known.rule.name} at {known.where()}, {new.rule.name} at {new.where()}")
    raise RuleError(f"{describe(new.subject)} {what}" + (f": at {known.where()} and {new.where()}" if same else ""))


def _check(decision: Decision) -> None:
    """Refuses rows whose details contradict each other."""
    if decision.rule in _BREAKING and decision.kind not in BREAK_KINDS:
        said = f"there is no kind of break {decision.kind!r}; break_kinds.py lists them"
        raise RuleError(f"{describe(decision.subject)}: {said}")
    if (decision.calls is not None) != (decision.rule in _CALLING):
        lacks = "needs" if decision.calls is None else "takes no"
        raise RuleError(f"{describe(decision.subject)}: the rule {decision.rule.name} {lacks} function to call")


def row(rule: Rule, *subjects: Any, kind: str = "call_skipped", reason: str = "",
        calls: Callable[..., Any] | None = None, bound: bool = False, of_tensor: bool = False) -> None:
    """Adds a row for each of these callables. They are given as objects, as the code of functions that are created anew
    for each use, or as names ``"package.module:name"``, which take effect once that module is imported.

    Raises:
        RuleError: one of them already has a row.
    """
    place = _caller()
    for subject in subjects:
        new = Decision(rule, kind, reason, calls, bound, of_tensor, Level.CALLABLE, subject, place)
        _check(new)
        if isinstance(subject, str):
            _wait(_waiting, subject, new)
        else:
            _add(_rows, _key(subject), new)


def instances(rule: Rule, *classes: type, kind: str = "call_skipped", reason: str = "") -> None:
    """Adds a row for each of these classes; it applies to calls of all instances that have no row of their own."""
    place = _caller()
    for cls in classes:
        new = Decision(rule, kind, reason, level=Level.CLASS, subject=cls, place=place)
        _check(new)
        _add(_instances, cls, new)


def module(rule: Rule, *prefixes: str, kind: str = "call_skipped", reason: str = "") -> None:
    """Adds a row for the functions of each of these modules, and of their submodules that have no row. It applies to
    functions written in C only if they are in the module itself.

    Raises:
        RuleError: one of them already has a row.
    """
    place = _caller()
    for prefix in prefixes:
        new = Decision(rule, kind, reason, level=Level.MODULE, subject=prefix, place=place)
        _check(new)
        _add(_modules, prefix, new)
    _by_module.clear()


def modules_break(kind: str, *rows: tuple[str, str]) -> None:
    """Makes functions of modules break the graph, with this kind of break. `rows` are pairs (module, reason in
    words)."""
    for prefix, reason in rows:
        module(Rule.SKIP, prefix, kind=kind, reason=reason)


def breaks(kind: str, *subjects: Any, reason: str = "") -> None:
    """Makes calls of these callables break the graph, with this kind of break."""
    row(Rule.SKIP, *subjects, kind=kind, reason=reason)


def handles(*subjects: Any, bound: bool = False, of_tensor: bool = False) -> Callable[[F], F]:
    """Decorator: registers ``(tx, *args, **kwargs) -> tracker``, which evaluates calls of these functions and
    classes."""
    return _calling(Rule.HANDLED, subjects, bound, of_tensor)


def replaces(*subjects: Any) -> Callable[[F], F]:
    """Decorator: registers a Python function that is traced in place of these functions, which are written in C."""
    return _calling(Rule.REPLACED, subjects)


def stands_in_for(*subjects: Any) -> Callable[[F], F]:
    """Decorator: registers a Python function that is called in place of these, in the graph and in plain Python."""
    return _calling(Rule.STAND_IN, subjects)


def looks_at(*subjects: Any) -> Callable[[F], F]:
    """Decorator: registers ``(tx, function, source) -> tracker``, which makes the tracker of these functions, or of
    functions with this code, when they are looked at."""
    return _calling(Rule.LOOKED_AT, subjects)


def _calling(
    rule: Rule, subjects: tuple[Any, ...], bound: bool = False, of_tensor: bool = False
) -> Callable[[F], F]:
    def register(function: F) -> F:
        row(rule, *subjects, calls=function, bound=bound, of_tensor=of_tensor)
        return function

    return register


def _wait(table: dict[str, dict[str, Decision]], name: str, new: Decision) -> None:
    home, colon, path = name.partition(":")
    if not colon or not home or not path:
        raise RuleError(f"{name!r} names no callable: that is 'package.module:name', with a colon")
    _add(table.setdefault(home, {}), path, new)


def _find_waiting() -> bool:
    """Adds the rows of callables given by name whose modules have been imported meanwhile. True if there are any."""
    found = False
    for table in (_waiting, _waiting_of_users):
        for home in [name for name in table if name in sys.modules]:
            loaded = sys.modules[home]
            if getattr(getattr(loaded, "__spec__", None), "_initializing", False):
                continue
            for path, decision in table.pop(home).items():
                found |= _give(loaded, path, decision)
    return found


def _give(loaded: Any, path: str, decision: Decision) -> bool:
    subject = loaded
    for name in path.split("."):
        subject = getattr(subject, name, None)
    if not callable(subject):
        if decision.level is Level.USER:
            log.warn_once(f"the rule for {decision.subject}: there is no such callable ({decision.where()})")
        return False  # a row of dynamo_lite: this version of the module does not have the function
    if decision.level is Level.USER:
        _say(subject, decision)
    else:
        _add(_rows, _key(subject), dataclasses.replace(decision, subject=subject))
    return True


# ---------------------------------------------------------------- the users' rules
def mark(function: Any, decision: Decision) -> None:
    """Sets the user's decision about a callable; a later one replaces it."""
    _say(function, dataclasses.replace(decision, level=Level.USER, subject=describe(function),
                                       place=decision.place or _caller()))


def _say(function: Any, decision: Decision) -> None:
    key = id(function)
    try:
        kept: Callable[[], Any] = weakref.ref(function, lambda _: _of_users.pop(key, None))
    except TypeError:  # no weak reference is possible, for example to an instance of a class with __slots__
        kept = lambda: function
    _of_users[key] = kept, decision


def say(subject: Any, decision: Decision) -> None:
    """Sets the user's rule for a callable, a module, or a callable given by name.

    Raises:
        RuleError: there is one already, or it is not possible.
    """
    new = dataclasses.replace(decision, level=Level.USER, subject=describe(subject), place=_caller())
    _check(new)
    known: Decision | None
    if not isinstance(subject, str):
        known = _said(subject)
        if known is None:
            _say(subject, new)
    elif ":" in subject:
        home = subject.partition(":")[0]
        if home in sys.modules:
            say(_resolve(sys.modules[home], subject), decision)
            return
        _wait(_waiting_of_users, subject, new)
        known = None
    else:
        known = _modules_of_users.setdefault(subject, new)
        _by_module.clear()
    if known is not None and known is not new:
        _refuse_second(known, new)


def unsay(subject: Any) -> None:
    """Removes the user's rule for a callable, a module, or a callable given by name.

    Raises:
        RuleError: there is no such rule.
    """
    found: Any
    if not isinstance(subject, str):
        found = _of_users.pop(id(subject), None) if _said(subject) is not None else None
    elif ":" in subject:
        home, _, path = subject.partition(":")
        found = _waiting_of_users.get(home, {}).pop(path, None)
        if found is None and home in sys.modules:
            unsay(_resolve(sys.modules[home], subject))
            return
    else:
        found = _modules_of_users.pop(subject, None)
        _by_module.clear()
    if found is None:
        raise RuleError(f"{describe(subject)} has no rule of the user's")


def _resolve(loaded: Any, name: str) -> Any:
    subject = loaded
    for part in name.partition(":")[2].split("."):
        subject = getattr(subject, part, None)
    if not callable(subject):
        raise RuleError(f"{name}: there is no such callable in {loaded.__name__}")
    return subject


def _said(function: Any) -> Decision | None:
    if _waiting_of_users:
        _find_waiting()
    found = _of_users.get(id(function))
    return found[1] if found is not None and found[0]() is function else None


_DISALLOWED = Decision(Rule.SKIP, "disallowed_function", "torch._dynamo.disallow_in_graph", level=Level.USER)
_ALLOWED = Decision(Rule.GRAPH, reason="torch.compiler.allow_in_graph", level=Level.USER)


def _said_to_torch(function: Any) -> Decision | None:
    """The user's decision about a function, made by torch's decorators."""
    allowed = torch_marks.is_allowed(function)
    return None if allowed is None else _ALLOWED if allowed else _DISALLOWED


def row_of(function: Any) -> Decision | None:
    """The user's rule for a callable, or else its row; None if there is neither, so that a default applies. This is for
    methods, which are looked up at each call and for which torch's compiler has no marks."""
    if _of_users or _waiting_of_users:
        said = _said(function)
        if said is not None and not _is_nothing_new(said, function):
            return said
    return _rows.get(id(function))


# ---------------------------------------------------------------- deciding
_INLINE = Decision(Rule.INLINE, reason="it is written in Python")
_TORCHS = Decision(Rule.GRAPH, reason="a function of torch's, written in C")
_SETTER = Decision(Rule.SKIP, "torch_state", "it sets a switch of torch's")
_CONSTRUCTED = Decision(Rule.CONSTRUCTED)
_RECEIVER = Decision(Rule.RECEIVER, reason="it is written in C")


def decide(function: Any) -> Decision:
    """What becomes of a call of any callable, and why."""
    if _of_users or _waiting_of_users:
        said = _said(function)
        if said is not None and not _is_nothing_new(said, function):
            return said
    cls = type(function)  # not isinstance(), which may run the program's code
    python = cls is types.FunctionType
    native = not python and issubclass(cls, _NATIVE)
    if native or python and torch_marks.is_marked(function):
        traced = torch_marks.substitute(function)
        if traced is not None:
            return Decision(Rule.SUBSTITUTED, reason="torch.compiler.substitute_in_graph", calls=traced,
                            level=Level.USER)
    if native:
        said = _said_to_torch(function)
        if said is not None and not _is_nothing_new(said, function):
            return said
    found = _rows.get(id(function))
    if found is not None:
        return found
    if _waiting and _find_waiting():
        return decide(function)
    if python:
        return _decide_python(function)
    if issubclass(cls, type):
        return _CONSTRUCTED
    if cls is types.MethodType:
        return decide(function.__func__)
    if native:
        return _decide_native(function)
    bases = cls.__mro__ if _instances else ()
    return next((_instances[base] for base in bases if base in _instances), _RECEIVER)


def _is_nothing_new(said: Decision, function: Any) -> bool:
    """Whether a user's decision has no effect: it allows a function of torch written in C in the graph, where that is
    the default and no row makes it break."""
    row = _rows.get(id(function))
    return said.rule is Rule.GRAPH and is_torch_builtin(function) and (row is None or row.rule is not Rule.SKIP)


def _decide_python(function: types.FunctionType) -> Decision:
    found = _rows.get(id(function.__code__))
    if found is not None:
        return found
    if torch_marks.below_plain_call(function) is not None:
        return Decision(Rule.INLINE, reason="torch.compile puts it around what it compiles")
    if not torch_marks.is_marked(function):
        return decide_module(home(function))
    inner = torch_marks.below_own_patch(function)
    if inner is not None:
        return Decision(Rule.BELOW, reason="a wrapper that torch.compile puts around parts of torch", calls=inner)
    compiled = torch_marks.below_torch_compile(function)
    if compiled is not None:
        return Decision(Rule.COMPILED, reason="torch.compile made it", calls=compiled)
    disabled = torch_marks.disabled(function)
    if disabled is not None:
        return Decision(Rule.SKIP, "disabled_function", disabled.reason, level=Level.USER)
    if getattr(function, torch_marks.FORBIDDEN, False):
        return Decision(Rule.SKIP, "disallowed_function", "torch._dynamo.forbid_in_graph", level=Level.USER)
    if getattr(function, torch_marks.CONSTANT, False):
        return Decision(Rule.CONSTANT, reason="torch.compiler.assume_constant_result", level=Level.USER)
    return _said_to_torch(function) or decide_module(home(function))


def home(function: types.FunctionType) -> str:
    """The module that defines a function. Not ``__module__``, which functools.wraps copies from the wrapped function:
    the wrapper is what runs, and its globals tell where it is from."""
    name = function.__globals__.get("__name__")
    return name if isinstance(name, str) else ""


def decide_module(name: str) -> Decision:
    """What becomes of calls of a module's functions that are written in Python."""
    found = _by_module.get(name)
    if found is None:
        prefix = name
        while (found := _said_of_module(prefix) or _modules.get(prefix)) is None and prefix:
            prefix = prefix.rpartition(".")[0]
        found = _by_module[name] = found or _INLINE
    return found


def _said_of_module(name: str) -> Decision | None:
    """The user's rule for exactly this module."""
    if name in config.extra_skip_modules:
        return Decision(Rule.SKIP, reason="config.extra_skip_modules", level=Level.USER, subject=name)
    if name in config.extra_inline_modules:
        return Decision(Rule.INLINE, reason="config.extra_inline_modules", level=Level.USER, subject=name)
    return _modules_of_users.get(name)


for _setting in ("extra_inline_modules", "extra_skip_modules"):
    config.watch(_setting, _by_module.clear)


def _decide_native(function: Any) -> Decision:
    """The decision about a function written in C that has no row under its id."""
    owner: Any = getattr(function, "__self__", None)
    in_module = isinstance(owner, types.ModuleType)
    if owner is not None and not in_module:
        found = _rows.get((id(owner), function.__name__))
        if found is None and type(function) is types.BuiltinFunctionType:
            bases = (vars(cls) for cls in type(owner).__mro__)
            method = next((base[function.__name__] for base in bases if function.__name__ in base), None)
            found = _rows.get(id(method))
            found = dataclasses.replace(found, level=Level.METHOD) if found is not None and found.bound else None
        if found is not None:
            return found
    if is_torch_builtin(function):
        return _SETTER if sets_state(function) else _TORCHS
    if in_module:
        by_module = decide_module(owner.__name__)
        if by_module.level is Level.USER or by_module.subject == owner.__name__:
            return by_module
    return _RECEIVER


def class_method_row(function: Any) -> Any:
    """The class method written in C that a callable binds to a class, if it has a row; None otherwise.

    The bound method is a new object at each access; the row is that of the descriptor.
    """
    if type(function) is not types.BuiltinFunctionType or not isinstance(function.__self__, type):
        return None
    for base in function.__self__.__mro__:
        method = base.__dict__.get(function.__name__)
        if method is not None:
            return method if type(method) is types.ClassMethodDescriptorType and id(method) in _rows else None
    return None


def is_torch_builtin(value: Any) -> bool:
    """Whether a value is a function of torch that is written in C."""
    cls = type(value)  # not isinstance(), which may run the program's code
    if issubclass(cls, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    if not issubclass(cls, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)):
        return False
    module = getattr(value, "__module__", None) or ""
    if module == "torch" or module.startswith("torch."):
        return True
    owner = getattr(value, "__self__", None)
    if isinstance(owner, (torch.Tensor, torch.device, torch.dtype, torch.finfo, torch.iinfo, torch.Size)):
        return False  # a method of a tensor or of a constant
    if owner is not None and not isinstance(owner, types.ModuleType):
        return type(owner).__module__.startswith("torch") or (
            isinstance(owner, type) and owner.__module__.startswith("torch")
        )
    return getattr(value, "__objclass__", None) in (torch.Tensor, torch._C.TensorBase)


def sets_state(function: Any) -> bool:
    """Whether a function written in C sets a switch of torch; called while tracing, it would do so only once."""
    name = getattr(function, "__name__", "")
    return (isinstance(function, types.BuiltinFunctionType) and name.startswith(("_set_", "set_"))
            and getattr(function, "__module__", None) in ("torch", "torch._C", None) and name != "set_")


def all_rows() -> Iterator[Decision]:
    """All rows, those of users first."""
    _find_waiting()
    yield from (decision for _, decision in _of_users.values())
    yield from _modules_of_users.values()
    for waiting in (_waiting_of_users, _waiting):
        yield from (decision for named in waiting.values() for decision in named.values())
    for table in (_rows, _instances, _modules):
        yield from table.values()
