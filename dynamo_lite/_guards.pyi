"""The interpreter of guard programs.

A program is a list of steps over registers: a load writes a register, a check reads one, and the first step that does
not hold ends the evaluation. A register is written by one step only, before it is read. A load of a value that does not
exist does not hold; any other exception is raised. `reg`, `src`, `dst` are register numbers.

Loads
    ("load_local", dst, index)               argument `index` of the frame
    ("load_cell_obj", dst, index)            closure cell `index`
    ("load_builtin", dst, name)
    ("load_globals_dict", dst)
    ("load_const", dst, obj)
    ("load_attr", dst, src, name)            getattr
    ("load_instance_dict", dst, src)         the object's own __dict__, without running code of its class
    ("load_slot", dst, src, descriptor)      through a member or getset descriptor
    ("load_dict_item", dst, src, key)        by the dict's own table, also for subclasses
    ("load_list_item", dst, src, index), ("load_tuple_item", dst, src, index)      likewise; index >= 0
    ("load_item", dst, src, key)             src[key]
    ("load_call", dst, src, function)        function(src)
    ("load_formula", dst, function, regs)    function(*regs); does not hold if that raises an arithmetic error or a
                                             ValueError
    ("load_type_attr", dst, type_reg, name)  the object that the type or a base defines, not bound
    ("load_func_part", dst, src, part)       "__defaults__" | "__kwdefaults__" | "__closure__" | "__code__" |
                                             "__globals__" | "__dict__" of a function; None where it has none
    ("load_method_part", dst, src, part)     "__self__" | "__func__" of a bound method
    ("load_cell_contents", dst, src)
    ("load_weakref", dst, src)               the referent, while it lives
    ("load_dict_key", dst, src, position)    the key at `position` in iteration order
    ("load_dict_value", dst, src, position)  the value that the dict has for this key
    ("load_size", dst, src, dim), ("load_stride", dst, src, dim)       of a tensor

Blocks
    ("begin_same", dict_reg) ... ("end_same", dict_reg)
                                             the steps in between read only this dict, and of its values only what can't
                                             change; they are skipped while the dict is in the state in which all of
                                             them held. Only they read the registers that they write

Checks
    ("type_is", reg, type), ("is", reg, obj), ("is_not", reg, obj)
    ("const", reg, value)                    identical, or same exact type and equal; also inside tuples, frozensets
                                             (also by their order), slices. 1, 1.0, True differ, so do
                                             0.0 and -0.0; NaN equals NaN
    ("len", reg, n)                          read from the C structure of a dict, list, tuple or set; len() for others
    ("dict_keys", reg, keys)                 exactly these, in this order
    ("dict_has", reg, key), ("dict_lacks", reg, key)
    ("set_items", reg, frozenset)
    ("cell_empty", reg)                      a cell without contents
    ("code_is", reg, code)                   a function with this code
    ("no_hooks", reg, names)                 the instance dict maps none of the names to something non-empty
    ("tensor", reg, cls, dtype_code, dtype_bits, device_type, device_index, shape, strides, requires_grad, flags)
                                             None in shape or strides: any size; (d,) in strides: the size times
                                             the stride of dimension d; strides or requires_grad None: any.
                                             flags: TENSOR_X to check a bit, TENSOR_X << TENSOR_EXPECTED_SHIFT to
                                             expect it set. Without the flag a conjugate or negative view looks like
                                             a plain tensor. Does not hold for tensors that DLPack can't describe
                                             (sparse, meta, quantized)
    ("set_order", reg, items)                a set or frozenset that iterates over these elements in this order
    ("set_table", reg, set)                  a set or frozenset with the same table: each member in the same slot
    ("tensor_data", reg, bytes)              a tensor in the CPU's memory with these elements
    ("tensor_same", reg, reg), ("not_same", regs)        identical objects; all different objects
    ("not_same", regs, changed)              each of the first `changed` objects differs from all others
    ("disjoint", regs, changed)              none of the first `changed` tensors overlaps another one; each extends
                                             from its first to its last element
    ("memory_offset", reg, reg, bytes)       the second tensor begins `bytes` bytes behind the first
    ("int_range", reg, low, high)            an exact int that fits 64 bits and lies between these limits
    ("relation", regs, program, comparison)  an expression over exact ints compared with zero: 0 ==, 1 !=, 2 >=. The
                                             program is in postfix form, pairs of a code and an operand: (0, number),
                                             (1, index in regs), then add 2, mul 3, floordiv 4, mod 5 with operand 0
    ("callable_eq", callable, args, expected)
    ("global_state", *current_global_state())
    ("class_version", reg, ((name, object or MISSING), ...))
                                             looking up the names on the class finds these objects; costs one
                                             comparison while the class is not changed

    ("collect", reg, slot)                   the register is input number `slot`; there is one such step per input
"""

from collections.abc import Set as AbstractSet
from types import CellType, ModuleType
from typing import Any, Final, TypeVar, final

import torch

Step = tuple[Any, ...]

MISSING: Final[object]
OPS: Final[tuple[str, ...]]
GLOBAL_STATE_FIELDS: Final[tuple[str, ...]]
TENSOR_INFERENCE: Final[int]
TENSOR_CONJ: Final[int]
TENSOR_NEG: Final[int]
TENSOR_ZERO: Final[int]
TENSOR_EXPECTED_SHIFT: Final[int]

@final
class GuardProgram:
    """Steps, validated and compiled once; ValueError names a malformed step."""

    steps: tuple[Step, ...]
    n_inputs: int
    n_registers: int
    evaluations: int
    failures: int
    def __new__(cls, steps: list[Step] | tuple[Step, ...], n_inputs: int, n_registers: int) -> GuardProgram: ...
    def check(
        self,
        args: tuple[Any, ...],
        closure: tuple[CellType, ...] | None,
        globals: dict[str, Any],
        builtins: dict[str, Any],
        /,
    ) -> tuple[bool, Any]:
        """(True, tuple of inputs), or (False, index of the step that does not hold)."""

def init_torch(torch: ModuleType, /) -> None:
    """Looks up the parts of torch that the tensor and state steps need. Must be called before such a step is made."""

def tensor_spec(t: torch.Tensor, /) -> tuple[int, int, int, int, tuple[int, ...], tuple[int, ...]]:
    """(dtype_code, dtype_bits, device_type, device_index, shape, strides), as the step "tensor" takes them."""

def current_global_state() -> tuple[Any, ...]:
    """The state of this thread as operands of the step "global_state", in the order of GLOBAL_STATE_FIELDS."""

def hide_modes() -> bool:
    """Whether ``__torch_function__`` is now switched off in this thread, since torch function modes are on. The step
    "global_state" does not see that it is."""

def show_modes(hidden: bool) -> None:
    """Ends what ``hide_modes`` has begun."""

def dict_states() -> str:
    """How changes of dicts are detected: by their "version", or by a "watcher". Otherwise every check is a full one:
    "given back" once the process is exiting, "" if CPython had no watcher left when the last program was made."""

def generic_access(cls: type, /) -> tuple[bool, bool]:
    """Whether attributes of a class's instances are read as `object` does it in C, and whether they are set so."""

def const_equal(a: object, b: object, /) -> bool:
    """The comparison of the step "const"."""

_Set = TypeVar("_Set", set[Any], frozenset[Any])

def clone_table(source: _Set, members: tuple[Any, ...] = ..., /) -> _Set:
    """A new set or frozenset with the table of another set, and therefore with the same order of members, now and after
    further changes. `members`: objects to hold in place of the members, equal to them and in their order."""

def copy_table(target: AbstractSet[Any], source: AbstractSet[Any], members: tuple[Any, ...] = ..., /) -> None:
    """Replaces the table of a set (or of an instance of a subclass) by that of another."""

def same_table(a: AbstractSet[Any], b: AbstractSet[Any], /) -> bool:
    """The comparison of the step "set_table"."""
