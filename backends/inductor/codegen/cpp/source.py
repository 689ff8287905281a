"""The C++ source file with all kernels of a graph. Each distinct kernel is written once, and kernels that differ only
in sizes share one function.

``write_source`` is the entry point. The headers (``vec.h`` with vectors, tails and casts, and others) are copied to the
head of every file, so that a file includes nothing when it is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynamo_lite.backends.inductor.codegen.comments import comment
from dynamo_lite.backends.inductor.codegen.cpp.contraction import ContractionKernel, library_of
from dynamo_lite.backends.inductor.codegen.cpp.functions import MOST_IN_LINE, declarations, uses
from dynamo_lite.backends.inductor.codegen.cpp.kernel import CppKernel
from dynamo_lite.backends.inductor.codegen.cpp.libraries import library_header, library_source
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
    names: dict[str, str] = {}
    comments: dict[str, dict[str, None]] = {}
    functions: set[str] = set()
    symbols = []
    writers = [(CppKernel if kernel.tiles is None else ContractionKernel)(kernel, _SYMBOL, info) for kernel in kernels]
    awake = sum(writer.keeps_awake() for writer in writers)
    for kernel, writer in zip(kernels, writers):
        if awake > writer.keeps_awake():
            writer.stay_awake()
        text = writer.write()
        functions |= writer.functions
        name = names.setdefault(text, f"kernel{len(names)}")
        symbols.append(name)
        comments.setdefault(name, {}).update(dict.fromkeys(kernel.origin))
    if not kernels:
        return "", []
    parts = [header()]
    if any(kernel.tiles is not None for kernel in kernels):
        parts.append(library_header(info.simd))
    parts.append(declarations(functions, info.simd, uses(names, functions) <= MOST_IN_LINE))
    for text, name in zip(share(list(names)), names.values()):
        parts.append(PART_MARK + "\n" + comment(list(comments[name]), MARK) + text.replace(_SYMBOL, name))
    return "".join((*parts, PART_MARK)), symbols


def write_libraries(kernels: Sequence[Kernel], simd: str) -> tuple[str, ...]:
    """Sources of the libraries that the source file of these kernels calls. They are the same for all graphs, so they
    are built once."""
    called = dict.fromkeys(library_of(kernel.tiles.contraction) for kernel in kernels if kernel.tiles is not None)
    return tuple(library_source(name, simd) for name in called)
