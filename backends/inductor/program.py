"""A program: the result of lowering and scheduling a graph, and everything that the wrapper needs to run it.

A program is a list of steps over named buffers, in an order that is correct as it stands. A step is a generated
kernel, a library operation, a view, or a copy into an input. The wrapper computes liveness, and allocates, reuses and
frees memory; so a program names each value once and never says when it dies.

Invariants (``check`` asserts the first two): every name that a step uses is an input, a constant, or the output of an
earlier step; a buffer that is not a view is written by exactly one step, except inputs, which ``CopyInto`` and the
kernels that list them in ``outputs`` overwrite; sizes and strides are ints or expressions over symbols, whose values
come from the inputs' sizes and from ``Program.symbols``.
"""
from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterator, Union

import torch
import torch.utils._pytree as pytree

from dynamo_lite.symbols.integers import Index as Expr


@dataclasses.dataclass(frozen=True, slots=True)
class BufferSpec:
    """The layout of one buffer. ``stride`` is exact: the stride of eager's result, wherever eager has that result."""

    name: str
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    dtype: torch.dtype
    device: torch.device = torch.device("cpu")


@dataclasses.dataclass(frozen=True, slots=True)
class BufferRef:
    """A placeholder for a buffer among the arguments of an ``ExternCall``."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class SizeRef:
    """A placeholder for a symbolic integer among the arguments of an ``ExternCall``."""

    expr: Expr


@dataclasses.dataclass(slots=True)
class KernelCall:
    """One call of a generated function, whose C signature is ``void symbol(void *a0, ..., void *aN, int64_t s0, ...)``.

    Attributes:
        symbol: the function's name in ``Program.source``.
        args: buffer names in the order of the function's pointer arguments. A pointer is that of the buffer's first
            element (a view's offset is already added); it is aligned to the size of an element, and maybe no further.
        outputs: the members of ``args`` that the kernel writes. Buffers that no earlier step made are allocated before
            the call.
        sizes: the integers that follow the pointers; empty in a program of fixed shapes.
        work: approximate number of element operations of the call; decides whether the GIL is released.
        origin: the operations that the kernel computes, for comments and reports, such as ``"layer_norm, gelu"``.
        faults: whether the kernel has a last argument, in which it reports an index out of bounds.
        checks_first: whether it checks all indices before it writes anything.
        inplace: pairs ``(output, input)``: the output may take over the input's memory if the input dies here, because
            every element of the input is read only by the iteration that writes the same element of the output.
        part: for a kernel that writes to parts of a buffer, the number of bytes that it writes. That is all it moves of
            the buffer where the output is in the memory of the input whose other contents it keeps.
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
        args, kwargs: pytrees with ``BufferRef`` and ``SizeRef`` leaves.
        outputs: the name of the result; or, if ``unpack``, a name for each element of the result, which is a sequence,
            and None for an element that nobody reads. Empty: the call is made for its side effect only.
        origin: the operations that it stands for, for comments.
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
    """Makes ``name`` a view of ``base``: same memory, the sizes and strides of ``Program.buffers[name]``. Its dtype
    is the same, too, except that a view of the whole of a complex tensor may be its components, or the other way round.

    ``offset`` counts elements from the first element of ``base`` (not from the start of its storage).
    """

    name: str
    base: str
    offset: Expr = 0


@dataclasses.dataclass(slots=True)
class CopyInto:
    """Copies ``src`` to input ``dst`` (same sizes), which the graph mutates."""

    dst: str
    src: str


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """Integers that are decided for the sizes of each call.

    Attributes:
        names: the integers' names; they are symbols among the sizes of kernels and buffers.
        function: computes them; returns them in order.
        argument: the function's argument: nested tuples of strings, numbers and expressions.
    """

    names: tuple[str, ...]
    function: Callable[..., Any]
    argument: tuple[Any, ...]


Step = Union[KernelCall, ExternCall, View, CopyInto]


@dataclasses.dataclass(slots=True)
class Program:
    """A lowered and scheduled graph; see the module's docstring.

    Attributes:
        inputs: names in the order of the graph's placeholders; the name of a symbolic integer is a key of ``symbols``.
        constants: tensors that are part of the program, by name; never written.
        symbols: the expressions that integer inputs are, by input name.
        buffers: the layout of every tensor, by name.
        steps: the steps in the order in which they run.
        outputs: for each value of the graph's ``output`` node: a buffer name, or, where the value is no tensor, the
            constant itself wrapped as ``Literal``.
        source: source of all kernels, in C++ (static functions included, without the wrapper's entry) or in Python; ""
            if there are none.
        metrics: free-form counts for reports, such as ``{"fused_nodes": 12}``.
        faults: the errors that kernels may report, numbered from 1: exception type and message, in which ``{}`` is the
            faulty index.
        libraries: C++ sources of libraries that ``source`` calls into.
        launches: whether kernels are Python functions that ``source`` defines, see ``Target``.
        versions: for inputs that are written, by how much autograd's version counter is to rise; 1 for those that are
            not named.
        decisions: integers that are decided at each call.
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
    """An output that is not a tensor."""

    value: Any


def step_reads(step: Step) -> tuple[str, ...]:
    """Names whose contents (for a view: whose memory) the step needs."""
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
