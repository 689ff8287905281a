"""The frame evaluation hook and the entry of a compiled call.

A `FrameHook` decides about frames of the threads in which it is active. For a frame that is captured it owns
`GuardedCode` entries, listed per code object; a hit runs the entry's code in place of the frame, a miss asks
`compile_frame`. Frames of generators and coroutines, class bodies and modules, frames that are resumed, and all frames
of a thread that is traced (sys.settrace) run as they are; what they call is looked up again.
"""

from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any, Final, TypeVar, final

from dynamo_lite._guards import GuardProgram

_T = TypeVar("_T")

class Decision:
    """What `compile_frame` returns when it made no guarded code."""

RUN_ORIGINAL: Final[Decision]
"""Run this frame as it is, and ask again the next time."""
SKIP: Final[Decision]
"""Never ask about this code again; what it calls is still looked up."""
SKIP_RECURSIVE: Final[Decision]
"""Never ask about this code again, and run it and all it calls without the hook."""
KEEP_ENTRIES: Final[Decision]
"""Run this frame as it is. The entries of this code are still used, but a miss never asks again."""

CompileFrame = Callable[
    [CodeType, dict[str, Any], dict[str, Any], tuple[CellType, ...] | None, tuple[Any, ...], FunctionType],
    "GuardedCode | Decision",
]
"""compile_frame(code, globals, builtins, closure, args, func): args are the frame's first locals, one per parameter,
`*args` as a tuple, `**kwargs` as a dict. It is called with no hook active; what it raises comes out of the call."""

class FrameHook:
    """Owns the entries made for it: they go when the hook goes. Weak references and attributes are allowed."""

    compile_frame: CompileFrame
    roots: Any
    settings: Any
    arguments: dict[str, Any]
    def __init__(self, compile_frame: CompileFrame) -> None: ...

@final
class GuardedCode:
    """Code that stands for a frame while the guards hold.

    `code` takes the frame's arguments, all positional, and as the last one the tuple that the program collects; its
    free variables are those of the frame's code. It returns the result, or a `Continuation`. None: run the frame as
    it is. `needs_hook`: whether what the code calls is to be looked up (after a graph break), or runs without the hook.
    Entries are tried in the order of their last use, but those of smaller `breadth` (0 to 2) first, until these have
    not fitted too often: what fits more calls is slower, and once it were the first it would stand for theirs too.
    `direct`: the code does no more than return `direct(*inputs)[0]`. While nothing watches calls of Python functions,
    `direct` is called without a frame for the code; if it raises, it has changed nothing, and the code runs.
    """

    program: GuardProgram
    code: CodeType | None
    needs_hook: bool
    breadth: int
    direct: Callable[..., Any] | None
    hits: int
    extra: Any
    def __new__(
        cls, program: GuardProgram, code: CodeType | None, needs_hook: bool, *, extra: Any = None, breadth: int = 1,
        direct: Callable[..., Any] | None = None
    ) -> GuardedCode: ...

@final
class Continuation:
    """Returned by guarded code: its caller calls `fn(*args)` in its place, at the same depth of the stack."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    def __new__(cls, fn: Callable[..., Any], /, *args: Any) -> Continuation: ...

class CompiledFunction:
    """Calls `fn` with the hook active; a hit on `fn` itself runs without a frame of its own.

    With `hook` None, while a frame is being compiled or guards are evaluated, and in a thread that is traced, a call
    is a plain call of `fn`. Binds like a function; attributes that it does not have are those of `fn`.
    """

    fn: Callable[..., Any]
    hook: FrameHook | None
    def __init__(self, fn: Callable[..., Any], hook: FrameHook | None) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...

@final
class CompiledGraph:
    """Calls a compiled graph with no hook active, and with no evaluation function of others looking on."""

    fn: Callable[..., Any]
    def __new__(cls, fn: Callable[..., Any]) -> CompiledGraph: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def tell_when_traced(callback: Callable[[], Any] | None) -> None:
    """Called once, at the next compiled call that runs plainly because its thread has a trace function."""

def use_profiler(globals: dict[str, Any], flag: str, region: Callable[[str], Any]) -> None:
    """While `globals[flag]` is True, a compiled call runs in `with region(name):`."""

def unhook(value: _T) -> _T:
    """`value`; if it is a generator or a coroutine, it and all that it calls run without the hook from now on."""

def set_active(hook: FrameHook | None) -> FrameHook | None:
    """Make the hook the active one of this thread; returns the previous one."""

def active_hook() -> FrameHook | None:
    """The hook that is active in this thread."""

def set_call_policy(
    policy: Callable[[Any, FrameHook], FrameHook | None] | None = None, plain: bool = False
) -> None:
    """Who chooses the hook of each call of a compiled function; None: the function's own. What it gives is the hook of
    this call, or None for a call in plain Python. `plain`: whatever would run compiled runs in plain Python."""

def in_compile() -> bool:
    """Whether this thread is inside a call of `compile_frame`."""

def entries(code: CodeType, hook: FrameHook | None = None) -> list[GuardedCode]:
    """The entries of a code object, the last hit first; of one hook, or of all."""

def mark_own(code: CodeType) -> None:
    """Code that was made here (resume functions): no evaluation function of others is shown its frames."""

def reset_code(code: CodeType) -> None:
    """Forget all entries of a code object, and all that hooks decided about it."""

def reset() -> None:
    """`reset_code` for every code object. What `skip` marked for every hook stays."""

def skip(code: CodeType, hook: FrameHook | None, recursive: bool) -> None:
    """Never look this code up, for one hook or for every; `recursive`: nor what it calls."""

def unskip(code: CodeType, hook: FrameHook | None) -> None:
    """Take a `skip` for the same hook back."""

def is_skipped(code: CodeType, hook: FrameHook | None) -> bool:
    """Whether the code is marked for this hook or for every hook."""

def set_closed(code: CodeType, hook: FrameHook, closed: bool) -> None:
    """Closed: the entries are still used, but a miss runs the frame without asking."""

def invalidate(guarded_code: GuardedCode) -> bool:
    """Remove one entry. False: it was in no cache."""
