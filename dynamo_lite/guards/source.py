"""Where a value of the traced frame lives: a path from the frame's arguments, globals or closure to the value.

A source knows two things: how the guard program reaches the value again in the next call (:meth:`Source.load_step`),
and how the user would write it (:attr:`Source.name`). Generated code never walks a path: the guard program has just
walked it and hands over the value.

Invariant: except for :class:`AttrSource`, the steps of a path run no user code.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch

# Getters for a class's own dict and its MRO that no metaclass can override.
OWN_DICT: Callable[[type], Any] = type.__dict__["__dict__"].__get__
BASES: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__


def found_in_bases(cls: type, name: str, default: Any) -> Any:
    """The value that the interpreter finds under a name in a class or its bases, or `default`. A metaclass that
    redefines ``__dict__`` or ``__mro__`` does not affect the lookup."""
    dicts = map(OWN_DICT, BASES(cls))
    return next((own[name] for own in dicts if name in own), default)


class PathKey:
    """The identity of a path. Its hash is computed once, as paths are long and each guard looks up its path."""

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


class Source:
    """The base class of all sources, which are immutable. Equality is structural, through :attr:`key`.

    Attributes:
        is_frozen: whether the value can't have changed, so that nothing about it needs a guard.
    """

    __slots__ = ("_key",)
    # No dataclasses: creating one takes 0.5 ms of the import, and a trace makes a source at every step of every path.
    is_frozen: bool = False

    def __init__(self) -> None:
        self._key: PathKey | None = None

    def parents(self) -> tuple[Source, ...]:
        """The sources that have to be loaded before this one."""
        return ()

    @property
    def key(self) -> PathKey:
        """A hashable identity of the path."""
        key = self._key
        if key is None:
            key = self._key = PathKey(self.path())
        return key

    def path(self) -> tuple[Any, ...]:
        """The parts that identify this path: the kind of its last step, the operands, the key of the source it starts
        from."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The path as the user would write it, such as ``self.layers[0].weight``."""
        raise NotImplementedError

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        """The guard program's instruction that loads this value into register `dst`."""
        raise NotImplementedError

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Source) and self.key == other.key

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class LocalSource(Source):
    """An argument of the frame; `index` is its position among the frame's local variables."""

    __slots__ = ("local", "index")

    def __init__(self, local: str, index: int) -> None:
        super().__init__()
        self.local = local
        self.index = index

    def path(self) -> tuple[Any, ...]:
        return ("local", self.index)

    @property
    def name(self) -> str:
        # A value that a graph break left on the operand stack has no name in the program.
        return f"intermediate_{self.local[8:]}" if self.left_on_stack else self.local

    @property
    def left_on_stack(self) -> bool:
        """Whether a graph break left the value on the operand stack."""
        return self.local.startswith("___stack")

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_local", dst, self.index)


class ClosureCellSource(Source):
    """A cell of the frame's closure: the cell object, not its contents."""

    __slots__ = ("local", "index")

    def __init__(self, local: str, index: int) -> None:
        super().__init__()
        self.local = local
        self.index = index

    def path(self) -> tuple[Any, ...]:
        return ("cell", self.index)

    @property
    def name(self) -> str:
        return f"<cell of {self.local}>"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_cell_obj", dst, self.index)


class GlobalsSource(Source):
    """The dict of the frame's own globals."""

    __slots__ = ()

    def path(self) -> tuple[Any, ...]:
        return ("globals",)

    @property
    def name(self) -> str:
        return "globals()"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_globals_dict", dst)


class BuiltinSource(Source):
    """A builtin, found by its name."""

    __slots__ = ("builtin",)

    def __init__(self, builtin: str) -> None:
        super().__init__()
        self.builtin = builtin

    def path(self) -> tuple[Any, ...]:
        return ("builtin", self.builtin)

    @property
    def name(self) -> str:
        return self.builtin

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_builtin", dst, self.builtin)


class ConstSource(Source):
    """An object that outlives every cache entry, such as a class or a module's dict. The entry holds a reference to
    it."""

    __slots__ = ("value", "words")

    def __init__(self, value: Any, words: str) -> None:
        super().__init__()
        self.value = value
        self.words = words

    def path(self) -> tuple[Any, ...]:
        return ("const", id(self.value))

    @property
    def name(self) -> str:
        return self.words

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_const", dst, self.value)


class FrozenSource(ConstSource):
    """An object that was made during compilation and that the cache entry holds, such as a function's signature."""

    __slots__ = ()
    is_frozen = True


class ChildSource(Source):
    """A source that is reached from another source, its `base`."""

    __slots__ = ("base", "is_frozen")

    def __init__(self, base: Source) -> None:
        self._key = None
        self.base = base
        self.is_frozen = base.is_frozen

    def parents(self) -> tuple[Source, ...]:
        return (self.base,)


class PartSource(ChildSource):
    """A source that is reached by one step with one operand; the user writes ``base.part``.

    Attributes:
        kind: distinguishes the step from others in a path's key.
        step: name of the guard program's instruction.
    """

    __slots__ = ("part",)
    kind: ClassVar[str]
    step: ClassVar[str]

    def __init__(self, base: Source, part: Any) -> None:
        super().__init__(base)
        self.part = part

    def path(self) -> tuple[Any, ...]:
        return (self.kind, self.part, self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}.{self.part}"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return (self.step, dst, parents[0], self.part)


class AttrSource(PartSource):
    """``base.part``, read by the generic attribute protocol; used only where that runs no user code."""

    __slots__ = ()
    kind, step = "attr", "load_attr"


class SizeSource(PartSource):
    """The size of dimension `part` of a tensor."""

    __slots__ = ()
    kind, step = "size", "load_size"

    @property
    def name(self) -> str:
        return f"{self.base.name}.shape[{self.part}]"


class StrideSource(PartSource):
    """The stride of dimension `part` of a tensor."""

    __slots__ = ()
    kind, step = "stride", "load_stride"

    @property
    def name(self) -> str:
        return f"{self.base.name}.stride({self.part})"


class InstanceDictSource(ChildSource):
    """An object's own ``__dict__``."""

    __slots__ = ()

    def path(self) -> tuple[Any, ...]:
        return ("dict", self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}.__dict__"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_instance_dict", dst, parents[0])


class SlotSource(ChildSource):
    """The value of a ``__slots__`` member."""

    __slots__ = ("descriptor",)

    def __init__(self, base: Source, descriptor: Any) -> None:
        super().__init__(base)
        self.descriptor = descriptor

    def path(self) -> tuple[Any, ...]:
        return ("slot", id(self.descriptor), self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}.{self.descriptor.__name__}"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_slot", dst, parents[0], self.descriptor)


# The dicts of a module that nn.Module.__getattr__ searches; the user writes ``module.name`` for their items.
_MODULE_TABLES = ("_parameters", "_buffers", "_modules")


def _key_words(key: Any) -> str:
    """Text of a key within a name. An object's own text may be long, and a tensor's takes long to make."""
    if isinstance(key, (str, bytes, int, float, complex, type(None), tuple, type)):
        return repr(key)
    shape = f" {tuple(key.shape)}" if isinstance(key, torch.Tensor) else ""
    return f"<{type(key).__name__}{shape}>"


class DictItemSource(ChildSource):
    """``base[item]`` of a dict; `item` is a constant that compares by value."""

    __slots__ = ("item",)

    def __init__(self, base: Source, item: Any) -> None:
        super().__init__(base)
        self.item = item

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


class SequenceItemSource(ChildSource):
    """``base[index]`` of a list or tuple, read from its storage."""

    __slots__ = ("index", "is_list")

    def __init__(self, base: Source, index: int, is_list: bool) -> None:
        super().__init__(base)
        self.index = index
        self.is_list = is_list

    def path(self) -> tuple[Any, ...]:
        return ("seq", self.index, self.is_list, self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}[{self.index}]"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_list_item" if self.is_list else "load_tuple_item", dst, parents[0], self.index)


class ItemSource(ChildSource):
    """``base[index]`` of a builtin container that is neither list, tuple nor dict."""

    __slots__ = ("index",)

    def __init__(self, base: Source, index: Any) -> None:
        super().__init__(base)
        self.index = index

    def path(self) -> tuple[Any, ...]:
        return ("getitem", type(self.index), self.index, self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}[{self.index!r}]"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_item", dst, parents[0], self.index)


class DictKeySource(PartSource):
    """The key at position `part` of a dict, in insertion order."""

    __slots__ = ()
    kind, step = "dictkey", "load_dict_key"

    @property
    def name(self) -> str:
        return f"list({self.base.name})[{self.part}]"


class DictValueSource(PartSource):
    """The value at position `part` of a dict, in insertion order, whatever its key is."""

    __slots__ = ()
    kind, step = "dictvalue", "load_dict_value"

    @property
    def name(self) -> str:
        return f"list({self.base.name}.values())[{self.part}]"


class TypeAttrSource(PartSource):
    """The object, unbound, that a class or its bases define under a name; `base` is the class."""

    __slots__ = ()
    kind, step = "typeattr", "load_type_attr"


class FunctionPartSource(PartSource):
    """``__defaults__``, ``__kwdefaults__``, ``__closure__``, ``__code__``, ``__globals__`` or ``__dict__`` of a
    function."""

    __slots__ = ()
    kind, step = "func", "load_func_part"


class CellContentsSource(ChildSource):
    """The contents of a cell; `local` is the variable's name."""

    __slots__ = ("local",)

    def __init__(self, base: Source, local: str) -> None:
        super().__init__(base)
        self.local = local

    def path(self) -> tuple[Any, ...]:
        return ("contents", self.base.key)

    @property
    def name(self) -> str:
        return self.local

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_cell_contents", dst, parents[0])


class MethodPartSource(PartSource):
    """``__self__`` or ``__func__`` of a bound method."""

    __slots__ = ()
    kind, step = "method", "load_method_part"


class ComputedSource(ChildSource):
    """The result of a function of dynamo_lite for a value; `words` identify the function in the path's key, and are the
    source's name."""

    __slots__ = ("function", "words")

    def __init__(self, base: Source, function: Callable[[Any], Any], words: str) -> None:
        super().__init__(base)
        self.function = function
        self.words = words

    def path(self) -> tuple[Any, ...]:
        return ("computed", self.words, self.base.key)

    @property
    def name(self) -> str:
        return self.words

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_call", dst, parents[0], self.function)


class NumberSource(ConstSource):
    """A number literal of the program's text, used as an operand of a :class:`FormulaSource`."""

    __slots__ = ()

    def __init__(self, value: float) -> None:
        super().__init__(value, repr(value))

    def path(self) -> tuple[Any, ...]:
        return ("number", type(self.value), self.words)  # the text differs for 0.0 and -0.0, and is equal for two NaNs


class FormulaSource(Source):
    """The number that a function written in C computes from numbers; the guard program calls that very function.

    Args:
        function: a function that takes only numbers and runs none of the program's code.
        operands: the sources of its arguments; other guards require that their values are numbers.
        words: the text of the call.
    """

    __slots__ = ("function", "operands", "size", "words")

    def __init__(self, function: Callable[..., Any], operands: tuple[Source, ...], words: str) -> None:
        super().__init__()
        self.function = function
        self.operands = operands
        self.words = words
        self.size: int = 1 + sum(getattr(operand, "size", 1) for operand in operands)  # nodes of the text as a tree

    def parents(self) -> tuple[Source, ...]:
        return self.operands

    def path(self) -> tuple[Any, ...]:
        return ("formula", self.function, *(operand.key for operand in self.operands))

    @property
    def name(self) -> str:
        return self.words

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_formula", dst, self.function, parents)


class WeakrefSource(ChildSource):
    """The referent of a weak reference."""

    __slots__ = ()

    def path(self) -> tuple[Any, ...]:
        return ("weakref", self.base.key)

    @property
    def name(self) -> str:
        return f"{self.base.name}()"

    def load_step(self, dst: int, parents: tuple[int, ...]) -> tuple[Any, ...]:
        return ("load_weakref", dst, parents[0])
