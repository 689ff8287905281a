"""``GpuInfo``: one description of all the GPU properties that decisions depend on, like ``target_info`` for CPUs.

The number of multiprocessors and the size of shared memory are those that CUDA reports for the device; without a device
(kernels compiled ahead of time, tests), those of ``TYPICAL``. A value that no device reports is a field whose comment
says where it comes from; the log ``targets`` prints all.

Invariant: a description is immutable, and decisions are pure functions of it: equal descriptions give equal decisions
on any machine.
"""
from __future__ import annotations

import dataclasses
import functools

import torch

from dynamo_lite import log


@dataclasses.dataclass(frozen=True, slots=True)
class GpuInfo:
    """Attributes:
        name: the device's name.
        processors: number of multiprocessors; 132 in an H100 or H200 (SXM).
        shared: bytes of shared memory that a block may use. 99 KB is the least of all devices since Ampere (compute
            capability 8.6, 8.9, 12.0); 8.0 has 163 KB, 9.0 and 10.0 have 227 KB.
        each: number of blocks that keep a multiprocessor busy: one computes while another waits for memory. More than
            two blocks of four or eight warps, as reductions have, fit on every device since Volta.
        row: number of elements of a row from which on a piece of a row is worth a block of its own; below, starting the
            kernel that joins the pieces costs more than they save. An estimate that no GPU has confirmed: at a
            multiprocessor's share of an H100's bandwidth, 25 GB/s, 8 KB of float32 take a third of a microsecond.
        lines: the same for sums along columns, where a block has 32 columns side by side: 8 KB again.
        vector: largest number of elements that a thread reads at a time: 16 bytes of one byte each. Pieces of other
            lengths would begin in between.
        idle: the library does a scan along long rows if kernels of ours would occupy less than one ``idle``-th of the
            device. The library reads each row twice and starts three kernels; with one eighth of the device at work,
            twice that traffic is still four times faster.
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
        """Number of blocks that keep the device busy."""
        return self.processors * self.each

    def describe(self) -> str:
        """The description as text, for the log."""
        fields = dataclasses.asdict(self)
        name = fields.pop("name")
        return "\n".join([name, *(f"{field} = {value}" for field, value in fields.items()),
                          f"programs = {self.programs}"])


TYPICAL = GpuInfo()


def of_devices(devices: set[torch.device]) -> GpuInfo:
    """The description of the GPU that a graph's kernels run on; for several GPUs, the minimum of each value."""
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
