"""Why a cache entry did not fit a call: what the failing guard looked at, what it was, what it is, and what would help.

The value is read again by the entry's own guard program, so that the words are about what the guard saw. Invariant:
made for logs; nothing here decides anything.
"""
from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._guards import GLOBAL_STATE_FIELDS, GuardProgram, current_global_state, tensor_spec

Frame = tuple[tuple[Any, ...], Any, dict[str, Any], dict[str, Any]]

_CHANGING_NUMBER = "pass a number that changes from call to call as a tensor"
_CHANGING_SHAPE = "call with sizes that repeat (pad, or bucket by length)"


@dataclasses.dataclass(frozen=True)
class Miss:
    """`change` says what was and what is, in the user's names; `advice` what would avoid it, where that is known."""

    change: str
    advice: str = ""

    def __str__(self) -> str:
        return self.change + (f" (to avoid it: {self.advice})" if self.advice else "")


def explain_miss(program: GuardProgram, texts: Sequence[str], frame: Frame) -> Miss | None:
    """What kept an entry from fitting a frame (args, closure, globals, builtins); None if it fits."""
    held, at = program.check(*frame)
    if held:
        return None
    step = program.steps[at]
    name = texts[at].removesuffix(" exists")
    if step[0].startswith("load_") or step[0] == "collect":
        return Miss(f"{name} is not there any more")
    if step[0] == "global_state":
        return _state_miss(step[1:])
    words = _WORDS.get(step[0])
    registers = _names(program.steps, texts)
    if words is None or not isinstance(step[1], int) or step[1] not in registers:
        return Miss(f"{texts[at]}: no longer")
    return words(registers[step[1]], _value(program, at, step[1], frame), *step[2:])


def _names(steps: Sequence[tuple[Any, ...]], texts: Sequence[str]) -> dict[int, str]:
    return {s[1]: t.removesuffix(" exists") for s, t in zip(steps, texts) if s[0].startswith("load_")}


def _value(program: GuardProgram, at: int, register: int, frame: Frame) -> Any:
    loads = [s for s in program.steps[:at] if s[0].startswith("load_")]
    return GuardProgram([*loads, ("collect", register, 0)], 1, program.n_registers).check(*frame)[1][0]


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype}, shape {list(value.shape)}"
    if isinstance(value, (int, float, complex, str, bytes, type(None), types.ModuleType, torch.dtype, torch.device)):
        text = repr(value)
    elif isinstance(value, types.FunctionType):
        text = _function(value.__code__)
    elif isinstance(value, type):
        text = _class(value)
    else:
        text = f"an object of {_class(type(value))}"
    return text if len(text) <= 80 else text[:77] + "..."


def _class(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _function(code: types.CodeType) -> str:
    return f"the function {code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"


def _state_miss(before: tuple[Any, ...]) -> Miss:
    now = current_global_state()
    changed = [
        f"torch's {field.replace('_', ' ')} was {old}, is {new}"
        for field, old, new in zip(GLOBAL_STATE_FIELDS, before, now) if old != new
    ]
    return Miss(", ".join(changed), "call it under the same modes of torch (no_grad, autocast, ...) each time")


def _tensor_miss(name: str, value: Any, cls: type, *spec: Any) -> Miss:
    code, bits, device_type, device_index, shape, strides, requires_grad, _flags = spec
    if type(value) is not cls or not isinstance(value, torch.Tensor):
        return _type_miss(name, value, cls)
    now = tensor_spec(value) if value.layout is torch.strided else None
    if now is None:
        return Miss(f"{name} was a strided tensor, is {value.layout}")
    if now[:2] != (code, bits):
        before = _dtype(code, bits)
        return Miss(f"{name}.dtype was {before}, is {value.dtype}", f"convert it to {before} first")
    if now[2:4] != (device_type, device_index):
        return Miss(f"{name}.device was another, is {value.device}", "keep the arguments on one device")
    if len(shape) != len(now[4]) or any(s is not None and s != n for s, n in zip(shape, now[4])):
        return Miss(f"{name}.shape was {list(shape)}, is {list(now[4])}", _CHANGING_SHAPE)
    if strides is not None and any(s is not None and s != n for s, n in zip(strides, now[5])):
        return Miss(f"{name}.stride() was {tuple(strides)}, is {now[5]}", "call .contiguous() on it first")
    if requires_grad is not None and value.requires_grad != requires_grad:
        return Miss(f"{name}.requires_grad was {requires_grad}, is {value.requires_grad}")
    return Miss(f"{name} was no view of another kind (conjugate, negative, inference) than it is")


def _dtype(code: int, bits: int) -> str:
    for name, dtype in vars(torch).items():
        if not isinstance(dtype, torch.dtype) or name.startswith("q"):
            continue
        try:
            if tensor_spec(torch.empty(0, dtype=dtype))[:2] == (code, bits):
                return str(dtype)
        except (RuntimeError, BufferError, TypeError):
            continue  # a dtype that DLPack has no code for
    return f"another dtype of {bits} bits"


def _data_miss(name: str, value: Any, expected: bytes) -> Miss:
    return Miss(f"{name} had other values than {_short(value.tolist())}", "pass the numbers as Python numbers")


def _const_miss(name: str, value: Any, expected: Any) -> Miss:
    number = type(value) in (int, float) and type(expected) in (int, float)
    return Miss(f"{name} was {_short(expected)}, is {_short(value)}", _CHANGING_NUMBER if number else "")


def _type_miss(name: str, value: Any, expected: type) -> Miss:
    return Miss(f"{name} was of type {_class(expected)}, is of type {_class(type(value))}")


def _is_miss(name: str, value: Any, expected: Any) -> Miss:
    advice = "pass one object, made once" if type(value) is type(expected) else ""
    return Miss(f"{name} was {_short(expected)}, is {_short(value)}", advice)


def _code_miss(name: str, value: Any, expected: types.CodeType) -> Miss:
    return Miss(f"{name} was {_function(expected)}, is {_short(value)}")


def _len_miss(name: str, value: Any, expected: int) -> Miss:
    return Miss(f"{name} had {expected} elements, has {len(value)}")


def _empty_miss(name: str, value: Any, expected: bool) -> Miss:
    return Miss(f"{name} was {'not ' if expected else ''}empty, has {len(value)} elements")


def _keys_miss(name: str, value: Any, expected: Any) -> Miss:
    return Miss(f"{name} had the keys {_short(list(expected))}, has {list(value)!s:.80}")


def _has_miss(name: str, value: Any, key: Any) -> Miss:
    return Miss(f"{name} had {key!r}, has not")


def _lacks_miss(name: str, value: Any, key: Any) -> Miss:
    return Miss(f"{name} had no {key!r}, has {_short(value.get(key)) if isinstance(value, dict) else 'one'}")


_WORDS: dict[str, Callable[..., Miss]] = {
    "tensor": _tensor_miss,
    "const": _const_miss,
    "tensor_data": _data_miss,
    "type_is": _type_miss,
    "is": _is_miss,
    "code_is": _code_miss,
    "len": _len_miss,
    "bool_len": _empty_miss,
    "dict_keys": _keys_miss,
    "dict_has": _has_miss,
    "dict_lacks": _lacks_miss,
}
