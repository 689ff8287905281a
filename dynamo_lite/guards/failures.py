"""Explains why a cache entry did not fit a call: the value that the failing guard checked, as it was and as it is, and
how to avoid the failure.

The entry's own guard program reads the value again, so that the text describes exactly the value that the guard saw.
Invariant: the explanations are for logs; nothing is decided by them.
"""
from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._guards import GLOBAL_STATE_FIELDS, MISSING, GuardProgram, current_global_state, tensor_spec
from ..symbols.environment import HIGHEST
from .guard import BECAUSE, because, dims_in_words
from .source import found_in_bases

Frame = tuple[tuple[Any, ...], Any, dict[str, Any], dict[str, Any]]

_DYNAMIC_NUMBER = ("a number that is only computed with costs no further compile; one that decides about sizes or "
                    "branches should take few values, or come as a tensor")
_DYNAMIC_SHAPE = ("sizes that change are symbols with compile(dynamic=True), or for one tensor after "
                  "mark_dynamic(tensor, dim); else call with sizes that repeat")
_DYNAMIC_STATE = "call it under the same modes of torch (no_grad, autocast, ...) each time"
_NEW_OBJECTS = "make it once, and pass that one each time"
_KINDS_OF_DEVICES = {1: "cpu", 2: "cuda"}


@dataclasses.dataclass(frozen=True)
class GuardFailure:
    """`change` says what was and what is now, in the user's names; `advice` says how to avoid it, where that is
    known."""

    change: str
    advice: str = ""

    def __str__(self) -> str:
        return self.change + (f" (to avoid it: {self.advice})" if self.advice else "")


def explain_failure(program: GuardProgram, texts: Sequence[str], frame: Frame) -> GuardFailure | None:
    """Why an entry does not fit a frame, given as (args, closure, globals, builtins); None if it fits."""
    held, at = program.check(*frame)
    if held:
        return None
    step = program.steps[at]
    name = texts[at].removesuffix(" exists")
    if step[0].startswith("load_") or step[0] == "collect":
        return GuardFailure(f"{name} is not there any more")
    if step[0] == "global_state":
        return _state_failure(step[1:])
    words = _WORDS.get(step[0])
    registers = _names(program.steps, texts)
    if step[0] in _PLAIN_WORDS:
        return GuardFailure(*_PLAIN_WORDS[step[0]](texts[at]))
    if words is None or not isinstance(step[1], int) or step[1] not in registers:
        return GuardFailure(f"it no longer holds that {texts[at]}")
    value = _value(program, at, step[1], frame)
    if not hasattr(type(value), _ASKED.get(step[0], "__class__")):
        return GuardFailure(f"{registers[step[1]]} is {_short(value)}; it was that {texts[at]}")
    failure = words(registers[step[1]], value, *step[2:])
    reason = texts[at].partition(BECAUSE)[2] if step[0] == "int_range" else ""
    return dataclasses.replace(failure, change=failure.change + because(reason))


def _names(steps: Sequence[tuple[Any, ...]], texts: Sequence[str]) -> dict[int, str]:
    return {s[1]: t.removesuffix(" exists") for s, t in zip(steps, texts) if s[0].startswith("load_")}


def value_of_step(program: GuardProgram, at: int, frame: Frame) -> Any:
    """The value that step number `at` of a program checks."""
    return _value(program, at, program.steps[at][1], frame)


def _value(program: GuardProgram, at: int, register: int, frame: Frame) -> Any:
    loads = [s for s in program.steps[:at] if s[0].startswith("load_")]
    return GuardProgram([*loads, ("collect", register, 0)], 1, program.n_registers).check(*frame)[1][0]


_SHOWN = (int, float, complex, str, bytes, type(None), types.ModuleType, torch.dtype, torch.device, torch.layout,
          torch.memory_format, torch.Size)
# For these classes each value has a single object, so the advice to pass the same object would not help.
_SINGLE = (bool, type(None), enum.Enum, type, torch.dtype, types.ModuleType)


def _is_plain_container(value: Any) -> bool:
    if type(value) in (range, slice):
        return True
    return type(value) in (tuple, list, set, frozenset) and all(isinstance(element, _SHOWN) for element in value)


def _short(value: Any) -> str:
    text = repr(value) if _is_plain_container(value) else _in_words(value)
    return text if len(text) <= 80 else text[:77] + "..."


@functools.singledispatch
def _in_words(value: Any) -> str:
    """Text of a value in messages, by its class."""
    return repr(value) if isinstance(value, _SHOWN) else f"an object of {_class(type(value))}"


@_in_words.register(torch.Tensor)
def _tensor_in_words(value: torch.Tensor) -> str:
    return f"a tensor of {value.dtype}, shape {list(value.shape)}"


@_in_words.register(enum.Enum)
def _enum_in_words(value: enum.Enum) -> str:
    return f"{type(value).__qualname__}.{value.name}"


@_in_words.register(types.BuiltinFunctionType)
@_in_words.register(types.MethodDescriptorType)
def _builtin_in_words(value: Any) -> str:
    in_torch = "torch" in repr(value) or hasattr(torch, value.__name__)
    module = getattr(value, "__module__", None) or ("torch" if in_torch else "")
    return f"{module}.{value.__name__}" if module not in ("", "builtins") else value.__qualname__


@_in_words.register(types.FunctionType)
def _function_in_words(value: types.FunctionType) -> str:
    return _function(value.__code__)


@_in_words.register(type)
def _class_in_words(value: type) -> str:
    return _class(value)


def _class(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _function(code: types.CodeType) -> str:
    return f"the function {code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"


def _state_failure(before: tuple[Any, ...]) -> GuardFailure:
    now = current_global_state()
    changed = [
        f"{_FIELDS.get(field, field.replace('_', ' '))} was {_setting(field, old)}, is {_setting(field, new)}"
        for field, old, new in zip(GLOBAL_STATE_FIELDS, before, now) if old != new
    ]
    return GuardFailure("torch's " + ", ".join(changed), _DYNAMIC_STATE)


_FIELDS = {"deterministic": "use_deterministic_algorithms", "autocast_cpu": "autocast on cpu",
           "autocast_cuda": "autocast on cuda"}


def _setting(field: str, value: Any) -> str:
    """Text of a setting in torch's global state; dtypes are stored as numbers there."""
    if "dtype" in field and isinstance(value, int):
        return _SCALAR_TYPES.get(value, str(value))
    return {0: "off", 1: "on"}.get(value, str(value)) if isinstance(value, int) else str(value)


_SCALAR_TYPES = {5: "torch.float16", 6: "torch.float32", 7: "torch.float64", 15: "torch.bfloat16"}


def _tensor_failure(name: str, value: Any, cls: type, *spec: Any) -> GuardFailure:
    code, bits, device_type, device_index, shape, strides, requires_grad, _flags = spec
    if type(value) is not cls or not isinstance(value, torch.Tensor):
        return _type_failure(name, value, cls)
    if value.layout is not torch.strided:
        return GuardFailure(f"{name} was a strided tensor, is {value.layout}")
    device = _KINDS_OF_DEVICES.get(device_type, "another")
    if value.device.type != device or (device_index or 0) != (value.device.index or 0):
        before = f"{device}:{device_index}" if device_index else device
        return GuardFailure(f"{name}.device was {before}, is {value.device}", "keep the arguments on one device")
    now = tensor_spec(value)
    if now[:2] != (code, bits):
        before = _dtype(code, bits)
        return GuardFailure(f"{name}.dtype was {before}, is {value.dtype}", f"convert it to {before} first")
    if len(shape) != len(now[4]) or any(s is not None and s != n for s, n in zip(shape, now[4])):
        return GuardFailure(f"{name}.shape was {dims_in_words(shape)}, is {list(now[4])}", _DYNAMIC_SHAPE)
    if strides is not None and not all(_is_stride(s, n, *now[4:]) for s, n in zip(strides, now[5])):
        before = f"({dims_in_words(strides)[1:-1]})"
        return GuardFailure(f"{name}.stride() was {before}, is {now[5]}", "call .contiguous() on it first")
    if requires_grad is not None and value.requires_grad != requires_grad:
        return GuardFailure(f"{name}.requires_grad was {requires_grad}, is {value.requires_grad}",
                    "let all calls require gradients or none, with detach() or torch.no_grad()")
    kinds = {"a conjugate view": value.is_conj(), "a negative view": value.is_neg(),
             "an inference tensor": value.is_inference()}
    is_now = ", ".join(kind for kind, holds in kinds.items() if holds)
    return GuardFailure(f"{name} was a tensor of another kind, is {is_now or 'a plain tensor'}")


def _is_stride(expected: Any, stride: int, shape: Sequence[int], strides: Sequence[int]) -> bool:
    if type(expected) is tuple:
        return shape[expected[0]] * strides[expected[0]] == stride
    return expected is None or expected == stride


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


def _data_failure(name: str, value: Any, expected: bytes) -> GuardFailure:
    return GuardFailure(f"{name} had other values than {_short(value.tolist())}",
                "pass Python numbers, or the same elements each time; elements that change are not relied on again")


def _const_failure(name: str, value: Any, expected: Any) -> GuardFailure:
    number = type(value) in (int, float) and type(expected) in (int, float)
    return GuardFailure(f"{name} was {_short(expected)}, is {_short(value)}", _DYNAMIC_NUMBER if number else "")


def _type_failure(name: str, value: Any, expected: type) -> GuardFailure:
    return GuardFailure(f"{name} was of type {_class(expected)}, is of type {_class(type(value))}")


def _is_failure(name: str, value: Any, expected: Any) -> GuardFailure:
    before, now = _short(expected), _short(value)
    if before == now:
        return GuardFailure(f"{name} was {before}, is another such object", _NEW_OBJECTS)
    again = type(value) is type(expected) and not isinstance(value, (*_SINGLE, types.BuiltinFunctionType))
    return GuardFailure(f"{name} was {before}, is {now}", _NEW_OBJECTS if again else "")


def _code_failure(name: str, value: Any, expected: types.CodeType) -> GuardFailure:
    before, now = _function(expected), _short(value)
    if before == now:
        return GuardFailure(f"{name} was {before}, is another function made there", _NEW_OBJECTS)
    return GuardFailure(f"{name} was {before}, is {now}")


def _len_failure(name: str, value: Any, expected: int) -> GuardFailure:
    return GuardFailure(f"{name} had {expected} element{'' if expected == 1 else 's'}, has {len(value)}")


def _keys_failure(name: str, value: Any, expected: Any) -> GuardFailure:
    before, now = list(expected), list(value)
    if max(len(before), len(now)) <= 4:
        return GuardFailure(f"{name} had the keys {_keys(before)}, has {_keys(now)}")
    lost, gained = [k for k in before if k not in value], [k for k in now if k not in expected]
    if not lost and not gained:
        return GuardFailure(f"{name} had the same keys in another order", "fill it in the same order each time")
    changes = [f"{word} {', '.join(map(_key, keys[:3]))}{' and more' if len(keys) > 3 else ''}"
               for word, keys in (("lost", lost), ("gained", gained)) if keys]
    return GuardFailure(f"{name} had {len(before)} keys, has {len(now)}: it has {' and '.join(changes)}")


def _key(key: Any) -> str:
    """Text of a key in a few words. The text of a tensor is long; for an object without a ``__repr__`` of its own its
    class is named."""
    return _short(key) if isinstance(key, torch.Tensor) or type(key).__repr__ is object.__repr__ else f"{key!r:.100}"


def _keys(keys: list[Any]) -> str:
    return f"[{', '.join(map(_key, keys))}]"


def _has_failure(name: str, value: Any, key: Any) -> GuardFailure:
    return GuardFailure(f"{name} had the key {_key(key)}, has it no more")


def _lacks_failure(name: str, value: Any, key: Any) -> GuardFailure:
    now = _short(dict.get(value, key)) if isinstance(value, dict) else "one"
    return GuardFailure(f"{name} had no {_key(key)}, has {now}")


def _range_failure(name: str, value: Any, low: int, high: int) -> GuardFailure:
    if type(value) is not int:
        return _type_failure(name, value, int)
    wanted = f"was {low}" if low == high else f"was {high} or less" if low == -HIGHEST else (
        f"was {low} or more" if high == HIGHEST else f"was between {low} and {high}")
    return GuardFailure(f"{name} {wanted}, is {value}", "each outcome of a comparison with it is compiled once")


def _set_failure(name: str, value: Any, expected: Any) -> GuardFailure:
    return GuardFailure(f"{name} was {set(expected)!r:.80}, is {set(value)!r:.80}")


def _hooks_failure(name: str, value: Any, names: Any) -> GuardFailure:
    return GuardFailure(f"{name} had no hooks, has some", "register hooks before the first call")


def _bound_failure(name: str, value: Any) -> GuardFailure:
    return GuardFailure(f"{name} had no value yet, has one")


def _class_failure(name: str, value: Any, pairs: Sequence[tuple[str, Any]]) -> GuardFailure:
    cls = value if isinstance(value, type) else type(value)
    for attribute, before in pairs:
        now = found_in_bases(cls, attribute, MISSING)
        if now is not before:
            what = "is gone" if now is MISSING else "is new" if before is MISSING else "is another"
            return GuardFailure(f"{_class(cls)}.{attribute} {what}", "change classes before the first call")
    return GuardFailure(f"the class {_class(cls)} has changed", "change classes before the first call")


# Guards on several values, or on state that is no value of the program; worded from the guard's own text.
_PLAIN_WORDS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "disjoint": lambda text: (
        f"{text.replace(' lie apart in memory', '').replace(' and ', ', ', 1)} shared no memory, now some do",
        "pass copies, or pass views of one tensor each time"),
    "memory_offset": lambda text: (f"tensors that share memory lie differently: it was that {text}",),
    "not_same": lambda text: (f"two arguments are one object now: it was that {text}",),
    "apart": lambda text: ("a dict that is written to is known by two names now",),
    "tensor_same": lambda text: (f"two arguments are different objects now: it was that {text}",),
    "relation": lambda text: (f"sizes differ otherwise: it was that {text}",),
    "callable_eq": lambda text: (f"a setting has changed: it was {text}",),
}
_WORDS: dict[str, Callable[..., GuardFailure]] = {
    "tensor": _tensor_failure,
    "const": _const_failure,
    "tensor_data": _data_failure,
    "class_version": _class_failure,
    "type_is": _type_failure,
    "is": _is_failure,
    "code_is": _code_failure,
    "len": _len_failure,
    "dict_keys": _keys_failure,
    "dict_has": _has_failure,
    "dict_lacks": _lacks_failure,
    "int_range": _range_failure,
    "set_items": _set_failure,
    "no_hooks": _hooks_failure,
    "cell_empty": _bound_failure,
}
# Methods that the wording calls on a value: the value may have another type now if no guard checks its type.
_ASKED = {"tensor_data": "tolist", "len": "__len__", "dict_keys": "__iter__", "set_items": "__iter__"}
