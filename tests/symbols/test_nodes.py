"""Numbers of torch's with nodes of ours."""
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
    assert sorted(str(d.condition) for d in env.decisions[1:]) == ["m + -7 == 0", "n + -5 == 0"]


def test_an_expression_that_doubles_is_its_value_once_guards_could_not_compute_it():
    env = Environment()
    n = symbolic_int(env, env.new("n", 5, 2))
    want = 5
    for _ in range(40):
        n, want = 100 // (n + 1) + n, 100 // (want + 1) + want
    assert int(n) == want
    assert "n + -5 == 0" in {str(d.condition) for d in env.decisions}
