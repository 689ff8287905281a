"""Descriptions of processors, for decisions that are simulated: what a machine of each kind tells, and its costs."""
from dynamo_lite.backends.inductor.core_costs import FIGURES
from dynamo_lite.backends.inductor.machine_costs import Costs
from dynamo_lite.backends.inductor.processor import Cache, Processor
from dynamo_lite.backends.inductor.target_info import TargetInfo

TYPICAL = tuple((name, figure.typical) for name, figure in FIGURES.items())


def _described(name, simd, l1, l2, l3, cores, siblings, costs):
    return TargetInfo(Processor(name, name, simd, l1, l2, l3, cores, siblings), simd, costs, TYPICAL)


EPYC = _described("AMD EPYC (Zen 4), 2 cores", "avx512", Cache(32 << 10, 8), Cache(1 << 20, 8), Cache(32 << 20, 16, 2),
                  2, 1, Costs(58.0, 4.0, 4.0, 6.0))
# Two units that multiply and add 16 floats each, at 2.5 GHz: 160 GFLOP/s, against which a copied element is dearer.
XEON = _described("Intel Xeon (Sapphire Rapids), 2 cores", "avx512", Cache(48 << 10, 12), Cache(2 << 20, 16),
                  Cache(105 << 20, 15, 2), 2, 1, Costs(75.0, 6.0, 7.0, 9.0))
ICE_LAKE = _described("Intel Xeon (Ice Lake), 32 cores", "avx512", Cache(48 << 10, 12, 2), Cache(1280 << 10, 20, 2),
                      Cache(54 << 20, 12, 64), 32, 2, Costs(75.0, 6.0, 7.0, 9.0))
DESKTOP = _described("Intel Core (Haswell), 4 cores", "avx2", Cache(32 << 10, 8, 2), Cache(256 << 10, 8, 2),
                     Cache(8 << 20, 16, 8), 4, 2, Costs(50.0, 4.0, 6.0, 7.0))
ATOM = _described("no AVX, 4 cores sharing a cache", "scalar", Cache(32 << 10, 8), Cache(1 << 20, 16, 4), None, 4, 1,
                  Costs())
ARM = _described("aarch64, 64 cores", "scalar", Cache(64 << 10, 4), Cache(1 << 20, 8), Cache(32 << 20, 16, 64), 64, 1,
                 Costs())
ALL = (EPYC, XEON, ICE_LAKE, DESKTOP, ATOM, ARM)
