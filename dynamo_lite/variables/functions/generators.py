"""Generators: frames that are evaluated up to their next ``yield``.

Invariant: a generator advances exactly when the program requests its values, and no further.
"""
from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...bytecode.analysis import passes_through
from ..base import VariableTracker, unsupported
from ..constant import ConstantVariable
from .binding import VARARGS, VARKEYWORDS

if TYPE_CHECKING:
    from ..protocols import BaseFunctionVariable, Codegen, Tracer
from .equivalents import StandsFor, is_equivalent


class GeneratorVariable(VariableTracker):
    """A generator whose frame is evaluated symbolically, step by step.

    Args:
        frame: the suspended translator of the generator's body.
    """

    has_identity = True

    def __init__(self, frame: Any, function: BaseFunctionVariable, arguments: dict[str, VariableTracker]) -> None:
        super().__init__()
        self.frame = frame
        self.function = function
        self.arguments = arguments
        self.started = False
        self.begun_at: int | None = None  # visit number of the root frame's instruction that started it
        self.finished = False
        self.failed = False  # whether an exception ended it
        self.returned: VariableTracker = ConstantVariable(None)
        self.stands_for: StandsFor | None = None
        self._running = False

    def python_type(self) -> type:
        made_by = self.stands_for.function if self.stands_for is not None else None
        return made_by if isinstance(made_by, type) else types.GeneratorType

    def describe(self) -> str:
        return f"generator of {self.function.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def hash_key(self) -> Any:
        return ("object", id(self))

    def iterator(self, tx: Tracer) -> VariableTracker:
        return self

    def next(self, tx: Tracer) -> VariableTracker | None:
        return self.resume(tx, ConstantVariable(None))

    def resume(self, tx: Tracer, sent: VariableTracker | None, raised: Any = None) -> VariableTracker | None:
        """Runs to the next ``yield``; None when the body returns (its value is in `returned`)."""
        if self.finished:
            if raised is not None:
                raise raised
            if self.failed and is_equivalent(self.function.code()):
                what = f"{self.describe()}, an iterator written in C, which goes on after an error"
                unsupported("generator_frame", what)
            self.returned = ConstantVariable(None)
            return None
        if self._running:
            self._refuse_reentry(tx)
        tx.output.effects.advance(self)
        first = not self.started
        if first and sent is not None and not sent.is_none():
            tx.raise_error(TypeError, "can't send non-None value to a just-started generator")
        if first:
            self.begin(tx)
        if first and raised is not None:
            self.finished = True
            raise raised
        self._running = True
        try:
            value = tx.run_generator(self.frame, None if first else sent, raised)
        except BaseException:
            self.finished = self.failed = True
            raise
        finally:
            self._running = False
        if value is None:
            self.finished = True
            self.failed = self.frame.stopped
            self.returned = self.frame.returned
        return value

    def begin(self, tx: Tracer) -> None:
        """Marks the generator as started, which closing it does, too: from here on a new call would not recreate it."""
        self.started = True
        self.begun_at = tx.root.visits - 1
        tx.output.effects.note_started(self, self.begun_at)

    def _refuse_reentry(self, tx: Tracer) -> None:
        """Handles a request for the next value from the generator's own body: an error in the program."""
        if is_equivalent(self.function.code()):
            unsupported("generator_frame", f"{self.describe()}, which is asked for a value while it is making one")
        tx.raise_error(ValueError, "generator already executing")

    def has_clean_up(self) -> bool:
        """Whether finalization of the generator runs code: it is suspended inside ``with``, or inside ``try`` with a
        handler that catches GeneratorExit."""
        frame = self.frame
        if not self.started or self.finished:
            return False
        names = {**frame.builtins, **frame.globals[0]}
        return not passes_through(frame.decoded.instructions, frame.current, GeneratorExit, names.get)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if self.stands_for is not None and name not in ("__next__", "__iter__"):
            return super().getattr(tx, name)
        if name in _METHODS:
            return tx.builtin_method(self, name)
        if name == "gi_frame":
            return ConstantVariable(None) if self.finished else super().getattr(tx, name)
        return super().getattr(tx, name)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name in _METHODS:
            return _METHODS[name](self, tx, args)
        return super().call_method(tx, name, args, kwargs)

    def _resumed(self, tx: Tracer, sent: VariableTracker | None, raised: Any = None) -> VariableTracker:
        """The next yielded value; raises StopIteration in the program where the generator returns."""
        value = self.resume(tx, sent, raised)
        if value is None:
            tx.errors.raise_stop_iteration(self.returned)
        return value

    def reconstruct(self, cg: Codegen) -> None:
        if self.started:
            what = f"{self.describe()}, begun in the captured part and used after it"
            unsupported("generator_frame", what, visit=self.begun_at)
        if self.stands_for is not None:
            stands_for = self.stands_for
            cg.build_new(self, lambda: stands_for.reconstruct(cg), lambda: None)
            return
        if is_equivalent(self.function.code()):
            unsupported("generator_frame", f"{self.describe()}, a part of an iterator written in C, used after it")

        def arguments() -> None:
            cg.push(self.function)
            cg.emit.load_const(tuple(self.arguments))
            cg.push_all(self.arguments.values())
            cg.emit.build_tuple(len(self.arguments))

        named = self.function.code().co_flags & VARKEYWORDS  # the call unpacks the dict of these
        cg.build_new(self, lambda: cg.call_constant(start_generator, arguments, count=3), lambda: None, not named)


_METHODS: dict[str, Callable[[GeneratorVariable, Tracer, list[VariableTracker]], VariableTracker]] = {
    "__iter__": lambda generator, tx, args: generator,
    "__next__": lambda generator, tx, args: generator._resumed(tx, ConstantVariable(None)),
    "send": lambda generator, tx, args: generator._resumed(tx, args[0]),
    "throw": lambda generator, tx, args: generator._resumed(tx, None, tx.errors.exception_to_raise(args)),
    "close": lambda generator, tx, args: tx.iteration.close_generator(generator),
}


def start_generator(function: types.FunctionType, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """Makes a generator that escapes, by a call with the parameters as they were bound; called by generated code."""
    code, bound = function.__code__, dict(zip(names, values))
    names = code.co_varnames
    npos, nkw = code.co_argcount, code.co_kwonlyargcount
    args = [bound[n] for n in names[:npos]]
    kwargs = {n: bound[n] for n in names[npos : npos + nkw]}
    slot = npos + nkw
    if code.co_flags & VARARGS:
        args.extend(bound[names[slot]])
        slot += 1
    if code.co_flags & VARKEYWORDS:
        kwargs.update(bound[names[slot]])
    return function(*args, **kwargs)
