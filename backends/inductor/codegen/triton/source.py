"""Triton for kernels: one Python file for all kernels of a graph, each distinct kernel once.

``write_source`` is the door. A file defines the kernels, for each a function that launches it, and ``SIGNATURES``:
the types of each kernel's parameters, its block sizes, its number of warps and of pipeline stages, which are needed to
compile it without a call. Where several forms of a kernel compete, ``ALTERNATIVES`` maps the launching function to a
digest of all forms, the number of parameters at the end that are sizes, and the launching functions of the forms, the
default form first.
"""
from __future__ import annotations

import hashlib
from collections.abc import Sequence

from dynamo_lite.backends.inductor.codegen.comments import comment
from dynamo_lite.backends.inductor.codegen.triton.blocks import ALONG_ROWS, SIDE_BY_SIDE
from dynamo_lite.backends.inductor.codegen.triton.configurations import by_rule, suitable
from dynamo_lite.backends.inductor.codegen.triton.helpers import HEAD, LIBDEVICE, definitions
from dynamo_lite.backends.inductor.codegen.triton.kernel import TritonKernel, Written
from dynamo_lite.backends.inductor.codegen.triton.library_product import LibraryProductKernel
from dynamo_lite.backends.inductor.codegen.triton.product import ProductKernel
from dynamo_lite.backends.inductor.codegen.triton.row_blocks import RowBlocksKernel
from dynamo_lite.backends.inductor.codegen.triton.tuning import FORM
from dynamo_lite.backends.inductor.gpu_info import TYPICAL, GpuInfo
from dynamo_lite.backends.inductor.ir.contraction import volume
from dynamo_lite.backends.inductor.ir.nodes import walk
from dynamo_lite.backends.inductor.ir.ops import DEAR, OPS
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.target import Tuning

BY_RULE = Tuning()


def write_source(
    kernels: Sequence[Kernel], gpu: bool = False, tuning: Tuning = BY_RULE, info: GpuInfo = TYPICAL,
    precision: str = "ieee",
) -> tuple[str, list[str]]:
    """``(source, symbols)``: the file's text, and the name of the launching function of each kernel.

    Args:
        gpu: whether kernels run on a GPU, where they are launched by functions ``run_...``, which ``launch`` makes; if
            not, they run in the interpreter.
        tuning: the choices between forms, see ``Tuning``.
        info: the GPU for which the kernels are made.
        precision: the precision of products of float32, see ``ProductKernel``.
    """
    names: dict[tuple[Written, ...], str] = {}
    sizes: dict[str, int] = {}
    comments: dict[str, dict[str, None]] = {}
    symbols = []
    for kernel in kernels:
        forms = dict.fromkeys(w.write() for w in _writers(kernel, gpu, tuning, info, precision))
        name = names.setdefault(tuple(forms), f"kernel{len(names)}")
        sizes[name] = len(kernel.symbols())
        symbols.append(f"launch_{name}")
        comments.setdefault(name, {}).update(dict.fromkeys(kernel.origin))
    if not kernels:
        return "", []
    bodies, signatures, alternatives = [], [], []
    for forms_, name in names.items():
        bodies.append("\n\n" + comment(list(comments[name]), "# ").rstrip("\n"))
        for k, form in enumerate(forms_):
            functions, launch, signature = form.renamed(_form(name, k))
            bodies.append("\n" + functions + ("\n\n" if functions else "") + launch + "\n")
            signatures.append(signature)
        if len(forms_) > 1:
            launches = tuple(f"launch_{_form(name, k)}" for k in range(len(forms_)))
            alternatives.append(f'    "launch_{name}": ("{_digest(forms_)}", {sizes[name]}, {launches}),\n')
    written = "".join(bodies).rstrip("\n") + "\n"
    head = HEAD + (LIBDEVICE if "libdevice." in written else "") + ("import torch\n" if "torch." in written else "")
    tables = ["\n\nSIGNATURES = {\n", *signatures, "}\n"]
    if alternatives:
        tables += ["ALTERNATIVES = {\n", *alternatives, "}\n"]
    return "".join([head, definitions(written), written, *tables]), symbols


def _form(name: str, k: int) -> str:
    """The name of one form of a kernel."""
    return f"{name}{FORM}{k}" if k else name


def _digest(forms: tuple[Written, ...]) -> str:
    return hashlib.sha256("\n".join(text for form in forms for text in form).encode()).hexdigest()


def _writers(kernel: Kernel, gpu: bool, tuning: Tuning, info: GpuInfo, precision: str) -> list[TritonKernel]:
    """The writers of a kernel's competing forms, the default form first. Kernels for the interpreter have one form."""
    if kernel.blocks is not None:
        return [RowBlocksKernel(kernel, gpu, info, precision)]
    if kernel.tiles is not None:
        return _product_writers(kernel, gpu, tuning, info, precision)
    plain = not any(s.ordered or s.check or s.scan for s in kernel.stages)
    if tuning.blocks != "measured" or not gpu or not plain:
        return [TritonKernel(kernel, gpu)]
    table = SIDE_BY_SIDE if kernel.is_pure() and not kernel.inner else ALONG_ROWS
    return [TritonKernel(kernel, gpu, row) for row in table]


def _product_writers(
    kernel: Kernel, gpu: bool, tuning: Tuning, info: GpuInfo, precision: str
) -> list[TritonKernel]:
    tiles = kernel.tiles
    assert tiles is not None
    c = tiles.contraction
    batch, *rest = volume(c.batch), volume(c.rows), volume(c.columns), c.depth
    itemsize = kernel.buffers[c.left.buffer].dtype.itemsize
    following = walk(s.value for stage in kernel.stages[1:] for s in stage.statements)
    functions = any(n.op in OPS and n.dtype.is_floating_point and OPS[n.op].cost >= DEAR for n in following)
    rows = [by_rule(batch, *rest, itemsize, info, functions)]
    if tuning.products != "measured" or not gpu:
        return [ProductKernel(kernel, gpu, rows[0], precision)]
    templates = [ProductKernel(kernel, gpu, row, precision)
                 for row in dict.fromkeys([*rows, *suitable(rest[0], rest[1], rest[2], itemsize, functions)])]
    return [*([] if tiles.library is None else [LibraryProductKernel(kernel, gpu, tiles.library)]), *templates]
