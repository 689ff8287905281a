"""What eager's CUDA kernels draw, in numpy: Philox4x32-10 from the paper (Salmon et al., "Parallel random numbers: as
easy as 1, 2, 3", 2011), and each kernel's loops over its threads as ATen's sources have them. Nothing here is shared
with what is tested; a device is two numbers.
"""
import dataclasses

import numpy as np

LOW = np.uint64(0xFFFFFFFF)


def philox4x32(counter, key, rounds=10):
    """Four numbers of 32 bits for each counter (rows of four) and one key (two)."""
    a, b, c, d = (np.asarray(counter, np.uint64)[..., k] for k in range(4))
    k0, k1 = map(np.uint64, key)
    for _ in range(rounds):
        p, q = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, b, c, d = (q >> np.uint64(32)) ^ b ^ k0, q & LOW, (p >> np.uint64(32)) ^ d ^ k1, p & LOW
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & LOW, (k1 + np.uint64(0xBB67AE85)) & LOW
    return np.stack([a, b, c, d], -1)


class Streams:
    """``curandStatePhilox4_32_10_t`` of every thread: a subsequence each, at an offset that is a multiple of 4."""

    def __init__(self, seed, offset, threads):
        assert offset % 4 == 0
        self.key = seed & 0xFFFFFFFF, seed >> 32
        self.threads = np.arange(threads, dtype=np.uint64)
        self.at = offset // 4

    def uniform4(self):
        """The next four of each thread, in (0, 1]."""
        at = np.full_like(self.threads, self.at)
        counter = [at & LOW, at >> np.uint64(32), self.threads & LOW, self.threads >> np.uint64(32)]
        self.at += 1
        bits = philox4x32(np.stack(counter, -1), self.key)
        return bits.astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)


@dataclasses.dataclass
class Device:
    """A device's generator; the interface of ``torch.Generator``."""

    seed: int
    processors: int = 2
    offset: int = 0
    threads_each: int = 512

    def initial_seed(self):
        return self.seed

    def get_offset(self):
        return self.offset

    def set_offset(self, offset):
        self.offset = offset

    @property
    def most_threads(self):
        return self.processors * (self.threads_each // 256) * 256

    def begin(self, count):
        """The grid of a call, whose numbers are taken from the generator: ``calc_execution_policy``."""
        grid = min(self.processors * (self.threads_each // 256), (count + 255) // 256)
        streams = Streams(self.seed, self.offset, grid * 256)
        self.offset += ((count - 1) // (256 * grid * 4) + 1) * 4
        return streams, grid * 256

    def uniform(self, count):
        """``distribution_elementwise_grid_stride_kernel`` with ``curand_uniform4``."""
        streams, threads = self.begin(count)
        out = np.zeros(count, np.float32)
        start = 0
        while start < count:
            drawn = streams.uniform4()
            for k in range(4):
                for thread in range(threads):
                    if start + threads * k + thread < count:
                        out[start + threads * k + thread] = drawn[thread, k]
            start += threads * 4
        return out

    def dropout(self, count, vector):
        """``fused_dropout_kernel_vec``, or ``fused_dropout_kernel`` for single elements: the numbers compared."""
        if vector == 1:
            return self.uniform(count)
        streams, threads = self.begin(count)
        out = np.zeros(count, np.float32)
        start = 0
        while start < count:
            drawn = np.concatenate([streams.uniform4() for _ in range((vector + 3) // 4)], -1)
            for thread in range(threads):
                at = start + thread * vector
                if at < count:
                    out[at:at + vector] = drawn[thread, :vector]
            start += threads * vector
        return out


def vector_of(count, itemsize):
    """``get_vector_size`` of dense memory that the allocator has just given."""
    return next(v for v in (8, 4, 2, 1) if v <= 16 // itemsize and count % v == 0)
