"""The frame evaluation hook and the entry points of compiled calls.

A `FrameHook` decides about frames of the threads in which it is active. It owns `GuardedCode` entries, which are listed
per code object. For a frame that can be captured, a hit runs the entry's code in place of the frame, and a miss calls
`compile_frame`. Frames of generators and coroutines, class bodies, modules, frames that are resumed, and all frames of
a thread that is traced (sys.settrace) run unchanged; frames of the functions that they call are looked up again.
"""

from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any, Final, TypeVar, final

from dynamo_lite._guards import GuardProgram

_T = TypeVar("_T")

class Decision:
    """The result of `compile_frame` if it made no guarded code."""

RUN_ORIGINAL: Final[Decision]
"""Run this frame unchanged, and ask again the next time."""
SKIP: Final[Decision]
"""Never ask about this code again; its callees are still looked up."""
SKIP_RECURSIVE: Final[Decision]
"""Never ask about this code again, and run it and all its callees without the hook."""
KEEP_ENTRIES: Final[Decision]
"""Run this frame unchanged. The entries of this code are still used, but a miss never asks again."""

CompileFrame = Callable[
    [CodeType, dict[str, Any], dict[str, Any], tuple[CellType, ...] | None, tuple[Any, ...], FunctionType],
    "GuardedCode | Decision",
]
"""compile_frame(code, globals, builtins, closure, args, func): args are the frame's first locals, one per parameter,
`*args` as a tuple, `**kwargs` as a dict. It is called with no hook active; its exceptions propagate out of the call."""

class FrameHook:
    """Decides about frames, and owns the entries made for it, which die with it. Supports weak references and
    attributes."""

    compile_frame: CompileFrame
    roots: Any
    settings: Any
    arguments: dict[str, Any]
    def __init__(self, compile_frame: CompileFrame) -> None: ...

@final
class GuardedCode:
    """Code that replaces a frame while the guards hold.

    `code` takes the frame's arguments, all positional, and then the tuple that the program collects; its free variables
    are those of the frame's code. It returns the result, or a `Continuation`. None: run the frame unchanged.
    `needs_hook`: whether functions that the code calls are looked up (after a graph break), or run without the hook.
    Entries are tried in the order of their last use, but those of smaller `breadth` (0 to 2) come first, until they
    have failed too often: a broader entry fits more calls and is slower, and once it were first it would also take
    their calls. `direct`: the code only returns `direct(*inputs)[0]`. While nothing watches calls of Python functions,
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
    """Returned by guarded code: its caller then calls `fn(*args)` at the same depth of the stack, for the result."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    def __new__(cls, fn: Callable[..., Any], /, *args: Any) -> Continuation: ...

class CompiledFunction:
    """Calls `fn` with the hook active; a hit on `fn` itself runs without a frame of its own.

    With `hook` None, while a frame is being compiled or guards are evaluated, and in a thread that is traced, a call is
    an ordinary call of `fn`. It binds to instances like a function; attributes that it does not have are those of `fn`.
    """

    fn: Callable[..., Any]
    hook: FrameHook | None
    def __init__(self, fn: Callable[..., Any], hook: FrameHook | None) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...

@final
class CompiledGraph:
    """Calls a compiled graph with no hook active and hidden from other evaluation functions."""

    fn: Callable[..., Any]
    def __new__(cls, fn: Callable[..., Any]) -> CompiledGraph: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def tell_when_traced(callback: Callable[[], Any] | None) -> None:
    """Sets a callback for the next compiled call that runs in plain Python because its thread is traced; called
    once."""

def use_profiler(globals: dict[str, Any], flag: str, region: Callable[[str], Any]) -> None:
    """While `globals[flag]` is True, a compiled call runs in `with region(name):`."""

def unhook(value: _T) -> _T:
    """Returns `value`. If it is a generator or coroutine, it and its callees run without the hook from now on."""

def set_active(hook: FrameHook | None) -> FrameHook | None:
    """Makes the hook the active one of this thread; returns the previous one."""

def active_hook() -> FrameHook | None:
    """The hook that is active in this thread."""

def set_call_policy(
    policy: Callable[[Any, FrameHook], FrameHook | None] | None = None, plain: bool = False
) -> None:
    """Sets the policy that chooses the hook of each call of a compiled function; None: the function's own hook. The
    policy returns the hook of this call, or None for a call in plain Python. `plain`: all compiled code runs in plain
    Python."""

def in_compile() -> bool:
    """Whether this thread is inside a call of `compile_frame`."""

def entries(code: CodeType, hook: FrameHook | None = None) -> list[GuardedCode]:
    """The entries of a code object, the last hit first; those of one hook, or of all hooks."""

def mark_own(code: CodeType) -> None:
    """Marks code made by dynamo_lite (resume functions): its frames are never passed to other evaluation functions."""

def reset_code(code: CodeType) -> None:
    """Removes all entries of a code object, and all decisions of hooks about it."""

def reset() -> None:
    """`reset_code` for every code object. Code that `skip` marked for every hook stays marked."""

def skip(code: CodeType, hook: FrameHook | None, recursive: bool) -> None:
    """Never looks this code up, for one hook or for every hook; with `recursive` its callees aren't looked up
    either."""

def unskip(code: CodeType, hook: FrameHook | None) -> None:
    """Undoes a `skip` for the same hook."""

def is_skipped(code: CodeType, hook: FrameHook | None) -> bool:
    """Whether the code is marked for this hook or for every hook."""

def set_closed(code: CodeType, hook: FrameHook, closed: bool) -> None:
    """If closed, the entries are still used, but a miss runs the frame without calling `compile_frame`."""

def invalidate(guarded_code: GuardedCode) -> bool:
    """Removes one entry. Returns False if it was in no cache."""
