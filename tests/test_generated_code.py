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
