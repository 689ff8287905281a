"""The C++ source file with all kernels of a graph. Each distinct kernel is written once, and kernels that differ only
in sizes share one function.

``write_source`` is the entry point. The headers (``vec.h`` with vectors, tails and casts, and others) are copied to the
head of every file, so that a file includes nothing when it is compiled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from dynamo_lite.backends.inductor.codegen.comments import comment
from dynamo_lite.backends.inductor.codegen.cpp.contraction import ContractionKernel, library_of
from dynamo_lite.backends.inductor.codegen.cpp.functions import MOST_IN_LINE, declarations, uses
from dynamo_lite.backends.inductor.codegen.cpp.kernel import CppKernel
from dynamo_lite.backends.inductor.codegen.cpp.libraries import library_header, library_source
from dynamo_lite.backends.inductor.codegen.cpp.libraries import text as library_text
from dynamo_lite.backends.inductor.codegen.cpp.row_blocks import MOST_WORK, RowBlocksKernel
from dynamo_lite.backends.inductor.codegen.cpp.sharing import share
from dynamo_lite.backends.inductor.codegen.cpp.text import MARK, header
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.source_parts import MARK as PART_MARK
from dynamo_lite.backends.inductor.target_info import TargetInfo

_SYMBOL = "KERNEL_NAME"


def write_source(kernels: Sequence[Kernel], info: TargetInfo) -> tuple[str, list[str]]:
    """Writes the source file of a graph's kernels.

    Args:
        kernels: all kernels of the graph; equal ones share a function.
        info: description of the processor that the code is for.

    Returns:
        ``(source, symbols)``: the text of the file ("" without kernels), and for each kernel its function's name.
    """
    if not kernels:
        return "", []
    written = _Written()
    writers = [_writer(kernel, info) for kernel in kernels]
    awake = sum(writer.keeps_awake() for writer in writers)
    symbols = []
    for kernel, writer in zip(kernels, writers):
        if isinstance(writer, RowBlocksKernel):
            for part in writer.blocks.kernels():
                own = _writer(part, info)
                own.grain = MOST_WORK  # it stays on the thread that calls it
                writer.parts.append(written.add(part, own))
        if awake > writer.keeps_awake():
            writer.stay_awake()
        symbols.append(written.add(kernel, writer))
    parts = [header()]
    if any(kernel.tiles is not None for kernel in _with_parts(kernels)):
        parts.append(library_header(info.simd))
    if written.around:
        parts.append(library_text("row_blocks.h"))
    names, functions = written.names, written.functions
    parts.append(declarations(functions, info.simd, uses(names, functions) <= MOST_IN_LINE))
    for text, name in [*zip(share(list(names)), names.values()), *written.around.items()]:
        origin = comment(list(written.comments[name]), MARK)
        parts.append(PART_MARK + "\n" + origin + text.replace(_SYMBOL, name))
    return "".join((*parts, PART_MARK)), symbols


@dataclasses.dataclass(slots=True)
class _Written:
    """The texts of kernels so far, with their names: of ``names``, and of the kernels ``around`` others; and what
    stands before each as a comment. ``functions``: mathematical functions that they call."""

    names: dict[str, str] = dataclasses.field(default_factory=dict)
    around: dict[str, str] = dataclasses.field(default_factory=dict)
    comments: dict[str, dict[str, None]] = dataclasses.field(default_factory=dict)
    functions: set[str] = dataclasses.field(default_factory=set)

    def add(self, kernel: Kernel, writer: CppKernel) -> str:
        """Writes a kernel; equal ones are written once. Returns its name."""
        text = writer.write()
        self.functions |= writer.functions
        texts, kind = (self.names, "kernel") if kernel.blocks is None else (self.around, "blocks")
        name = texts.setdefault(text, f"{kind}{len(texts)}")
        self.comments.setdefault(name, {}).update(dict.fromkeys(kernel.origin))
        return name


def _writer(kernel: Kernel, info: TargetInfo) -> CppKernel:
    if kernel.blocks is not None:
        return RowBlocksKernel(kernel, _SYMBOL, info)
    return (CppKernel if kernel.tiles is None else ContractionKernel)(kernel, _SYMBOL, info)


def _with_parts(kernels: Sequence[Kernel]) -> Iterator[Kernel]:
    for kernel in kernels:
        yield kernel
        if kernel.blocks is not None:
            yield from kernel.blocks.kernels()


def write_libraries(kernels: Sequence[Kernel], simd: str) -> tuple[str, ...]:
    """Sources of the libraries that the source file of these kernels calls. They are the same for all graphs, so they
    are built once."""
    called = dict.fromkeys(library_of(kernel.tiles.contraction) for kernel in _with_parts(kernels)
                           if kernel.tiles is not None)
    return tuple(library_source(name, simd) for name in called)
