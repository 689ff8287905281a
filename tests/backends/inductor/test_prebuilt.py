"""Libraries that are compiled when the package is installed."""
import pytest
import torch

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.backends.inductor import codecache, prebuilt, toolchain
from dynamo_lite.backends.inductor.codegen.cpp.libraries import LIBRARIES, library_source

SOURCE = 'extern "C" int answer() { return 42; }'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path / "prebuilt")
    monkeypatch.setattr(toolchain, "run", lambda *a: pytest.fail("a compiler runs"))
    prebuilt._present.cache_clear()
    # A command with options of its own finds nothing ahead.
    with config.patch(cache_dir=str(tmp_path / "cache"), cpp_compiler="g++"):
        yield tmp_path / "prebuilt"
    prebuilt._present.cache_clear()


def test_what_is_installed_is_not_built_again(folder):
    flags = codecache.build_flags()
    path = prebuilt.build(SOURCE, flags, ["g++"], folder)
    written = path.stat().st_mtime_ns
    assert prebuilt.build(SOURCE, flags, ["no-such-compiler"], folder) == path and path.stat().st_mtime_ns == written
    assert codecache.shared_library(SOURCE) == path and list(folder.iterdir()) == [path]


def test_another_source_or_other_options_are_built(folder):
    prebuilt.build(SOURCE, codecache.build_flags("scalar"), ["g++"], folder)
    assert codecache.shared_library(SOURCE, "scalar").parent == folder
    others = [(SOURCE + " ", "scalar", "g++"), (SOURCE, "avx2", "g++"), (SOURCE, "scalar", "g++ -g")]
    for source, simd, compiler in others:
        with config.patch(cpp_compiler=compiler), pytest.raises(pytest.fail.Exception):
            codecache.shared_library(source, simd)


def test_what_cannot_be_built_leaves_nothing(folder):
    with pytest.raises(Exception, match="returned non-zero"):
        prebuilt.build("this is no C++", codecache.build_flags(), ["g++"], folder)
    assert not list(folder.iterdir())


def test_without_any_it_is_as_before(folder, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(prebuilt, "FOLDER", folder / "nowhere")
    prebuilt._present.cache_clear()
    assert prebuilt.find(SOURCE, codecache.build_flags()) is None
    dynamo_lite.reset()
    x, y = torch.randn(24, 32), torch.randn(32, 40)
    with config.patch(cache_dir=str(folder.parent / "cache")):
        torch.testing.assert_close(dynamo_lite.compile(lambda x, y: (x @ y).relu())(x, y), (x @ y).relu())
        built = sum(path.suffix == ".so" for path in (folder.parent / "cache").rglob("*"))
    assert built == 2


def test_a_graph_needs_the_libraries_that_it_calls(monkeypatch):
    sources = []
    real = codecache.build_all
    monkeypatch.setattr(codecache, "build_all", lambda given: (sources.append(list(given[:-1])), real(given))[1])
    needs = {name: library_source(name, codecache.simd()) for name in LIBRARIES}
    x = torch.randn(1, 8, 12, 12)
    for channels, groups, wanted in [(8, 1, "products"), (1, 8, "depthwise")]:
        dynamo_lite.reset()
        sources.clear()
        w = torch.randn(8, channels, 3, 3)
        dynamo_lite.compile(lambda x, w, groups=groups: torch.conv2d(x, w, groups=groups))(x, w)
        assert [s for s in sources if s] == [[needs[wanted]]]
