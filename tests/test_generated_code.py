"""generated_code shows what the backend wrote."""
import pytest
import torch
import torch.nn as nn

import dynamo_lite


def test_functions_modules_and_breaks():
    def f(x):
        x = x.sin() + 1
        dynamo_lite.graph_break()
        return x.cos() * 2

    compiled = dynamo_lite.compile(f)
    assert dynamo_lite.generated_code(compiled) == ""
    compiled(torch.randn(100))
    text = dynamo_lite.generated_code(compiled)
    assert "sin" in text and "cos" in text
    module = dynamo_lite.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    with torch.no_grad():
        module(torch.randn(2, 4))
    assert "relu" in dynamo_lite.generated_code(module)
    with pytest.raises(TypeError, match="compile"):
        dynamo_lite.generated_code(f)


def test_it_names_operations_and_the_user_s_lines(tmp_path):
    source = "def f(x, w):\n    y = x.sin() + 1\n    return torch.relu(y @ w) * 2\n"
    path = tmp_path / "user_program.py"
    path.write_text(source)
    names = {"torch": torch}
    exec(compile(source, str(path), "exec"), names)
    compiled = dynamo_lite.compile(names["f"])
    compiled(torch.randn(4, 4), torch.randn(4, 4))
    text = dynamo_lite.generated_code(compiled)
    assert "//: sin, add: y = x.sin() + 1  (user_program.py:2)" in text
    assert "return torch.relu(y @ w) * 2  (user_program.py:3)" in text
    assert "template <class" not in text and "KERNEL kernel0" in text


def test_equal_kernels_of_other_lines_are_built_once():
    dynamo_lite.compile(lambda x: x.cosh() - 3)(torch.ones(6))
    dynamo_lite.reset_metrics()
    dynamo_lite.compile(lambda z:
                        z.cosh() - 3)(torch.ones(6))
    assert dynamo_lite.metrics()["cache_hits"] == 1 and "cache_misses" not in dynamo_lite.metrics()
