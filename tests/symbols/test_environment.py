"""What a trace decides holds in every call whose values answer the guards alike."""
import itertools
import random

import pytest
import thorough

from dynamo_lite.symbols import integers as ints
from dynamo_lite.symbols.environment import HIGHEST, Environment, Frozen
from dynamo_lite.symbols.relations import compare, compound, negated

OPERATORS = ("==", "!=", "<", "<=", ">", ">=")


def random_expression(draw, symbols):
    x = draw.randrange(-4, 5)
    for _ in range(draw.randrange(1, 4)):
        part = draw.choice([1, 2, 3, -1, -2])
        for symbol in draw.sample(symbols, draw.randrange(1, len(symbols) + 1)):
            part = ints.mul(part, symbol)
        if draw.random() < 0.4:
            part = draw.choice([ints.floordiv, ints.mod])(part, draw.choice([2, 3, 4]))
        x = ints.add(x, part)
    return x


def value_of(x, names, values):
    return ints.evaluate(x, lambda s: values[names.index(s.name)])


@pytest.mark.parametrize("seed", range(40))
def test_answers_follow_from_decisions(seed):
    """Of all calls in a range of values, those for which the decisions hold give every answer that was given."""
    draw = random.Random(seed)
    names = ["a", "b", "c"]
    lowest = draw.choice([2, 0, -3])
    hints = [draw.randrange(max(lowest, 0), 9) for _ in names]
    env = Environment()
    symbols = [env.new(name, hint, lowest, 12) for name, hint in zip(names, hints)]
    asked = []
    for _ in range(draw.randrange(2, 9)):
        x, y = random_expression(draw, symbols), random_expression(draw, symbols)
        condition = compare(draw.choice(OPERATORS), x, y)
        if draw.random() < 0.3:
            other = compare(draw.choice(OPERATORS), random_expression(draw, symbols), draw.randrange(5))
            condition = compound(draw.choice(["and", "or"]), condition, other)
        if draw.random() < 0.2:
            condition = negated(condition)
        answer = env.decide(condition)
        asked.append((condition, answer))
        assert env.known(condition) is answer
        simple = env.simplified(x)
        asked.append((compare("==", ints.add(x, ints.mul(env_whole(env, simple), -1)), 0), True))
    for values in itertools.product(range(lowest, 13, 2), range(lowest, 13), range(lowest, 13, 3)):
        check(env, names, asked, values)
    check(env, names, asked, hints)


def nested_expression(draw, symbols, depth=3):
    if depth == 0 or draw.random() < 0.2:
        return draw.choice([*symbols, *symbols, draw.randrange(-9, 10), draw.choice([1 << 53, -(1 << 60), HIGHEST])])
    x, y = (nested_expression(draw, symbols, depth - 1) for _ in range(2))
    kind = draw.choice(["add", "add", "mul", "mod", "floordiv"])
    if kind in ("mod", "floordiv"):
        return getattr(ints, kind)(x, ints.add(ints.mod(y, draw.randrange(1, 9)), draw.choice([1, 2, 5])))
    return getattr(ints, kind)(x, y)


@pytest.mark.parametrize("seed", thorough.share(range(60), 0))
def test_what_is_known_of_symbols_without_limits(seed):
    """Sums of numbers as large as the limits are exact: a float's rounding would answer for them."""
    draw = random.Random(seed)
    names = ["a", "b", "c"]
    limits = [draw.choice([(2, HIGHEST), (-HIGHEST, HIGHEST), (-HIGHEST, -1), (0, 40)]) for _ in names]
    env = Environment()
    symbols = [env.new(name, draw.randint(max(low, -50), min(high, 50)), low, high)
               for name, (low, high) in zip(names, limits)]
    calls = [[draw.choice([low, high, draw.randint(low, high), draw.randint(max(low, -50), min(high, 50))])
              for low, high in limits] for _ in range(60)]
    for _ in range(150):
        condition = compare(draw.choice(OPERATORS), nested_expression(draw, symbols), nested_expression(draw, symbols))
        known = env.known(condition)
        if known is not None:
            assert all(holds(condition, env, names, values) is known for values in calls), condition


def test_a_small_part_of_a_sum_as_large_as_the_limits():
    env = Environment()
    s, n, k = env.new("s", 6, 2), env.new("n", 20, -HIGHEST), env.new("k", -2, -HIGHEST, -1)
    part = ints.mod(ints.add(ints.mul(s, -1), 3), ints.add(ints.mod(n, 7), 1))
    assert env.known(compare("<", part, ints.mul(k, -1))) is None
    assert not env.decide(compare(">=", ints.mul(k, -1), part)) and len(env.decisions) == 1
    many = ints.product([s] * 30)  # more than a float can hold
    assert env.known(compare(">=", many, 1 << 30)) is True
    assert env.known(compare(">", ints.add(many, ints.mul(n, -1)), 0)) is None


def env_whole(env, x):
    """With quotients that the environment has named written as divisions again."""
    parts = {s: ints.floordiv(ints.atom(of), step) for s, (of, step) in env.parts.items()}
    while any(s in parts for s in ints.symbols_of(x)):
        x = ints.replace(x, parts.get)
    return x


def holds(condition, env, names, values):
    if isinstance(condition, bool):
        return condition
    if hasattr(condition, "parts"):
        answers = [holds(part, env, names, values) for part in condition.parts]
        return any(answers) if condition.op == "or" else all(answers)
    return condition.holds(value_of(env_whole(env, condition.expr), names, values))


def check(env, names, asked, values):
    if all(holds(d.condition, env, names, values) for d in env.decisions):
        for condition, answer in asked:
            assert holds(condition, env, names, values) is answer, (condition, values, [*map(str, env.decisions)])


def env_of(**hints):
    env = Environment(lambda: "here")
    return env, *(env.new(name, hint, 2) for name, hint in hints.items())


def test_what_follows_is_not_decided_again():
    env, s, t = env_of(s=5, t=7)
    assert env.decide(compare(">=", s * t - s, 1)) and not env.decisions  # of any sizes
    assert env.decide(compare("==", s, 5)) and env.decide(compare("<", s, 6)) and len(env.decisions) == 1
    assert env.simplified(s * t) == t * 5
    assert env.decide(compare(">", t, 4)) and env.decide(compare(">=", t, 5)) and len(env.decisions) == 2
    assert env.decisions[0].why == "here"


def test_equal_symbols_become_one():
    env, s, t = env_of(s=5, t=5)
    assert env.decide(compare("==", s, t))
    assert env.simplified(s * t) == s * s and env.decide(compare("==", s * 3, t * 3)) and len(env.decisions) == 1


def test_divisibility():
    env, s = env_of(s=24)
    assert env.decide(compare("==", s % 8, 0))
    assert env.simplified(ints.mul(s // 8, 8)) == env.simplified(s)
    assert env.decide(compare("==", s % 4, 0)) and env.decide(compare("==", (s * 4) // 8, s // 2))
    assert len(env.decisions) == 1


def test_nothing_is_decided_once_the_guards_are_made():
    env, s = env_of(s=5)
    env.frozen = True
    assert env.decide(compare(">", s, 1))
    with pytest.raises(Frozen):
        env.decide(compare("==", s, 5))


def test_positive_factors_say_nothing():
    env = Environment()
    s, t = env.new("s", 5, 2), env.new("t", 4, 2)
    assert env.decide(compare("==", s * t, s * 4))
    assert env.simplified(t) == 4 and len(env.decisions) == 1
    u, counter = env.new("u", 6, 2), env.new("k", 3, -100)
    assert compare(">", s * u, s * 5) == compare(">", u, 5)
    assert compare("==", counter * u, counter * 6) != compare("==", u, 6)  # it may be 0


def test_a_symbol_with_one_value_left_is_a_number():
    env, s, t = env_of(s=15, t=4)
    assert env.decide(compare("<", s, 16)) and env.decide(compare(">=", s + 1, 16)) and len(env.decisions) == 2
    assert env.simplified(s + 1) == 16 and env.simplified(s * t) == t * 15
    assert env.decide(compare("==", s, 15)) and not env.decide(compare(">", s * 2, 30)) and len(env.decisions) == 2


def test_answers_follow_what_is_learned_later():
    env = Environment()
    s, t = env.new("s", 8, 2), env.new("t", 8, 2)
    questions = [compare(">=", s, 5), compare("==", s, t), compare("<", s, ints.mul(t, 2)), compare("!=", t, 9)]
    assert [env.known(q) for q in questions] == [None] * 4
    env.decide(compare(">=", s, 5))
    assert [env.known(q) for q in questions] == [True, None, None, None]
    env.decide(compare("==", s, t))
    assert [env.known(q) for q in questions] == [True, True, True, None]
    env.fix(t)
    assert [env.known(q) for q in questions] == [True] * 4
