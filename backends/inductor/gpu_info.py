"""``GpuInfo``: what decisions for GPUs rest on that differs between them, in one description, as ``target_info`` has
it for processors.

Multiprocessors and shared memory are the device's, as CUDA tells; without one (kernels compiled ahead, tests) those of
``TYPICAL``. What no device tells is a field with the place where it was found; the log ``targets`` prints all.

Invariant: a description is immutable, and decisions are functions of it: given the same, they are the same anywhere.
"""
from __future__ import annotations

import dataclasses
import functools

import torch

from dynamo_lite import log


@dataclasses.dataclass(frozen=True, slots=True)
class GpuInfo:
    """Attributes:
        name: of the device.
        processors: multiprocessors. 132: an H100's or H200's (SXM).
        shared: bytes of shared memory that a block may have. 99 KB: the least of devices since Ampere (compute
            capability 8.6, 8.9, 12.0); 8.0 has 163 KB, 9.0 and 10.0 have 227 KB.
        each: blocks that keep a multiprocessor busy: while one waits for memory another computes. Of blocks of four
            or eight warps, as reductions have, more than two fit on every device since Volta.
        row: elements of a row that are worth a block of their own; below, starting the kernel that joins the pieces
            costs more than they save. An estimate that no GPU has measured: at a multiprocessor's share of an H100's
            bandwidth, 25 GB/s, 8 KB of float32 take a third of a microsecond.
        lines: the same for sums along columns, of which a block has 32 side by side: 8 KB again.
        vector: elements that a thread reads at once at most, 16 bytes of one each: pieces of other lengths would
            begin in between.
        idle: a scan by the library reads a long row twice and starts three kernels; with one eighth of the device
            at work, twice that traffic is four times faster still.
    """

    name: str = "no device: an H100 is assumed"
    processors: int = 132
    shared: int = 99 << 10
    each: int = 2
    row: int = 2048
    lines: int = 64
    vector: int = 16
    idle: int = 8

    @property
    def programs(self) -> int:
        """Blocks that keep the device busy."""
        return self.processors * self.each

    def describe(self) -> str:
        """In words, for the log."""
        fields = dataclasses.asdict(self)
        name = fields.pop("name")
        return "\n".join([name, *(f"{field} = {value}" for field, value in fields.items()),
                          f"programs = {self.programs}"])


TYPICAL = GpuInfo()


def of_devices(devices: set[torch.device]) -> GpuInfo:
    """The description of the GPU that a graph's kernels run on; of several the least of each."""
    indices = {torch.cuda.current_device() if device.index is None else device.index for device in devices}
    info = _of_indices(tuple(sorted(indices)))
    if log.enabled("targets") and log.first_time("targets", info):
        log.artifact("targets").info("%s", info.describe())
    return info


@functools.cache
def _of_indices(indices: tuple[int, ...]) -> GpuInfo:
    found = [torch.cuda.get_device_properties(index) for index in indices]
    return GpuInfo(
        ", ".join(dict.fromkeys(each.name for each in found)), min(each.multi_processor_count for each in found),
        min(getattr(each, "shared_memory_per_block_optin", TYPICAL.shared) for each in found))
