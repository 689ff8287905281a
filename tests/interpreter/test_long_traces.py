"""A trace of too many instructions is given up: the loop runs in Python, what is around it is captured."""
import pytest
import torch

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.interpreter import budget


def counting():
    """The list of a backend's graphs, and the backend."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    return graphs, backend


def repeated(n):
    total = 0
    for i in range(n):
        total += i * 2
    return total


def test_a_long_loop_of_a_callee_breaks_at_its_call():
    def program(x, n):
        y = x + 1
        return y * 2 + repeated(n)

    report = dynamo_lite.explain(program)(torch.ones(2), 50)
    assert report.graph_count == 1
    with config.patch(max_trace_instructions=300):
        compiled = dynamo_lite.compile(program, backend="eager")
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2), 500), program(torch.ones(2), 500))
        report = dynamo_lite.explain(program)(torch.ones(2), 500)
    assert [b.kind for b in report.break_reasons] == ["trace_too_long"]
    assert report.graph_count == 2


def test_a_long_loop_of_the_frame_itself_leaves_the_frame_to_python(caplog):
    calls, backend = counting()

    def program(x, n):
        for i in range(n):
            x = x + i
        return x

    with config.patch(max_trace_instructions=300):
        compiled = dynamo_lite.compile(program, backend=backend)
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2), 500), program(torch.ones(2), 500))
    assert not calls


def test_a_loop_of_many_calls_is_not_captured_piece_by_piece():
    def program(x, n):
        total = 0
        for _ in range(n):
            total += repeated(3)
        return x * total

    calls, backend = counting()
    with config.patch(max_trace_instructions=300):
        compiled = dynamo_lite.compile(program, backend=backend)
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2), 200), program(torch.ones(2), 200))
    assert len(calls) <= 1


def test_plain_python_that_goes_round_is_given_up_sooner_than_tensor_operations():
    def program(x, n):
        y = x + 1
        table = {}
        for i in range(n):
            table[i] = i * i
        return y * table[n - 1]

    graphs, backend = counting()

    with config.patch(max_plain_instructions=300):
        compiled = dynamo_lite.compile(program, backend=backend)
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2), 500), program(torch.ones(2), 500))
        assert len(graphs) == 1  # what is before the loop; its own frame runs in Python from there
        report = dynamo_lite.explain(program)(torch.ones(2), 500)
        assert [b.kind for b in report.break_reasons] == ["trace_too_long"]
        assert "without an operation" in report.break_reasons[0].reason

        graphs.clear()
        whole = dynamo_lite.compile(program, backend=backend, fullgraph=True)
        assert torch.equal(whole(torch.ones(2), 500), program(torch.ones(2), 500))
        assert len(graphs) == 1

        def sums(x, n):
            for i in range(n):
                x = x + i
            return x

        graphs.clear()
        many = dynamo_lite.compile(sums, backend=backend)
        assert torch.equal(many(torch.ones(2), 100), sums(torch.ones(2), 100))
        assert len(graphs) == 1 and sum(n.op == "call_function" for n in graphs[0].graph.nodes) == 100


def test_a_long_plain_loop_in_try_and_with():
    class Scope:
        def __init__(self, log):
            self.log = log

        def __enter__(self):
            self.log.append("enter")

        def __exit__(self, *exc):
            self.log.append(exc[0])

    def program(x, n, log):
        y = x * 2
        try:
            with Scope(log):
                total = [0]
                while total[0] < n:
                    total[0] += 1
                if n > 5:
                    raise KeyError(n)
        except KeyError as error:
            y = y + error.args[0]
        return y + total[0]

    with config.patch(max_plain_instructions=300):
        compiled = dynamo_lite.compile(program, backend="eager")
        for n in (500, 3, 600):
            expected_log, log = [], []
            assert torch.equal(compiled(torch.ones(2), n, log), program(torch.ones(2), n, expected_log))
            assert log == expected_log


def test_code_of_which_nothing_came_is_traced_shorter_each_time():
    def program(x, numbers):
        y = x.sin()
        dynamo_lite.graph_break()
        total = 0.0
        for number in numbers:  # floats that decide, other ones at each call
            if number > 0.5:
                total += 1
        dynamo_lite.graph_break()
        return y + total

    evaluated = []
    original = budget.Budget.look

    def look(self, root):
        evaluated.append(self.evaluated)
        original(self, root)

    compiled = dynamo_lite.compile(program, backend="eager")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget.Budget, "look", look)
        for turn in range(6):
            numbers = [((i * 7 + turn) % 10) / 10 for i in range(1500)]
            assert torch.equal(compiled(torch.ones(2), numbers), program(torch.ones(2), numbers))
    assert evaluated and max(evaluated) <= 20_000
