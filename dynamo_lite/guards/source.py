"""Where a value of the traced frame lives: a path from the frame's arguments, globals or closure to the value.

A source says two things: how the guard program reaches the value again at the next call (:meth:`Source.load_step`),
and what the user would call it (:attr:`Source.name`). Generated code never walks a path: the guard program, which has
just walked it, hands over the value.

Invariant: a path reads only what CPython itself would read without running user code, except :class:`AttrSource`.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch


class PathKey:
    """The identity of a path, hashed once: paths are long, and every guard looks its path up."""

    __slots__ = ("_hash", "parts")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, PathKey) and self._hash == other._hash and self.parts == other.parts
        )


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Source:
    """The base of all sources. Equality is structural, through :attr:`key`."""

    _key: PathKey | None = dataclasses.field(default=None, init=False, repr=False)

    def parents(self) -> tuple[Source, ...]:
        """The sources that have to be loaded before this one."""
        return ()

    @property
    def key(self) -> PathKey:
        """A hashable identity of the path."""
        if self._key is None:
            object.__setattr__(self, "_key", PathKey(self.path()))
        assert self._key is not None
        return self._key

    def path(self) -> tuple[Any, ...]:
        """What tells this path from others: the kind of step, its operands, the key of what it starts from."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The path in the user's words, such as ``self.layers[0].weight``."""
        raise NotImplementedError

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        """The guard program's instruction that loads this value into register `dst`."""
        raise NotImplementedError

    @property
    def is_frozen(self) -> bool:
        """Whether the value can't have changed, so that nothing of it needs a guard."""
        return False

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Source) and self.key == other.key


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class LocalSource(Source):
    """An argument of the frame; `index` counts as the frame stores them."""

    local: str
    index: int

    def path(self) -> tuple[Any, ...]:
        return ("local", self.index)

    @property
    def name(self) -> str:
        # What a graph break left on the stack has no name in the program.
        return f"intermediate_{self.local[8:]}" if self.left_on_stack else self.local

    @property
    def left_on_stack(self) -> bool:
        """Whether a graph break has left the value on the operand stack."""
        return self.local.startswith("___stack")

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_local", dst, self.index)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class ClosureCellSource(Source):
    """A cell of the frame's closure, the cell itself."""

    local: str
    index: int

    def path(self) -> tuple[Any, ...]:
        return ("cell", self.index)

    @property
    def name(self) -> str:
        return f"<cell of {self.local}>"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_cell_obj", dst, self.index)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class GlobalsSource(Source):
    """The dict of the frame's own globals."""

    def path(self) -> tuple[Any, ...]:
        return ("globals",)

    @property
    def name(self) -> str:
        return "globals()"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_globals_dict", dst)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class BuiltinSource(Source):
    """A name among the builtins."""

    builtin: str

    def path(self) -> tuple[Any, ...]:
        return ("builtin", self.builtin)

    @property
    def name(self) -> str:
        return self.builtin

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_builtin", dst, self.builtin)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class ConstSource(Source):
    """An object that outlives every cache entry: a class, a module's dict. The entry holds it."""

    value: Any
    words: str

    def path(self) -> tuple[Any, ...]:
        return ("const", id(self.value))

    @property
    def name(self) -> str:
        return self.words

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_const", dst, self.value)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class FrozenSource(ConstSource):
    """An object that was made while compiling and that the cache entry holds, such as a function's signature."""

    @property
    def is_frozen(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class ChildSource(Source):
    """A source reached from another one."""

    base: Source

    @property
    def is_frozen(self) -> bool:
        return self.base.is_frozen

    def parents(self) -> tuple[Source, ...]:
        return (self.base,)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class AttrSource(ChildSource):
    """``base.attr`` by the generic protocol; only where reading it runs no user code."""

    attr: str

    def path(self) -> tuple[Any, ...]:
        return ("attr", self.attr, self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}.{self.attr}"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_attr", dst, parents[0], self.attr)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class InstanceDictSource(ChildSource):
    """The object's own ``__dict__``."""

    def path(self) -> tuple[Any, ...]:
        return ("dict", self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}.__dict__"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_instance_dict", dst, parents[0])


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class SlotSource(ChildSource):
    """The value of a ``__slots__`` member."""

    descriptor: Any

    def path(self) -> tuple[Any, ...]:
        return ("slot", id(self.descriptor), self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}.{self.descriptor.__name__}"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_slot", dst, parents[0], self.descriptor)


# Dicts of a module in which nn.Module.__getattr__ looks, and what the user writes.
_MODULE_TABLES = ("_parameters", "_buffers", "_modules")


def _key_words(key: Any) -> str:
    """A key in a name: an object's own text may be long, and a tensor's takes long to make."""
    if isinstance(key, (str, bytes, int, float, complex, type(None), tuple, type)):
        return repr(key)
    shape = f" {tuple(key.shape)}" if isinstance(key, torch.Tensor) else ""
    return f"<{type(key).__name__}{shape}>"


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class DictItemSource(ChildSource):
    """``base[item]`` of a dict; `item` is a constant that compares by value."""

    item: Any

    def path(self) -> tuple[Any, ...]:
        return ("item", type(self.item), self.item, self.base.key)

    @property
    def name(self) -> str:
        base = self.base
        if isinstance(base, InstanceDictSource):
            return f"{base.base.name}.{self.item}"
        table = base if isinstance(base, DictItemSource) and base.item in _MODULE_TABLES else None
        if table is not None and isinstance(table.base, InstanceDictSource):
            owner = table.base.base.name
            return f"{owner}[{self.item}]" if self.item.isdigit() else f"{owner}.{self.item}"
        if isinstance(base, GlobalsSource):
            return str(self.item)
        if isinstance(base, ConstSource):
            return f"{base.name}.{self.item}"
        return f"{base.name}[{_key_words(self.item)}]"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_dict_item", dst, parents[0], self.item)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class SequenceItemSource(ChildSource):
    """``base[index]`` of a list or tuple, read from its storage."""

    index: int
    is_list: bool

    def path(self) -> tuple[Any, ...]:
        return ("seq", self.index, self.is_list, self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}[{self.index}]"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_list_item" if self.is_list else "load_tuple_item", dst, parents[0], self.index)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class ItemSource(ChildSource):
    """``base[index]`` of a builtin container that is neither list, tuple nor dict."""

    index: Any

    def path(self) -> tuple[Any, ...]:
        return ("getitem", type(self.index), self.index, self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}[{self.index!r}]"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_item", dst, parents[0], self.index)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class DictKeySource(ChildSource):
    """The `index`-th key of a dict, in insertion order."""

    index: int

    def path(self) -> tuple[Any, ...]:
        return ("dictkey", self.index, self.base.key)

    @property
    def name(self) -> str:
        return f"list({self.base.name})[{self.index}]"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_dict_key", dst, parents[0], self.index)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class DictValueSource(ChildSource):
    """What a dict maps its `index`-th key to, whatever the key."""

    index: int

    def path(self) -> tuple[Any, ...]:
        return ("dictvalue", self.index, self.base.key)

    @property
    def name(self) -> str:
        return f"list({self.base.name}.values())[{self.index}]"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_dict_value", dst, parents[0], self.index)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class TypeAttrSource(ChildSource):
    """What a class or its bases define under a name, unbound; `base` is the class."""

    attr: str

    def path(self) -> tuple[Any, ...]:
        return ("typeattr", self.attr, self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}.{self.attr}"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_type_attr", dst, parents[0], self.attr)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class FunctionPartSource(ChildSource):
    """``__defaults__``, ``__kwdefaults__``, ``__closure__``, ``__code__``, ``__globals__`` or ``__dict__`` of a
    function."""

    part: str

    def path(self) -> tuple[Any, ...]:
        return ("func", self.part, self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}.{self.part}"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_func_part", dst, parents[0], self.part)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class CellContentsSource(ChildSource):
    """What a cell holds; `local` is the variable's name."""

    local: str

    def path(self) -> tuple[Any, ...]:
        return ("contents", self.base.key)

    @property
    def name(self) -> str:
        return self.local

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_cell_contents", dst, parents[0])


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class MethodPartSource(ChildSource):
    """``__self__`` or ``__func__`` of a bound method."""

    part: str

    def path(self) -> tuple[Any, ...]:
        return ("method", self.part, self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}.{self.part}"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_method_part", dst, parents[0], self.part)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class ComputedSource(ChildSource):
    """What a function of ours makes of a value; `words` tell the function from others, and are its text."""

    function: Callable[[Any], Any]
    words: str

    def path(self) -> tuple[Any, ...]:
        return ("computed", self.words, self.base.key)

    @property
    def name(self) -> str:
        return self.words

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_call", dst, parents[0], self.function)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class WeakrefSource(ChildSource):
    """What a weak reference points to."""

    def path(self) -> tuple[Any, ...]:
        return ("weakref", self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}()"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_weakref", dst, parents[0])
