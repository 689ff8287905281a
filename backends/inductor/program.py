"""A program: what lowering and scheduling make of a graph, and all that the wrapper needs to run it.

A program is a list of steps over named buffers, in an order that is correct as it stands. A step is a generated
kernel, a library operation, a view, or a copy into an input. The wrapper computes lifetimes, allocates, reuses memory
and frees; so a program names each value once and never says when it dies.

Invariants (``check`` asserts them): every name that a step uses is an input, a constant, or the output of an earlier
step; a buffer that is not a view is written by exactly one step, except inputs, which ``CopyInto`` and the kernels
that list them in ``outputs`` overwrite; sizes and strides are ints or expressions over symbols, which
the inputs' sizes and ``Program.symbols`` say.
"""
from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterator, Union

import torch
import torch.utils._pytree as pytree

from dynamo_lite.symbols.integers import Index as Expr


@dataclasses.dataclass(frozen=True, slots=True)
class BufferSpec:
    """The layout of one buffer. ``stride`` is exact: what eager's result would have, wherever eager has one."""

    name: str
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    dtype: torch.dtype
    device: torch.device = torch.device("cpu")


@dataclasses.dataclass(frozen=True, slots=True)
class BufferRef:
    """Stands for a buffer among the arguments of an ``ExternCall``."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class SizeRef:
    """Stands for a symbolic integer among the arguments of an ``ExternCall``."""

    expr: Expr


@dataclasses.dataclass(slots=True)
class KernelCall:
    """One call of a generated function, in C ``void symbol(void *a0, ..., void *aN, int64_t s0, ...)``.

    Attributes:
        symbol: the function's name in ``Program.source``.
        args: buffer names in the order of the function's pointer arguments. A pointer is that of the buffer's first
            element (a view's offset is added already); it need not be aligned beyond its element.
        outputs: those of ``args`` that the kernel writes. Buffers that no earlier step made are allocated before the
            call.
        sizes: the integers that follow the pointers; empty in a program of fixed shapes.
        work: roughly how many element operations the call does; decides whether the GIL is released.
        origin: the operations that the kernel computes, for comments and reports, such as ``"layer_norm, gelu"``.
        faults: whether the last argument is where the call reports an index out of bounds.
        checks_first: whether it does so before it writes anything else.
        inplace: pairs ``(output, input)``: the output may take over the input's memory if the input dies here, as every
            element of the input is read by the same iteration that writes the output's element, and no other does.
        part: for a kernel that writes into parts of a buffer, how many bytes: all that it moves of the buffer where
            that is the memory of the input whose other contents it keeps.
    """

    symbol: str
    args: tuple[str, ...]
    outputs: tuple[str, ...]
    sizes: tuple[Expr, ...] = ()
    work: int = 0
    origin: str = ""
    inplace: tuple[tuple[str, str], ...] = ()
    faults: bool = False
    checks_first: bool = False
    part: int | None = None


@dataclasses.dataclass(slots=True)
class ExternCall:
    """One library operation, called with the real tensors.

    Attributes:
        target: usually an ``OpOverload`` without mutated arguments; any callable will do.
        args, kwargs: a pytree with ``BufferRef`` and ``SizeRef`` leaves.
        outputs: the name of the result; or, if ``unpack``, one for each element of the sequence that is the result,
            None for an element that nobody reads. Empty: the call is there for its effect.
        origin: for comments.
        unpack: whether the result is a sequence of tensors.
    """

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[str | None, ...]
    origin: str = ""
    unpack: bool = False

    def reads(self) -> tuple[str, ...]:
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        return tuple(dict.fromkeys(leaf.name for leaf in leaves if isinstance(leaf, BufferRef)))


@dataclasses.dataclass(slots=True)
class View:
    """Makes ``name`` another look at the memory of ``base``: same dtype, ``Program.buffers[name]``'s sizes and strides.

    ``offset`` counts elements from the first element of ``base`` (not from the start of its storage).
    """

    name: str
    base: str
    offset: Expr = 0


@dataclasses.dataclass(slots=True)
class CopyInto:
    """Overwrites the contents of input ``dst`` with ``src`` (same sizes): an input that the graph mutates."""

    dst: str
    src: str


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """Numbers that are decided for the sizes of each call.

    Attributes:
        names: of the numbers, which are symbols among the sizes of kernels and buffers.
        function: gives them, in order.
        argument: its argument: nested tuples of texts, numbers and expressions.
    """

    names: tuple[str, ...]
    function: Callable[..., Any]
    argument: tuple[Any, ...]


Step = Union[KernelCall, ExternCall, View, CopyInto]


@dataclasses.dataclass(slots=True)
class Program:
    """See the module's docstring.

    Attributes:
        inputs: names in the order of the graph's placeholders; a symbolic integer's name is a key of ``symbols``.
        constants: tensors that are part of the program, by name; never written.
        symbols: what integer inputs are, by input name.
        buffers: the layout of every tensor name.
        steps: in order.
        outputs: for each value of the graph's ``output`` node: a buffer name, or for what is no tensor the constant
            itself wrapped as ``Literal``.
        source: source of all kernels, in C++ (static functions included, without the wrapper's entry) or in Python; ""
            if there are none.
        metrics: free-form counts for reports, such as ``{"fused_nodes": 12}``.
        faults: what kernels may report, numbered from 1: exception type and message, in which ``{}`` is the faulty
            index.
        libraries: C++ sources of libraries that ``source`` calls into.
        launches: whether kernels are Python functions that ``source`` defines, see ``Target``.
        versions: how many new versions autograd is to see of inputs that are written; 1 of those that are not named.
        decisions: what is decided when it is called.
    """

    inputs: tuple[str, ...]
    constants: dict[str, torch.Tensor]
    symbols: dict[str, Any]
    buffers: dict[str, BufferSpec]
    steps: list[Step]
    outputs: tuple[Union[str, "Literal"], ...]
    source: str = ""
    metrics: dict[str, int] = dataclasses.field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    faults: tuple[tuple[type[Exception], str], ...] = ()
    launches: bool = False
    versions: dict[str, int] = dataclasses.field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()

    def check(self) -> None:
        """Raises AssertionError with the faulty step if an invariant of the module's docstring is broken."""
        known = set(self.inputs) | set(self.constants)
        for step in self.steps:
            for name in step_reads(step):
                assert name in known, f"{name} is read before it is made: {step}"
            for name in step_writes(step):
                if isinstance(step, CopyInto) or name in self.inputs:
                    assert name in self.inputs, f"{name} is no input: {step}"
                else:
                    assert name not in known, f"{name} is made twice: {step}"
                assert name in self.buffers, f"{name} has no layout: {step}"
                known.add(name)
            if isinstance(step, CopyInto):
                given, written = self.buffers[step.src], self.buffers[step.dst]
                assert (given.size, given.dtype) == (written.size, written.dtype), f"sizes or types differ: {step}"
        for out in self.outputs:
            assert isinstance(out, Literal) or out in known, f"output {out} is never made"

    def kernel_calls(self) -> Iterator[KernelCall]:
        return (step for step in self.steps if isinstance(step, KernelCall))


@dataclasses.dataclass(frozen=True, slots=True)
class Literal:
    """An output that is no tensor."""

    value: Any


def step_reads(step: Step) -> tuple[str, ...]:
    """Names whose contents (or memory, for a view) the step needs."""
    if isinstance(step, KernelCall):
        return tuple(name for name in step.args if name not in step.outputs)
    if isinstance(step, ExternCall):
        return step.reads()
    return (step.base,) if isinstance(step, View) else (step.src,)


def step_writes(step: Step) -> tuple[str, ...]:
    """Names that the step makes or overwrites."""
    if isinstance(step, KernelCall):
        return step.outputs
    if isinstance(step, ExternCall):
        return tuple(name for name in step.outputs if name is not None)
    return (step.name,) if isinstance(step, View) else (step.dst,)
