"""Reuse distances: which operands of products are known to have left the core's own cache."""
import re

import pytest
import torch

import dynamo_lite

R = torch.randn


@pytest.fixture(autouse=True)
def small_cache():
    with dynamo_lite.config.patch(target={"l2": 1 << 20}, cache_graphs=False):
        yield


def far(fn, *args):
    """For each product of the compiled function: whether its left and its right operand are far."""
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(fn)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), fn(*args), rtol=1e-3, atol=1e-3)
    found = re.findall(r"left_is_far = (\w+), c.right_is_far = (\w+)", dynamo_lite.generated_code(compiled))
    return [tuple(text == "true" for text in pair) for pair in found]


def linear(x, w):
    return torch.nn.functional.linear(x, w)


def test_the_weights_of_a_small_graph_stay_near():
    assert far(linear, R(64, 128), R(128, 128)) == [(False, False)]


def test_small_weights_of_a_large_graph_come_from_memory():
    """A linear layer's weights are the left operand; the second layer's input was just computed."""
    weights = [R(256, 256) for _ in range(6)]

    def layers(x, *weights):
        for w in weights:
            x = linear(x, w).relu()
        return x

    assert far(layers, R(64, 256), *weights) == [(True, True), (True, False)]  # equal kernels are one


def test_weights_that_were_just_used_are_near():
    def twice(x, w, large):
        return linear(linear(x, w).relu(), w), large * 2

    assert far(twice, R(64, 256), R(256, 256), R(600, 600)) == [(True, True), (False, False)]


def test_what_is_read_in_between_counts_once():
    def between(x, w, large):
        y = linear(x, w).relu()
        for _ in range(8):
            y = (y.t().cumsum(1) * 0.01).sin()
        return linear(y * large.sum(), w)

    assert far(between, R(256, 256), R(256, 256), R(8, 8))[-1][0] is False, "what is computed in between shares memory"
    assert {left for left, _ in far(between, R(256, 256), R(256, 256), R(600, 600))} == {True}


def test_a_view_is_its_base():
    def viewed(x, w):
        y = linear(x, w).relu()
        return linear(y.view(128, 64), w.view(64, -1)[:, :64])

    assert far(viewed, R(128, 64), R(64, 64)) == [(False, False)] * 2


def test_an_operand_larger_than_the_cache_is_far():
    assert far(linear, R(64, 1024), R(512, 1024))[0][0] is True
