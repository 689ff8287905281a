"""Contractions: matrix products and convolutions, as sums of products that a template computes.

Such a nest is an ordinary reduction (``value = a * b``, ``kind = "sum"``). The ``Contraction`` attached to it describes
how to compute it fast: the micro-kernel broadcasts single elements of the *left* operand to a vector and multiplies
them by vectors of the *right* operand, whose columns are packed in panels first. Each tile of results is then handed to
the epilogue that is fused behind it.

Invariant: the nest's dims are ``batch``, then those of the result in memory order, then the reduced ones. The last dims
of the result are the right operand's columns, or, with ``transposed``, the left operand's rows. Sums are float32,
operands are float32 or 16-bit floats. Sizes and strides may be symbols, except a convolution's channels and kernel.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Union

from dynamo_lite.backends.inductor.ir import index as ix

# Elements of the widest vector of ``contraction.cpp``.
MAX_LANES = 16
# Columns of the widest panel of ``panels.h``.
MAX_PANEL = 64
# Depth (number of products per sum) of the pieces in which a deep operand is packed and multiplied.
CHUNK_DEPTH = 512
# Depth to which the right operand is packed at a time if partial sums of few rows are kept meanwhile.
PIECE_DEPTH = 128
# Number of products that are accumulated one after the other; longer sums are sums of such partial sums.
CHAIN_DEPTH = 256
# Rows of a block of ``panels.h``: each block passes over the panels once more. With exchanged operands, the number of
# windows that are finished at a time.
BLOCK = 48
# Largest number of lines of a tile.
MAX_LINES = 64
# Largest depth of the first product of attention, and width of the second one, whose operands a program on a GPU holds
# in registers or in shared memory: heads of more than 256 are not in use.
MAX_HEAD = 256
# In ``depthwise.cpp``: the rows of results that are held in registers, and the width of the widest kernel.
ROWS_AT_ONCE, MAX_KERNEL_WIDTH = 7, 256


@dataclasses.dataclass(frozen=True, slots=True)
class Matrix:
    """An operand whose elements are ``buffer[offset + dot(batch index, batch) + line * i + depth * k]``.

    Attributes:
        batch: the stride of each batch dim.
        line: the stride from one row of the left operand, or from one column of the right operand, to the next.
        depth: the stride along the summed dimension.
        taps: number of taps, for a convolution's filters whose innermost dimension is the channels; the channels of a
            tap are contiguous. The sum runs over the channels, and within a channel over the taps; ``depth`` is 0.
            0 for all other operands.
        far: whether the operand is known to come from beyond the core's own cache, because the graph touches more than
            that in between.
    """

    buffer: str
    offset: ix.Index
    batch: tuple[ix.Index, ...]
    line: ix.Index
    depth: ix.Index
    taps: int = 0
    far: bool = False

    @property
    def depth_is_contiguous(self) -> bool:
        """Whether the operand is contiguous along the depth, or along each tap's part of it."""
        return self.depth == 1 or self.taps > 0


@dataclasses.dataclass(frozen=True, slots=True)
class Patches:
    """The right operand of a convolution: column ``(oh, ow)`` holds, channel by channel, the window at that place.

    Attributes:
        batch: the stride of each batch dim.
        channels, height, width: sizes of the input (of one group), which is contiguous.
        out_height, out_width: sizes of the result. ``height``, ``width`` and these are indices: ints, or expressions
            with symbols.
        kernel, stride, padding, dilation: each as (vertical, horizontal).
        each: for a depthwise convolution, the number of consecutive rows of the result that share one input channel;
            the first ``each`` rows read the first channel, and ``channels`` is 1. 0: every row reads all channels.
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
        """Height and width of the image, then of the result; they may be symbolic."""
        return self.height, self.width, self.out_height, self.out_width

    @property
    def is_sized(self) -> bool:
        """Whether ``sizes`` are all known ints."""
        return all(isinstance(n, int) for n in self.sizes)

    def tiles(self, strip: int) -> tuple[int, int, int, int]:
        """The tile that a depthwise convolution computes at a time.

        Args:
            strip: target number of results in a tile. A row of more than half as many results is split.

        Returns:
            Rows and columns of the tile (either all columns, or a part of one row); the number of channels that are
            computed together, which is above 1 only if a tile is a whole channel; and the number of elements of the
            scratch planes, which hold the padded input of these channels.
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
    """A sum of products for a template; see the module's docstring.

    Attributes:
        batch, rows, columns: the nest's kept variables: those of the batch, of the left operand's rows, and of the
            right operand's columns.
        depth: number of products per sum.
        left, right: the operands.
        transposed: whether the result is contiguous along the rows instead of the columns.
    """

    batch: tuple[ix.Var, ...]
    rows: tuple[ix.Var, ...]
    columns: tuple[ix.Var, ...]
    depth: ix.Index
    left: Matrix
    right: Union[Matrix, Patches]
    transposed: bool

    def indices(self) -> tuple[ix.Index, ...]:
        """All sizes, strides and offsets of the contraction and its operands."""
        right, left = self.right, self.left
        own = [v.size for v in (*self.batch, *self.rows, *self.columns)]
        own += [self.depth, left.offset, *left.batch, left.line, left.depth, right.offset, *right.batch]
        return (*own, right.line, right.depth) if isinstance(right, Matrix) else (*own, *right.sizes)

    @property
    def is_sized(self) -> bool:
        """Whether all sizes, strides and offsets are known ints."""
        return all(isinstance(i, int) for i in self.indices())

    @property
    def lanes(self) -> tuple[ix.Var, ...]:
        """The variables along which results are stored in vectors."""
        return self.rows if self.transposed else self.columns

    @property
    def lines(self) -> tuple[ix.Var, ...]:
        """The variables that number a tile's lines: those kept variables that are neither lanes nor batch."""
        return self.columns if self.transposed else self.rows


def volume(variables: tuple[ix.Var, ...]) -> ix.Index:
    """Number of iterations of the variables' loops together."""
    return ix.product(v.size for v in variables)


def number(n: ix.Index) -> int:
    """The size as an int; it must be known."""
    assert isinstance(n, int)
    return n


def rounded(n: int, unit: int) -> int:
    """``n`` rounded up to a multiple of ``unit``."""
    return -(-n // unit) * unit
