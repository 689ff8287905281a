"""Python's random numbers: drawn each time the graph runs, as often and in the order in which the program does."""
import random

import numpy
import pytest
import torch

import dynamo_lite
from dynamo_lite import log
from tests.language_support import Programs

program = Programs()
RNG = random.Random(3)
STATE = numpy.random.RandomState(3)


class Augment:
    def __init__(self):
        self.rng = random.Random(4)


AUGMENT = Augment()


@program
def scaled_and_shifted(x):
    random.seed(7)
    return x * random.random() + random.uniform(-1, 1), random.random()


@program
def of_every_distribution(x):
    random.seed("seven")
    return (
        x + random.gauss(0, 1) + random.normalvariate(0, 1), random.expovariate(2), random.betavariate(1, 2),
        random.lognormvariate(0, 1), random.vonmisesvariate(0, 1), random.gammavariate(1, 2),
        random.paretovariate(1), random.weibullvariate(1, 1), random.gauss(mu=0.0, sigma=2.0),
    )


@program
def whole_numbers(x):
    random.seed(1)
    return x * random.randint(1, 9), random.randrange(5), random.randrange(0, 10, 2), random.getrandbits(100)


@program
def as_an_index(x):
    random.seed(2)
    return x[random.randrange(2)], x[:, random.randint(0, 2)]


@program
def chosen_among_numbers(x):
    random.seed(3)
    return x + random.choice([1, 2, 3]), random.choice((0.5, 1.5))


@program
def computed_with(x):
    random.seed(4)
    a = random.random() * 2 - 1
    b = max(abs(a), random.random())
    return x.sin() * a, b ** 2, x + b


@program
def in_a_comprehension(x):
    random.seed(5)
    return [x * random.random() for _ in range(4)]


@program
def arguments_that_are_drawn(x):
    random.seed(6)
    return x + random.uniform(0, random.random()), random.randint(0, random.randint(1, 5))


@program
def generator_of_ones_own(x):
    RNG.seed(3)
    AUGMENT.rng.seed(4)
    return x * RNG.random() + AUGMENT.rng.gauss(0, 1)


@program.breaks("rng_state")
def decides_a_branch(x):
    random.seed(8)
    for _ in range(5):
        if random.random() < 0.5:
            x = x.sin()
        else:
            x = x + random.random()
    return x


@program.breaks("rng_state")
def decides_which_layer(x):
    random.seed(9)
    layers = [torch.sin, torch.cos, torch.exp]
    return layers[random.randrange(3)](x) + random.random()


@program.breaks("rng_state")
def a_list_is_shuffled(x):
    random.seed(10)
    numbers = [1, 2, 3, random.random()]
    random.shuffle(numbers)
    return x + numbers[0], random.sample(range(10), 3), random.choices("abc", k=2), random.choice("abc")


@program.breaks("rng_state")
def state_is_read(x):
    random.seed(11)
    y = x * random.random()
    state = random.getstate()
    a = random.random()
    random.setstate(state)
    return y, a == random.random()


@program.breaks("unsupported_builtin")
def a_generator_made_inside(x):
    rng = random.Random(12)
    return x * rng.random() + rng.uniform(1, 2)


@program.breaks("rng_state")
def as_text(x):
    random.seed(13)
    return x + 1, f"{random.random():.3f}"


@program
def numbers_of_numpy(x):
    return x * numpy.random.uniform(2, 2) + numpy.random.normal(3.0, scale=0.0) + numpy.random.randint(4, 5)


@program
def a_state_of_numpy(x):
    return x + STATE.uniform(1, high=1) + STATE.randint(1)


@program.breaks("call_skipped")
def an_array_of_numpy(x):
    return x + len(numpy.random.rand(3))


@program.breaks("the call raises")
def wrong_arguments(x):
    return x + random.randint(5, 1)


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)


def states(fn, x, seed=0):
    """What a call gives, and where the generators stand behind it."""
    random.seed(seed)
    RNG.seed(seed)
    return fn(x), random.getstate(), RNG.getstate()


def equal(a, b):
    return torch.equal(a[0], b[0]) and a[1:] == b[1:]


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_each_call_draws_anew_without_a_recompile(backend):
    def program(x):
        y = x.sin() * random.random()
        random.gauss(0, 1)  # whose result nobody uses, and which keeps a second number for later
        return (y + RNG.uniform(1, 2)).cos() * random.randint(1, 3) + random.gauss(0, 1)

    compiled = dynamo_lite.compile(program, backend=backend, fullgraph=True)
    for seed in range(4):
        x = torch.arange(8.0)
        want, got = states(program, x, seed), states(compiled, x, seed)
        torch.testing.assert_close(got[0], want[0])
        assert got[1:] == want[1:]
    assert log.counters().get("graphs", 0) == 1 and not log.counters().get("recompiles", 0)


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_numbers_of_numpy_are_drawn_anew(backend):
    def program(x):
        y = x * numpy.random.rand() + STATE.randn()
        if numpy.random.rand() < 0.5:
            return y.sin()
        return y + numpy.random.randint(1, 7)

    compiled = dynamo_lite.compile(program, backend=backend)
    for seed in range(8):
        behind = []
        for fn in (program, compiled):
            numpy.random.seed(seed)
            STATE.seed(seed)
            behind.append((fn(torch.arange(4.0)), numpy.random.rand(), STATE.rand()))
        torch.testing.assert_close(behind[0][0], behind[1][0])
        assert behind[0][1:] == behind[1][1:]
    assert not log.counters().get("recompiles", 0)


def test_a_graph_that_raises_leaves_numpys_numbers_as_eager_does():
    def program(x, i):
        return (x * numpy.random.rand())[i] + STATE.rand()

    compiled = dynamo_lite.compile(program, backend="eager")
    for fn in (program, compiled):
        numpy.random.seed(1)
        STATE.seed(1)
        with pytest.raises(IndexError):
            fn(torch.ones(2), torch.tensor([9]))
        assert numpy.random.rand() == numpy.random.RandomState(1).rand(2)[1]
        assert STATE.rand() == numpy.random.RandomState(1).rand()


def test_under_autograd():
    def program(x):
        return ((x * random.random()).sin() * (x + random.random())).sum()

    compiled = dynamo_lite.compile(program, fullgraph=True)
    for seed in range(3):
        gradients = []
        for fn in (program, compiled):
            x = torch.arange(8.0, requires_grad=True)
            random.seed(seed)
            fn(x).backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_a_graph_that_raises_draws_once(backend):
    def program(x, i):
        scale = random.random()
        y = x * scale + RNG.random()
        return y[i] + random.random()

    compiled = dynamo_lite.compile(program, backend=backend)
    x, i = torch.arange(4.0), torch.tensor([1])
    assert equal(states(lambda x: compiled(x, i), x), states(lambda x: program(x, i), x))
    for fn in (program, compiled):
        random.seed(5)
        with pytest.raises(IndexError):
            fn(x, torch.tensor([9]))
        after = random.getstate()
        random.seed(5)
        random.random()
        assert random.getstate() == after


def test_another_generator_at_each_call():
    def program(x, rng):
        return x * rng.random() + rng.randint(1, 5)

    compiled = dynamo_lite.compile(program, backend="eager")
    for seed in range(12):
        x = torch.ones(3)
        assert torch.equal(compiled(x, random.Random(seed)), program(x, random.Random(seed)))
    assert log.counters().get("recompiles", 0) <= 3


def test_kinds_of_random():
    class Loaded(random.Random):
        def random(self):
            return 0.25

    def program(x, rng):
        return x * rng.random() + rng.uniform(1, 2)

    compiled = dynamo_lite.compile(program, backend="eager")
    assert torch.equal(compiled(torch.ones(3), Loaded()), torch.full((3,), 1.5))
    assert 1 < compiled(torch.ones(3), random.SystemRandom())[0] < 3


def test_a_patched_function_is_seen(monkeypatch):
    def program(x):
        return x * random.random()

    compiled = dynamo_lite.compile(program, backend="eager")
    compiled(torch.ones(2))
    monkeypatch.setattr(random, "random", lambda: 0.5)
    assert compiled(torch.ones(2)).tolist() == [0.5, 0.5]


def test_a_function_without_tensors_runs_as_it_is():
    def program():
        return random.random() + random.randint(1, 5)

    compiled = dynamo_lite.compile(program, backend="eager")
    for seed in range(3):
        random.seed(seed)
        want = program()
        random.seed(seed)
        assert compiled() == want
    assert not log.counters().get("graphs", 0)


def test_export_leaves_the_generators_alone():
    def program(x):
        return x * random.random()

    random.seed(3)
    state = random.getstate()
    exported = dynamo_lite.export(program)(torch.ones(2))
    assert random.getstate() == state
    random.seed(4)
    want = program(torch.ones(2))
    random.seed(4)
    assert torch.equal(exported.graph_module(torch.ones(2)), want)


def test_a_layer_that_is_dropped_by_chance():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(4))

        def forward(self, x):
            for layer in self.layers:
                if self.training and random.random() < 0.3:
                    continue
                x = layer(x).relu()
            return x

    net, x = Net(), torch.randn(2, 4)
    compiled = dynamo_lite.compile(net, backend="eager")
    for seed in range(30):
        random.seed(seed)
        want = net(x)
        random.seed(seed)
        assert torch.equal(compiled(x), want)
    assert not log.counters().get("recompile_limit", 0)
