"""explain: counts, reasons, graphs and guards of one call, readable, without a trace in what was compiled before."""
from __future__ import annotations

import torch

import dynamo_lite


def broken(x):
    x = x + 1
    print("between")
    if x.sum() > 0:
        return x * 2
    return x


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x, *, scale=1):
        return torch.relu(self.linear(x)) * scale


def test_counts_and_reasons(capsys):
    report = dynamo_lite.explain(broken)(torch.ones(2))
    assert capsys.readouterr().out == "between\n"
    assert report.graph_break_count == 2 and len(report.break_reasons) == 2
    assert [r.kind for r in report.break_reasons] == ["print_or_log", "data_dependent_branch"]
    assert report.graph_count == len(report.graphs) and report.op_count >= 3
    assert torch.equal(report.result, torch.full((2,), 4.0))
    text = str(report)
    assert 'print("between")' in text and "test_explain.py" in text and "Graph breaks: 2" in text
    assert any("x" in g for g in report.guards) and report.compile_times


def test_modules_and_keywords():
    net = Net()
    report = dynamo_lite.explain(net)(torch.ones(2, 3), scale=2)
    assert report.graph_count == 1 and report.graph_break_count == 0 and "linear" in str(report)
    assert torch.equal(report.result, net(torch.ones(2, 3), scale=2))


def test_what_is_compiled_stays():
    compiled = dynamo_lite.compile(broken, backend="eager")
    compiled(torch.ones(2))
    before = dynamo_lite.log.counters()["graphs"]
    dynamo_lite.explain(compiled)(torch.ones(2))
    middle = dynamo_lite.log.counters()["graphs"]
    compiled(torch.ones(2))
    assert middle > before and dynamo_lite.log.counters()["graphs"] == middle


def test_an_exception_of_the_program_comes_out():
    try:
        dynamo_lite.explain(lambda x: x.view(17))(torch.ones(2))
    except RuntimeError as error:
        assert "shape" in str(error)
    else:
        raise AssertionError
