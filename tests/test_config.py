"""Settings: types are kept, wrong names and values are answered in words, the environment is read."""
import os

import new_process
import pytest

from dynamo_lite import config


def test_patch_sets_and_restores():
    before = config.recompile_limit
    with config.patch(recompile_limit=before + 1, cpp_simd="scalar"):
        assert config.recompile_limit == before + 1 and config.cpp_simd == "scalar"
    assert config.recompile_limit == before and config.cpp_simd == "auto"


def test_patch_restores_after_an_error_and_decorates():
    @config.patch(recompile_limit=77)
    def limit():
        return config.recompile_limit

    before = config.recompile_limit
    assert (limit(), limit()) == (77, 77)
    with pytest.raises(KeyError), config.patch(recompile_limit=78):
        raise KeyError
    assert config.recompile_limit == before


def test_unknown_name_lists_the_near_ones():
    with pytest.raises(AttributeError, match="recompile_limit"):
        _ = config.recompile_limt
    with pytest.raises(AttributeError, match="recompile_limit"):
        config.recompile_limt = 3
    with pytest.raises(AttributeError, match="cache_dir"):
        config.patch(cach_dir="/tmp")
    assert not hasattr(config, "recompile_limt")


def test_wrong_values_change_nothing():
    before = config.snapshot()
    with pytest.raises(TypeError, match="recompile_limit is of type int"):
        config.recompile_limit = "3"
    with pytest.raises(TypeError, match="int, not bool"):
        config.recompile_limit = True
    with pytest.raises(ValueError, match="auto, avx512"):
        config.cpp_simd = "sse"
    with pytest.raises(ValueError, match="at least 1"):
        config.recompile_limit = 0
    with pytest.raises(ValueError, match="at least 0"):
        config.patch(recompile_limit=3, num_compile_workers=-1)
    with pytest.raises(AttributeError):
        del config.recompile_limit
    assert config.snapshot() == before


def test_lists_become_tuples():
    with config.patch(extra_inline_modules=["a", "b.c"]):
        assert config.extra_inline_modules == ("a", "b.c")


def test_environment(tmp_path):
    env = dict(os.environ, DYNAMO_LITE_RECOMPILE_LIMIT="3", DYNAMO_LITE_CACHE_DIR=str(tmp_path),
               DYNAMO_LITE_CPP_SIMD="sse", DYNAMO_LITE_SUPPRESS_ERRORS="yes", DYNAMO_LITE_EXTRA_SKIP_MODULES="a, b")
    code = ("from dynamo_lite import config as c; "
            "print(c.recompile_limit, c.cache_dir, c.cpp_simd, c.suppress_errors, c.extra_skip_modules)")
    p = new_process.run(code, env=env)
    assert p.stdout.strip() == f"3 {tmp_path} auto True ('a', 'b')", p.stderr
    assert "DYNAMO_LITE_CPP_SIMD is ignored" in p.stderr


@pytest.mark.parametrize("text, said", [
    ("l2=abc", "numbers by name"), ("l2", "numbers by name"), ("l9=3", "'l9'"), ("l2=-1", "a positive number")])
def test_numbers_by_name_in_the_environment(text, said):
    p = new_process.run("from dynamo_lite import config; print(config.target)",
                        env=dict(os.environ, DYNAMO_LITE_TARGET=text))
    assert p.stdout.strip() == "{}" and said in p.stderr and "DYNAMO_LITE_TARGET is ignored" in p.stderr


@pytest.mark.parametrize("name, meant", [
    ("DYNAMO_LITE_LOG", "DYNAMO_LITE_LOGS"), ("DYNAMO_LITE_CACHE_DIRS", "DYNAMO_LITE_CACHE_DIR"),
    ("DYNAMO_LITE_RECOMPILES_LIMIT", "DYNAMO_LITE_RECOMPILE_LIMIT"), ("DYNAMO_LITE_OF_OURS", None),
])
def test_misspelt_variables_are_named(name, meant):
    done = new_process.run("import dynamo_lite", env={**os.environ, name: "1"})
    assert done.returncode == 0
    assert (f"there is no variable {name}: did you mean {meant}?" in done.stderr) == (meant is not None)


def test_every_option_explains_itself():
    text = config.describe()
    for name, option in config.OPTIONS.items():
        assert name in text and option.env in text and len(option.help) > 10
        assert option.check(option.default) == option.default
