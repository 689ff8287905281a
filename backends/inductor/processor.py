"""Properties of the processor as the machine reports them: instructions, caches, cores. Linux reports them in
``/proc/cpuinfo`` and below ``/sys/devices/system/cpu``, the C library through ``sysconf``. A value that none of them
reports has a default that suits any processor of the last ten years.

Invariant: nothing is measured here, and no process is started; if a file is missing or has an unexpected form, the
default is used.
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import os
import platform

from dynamo_lite import config, log

# The numbers of sysconf (bits/confname.h) for the size of each level; the number of ways is the next one.
_MOST_CACHES = 16  # of one processor: files that never end are not the system's
_SYSCONF = {1: 188, 2: 191, 3: 194}
_KINDS = ("scalar", "avx2", "avx512")


@dataclasses.dataclass(frozen=True, slots=True)
class Cache:
    """Attributes:
        size: bytes.
        ways: associativity: the number of lines of one set that the cache holds at once.
        sharers: number of logical processors that share the cache.
    """

    size: int
    ways: int
    sharers: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Processor:
    """Attributes:
        name, family: the name that the processor reports; and vendor, family, model, stepping and microcode as one
            string.
        simd: the widest vector instructions that kernels can use: "avx512", "avx2", "scalar".
        l1, l2, l3: data caches; l3 is None where there is none.
        cores: number of cores that this process may run on; the logical processors of a core count as one.
        siblings: number of logical processors that share a core.
    """

    name: str
    family: str
    simd: str
    l1: Cache
    l2: Cache
    l3: Cache | None
    cores: int
    siblings: int

    def key(self) -> str:
        """A string that differs between processors whose costs may differ."""
        return repr(dataclasses.astuple(self))


def simd_of(features: frozenset[str]) -> str:
    """The vector instructions to generate for, by the processor's feature flags."""
    if not {"avx2", "fma", "f16c"} <= features:
        return "scalar"
    return "avx512" if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= features else "avx2"


@functools.cache
def cpu_features() -> frozenset[str]:
    """The feature flags of the first processor in /proc/cpuinfo; empty where there is no such file."""
    fields = _first_processor("/proc/cpuinfo")
    if not fields:
        log.artifact("targets").debug("no /proc/cpuinfo: the processor's features are unknown")
    return _features(fields)


def simd() -> str:
    """The vector instructions to generate for: "avx512", "avx2" or "scalar"; those of ``config.cpp_simd``, if the
    processor has them.
    """
    best, wanted = simd_of(cpu_features()), config.cpp_simd
    return best if wanted == "auto" else min(wanted, best, key=_KINDS.index)


@functools.cache
def this_processor() -> Processor:
    """The processor that this process runs on."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return read_processor("/", list(usable))


def read_processor(root: str, usable: list[int]) -> Processor:
    """The processor that files describe.

    Args:
        root: the folder that contains ``proc`` and ``sys``.
        usable: the logical processors that the process may run on.
    """
    fields = _first_processor(os.path.join(root, "proc/cpuinfo"))
    folder = os.path.join(root, f"sys/devices/system/cpu/cpu{usable[0]}")
    found = _caches(f"{folder}/cache")
    if root == "/":
        found = {**_from_sysconf(), **found}
    siblings = _count(_text(f"{folder}/topology/thread_siblings_list"))
    named = [fields[k] for k in ("model name", "Model", "CPU part") if k in fields]
    family = [fields.get(k, "") for k in ("vendor_id", "CPU implementer", "cpu family", "model", "CPU part", "stepping",
                                          "CPU revision", "microcode")]
    # Half a megabyte is what the smallest server cores have; workstations have more.
    l1, l2 = found.get(1, Cache(32 << 10, 8)), found.get(2, Cache(512 << 10, 8))
    return Processor(named[0] if named else platform.machine(), " ".join(filter(None, family)),
                     simd_of(_features(fields)), l1, l2, found.get(3), max(len(usable) // siblings, 1), siblings)


def _first_processor(path: str) -> dict[str, str]:
    """The fields of the first processor in the file."""
    fields: dict[str, str] = {}
    with contextlib.suppress(OSError), io.open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.strip() and fields:
                break
            name, _, value = line.partition(":")
            fields[name.strip()] = value.strip()
    return fields


def _features(fields: dict[str, str]) -> frozenset[str]:
    return frozenset(fields.get("flags", fields.get("Features", "")).split())


def _caches(folder: str) -> dict[int, Cache]:
    """The data caches of one logical processor, by level."""
    found: dict[int, Cache] = {}
    for number in range(_MOST_CACHES):
        index = f"{folder}/index{number}"
        level, size = _text(f"{index}/level"), _size(_text(f"{index}/size"))
        if not level:
            break
        if not level.isdigit() or not size or _text(f"{index}/type") == "Instruction":
            continue
        ways, sharers = _text(f"{index}/ways_of_associativity"), _count(_text(f"{index}/shared_cpu_list"))
        found[int(level)] = Cache(size, int(ways) if ways.isdigit() and int(ways) else 8, sharers)
    return found


def _from_sysconf() -> dict[int, Cache]:
    """The caches as the C library reads them from the processor itself, for where sysfs is missing, as in some
    containers."""
    found: dict[int, Cache] = {}
    if platform.libc_ver()[0] != "glibc":
        return found  # the numbers in _SYSCONF are those of glibc
    for level, number in _SYSCONF.items():
        with contextlib.suppress(OSError, ValueError):
            size, ways = os.sysconf(number), os.sysconf(number + 1)
            if size > 0:
                found[level] = Cache(size, max(ways, 1))
    return found


def _text(path: str) -> str:
    try:
        with io.open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _size(text: str) -> int:
    """Bytes of a size such as "32K", "1024K" or "32M"."""
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 0)
    number = text[:-1] if unit else text
    return int(number) * (unit or 1) if number.isdigit() else 0


def _count(text: str) -> int:
    """How many processors a list such as "0-3,8" names; 1 if it is empty."""
    total = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            total += int(last) - int(first) + 1 if last.isdigit() else 1
    return max(total, 1)
