"""One form of a product's kernel: the library's matrix product, followed by a Triton kernel for the epilogue.

Invariant: this form has the parameters of the product's kernel, and writes the same results.
"""
from __future__ import annotations

from dynamo_lite.backends.inductor.codegen.triton.expressions import index_text
from dynamo_lite.backends.inductor.codegen.triton.kernel import NAME, TritonKernel, Written
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel, LibraryProduct, Operand
from dynamo_lite.backends.inductor.scheduler.library_product import PRODUCT


class LibraryProductKernel(TritonKernel):
    """Writes the library call, and the kernel of the epilogue.

    Args:
        library: the library's product to call.
    """

    def __init__(self, kernel: Kernel, gpu: bool, library: LibraryProduct) -> None:
        super().__init__(kernel, gpu)
        self.library = library

    def write(self) -> Written:
        library = self.library
        product = "mm" if len(library.result.size) == 2 else "bmm"
        given = [self._matrix(o) for o in library.operands]
        if library.addend is not None:
            product = "addmm" if product == "mm" else "baddbmm"
            given.insert(0, self._matrix(library.addend))
        lines = [f"def launch_{NAME}({', '.join(self.given())}):"]
        if library.direct is not None:
            result = library.result
            place = Operand(library.direct, result.size, result.stride, 0)
            lines += [f"    torch.{product}({', '.join(given)}, out={self._matrix(place)})", ""]
            return Written("", "\n".join(lines), "")
        assert library.after is not None
        after = TritonKernel(library.after, self.gpu)
        functions, launch, signatures = after.write().renamed(f"{NAME}_after")
        arguments = [PRODUCT if b == PRODUCT else self.pointers[b] for b in library.after.buffers]
        stream = ["stream"] if self.gpu else []
        arguments = [*stream, *arguments, *after.given()[len(stream) + len(arguments):]]
        lines += [f"    {PRODUCT} = torch.{product}({', '.join(given)})",
                  f"    launch_{NAME}_after({', '.join(arguments)})", ""]
        return Written(functions, launch + "\n\n" + "\n".join(lines), signatures)

    def _matrix(self, operand: Operand) -> str:
        """The text of a tensor over the elements of a parameter."""
        pointer = self.pointers[operand.buffer]
        offset = index_text(operand.offset, {}, str)
        start = f"{pointer}.storage_offset()" + ("" if offset == "0" else f" + {offset}")
        return f"{pointer}.as_strided({_tuple(operand.size)}, {_tuple(operand.stride)}, {start})"


def _tuple(indices: tuple[ix.Index, ...]) -> str:
    return "(" + ", ".join(index_text(i, {}, str) for i in indices) + ("," if len(indices) == 1 else "") + ")"
