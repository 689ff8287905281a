"""The errors that dynamo_lite raises. Each message says what happened, where, and what the user can do.

Invariants: an error's text is made when it is shown, not when it is raised, because the interpreter adds the user's
stack while the error propagates. Errors of the user's own program are never wrapped in these classes.
"""
import traceback
from collections.abc import Iterable

from .break_kinds import BREAK_KINDS, BreakKind


class DynamoLiteError(RuntimeError):
    """The base class of all errors that dynamo_lite raises on purpose."""


class Unsupported(DynamoLiteError):
    """A construct that can't be captured: a graph break or, with fullgraph=True, an error for the user.

    `kind` is an identifier of break_kinds.py; `detail` describes in a few words the construct that was met;
    `user_stack` is the position in the user's program, the outermost call first, the statement itself last. `visit`, if
    given, is the instruction of the trace at which the break has to be made; otherwise it is the one that was being
    evaluated.
    """

    def __init__(self, kind: str, detail: str, *, user_stack: Iterable[traceback.FrameSummary] | None = None,
                 hint: str | None = None, visit: int | None = None) -> None:
        assert kind in BREAK_KINDS, f"no break kind {kind!r}; add it to break_kinds.py"
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail
        self.visit = visit
        self.user_stack: list[traceback.FrameSummary] = list(user_stack or ())
        self.hint = hint if hint is not None else BREAK_KINDS[kind].hint

    @property
    def break_kind(self) -> BreakKind:
        return BREAK_KINDS[self.kind]

    @property
    def reason(self) -> str:
        """The construct that was met, in one line."""
        return f"{self.break_kind.what}: {self.detail}" if self.detail else self.break_kind.what

    @property
    def where(self) -> str:
        """`file:line in function` of the statement; "" as long as the interpreter has not added the stack."""
        return place(self.user_stack[-1]) if self.user_stack else ""

    def __str__(self) -> str:
        lines = [f"{self.reason}  [{self.kind}]"]
        if self.user_stack:
            lines += [f"  at {self.where}", *source_line(self.user_stack[-1])]
        return "\n".join([*lines, *self._background()])

    def report(self) -> str:
        """The message with the place first, for logs."""
        line = source_line(self.user_stack[-1]) if self.user_stack else []
        return "\n".join([f"{self.where}: {self.reason}  [{self.kind}]", *line, *self._background()])

    def _background(self) -> list[str]:
        lines = [f"  why: {self.break_kind.why}", f"  hint: {self.hint}"]
        if len(self.user_stack) > 1:
            lines.append("  called from (innermost first)")
            for frame in reversed(self.user_stack[:-1]):
                lines += [f"    {place(frame)}", *source_line(frame, "      ")]
        return lines


class BackendCompilerFailed(DynamoLiteError):
    """A backend raised while it compiled a graph."""

    def __init__(self, backend: str, inner: BaseException) -> None:
        super().__init__(backend, inner)
        self.backend = backend
        self.inner = inner
        self.__cause__ = inner

    def __str__(self) -> str:
        return (f"backend {self.backend!r} failed to compile a graph: {type(self.inner).__name__}: {self.inner}\n"
                "  hint: compile with backend=\"eager\" to see whether the capture is at fault, or set "
                "config.suppress_errors = True to run such frames in plain Python")


class InvalidBackend(DynamoLiteError):
    """A backend name that is not registered."""

    def __init__(self, name: object, known: Iterable[str]) -> None:
        self.known = sorted(known)
        super().__init__(name, self.known)
        self.name = name

    def __str__(self) -> str:
        return (f"no backend {self.name!r}; the known ones are {', '.join(self.known)}, and "
                "dynamo_lite.register_backend adds one")


class RecompileLimitExceeded(DynamoLiteError):
    """A code object was compiled too often, or again under config.error_on_recompile."""


class CompilerMissing(DynamoLiteError):
    """There is no C++ compiler, or it does not run."""

    def __init__(self, compiler: str, detail: str = "") -> None:
        super().__init__(compiler, detail)
        self.compiler = compiler
        self.detail = detail

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return (f"the C++ compiler {self.compiler!r} can't be run{detail}: install g++, or name yours in "
                "config.cpp_compiler or CXX")


class CacheError(DynamoLiteError):
    """The cache folder can't be used."""


class InternalError(DynamoLiteError):
    """A fault of dynamo_lite's own."""


def place(frame: traceback.FrameSummary) -> str:
    """The position of a frame as `file:line in function`."""
    return f"{frame.filename}:{frame.lineno} in {frame.name}"


def source_line(frame: traceback.FrameSummary, indent: str = "    ") -> list[str]:
    """The frame's source line, indented, if the source can be read."""
    line = (frame.line or "").strip()
    return [indent + line] if line else []


def one_line(text: object, limit: int = 200) -> str:
    """Any text as one line of bounded length, for messages."""
    flat = " ".join(str(text).split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."
