"""Which matrix products are the library's: times that are measured, kept, and told."""
import dataclasses
import json
from pathlib import Path

import pytest
import torch
from processors import DESKTOP

import dynamo_lite
from dynamo_lite.backends.inductor import target_info
from dynamo_lite.backends.inductor.codegen.cpp import product_times
from dynamo_lite.backends.inductor.codegen.cpp.product_times import ProductTimes, Times
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Matrix

R = torch.randn


def contraction(rows, columns, depth, strided=False):
    left = Matrix("left", 0, (), 1, rows) if strided else Matrix("left", 0, (), depth, 1)
    return Contraction((), (ix.Var("r", rows),), (ix.Var("c", columns),), depth, left,
                       Matrix("right", 0, (), 1, columns), False)


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """Tells times in place of measuring: of ours, of the library's; and what it was asked for."""
    told, asked = [Times(1e6, 1e6)], []
    monkeypatch.setattr(product_times, "_measured", lambda described, *rest: asked.append(described) or told[0])
    product_times._times.cache_clear()
    with dynamo_lite.config.patch(cache_dir=str(tmp_path / "cache"), measured_products=True):
        yield told, asked
    product_times._times.cache_clear()


def library_calls(fn, *args, **settings):
    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    with torch.no_grad():
        got, want = dynamo_lite.compile(fn, dynamic=False, **settings)(*args), fn(*args)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)
    assert got.stride() == want.stride()
    return sum(dynamo_lite.metrics()["library_calls"].values())


PRODUCTS = [
    (lambda x, y: x @ y, R(200, 300), R(300, 400)), (lambda x, y: x.t() @ y, R(300, 200), R(300, 400)),
    (lambda x, y: torch.nn.functional.linear(x, y), R(2, 100, 300), R(400, 300)),
    (lambda x, y: torch.addmm(y[0], x, y).relu(), R(200, 300), R(300, 400)),
]


@pytest.mark.parametrize("fn, x, y", PRODUCTS)
def test_the_faster_one_computes_a_product(clock, fn, x, y):
    told, _ = clock
    for times, calls in ((Times(1e6, 1e6), 0), (Times(2e6, 1e6), 1), (Times(1.05e6, 1e6), 0)):
        told[0] = times
        product_times._times.cache_clear()
        with dynamo_lite.config.patch(cache_dir=f"{dynamo_lite.config.cache_dir}{times.ours}"):
            assert library_calls(fn, x, y) == calls


def test_options_say_who_computes_a_product(clock):
    told, asked = clock
    told[0] = Times(2e6, 1e6)
    fn, x, y = PRODUCTS[0]
    assert library_calls(fn, x, y, options={"products": "template"}) == 0
    assert library_calls(fn, x, y, options={"products": "library"}) == 1
    with dynamo_lite.config.patch(measured_products=False):
        assert library_calls(fn, x, y) == 0
        assert not asked
        assert library_calls(fn, x, y, mode="max-autotune") == 1
    assert asked == [(200, 400, 300, 300, 1, 1, 400, False)], "as it is, not one of its kind"


def test_kinds_are_measured_once_and_kept(clock):
    _, asked = clock
    info = target_info.current()
    times = ProductTimes(info, 2, False)
    for rows, columns, depth in ((512, 1024, 600), (700, 900, 1200), (4000, 3000, 5000)):
        assert not times.is_for_library(contraction(rows, columns, depth), True)
    assert asked == [(1024, 1024, 1024, 1024, 1, 1, 1024, False)]
    times.is_for_library(contraction(512, 1024, 600, True), True)
    assert asked[1:] == [(1024, 1024, 1024, 1, 1024, 1, 1024, False)], "another form"
    (kept, *rest) = sorted(Path(dynamo_lite.config.cache_dir).rglob("*.product"))
    assert len(rest) == 1 and json.loads(kept.read_bytes()[:kept.read_bytes().index(b"}") + 1])["ours"] == 1e6
    # As another process would.
    product_times._times.cache_clear()
    times.is_for_library(contraction(512, 1024, 600), True)
    assert len(asked) == 2
    kept.write_bytes(b"?")
    for other in rest:
        other.write_bytes(b"?")
    product_times._times.cache_clear()
    times.is_for_library(contraction(512, 1024, 600), True)
    assert len(asked) == 3


def test_small_products_are_ours_unmeasured(clock):
    _, asked = clock
    assert not ProductTimes(DESKTOP, 1, False).is_for_library(contraction(40, 40, 40), False)
    assert not ProductTimes(DESKTOP, 1, True).is_for_library(contraction(100, 100, 100), False)
    assert not asked


def test_what_follows_counts_against_the_library(clock):
    told, _ = clock
    told[0] = Times(1.2e6, 1e6)
    alone = ProductTimes(DESKTOP, 1, True)
    shallow = contraction(2048, 2048, 16)
    assert alone.is_for_library(shallow, False)
    assert not alone.is_for_library(shallow, True), "4 million results written and read once more"
    assert not ProductTimes(DESKTOP, 2, True).is_for_library(shallow, False), "several threads gain less there"


def test_measuring():
    """Of memory of its own, on one thread, with nothing left behind."""
    info = target_info.current()
    threads = torch.get_num_threads()
    for described in ((96, 80, 300, 300, 1, 1, 80, False), (96, 80, 300, 1, 96, 300, 1, False),
                      (80, 96, 300, 300, 1, 320, 1, True)):
        product_times._times.cache_clear()
        found = product_times._times(described, info)
        if product_times.limit_products() is None:
            assert found is None
        else:
            assert 0 < found.ours < 1e9 and 0 < found.library < 1e9
    assert torch.get_num_threads() == threads
    huge = (1 << 14, 16, 1 << 14, 1 << 14, 1, 1, 16, False)
    assert product_times._measured(huge, info, product_times.share_work(contraction(8, 8, 8), 1, info)) is None


@pytest.mark.parametrize("left", [60.0, 1e-9], ids=["packed", "where it is"])
@pytest.mark.parametrize("form", ["as it stands", "strided", "transposed"])
def test_a_product_alone_is_the_product(monkeypatch, left, form):
    """What is measured is what a graph would do: the entry ``alone.cpp`` gives the results of the product."""
    found = {}

    def timed(ours, library):
        ours()
        found["ours"] = results[0].clone()
        library()
        found["library"] = results[0].clone()
        return Times(1.0, 1.0)

    results, empty = [], torch.empty
    monkeypatch.setattr(product_times, "timed", timed)
    monkeypatch.setattr(product_times, "limit_products", lambda: lambda n: n)
    monkeypatch.setattr(torch, "empty", lambda *a, **kw: results.insert(0, empty(*a, **kw).fill_(7)) or results[0])
    described = {
        "as it stands": (131, 259, 700, 700, 1, 1, 259, False), "strided": (131, 259, 700, 1, 131, 700, 1, False),
        "transposed": (259, 131, 700, 700, 1, 700, 1, True)}[form]
    with dynamo_lite.config.patch(target={"strided_left": left, "streamed_left": left, "aliased_left": left}):
        info = target_info.current()
        sharing = product_times.share_work(product_times._contraction(described), 1, info)
        product_times._measured(described, info, sharing)
    torch.testing.assert_close(found["ours"], found["library"])
    assert found["ours"].eq(700 / 4).all()
    assert dataclasses.astuple(Times(1.0, 1.0)) == (1.0, 1.0)
