"""Arithmetic over symbols gives what Python's ints do, whatever values the symbols have."""
import random

import pytest

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.symbols import integers as ints
from dynamo_lite.symbols.integers import Sym


def random_value(draw, symbols, depth=3):
    """An expression, and what computes it from the symbols' values."""
    if depth == 0 or draw.random() < 0.2:
        if draw.random() < 0.3:
            number = draw.randrange(-6, 7)
            return number, lambda values: number
        symbol = draw.choice(symbols)
        return ints.atom(symbol), lambda values: values[symbol]
    a, f = random_value(draw, symbols, depth - 1)
    kind = draw.choice("++-*/%")
    if kind in "/%":
        if draw.random() < 0.3:
            symbol = draw.choice([s for s in symbols if s.lower > 0])
            b, g = ints.atom(symbol), lambda values: values[symbol]
        else:
            number = draw.choice([1, 2, 3, 4, 6, 8])
            b, g = number, lambda values: number
        if kind == "/":
            return ints.floordiv(a, b), lambda values: f(values) // g(values)
        return ints.mod(a, b), lambda values: f(values) % g(values)
    b, g = random_value(draw, symbols, depth - 1)
    if kind == "+":
        return ints.add(a, b), lambda values: f(values) + g(values)
    if kind == "-":
        return ints.add(a, ints.mul(b, -1)), lambda values: f(values) - g(values)
    return ints.mul(a, b), lambda values: f(values) * g(values)


@pytest.mark.parametrize("lowest", [2, -5])
def test_values(lowest):
    draw = random.Random(lowest)
    symbols = [Sym("s", 2), Sym("t", lowest), Sym("u", 0)]
    for _ in range(1500):
        x, compute = random_value(draw, symbols)
        for _ in range(6):
            values = {s: draw.randrange(s.lower, s.lower + 12) for s in symbols}
            assert ints.evaluate(x, values.__getitem__) == compute(values), (x, values)


def test_bounds_hold():
    draw = random.Random(7)
    symbols = [Sym("s", 2), Sym("t", 2), Sym("u", -3)]
    for _ in range(800):
        x, compute = random_value(draw, symbols)
        bounds = ints.value_range(x)
        positive, natural = ints.always_positive(x), ints.never_negative(x)
        for _ in range(6):
            values = {s: draw.randrange(s.lower, s.lower + 12) for s in symbols}
            value = compute(values)
            assert not positive or value > 0, (x, values)
            assert not natural or value >= 0, (x, values)
            if bounds is not None:
                low, high = (ints.evaluate(b, values.__getitem__) for b in bounds)
                assert low <= value <= high, (x, bounds, values)


def test_equal_values_are_equal():
    s, t = ints.atom(Sym("s")), ints.atom(Sym("t"))
    assert ints.mul(s + 1, t - 1) == s * t - s + t - 1
    assert (s * 8) // 8 == s and (s * 8) % 8 == 0 and (s * t) // t == s and (s * t * 4) % (t * 2) == 0
    assert (s // 4) * 4 + s % 4 == s and ((s // 2) // 3) == s // 6
    assert s % (s * t) == s and s // (s * t) == 0  # both are at least 2


def test_replaced_atoms():
    s, t = Sym("s"), Sym("t")
    x = (ints.atom(s) // 2) * ints.atom(t) + ints.atom(s) % 3
    assert ints.replace(x, {s: 7, t: 5}.get) == 3 * 5 + 1
    assert ints.replace(x, {s: ints.atom(t) * 6}.get) == ints.atom(t) * ints.atom(t) * 3
    assert ints.symbols_of(x) == {s, t}


def test_numbers_are_divided_by_symbols():
    s, t = Sym("s"), Sym("t")
    x = 100 // ints.atom(s) + 7 % ints.atom(s)
    assert str(x) == "(100 // (s)) + (7 % (s))" and ints.symbols_of(x) == {s}
    assert ints.evaluate(x, {s: 8}.__getitem__) == 19
    assert ints.replace(x, {s: ints.atom(t)}.get) == 100 // ints.atom(t) + 7 % ints.atom(t)
    assert ints.replace(x, {s: 8}.get) == 19
    assert ints.replace(x, {t: 8}.get) is x
    assert (100 // ints.atom(s)) * ints.atom(s) + 100 % ints.atom(s) == 100


def test_divisors_with_a_common_factor():
    """A flat index over symbolic sizes is taken apart, and put together again."""
    s, t = ix.atom(ix.Sym("s")), ix.atom(ix.Sym("t"))
    row, column = ix.var("row", ix.mul(s, t)), ix.var("column", 768)
    flat = ix.add(ix.mul(row, 768), column)
    parts = ix.unflatten(flat, (s, t, 768))
    assert ix.dot(parts, ix.contiguous_strides((s, t, 768))) == flat
    divisors = (ix.mul(t, 768), ix.mul(s, 768), ix.mul(ix.mul(s, t), 96), ix.add(ix.mul(t, 12), 24))
    for values in ({"s": 3, "t": 5, "row": 13, "column": 700}, {"s": 2, "t": 7, "row": 0, "column": 1}):
        def number(x):
            return ints.evaluate(x, lambda a: values[a.name])

        for divisor in divisors:
            assert number(ix.floordiv(flat, divisor)) == number(flat) // number(divisor)
            assert number(ix.mod(flat, divisor)) == number(flat) % number(divisor)


def test_divisors_that_share_factors_with_what_does_not_fit_below_them():
    """Heads that are repeated: what lies below a row of them can't change which group of heads it is in."""
    rows = ix.atom(ix.Sym("rows"))
    head, row, at = ix.var("head", 8), ix.var("row", rows), ix.var("at", 16)
    flat = ix.sum_of([ix.product([head, rows, 16]), ix.mul(row, 16), at])
    assert ix.floordiv(flat, ix.mul(rows, 64)) == ix.floordiv(head, 4)
    assert ix.mod(flat, ix.mul(rows, 64)) == ix.sum_of(
        [ix.product([ix.mod(head, 4), rows, 16]), ix.mul(row, 16), at])
    assert ix.floordiv(ix.add(ix.mul(head, rows), row), ix.mul(rows, 4)) == ix.floordiv(head, 4)
    beyond = ix.add(flat, 5)  # reaches the next row
    quotient, rest = (f(beyond, ix.mul(rows, 64)) for f in (ix.floordiv, ix.mod))
    for values in ({"rows": 3, "head": 3, "row": 2, "at": 15}, {"rows": 2, "head": 7, "row": 1, "at": 12}):
        def number(x):
            return ints.evaluate(x, lambda a: values[a.name])

        assert (number(quotient), number(rest)) == divmod(number(beyond), values["rows"] * 64)


def test_quotients_of_quotients_are_told_at_once():
    # The size of an image that strided convolutions halve again and again; bounds of each took twice as long as the
    # one's before.
    size = n = ints.atom(Sym("n", 300))
    for _ in range(24):
        size = ints.add(ints.floordiv(ints.add(size, -1), 2), 1)
    assert ints.never_negative(size) and ints.always_positive(size)
    assert not ints.fits(ints.add(size, 1), 4)
    assert ints.evaluate(size, lambda symbol: 1 << 24) == 1
    assert ints.fits(ints.mod(n, 3), 3) and not ints.fits(n, 300)


def test_rounding_up_is_one_form():
    n, p = ints.atom(Sym("n", 2)), ints.atom(Sym("p", 2))
    up = (n + 3) // 4
    for found in (-(-n // 4), (n + -n % 4) // 4, (n + (4 - n % 4) % 4) // 4, (n + -(n % 4) % 4) // 4):
        assert found == up
    assert ints.always_positive(up)
    padded = n + -n % 4
    assert padded == 4 * up and padded % 4 == 0 and padded // (padded // 4) == 4
    assert n - n % 4 == 4 * (n // 4)
    assert -(-n // p) == (n + p - 1) // p == (n + -n % p) // p


def test_remainders_of_remainders():
    n, m = ints.atom(Sym("n", -5)), ints.atom(Sym("m", 2))
    assert (m - n % 8 * m) % 4 == (m - n * m) % 4
    assert (2 * (n % 6) + m % 8 - 3) % 4 == (2 * n + m - 3) % 4
    assert (n % 6) % 4 != n % 4
    assert (n % (4 * m) + 1) % m == (n + 1) % m


def test_values_of_roundings():
    """What padding to multiples is written as, in all combinations, for numbers of any sign."""
    draw = random.Random(3)
    symbols = [Sym("s", -30), Sym("t", 2), Sym("u", 0)]
    for _ in range(2000):
        x, compute = random_value(draw, symbols, 2)
        p = draw.choice([2, 3, 4, 8])
        factor, j = draw.choice([-3, -2, -1, 1, 2, 4]), draw.choice([1, 2, 3])
        y, other = random_value(draw, symbols, 1)
        z = ints.mul(factor, ints.mod(ints.mul(x, draw.choice([1, -1])), p * j))
        total, less = ints.add(y, z), ints.mul(x, -1)
        found = [ints.mod(total, p), ints.floordiv(total, p), ints.add(x, ints.mod(less, p)),
                 ints.add(x, ints.mul(ints.mod(x, p), -1)), ints.mul(ints.floordiv(less, p), -1)]
        for _ in range(4):
            values = {s: draw.randrange(s.lower, s.lower + 50) for s in symbols}
            n, w = compute(values), ints.evaluate(y, values.__getitem__) + ints.evaluate(z, values.__getitem__)
            assert ints.evaluate(y, values.__getitem__) == other(values)
            assert [ints.evaluate(f, values.__getitem__) for f in found] == [
                w % p, w // p, n + -n % p, n - n % p, -(-n // p)], (found, values)
