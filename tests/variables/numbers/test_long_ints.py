"""Ints that change and whose products, or sums, need more than the 64 bits that guards compute with."""
import random

import pytest
import torch

import dynamo_lite


def powers(x, a, b):
    if a * a == 1:
        return x
    return (x + 2, a) if a * a * a else x


def products(x, a, b):
    m = a * b
    return (x + 1, m, m.bit_length(), -m, ~m) if m else (x, m)


def differences(x, a, b):
    m = abs(a) * b - a
    return (x + 1, m >> 3) if m > 5 else (x, m)


def sums_of_squares(x, a, b):
    s = a * a + b * b
    return (x + 1, s, min(s, a), s // 2, s % 7, s == b) if s else x


def small_though_its_terms_are_long(x, a, b):
    d = (a - b) * (a + b)
    return (x + 1, d) if d > 0 else (x, d, (a - b) * (a + 1) == (b - a))


def scaled(x, a, b):
    return (x + 1, a * (1 << 60)) if a * (1 << 60) > b else (x, a << 3)


@pytest.mark.parametrize("fn", [
    powers, products, differences, sums_of_squares, small_though_its_terms_are_long, scaled], ids=lambda f: f.__name__)
def test_values(fn):
    compiled = dynamo_lite.compile(fn, backend="eager")
    drawn = random.Random(0)
    for i in range(12):
        a, b = drawn.getrandbits(10 + 5 * i) | 1, drawn.getrandbits(60)
        for arguments in ((a, b), (b, a), (-a, b)):
            x = torch.ones(1)
            assert repr(compiled(x, *arguments)) == repr(fn(x, *arguments)), arguments
