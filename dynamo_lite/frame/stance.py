"""Whether compiled functions compile: the stance, the setting ``config.disable``, and calls by ``run``.

The stance is dynamo_lite's own (``dynamo_lite.set_stance``) or, while that is the default, torch's
(``torch.compiler.set_stance``). Invariant: a call of a compiled function does not consult this module. When the stance
or ``config.disable`` begins to affect calls, this module tells the C entry point once (``set_call_policy``).
"""
from __future__ import annotations

import dataclasses
import functools
import threading
import types
from collections.abc import Callable
from typing import Any

from .. import _eval_frame, config, log
from ..bytecode.code_map import CodeMap

NAMES = (
    "default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile")
DELAYED = ("eager_then_compile", "aot_eager_then_compile")


@dataclasses.dataclass(frozen=True)
class Stance:
    """How calls of compiled functions are handled; `backend` replaces each function's own."""

    name: str = "default"
    backend: Any = None


_DEFAULT = Stance()
_own = _torchs = _DEFAULT
_called: CodeMap[bool] = CodeMap()
_choose: Callable[..., Any] | None = None


class _Thread(threading.local):
    runs = 0  # nesting depth of calls by ``run`` in this thread


_thread = _Thread()


def current() -> Stance:
    """The stance in effect."""
    return _own if _own != _DEFAULT else _torchs


def follow(name: str, backend: Any) -> None:
    """Takes over a change of torch's stance."""
    global _torchs
    _torchs = Stance(name, backend)
    _apply()


def choose_by(choose: Callable[..., Any]) -> None:
    """Registers the function that returns the hook of a call, or None, where the stance depends on the call."""
    global _choose
    _choose = choose
    _apply()


def reason_for_plain() -> str | None:
    """Why all calls currently run in plain Python; None if they do not."""
    if config.disable:
        return "config.disable is set"
    return "the stance is force_eager" if current().name == "force_eager" else None


def _apply() -> None:
    now = current()
    if reason_for_plain() is not None:
        _eval_frame.set_call_policy(plain=True)
        if log.first_time("skipped_frames", reason_for_plain()):
            log.artifact("skipped_frames").info("everything runs in plain Python: %s", reason_for_plain())
    elif now.name in DELAYED or now.backend is not None:
        _eval_frame.set_call_policy(_choose)
    else:
        _eval_frame.set_call_policy()


config.watch("disable", _apply)


def may_compile() -> bool:
    """Whether a frame that fits no entry may be compiled now. Otherwise it runs in plain Python."""
    return _thread.runs == 0 and current().name != "eager_on_recompile"


def is_first_call(code: types.CodeType | None) -> bool:
    """Whether this is the first call of a function since it was compiled or reset."""
    if code is None or _called.get(code) is not None:
        return False
    _called.set(code, True)
    return True


def reset() -> None:
    """Makes the next call of each function count as its first."""
    _called.clear()


class Running:
    """A context in which this thread compiles nothing: frames that fit no entry run in plain Python."""

    def __enter__(self) -> None:
        _thread.runs += 1

    def __exit__(self, *exception: object) -> None:
        _thread.runs -= 1

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def running(*args: Any, **kwargs: Any) -> Any:
            with Running():
                return fn(*args, **kwargs)

        return running


class set_stance:
    """Decides how calls of compiled functions are handled from now on, in a ``with`` block or in a decorated function.

    ``torch.compiler.set_stance`` does the same, for torch.compile too, but imports torch's compiler.

    Args:
        stance: "default"; "force_eager": everything runs in plain Python; "eager_on_recompile": existing compiled code
            is used where it fits, nothing is compiled; "fail_on_recompile": having to compile is an error;
            "eager_then_compile" and "aot_eager_then_compile": the first call of a function runs in plain Python, or
            with the backend "aot_eager".
        force_backend: a backend that replaces each function's own; with "default" only.

    Raises:
        ValueError: no stance has this name, or it can't be combined with a backend.
        exc.InvalidBackend: when a function is called, if no backend has this name.
    """

    def __init__(self, stance: str = "default", *, force_backend: Any = None) -> None:
        if stance not in NAMES:
            raise ValueError(f"no stance {stance!r}; the known ones are {', '.join(NAMES)}")
        if force_backend is not None and stance != "default":
            raise ValueError(f"the stance {stance} has no force_backend")
        self._stance = Stance(stance, force_backend)
        self._before = _own
        _set(self._stance)

    def __enter__(self) -> None:
        _set(self._stance)

    def __exit__(self, *exception: object) -> None:
        _set(self._before)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        _set(self._before)  # the stance applies only while the decorated function runs

        @functools.wraps(fn)
        def with_stance(*args: Any, **kwargs: Any) -> Any:
            before = _own
            _set(self._stance)
            try:
                return fn(*args, **kwargs)
            finally:
                _set(before)

        return with_stance


def _set(stance: Stance) -> None:
    global _own
    _own = stance
    _apply()
