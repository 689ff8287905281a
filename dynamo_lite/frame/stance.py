"""Whether compiled functions compile: the stance, the kill switch, and calls by ``run``.

The stance is dynamo_lite's own (``dynamo_lite.set_stance``) or, while that is the default, torch's
(``torch.compiler.set_stance``). Invariant: a call of a compiled function asks nothing of this module; where the stance
or ``config.disable`` has a say in calls, the C entry is told once (``set_call_policy``).
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
    """What is to become of calls; `backend` is used in place of each function's own."""

    name: str = "default"
    backend: Any = None


_DEFAULT = Stance()
_own = _torchs = _DEFAULT
_called: CodeMap[bool] = CodeMap()
_choose: Callable[..., Any] | None = None


class _Thread(threading.local):
    runs = 0  # how many calls by ``run`` this thread is in


_thread = _Thread()


def current() -> Stance:
    """The stance that holds."""
    return _own if _own != _DEFAULT else _torchs


def follow(name: str, backend: Any) -> None:
    """torch's stance has changed."""
    global _torchs
    _torchs = Stance(name, backend)
    _apply()


def choose_by(choose: Callable[..., Any]) -> None:
    """`choose` gives the hook of a call, or None, where the stance depends on the call."""
    global _choose
    _choose = choose
    _apply()


def reason_for_plain() -> str | None:
    """Why nothing runs compiled at present; None if that is not so."""
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
    """Whether a frame that no entry fits may be compiled now, or runs in plain Python."""
    return _thread.runs == 0 and current().name != "eager_on_recompile"


def is_first_call(code: types.CodeType | None) -> bool:
    """Whether this is the first call of a function since it was compiled or reset."""
    if code is None or _called.get(code) is not None:
        return False
    _called.set(code, True)
    return True


def reset() -> None:
    """Each next call is a function's first."""
    _called.clear()


class Running:
    """While this is entered, this thread compiles nothing: what fits no entry runs in plain Python."""

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
    """What becomes of calls of compiled functions from now on, in a ``with`` block, or while a decorated function runs.

    ``torch.compiler.set_stance`` does the same, for torch.compile too, but imports torch's compiler.

    Args:
        stance: "default"; "force_eager": everything runs in plain Python; "eager_on_recompile": what has been compiled
            is used where it fits, nothing is compiled; "fail_on_recompile": having to compile is an error;
            "eager_then_compile" and "aot_eager_then_compile": the first call of a function runs in plain Python, or by
            that backend.
        force_backend: a backend that stands for each function's own; with "default" only.

    Raises:
        ValueError: no stance has this name, or it can't be combined with a backend.
        exc.InvalidBackend: when a function is called: no backend has this name.
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
        _set(self._before)  # it holds while the function runs only

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
