"""The description of a processor: read, measured, replaced, and what follows from it."""
import dataclasses
import re
from pathlib import Path

import pytest
from processors import ALL, ARM, DESKTOP, EPYC, ICE_LAKE, XEON

from dynamo_lite import config, log
from dynamo_lite.backends.inductor import core_costs, machine_costs, processor, target_info
from dynamo_lite.backends.inductor.codegen.cpp import libraries
from dynamo_lite.backends.inductor.core_costs import FIGURES
from dynamo_lite.backends.inductor.ir import contraction as templates
from dynamo_lite.backends.inductor.ir.contraction import Patches
from dynamo_lite.backends.inductor.machine_costs import Costs

AVX512 = "fpu avx avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512_vnni"
INTEL = f"""processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.50GHz
stepping\t: 8
microcode\t: 0xffffffff
flags\t\t: {AVX512}

processor\t: 1
model name\t: another
"""
AARCH64 = "processor\t: 0\nFeatures\t: fp asimd crc32 atomics sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"


def machine(folder, cpuinfo, caches=(), siblings="0"):
    """Files as Linux has them."""
    (folder / "proc").mkdir()
    (folder / "proc/cpuinfo").write_text(cpuinfo)
    cpu = folder / "sys/devices/system/cpu/cpu0"
    (cpu / "topology").mkdir(parents=True)
    (cpu / "topology/thread_siblings_list").write_text(siblings + "\n")
    for number, (level, kind, size, ways, shared) in enumerate(caches):
        index = cpu / f"cache/index{number}"
        index.mkdir(parents=True)
        for name, value in (("level", level), ("type", kind), ("size", size), ("ways_of_associativity", ways),
                            ("shared_cpu_list", shared)):
            (index / name).write_text(f"{value}\n")
    return str(folder)


def test_what_linux_tells(tmp_path):
    caches = [(1, "Data", "48K", 12, "0-1"), (1, "Instruction", "32K", 8, "0-1"), (2, "Unified", "2048K", 16, "0-1"),
              (3, "Unified", "105M", 15, "0-3")]
    read = processor.read_processor(machine(tmp_path, INTEL, caches, "0-1"), [0, 1, 2, 3])
    assert read.name.startswith("Intel(R) Xeon") and read.family == "GenuineIntel 6 143 8 0xffffffff"
    assert (read.simd, read.cores, read.siblings) == ("avx512", 2, 2)
    assert dataclasses.astuple(read.l1) == (48 << 10, 12, 2) and dataclasses.astuple(read.l2) == (2 << 20, 16, 2)
    assert dataclasses.astuple(read.l3) == (105 << 20, 15, 4)
    assert target_info.TargetInfo(read, read.simd).own_cache == 2 << 20


@pytest.mark.parametrize("cpuinfo, simd", [
    (INTEL, "avx512"), (INTEL.replace("avx512bw", ""), "avx2"), (INTEL.replace(AVX512, "sse2 avx"), "scalar"),
    (AARCH64, "scalar"), ("", "scalar")])
def test_what_is_not_told_has_a_default(tmp_path, cpuinfo, simd):
    read = processor.read_processor(machine(tmp_path, cpuinfo), [0])
    assert (read.simd, read.cores, read.siblings, read.l3) == (simd, 1, 1, None)
    assert read.l1.size == 32 << 10 and read.l2.size == 512 << 10
    nothing = processor.read_processor(str(tmp_path / "nowhere"), [3, 5])
    assert nothing.cores == 2 and nothing.name and nothing.simd == "scalar"


def test_processors_are_told_apart_by_what_may_change_costs(tmp_path):
    keys = {processor.read_processor(machine(_made(tmp_path / str(n)), text), [0]).key() for n, text in enumerate(
        (INTEL, INTEL.replace("0xffffffff", "0x2b"), INTEL.replace("143", "106"), AARCH64))}
    assert len(keys) == 4


def _made(folder):
    folder.mkdir()
    return folder


# ---------------------------------------------------------------- formulas
def test_the_machine_that_constants_were_once_fitted_to():
    assert (EPYC.far_left, EPYC.near_result, EPYC.near_row) == (2 << 20, 512 << 10, 64 << 10)
    assert (EPYC.near_pixels, EPYC.near_planes, EPYC.strip, EPYC.near_vector) == (4096, 160 << 10, 2048, 1 << 20)
    assert EPYC.near_lines == ((4 << 10, 64), (128 << 10, 4))
    assert (EPYC.grain(False), EPYC.grain(True)) == (32768, 16384)
    assert (EPYC.product_grain(False), EPYC.product_grain(True)) == (1 << 18, 1 << 17)


def test_others():
    assert (XEON.own_cache, XEON.far_left, XEON.near_pixels) == (2 << 20, 4 << 20, 8192)
    assert XEON.near_lines[1] == (128 << 10, 8) and XEON.strip == 3072
    assert ICE_LAKE.own_cache == 1280 << 10, "two logical processors of one core share all of it"
    slow = target_info.with_values(EPYC, {"elements": 2})
    assert slow.grain(False) < EPYC.grain(False), "what takes longer for as much work is shared out earlier"
    assert slow.product_grain(False) == EPYC.product_grain(False)
    sleepy = target_info.with_values(EPYC, {"wake": 26000})
    assert sleepy.grain(False) == 2 * EPYC.grain(False) and sleepy.grain(True) == EPYC.grain(True)
    assert ARM.own_cache == 1 << 20


@pytest.mark.parametrize("info", ALL, ids=lambda info: info.processor.name)
def test_what_is_compiled_suits_all(info):
    # A piece of a panel stays in the own cache beside the left operand's rows.
    panel = info.tile[1] * info.lanes
    assert templates.CHUNK_DEPTH * panel * 4 <= info.own_cache // 2
    assert panel == info.panel
    assert info.near_panels >= info.own_cache
    assert panel <= 64 and info.lanes <= templates.MAX_LANES
    assert 0 < info.near_row <= 64 << 10 and info.far_left > info.near_result
    windows = Patches("image", 0, (), 1, 112, 112, 112, 112, (3, 3), (1, 1), (1, 1), (1, 1), 1)
    rows, columns, several, elements = windows.tiles(info.strip)
    assert rows * columns * several <= 8192 and elements * 4 <= 4 * info.processor.l1.size
    assert "tiles of" in info.describe() and "near_planes" in info.describe()


def test_tiles_are_those_of_the_library():
    """The formula of registers and latencies gives what ``panels.h`` is compiled with."""
    found = re.findall(r"constexpr int CV = (\d), ROWS = (\d);", libraries.text("panels.h"))
    assert [(int(rows), int(vectors)) for vectors, rows in found] == [EPYC.tile, DESKTOP.tile, ARM.tile]
    assert all(rows * vectors >= 8 for rows, vectors in (EPYC.tile, DESKTOP.tile, ARM.tile))


# ---------------------------------------------------------------- settings
def test_config_replaces_single_values():
    before = target_info.current()
    with config.patch(target={"l2": 4 << 20, "l2_ways": 16, "cores": 8, "far_read": 1.5}):
        info = target_info.current()
        assert info.own_cache == 4 << 20 and info.processor.cores == 8 and info.far_read == 1.5
        assert info.processor.l1 == before.processor.l1
        assert "config.target" in info.describe()
    assert target_info.current() == before


def test_costs_are_replaced_too():
    with config.patch(target={"product_rate": 80, "pack_lines": 9, "pack_columns": 10, "im2col": 11, "left_lines": 12,
                              "left_columns": 13, "transform_pixels": 14, "transform_taps": 15, "transform_sums": 16,
                              "pack_far_lines": 17, "pack_far_columns": 18, "near_left_lines": 19,
                              "near_left_columns": 20, "strided_left": 0.25, "streamed_left": 0.125,
                              "aliased_left": 0.5, "placed_right": 0.75}):
        assert target_info.current().costs == Costs(
            80, 9, 10, 17, 18, 11, 12, 13, 19, 20, 14, 15, 16, 0.25, 0.125, 0.5, 0.75)
    with config.patch(target={"im2col": 30}):
        costs = target_info.current().costs
        assert costs.im2col == 30 and costs.pack_lines >= 1


def test_settings_are_checked():
    with pytest.raises(ValueError, match="l2_ways"):
        config.target = {"l4": 1}
    for wrong in (0, -1, True, "2", float("inf")):
        with pytest.raises(ValueError, match="positive number"):
            config.target = {"l2": wrong}
    with config.patch(target={"streamed_left": 0}):
        assert target_info.current().costs.streamed_left == 0, "as it is measured, too"
    with pytest.raises(ValueError, match="at least 0"):
        config.target = {"streamed_left": -0.1}
    option = config.OPTIONS["target"]
    assert option.choices == target_info.NAMES
    assert option.check(option.parse("l2=2097152, cores=2")) == {"l2": 2097152.0, "cores": 2.0}


# ---------------------------------------------------------------- measuring
@pytest.fixture
def measurements(tmp_path, monkeypatch):
    """How often the probe has run, with an empty cache folder."""
    runs, measured = [], machine_costs._measured
    monkeypatch.setattr(machine_costs, "_measured", lambda *args: runs.append(args) or measured(*args))
    with config.patch(cache_dir=str(tmp_path / "cache"), cpp_simd="avx2"):
        yield runs


def test_costs_are_measured_once_and_kept(measurements, tmp_path):
    own = processor.this_processor()
    first = machine_costs.costs_of(own, "avx2")
    assert machine_costs.costs_of(own, "avx2") == first and len(measurements) == 1
    assert all(1 <= cost <= 64 for cost in dataclasses.astuple(first)[1:-4])
    assert 0 <= first.streamed_left <= 64 and 0 <= first.strided_left <= 64
    (kept,) = Path(tmp_path / "cache").rglob("*.costs")
    assert kept.stat().st_mode & 0o077 == 0
    # Another processor's are its own; what has been changed by others is measured anew.
    machine_costs.costs_of(dataclasses.replace(own, family="other"), "avx2")
    assert len(measurements) == 2
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    machine_costs.costs_of(own, "avx2")
    assert len(measurements) == 3


def test_impossible_measurements_count_for_nothing():
    assert machine_costs.rounded(0.0, *[1.0] * 12) is None
    assert machine_costs.rounded(0.017, float("inf"), *[1.0] * 11) is None
    measured = machine_costs.rounded(
        0.0171, 0.07, 0.005, 9.0, 0.11, 0.13, 0.1, 0.15, 0.05, 0.0222, 0.017, 0.0205, 0.0188)
    assert measured == Costs(58.0, 4.0, 1.0, 64.0, 6.0, 8.0, 6.0, 9.0, 3.0, 0.3, 0.0, 0.2, 0.1)


def test_without_a_probe_typical_costs_count(measurements, monkeypatch):
    monkeypatch.setattr(machine_costs.prebuilt, "find", lambda *args: None)
    assert machine_costs.costs_of(processor.this_processor(), "avx2") == machine_costs.TYPICAL
    assert machine_costs.costs_of(processor.this_processor(), "scalar") == machine_costs.TYPICAL


# ---------------------------------------------------------------- of cores
@pytest.fixture
def figures(tmp_path, monkeypatch):
    """What has been measured, with an empty cache folder."""
    asked, samples = [], core_costs._samples
    monkeypatch.setattr(core_costs, "_samples", lambda figure, *rest: asked.append(figure) or samples(figure, *rest))
    target_info._figure_here.cache_clear()
    with config.patch(cache_dir=str(tmp_path / "cache"), cpp_simd="avx2"):
        yield asked
    target_info._figure_here.cache_clear()


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_measured_when_they_are_needed_and_kept(figures, tmp_path, name):
    own = dataclasses.replace(processor.this_processor(), cores=2)
    first = core_costs.figure_of(name, own, "avx2", 512 << 10, 2)
    figure = FIGURES[name]
    assert figures == [figure] and 0 <= first <= 2 * figure.most
    kept = list(Path(tmp_path / "cache").rglob("*.core"))
    again = core_costs.figure_of(name, own, "avx2", 512 << 10, 2)
    # A machine that others keep busy tells nothing: the typical one counts, and is not kept.
    assert (again == first and len(figures) == 1) if kept else (first == figure.typical and len(figures) == 2)
    if kept:
        assert kept[0].stat().st_mode & 0o077 == 0
        kept[0].write_bytes(b"?")
        core_costs.figure_of(name, own, "avx2", 512 << 10, 2)
        assert len(figures) == 2


def test_a_decision_measures_what_it_needs(figures):
    info = target_info.TargetInfo(dataclasses.replace(processor.this_processor(), cores=2), "avx2")
    assert not figures
    assert info.near_store > 0
    assert figures == [FIGURES["near_store"]]
    with_some = target_info.with_values(info, {"wake": 5000, "awake": 1000, "elements": 8})
    assert with_some.grain(False) == 1 << 14 and figures == [FIGURES["near_store"]]


def test_figures_are_coarse_steps():
    def of(name, *values):
        return core_costs.rounded(name, list(values))

    assert of("wake", *[6000.0] * 8) == of("wake", *[6700.0] * 8) == 5793.0
    assert of("wake", *[8200.0] * 8) == 8192.0
    assert of("elements", *[0.1] * 8) == 11.31 and of("elements", *[0.03] * 8) == 32.0
    assert of("far_read", 1.05, 1.05) == pytest.approx(1.0442, abs=1e-4) and of("far_read", 0.9, 1.2) == 1.0
    assert of("foreign_read", *[0.0] * 8) == 0.0 and of("foreign_read", *[0.03] * 8) == 0.03125
    # The lower quartile: what else runs makes some samples larger.
    assert of("awake", *[900.0] * 3, *[9e6] * 5) == 1024.0


@pytest.mark.parametrize("name, samples", [
    ("wake", []), ("wake", [6000.0] * 3), ("wake", [4e6] * 8), ("wake", [1.0] * 8), ("elements", [0.0] * 8),
    ("elements", [float("inf")] * 8), ("far_read", [9.0, 9.0]), ("foreign_read", [float("nan")] * 8)])
def test_what_noise_makes_implausible_counts_for_nothing(caplog, name, samples):
    log.set_logs(targets=True)
    try:
        assert core_costs.rounded(name, samples) is None
    finally:
        log.set_logs()
    assert f"{name} counts as {FIGURES[name].typical}" in caplog.text


def test_nothing_is_measured_of_one_thread(figures):
    own = processor.this_processor()
    for name in ("wake", "awake", "foreign_read"):
        for cores, threads in ((1, 2), (2, 1)):
            alone = dataclasses.replace(own, cores=cores, siblings=1)
            assert core_costs.figure_of(name, alone, "avx2", 512 << 10, threads) == FIGURES[name].typical
    assert not figures


def test_without_a_library_typical_figures_count(figures, monkeypatch):
    monkeypatch.setattr(core_costs.prebuilt, "find", lambda *args: None)
    own = dataclasses.replace(processor.this_processor(), cores=2)
    assert all(core_costs.figure_of(name, own, "avx2", 512 << 10, 2) == f.typical for name, f in FIGURES.items())


def test_the_log_tells_the_description(caplog):
    log.set_logs(targets=True)
    try:
        with config.patch(target={"l2": 3 << 20}):
            target_info.current()
    finally:
        log.set_logs()
    assert any("own_cache = 3145728" in record.getMessage() for record in caplog.records)
