"""A trace of too many instructions is given up: the loop runs in Python, what is around it is captured."""
import torch

import dynamo_lite
from dynamo_lite import config


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
    calls = []

    def backend(graph, inputs):
        calls.append(graph)
        return graph.forward

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

    calls = []

    def backend(graph, inputs):
        calls.append(graph)
        return graph.forward

    with config.patch(max_trace_instructions=300):
        compiled = dynamo_lite.compile(program, backend=backend)
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2), 200), program(torch.ones(2), 200))
    assert len(calls) <= 1
