"""Numbers of torch's with nodes of ours."""
import math

import pytest
import torch

from dynamo_lite.symbols.environment import Environment
from dynamo_lite.symbols.nodes import symbolic_int


def test_a_float_of_a_size_is_compared_as_the_integer_that_it_is():
    env = Environment()
    n, m = (symbolic_int(env, env.new(name, value, 2)) for name, value in (("n", 5), ("m", 7)))
    assert not torch.sym_float(n * 8) - 1.0 <= 0 and not env.decisions
    assert torch.sym_float(n) - 3 > 0
    assert [str(d.condition) for d in env.decisions] == ["n + -4 >= 0"]
    assert torch.sym_float(n) - torch.sym_float(m) < 0  # of large numbers the difference would be rounded
    limits = {"-1*m + 4503599627370495 >= 0", "-1*n + 4503599627370495 >= 0"}
    assert {str(d.condition) for d in env.decisions[1:]} == {*limits, "-1*n + m + -1 >= 0"}


@pytest.mark.parametrize("factor", [0.5, 0.75, 1.5, 2.0, -0.25, 3.0])
def test_a_share_of_a_size_is_an_expression_where_no_step_rounds(factor):
    for function in (math.floor, math.ceil, math.trunc, torch.sym_int):
        env = Environment()
        n = symbolic_int(env, env.new("n", 5, 2))
        share = function(torch.sym_float(n) * factor + 1)
        expected = int(share.node.hint)
        assert expected == {torch.sym_int: math.trunc}.get(function, function)(5 * factor + 1)
        assert not env.fixed and all("4503599627370495" in str(d.condition) or ">= 0" in str(d.condition)
                                     for d in env.decisions)


def test_a_share_that_is_no_float_exactly_is_a_number():
    env = Environment()
    n = symbolic_int(env, env.new("n", 50, 2))
    assert math.floor(torch.sym_float(n) * 0.3) == 15
    assert [str(d.condition) for d in env.decisions] == ["n + -50 == 0"]


def test_an_expression_that_doubles_is_its_value_once_guards_could_not_compute_it():
    env = Environment()
    n = symbolic_int(env, env.new("n", 5, 2))
    want = 5
    for _ in range(40):
        n, want = 100 // (n + 1) + n, 100 // (want + 1) + want
    assert int(n) == want
    assert "n + -5 == 0" in {str(d.condition) for d in env.decisions}
