"""Contractions: matrix products and convolutions as sums of products that a template computes.

Such a nest is an ordinary reduction (``value = a * b``, ``kind = "sum"``), and a ``Contraction`` says beside it how to
compute it fast: a *left* operand, of which single elements are spread over a vector, times a *right* one, of which
vectors are read, panel after panel of columns that are packed first. A tile of results is then handed to whatever is
fused behind it.

Invariant: the nest's dims are ``batch``, then those of the result in the order of its memory, then the reduced ones;
without ``transposed`` the result's last dims are the right operand's, with it they are the left operand's. Sums are of
float32, operands of that or of 16 bits. Sizes and strides may be symbols, but for a convolution's channels and kernel.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Union

from dynamo_lite.backends.inductor.ir import index as ix

# The widest vector, in elements, of ``contraction.cpp``.
MAX_LANES = 16
# The widest panel, in columns, of ``panels.h``.
MAX_PANEL = 64
# So many products deep an operand is packed at a time.
CHUNK_DEPTH = 512
# So many products are added up one after the other; longer sums are sums of sums.
CHAIN_DEPTH = 256
# Rows of a block of ``panels.h``, for which panels are read again, or windows that are finished at a time.
BLOCK = 48
# A tile has at most so many lines.
MAX_LINES = 64
# Of ``depthwise.cpp``: rows of results in registers, the widest kernel.
ROWS_AT_ONCE, MAX_KERNEL_WIDTH = 7, 256


@dataclasses.dataclass(frozen=True, slots=True)
class Matrix:
    """Elements ``buffer[offset + batch + line * i + depth * k]``.

    Attributes:
        batch: a stride for each batch dim.
        line: the stride from one row of the left operand, or one column of the right one, to the next.
        depth: the stride along what is summed.
        taps: of a convolution's filters whose channels lie innermost: so many, each with all channels side by side.
            What is summed goes through the channels, tap by tap, and ``depth`` is 0. 0: of all others.
    """

    buffer: str
    offset: ix.Index
    batch: tuple[ix.Index, ...]
    line: ix.Index
    depth: ix.Index
    taps: int = 0

    @property
    def depth_is_contiguous(self) -> bool:
        """Whether neighbours in memory are neighbours along the depth, or along a tap's part of it."""
        return self.depth == 1 or self.taps > 0


@dataclasses.dataclass(frozen=True, slots=True)
class Patches:
    """The right operand of a convolution: column ``(oh, ow)`` holds, channel by channel, what the kernel sees there.

    Attributes:
        batch: a stride for each batch dim.
        channels, height, width: of the input (of one group), which is contiguous.
        out_height, out_width: of the result. These and the two before are indices: numbers, or they hold symbols.
        kernel, stride, padding, dilation: each (vertical, horizontal).
        each: for a depthwise convolution, how many rows of the result see one channel each, the first ones the first;
            ``channels`` is then 1. 0: every row sees all channels.
    """

    buffer: str
    offset: ix.Index
    batch: tuple[ix.Index, ...]
    channels: int
    height: Any
    width: Any
    out_height: Any
    out_width: Any
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    each: int = 0

    @property
    def sizes(self) -> tuple[ix.Index, ...]:
        """Of the image and of the result, which may be symbols."""
        return self.height, self.width, self.out_height, self.out_width

    @property
    def is_sized(self) -> bool:
        """Whether no symbol is in them."""
        return all(isinstance(n, int) for n in self.sizes)

    def tiles(self, strip: int) -> tuple[int, int, int, int]:
        """Of a depthwise convolution: rows and columns of results at a time, all columns or one row; of how many
        channels, if these are whole; and the elements of the scratch planes that hold what they see.

        Args:
            strip: about so many results at a time; a row of more than half as many is cut.
        """
        (kh, kw), (sh, sw), (dh, dw) = self.kernel, self.stride, self.dilation
        rows, width, height = 1, self.out_width, self.out_height
        if width > strip // 2:
            width = strip // 2
        else:
            rows = min(max(strip // sh // width // ROWS_AT_ONCE, 1) * ROWS_AT_ONCE, height)
        whole = (rows, width) == (height, self.out_width)
        several = min(max(strip // 2 // (rows * width), 1), MAX_LINES) if whole else 1
        lines = (-(-rows // ROWS_AT_ONCE) * ROWS_AT_ONCE - 1) * sh + (kh - 1) * dh + 1
        padded = -(-(width + (kw - 1) * dw // sw) // MAX_LANES) * MAX_LANES
        return rows, width, several, several * (lines * sw * padded + 2 * MAX_LANES)


@dataclasses.dataclass(frozen=True, slots=True)
class Contraction:
    """See the module's docstring.

    Attributes:
        batch, rows, columns: the nest's kept variables: of the batch, of the left operand, of the right one.
        depth: how many products are summed.
        left, right: the operands.
        transposed: whether the rows are contiguous in the result.
    """

    batch: tuple[ix.Var, ...]
    rows: tuple[ix.Var, ...]
    columns: tuple[ix.Var, ...]
    depth: ix.Index
    left: Matrix
    right: Union[Matrix, Patches]
    transposed: bool

    def indices(self) -> tuple[ix.Index, ...]:
        """All sizes, strides and offsets."""
        right, left = self.right, self.left
        own = [v.size for v in (*self.batch, *self.rows, *self.columns)]
        own += [self.depth, left.offset, *left.batch, left.line, left.depth, right.offset, *right.batch]
        return (*own, right.line, right.depth) if isinstance(right, Matrix) else (*own, *right.sizes)

    @property
    def is_sized(self) -> bool:
        """Whether no symbol is in it."""
        return all(isinstance(i, int) for i in self.indices())

    @property
    def lanes(self) -> tuple[ix.Var, ...]:
        """The variables along which results are stored vector by vector."""
        return self.rows if self.transposed else self.columns

    @property
    def lines(self) -> tuple[ix.Var, ...]:
        """The others, but for the batch."""
        return self.columns if self.transposed else self.rows


def volume(variables: tuple[ix.Var, ...]) -> ix.Index:
    """How many values the variables take together."""
    return ix.product(v.size for v in variables)


def number(n: ix.Index) -> int:
    """A size that is known."""
    assert isinstance(n, int)
    return n


def rounded(n: int, unit: int) -> int:
    """The least multiple of ``unit`` that is no less."""
    return -(-n // unit) * unit
