"""The graph of a trace: its inputs."""
import pytest
import torch

import dynamo_lite

V = torch.arange(8.0).view(2, 4)
A = torch.tensor(2.0)
LEN = torch.ones(4)


def tensor_and_number(x, v):
    return x + V[0], x + v


def two_tensors(v, x):
    return v * 2, V + x, v


def three(a, x, len):
    return a + A, LEN * x, len + x


def names_of_nodes(add, add_1, x):
    return x + 1, add + 2, add_1 * 3, x * add * add_1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
def test_inputs_are_told_apart_whatever_they_are_called(backend):
    x = torch.tensor([1.0, -2.0, 3.0, 0.5])
    compiled = dynamo_lite.compile(tensor_and_number, backend=backend)
    for v in (0.0, 1.0, 2.0, 3.0):
        torch.testing.assert_close(compiled(x, v), tensor_and_number(x, v))
    for fn, args in [(two_tensors, (x, x + 1)), (three, (A + 1, x, x * 3)), (names_of_nodes, (x + 1, x + 2, x))]:
        torch.testing.assert_close(dynamo_lite.compile(fn, backend=backend)(*args), fn(*args))
        assert dynamo_lite.explain(fn)(*args).graph_count == 1


def test_the_text_of_a_graph_computes_what_the_graph_does():
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    x = torch.ones(4)
    result = dynamo_lite.compile(two_tensors, backend=backend)(x, x * 5)
    torch.testing.assert_close(result, two_tensors(x, x * 5))
    (graph,) = graphs
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    assert len({node.name for node in inputs}) == 3 and all(node.target == node.name for node in inputs)


def matrix_product_in_place(y, table):
    z = y
    y @= y.mT
    table["a"] -= 1
    z.mul_(2)
    return y, z


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
def test_an_augmented_matrix_product_leaves_its_operand(backend):
    results = []
    for function in (matrix_product_in_place, dynamo_lite.compile(matrix_product_in_place, backend=backend)):
        x = torch.arange(12.0).view(3, 4)
        results.append((*function(x, {"a": x}), x))
        assert results[-1][1] is x
    for expected, result in zip(*results):
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite", lambda gm, inputs: gm.forward])
def test_an_input_called_self_is_no_second_parameter_of_that_name(backend, caplog):
    x = torch.arange(3.0)
    torch.testing.assert_close(dynamo_lite.compile(lambda self, other: self + 2 * other, backend=backend)(x, x), 3 * x)
    assert not caplog.records
