"""Triton for kernels: one Python file for all kernels of a graph, each distinct kernel once.

``write_source`` is the door. A file defines the kernels, for each a function that launches it, and ``SIGNATURES``:
the types of each kernel's parameters, its blocks' sizes and how many warps run it, which is what compiling it without
a call needs.
"""
from __future__ import annotations

from collections.abc import Sequence

from dynamo_lite.backends.inductor.codegen.comments import comment
from dynamo_lite.backends.inductor.codegen.triton.configurations import by_rule
from dynamo_lite.backends.inductor.codegen.triton.helpers import HEAD, LIBDEVICE, definitions
from dynamo_lite.backends.inductor.codegen.triton.kernel import NAME, TritonKernel
from dynamo_lite.backends.inductor.codegen.triton.product import ProductKernel
from dynamo_lite.backends.inductor.ir.contraction import volume
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.target import Tuning

BY_RULE = Tuning()


def write_source(
    kernels: Sequence[Kernel], gpu: bool = False, tuning: Tuning = BY_RULE, programs: int = 1
) -> tuple[str, list[str]]:
    """``(source, symbols)``: the file, and the name of the function that launches each kernel.

    Args:
        gpu: kernels are launched by functions ``run_...``, which ``launch`` makes; the interpreter calls them.
        tuning: see there.
        programs: blocks that keep the device busy.
    """
    names: dict[tuple[str, str, str], str] = {}
    comments: dict[str, dict[str, None]] = {}
    symbols = []
    for kernel in kernels:
        name = names.setdefault(_writer(kernel, gpu, programs).write(), f"kernel{len(names)}")
        symbols.append(f"launch_{name}")
        comments.setdefault(name, {}).update(dict.fromkeys(kernel.origin))
    if not kernels:
        return "", []
    bodies, signatures = [], []
    for (functions, launch, signature), name in names.items():
        text = comment(list(comments[name]), "# ") + functions + "\n\n" + launch
        bodies.append("\n\n" + text.replace(NAME, name))
        signatures.append(signature.replace(NAME, name))
    written = "".join(bodies)
    head = HEAD + LIBDEVICE if "libdevice." in written else HEAD
    return "".join([head, definitions(written), written, "\n\nSIGNATURES = {\n", *signatures, "}\n"]), symbols


def _writer(kernel: Kernel, gpu: bool, programs: int) -> TritonKernel:
    """What writes a kernel by rule."""
    if kernel.tiles is None:
        return TritonKernel(kernel, gpu)
    c = kernel.tiles.contraction
    sizes = (volume(c.batch), volume(c.rows), volume(c.columns), c.depth)
    return ProductKernel(kernel, gpu, by_rule(*sizes, kernel.buffers[c.left.buffer].dtype.itemsize, programs))
