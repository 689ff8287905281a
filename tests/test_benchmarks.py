"""The benchmark's own arithmetic: differences, times, the table; and that every workload and model can be built."""
import json
import pathlib
import subprocess

import coverage
import coverage_build
import generate
import measure
import processes
import pytest
import report
import run
import torch
from coverage_models import CASES, layouts, row
from workloads import WORKLOADS

ROOT = pathlib.Path(__file__).resolve().parent.parent


def test_durations_have_three_digits():
    assert [report.duration(s) for s in (12.3456, 1.5, 0.0123456, 1.234e-6, 9.99e-8)] == [
        "12.3 s", "1.50 s", "12.3 ms", "1.23 us", "100 ns"]


def test_largest_difference_sees_values_and_form():
    a, b = torch.ones(2), torch.tensor([1.0, 1.5])
    assert measure.largest_difference({"x": [a, 3]}, {"x": [b, 3]}) == 0.5
    assert measure.largest_difference(a, a.double()) == float("inf")
    assert measure.largest_difference([a], [a, a]) == float("inf")
    assert measure.largest_difference([], []) == 0
    assert layouts(torch.ones(2, 3).t()) == [(torch.float32, (3, 2), (1, 3))]


def test_generation_ratios_are_means_over_models_that_both_systems_have():
    def made(system, model, speed, seconds):
        return {"system": system, "model": model, "tokens_per_s": speed, "first_prompt_s": seconds,
                "all_prompts_s": 2 * seconds}

    rows = [made("eager", "a", 10, 1), made("dynamo_lite", "a", 20, 4), made("eager", "b", 10, 1),
            made("dynamo_lite", "b", 80, 1), made("eager", "c", 10, 1)]
    means = {"tokens_per_s": 4, "first_prompt_s": 2, "all_prompts_s": 2}
    assert generate.ratios(rows) == {"eager": pytest.approx(means)}
    assert generate.ratios(rows[:1]) == {}


def test_generation_starts_with_caches_of_its_own(monkeypatch):
    seen = []

    def process(command, env, **_):
        folder = pathlib.Path(env["DYNAMO_LITE_CACHE_DIR"])
        seen.append(folder)
        assert folder.parent.is_dir() and not folder.exists() and folder.parent != ROOT
        return subprocess.CompletedProcess(command, 0, stdout='warning\n{"tokens": [1]}\n')

    monkeypatch.setattr(subprocess, "run", process)
    for _ in range(2):
        assert generate.child("dynamo_lite", "llama", 4, limit=60) == {"tokens": [1]}
    assert seen[0] != seen[1] and not seen[0].parent.exists()


def test_a_system_that_takes_longer_than_the_limit_has_no_row(monkeypatch):
    def process(command, timeout, **_):
        assert timeout == 0.5
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", process)
    assert generate.child("torch.compile", "llama", 4, limit=0.5) is None


def test_time_and_memory_of_a_call():
    times = measure.time_calls(lambda: None, 0.02)
    assert 0 < times["best"] <= times["median"] < 1e-4 and times["calls"] >= 3
    x = torch.ones(1000)
    # Two tensors at a time, and what the numbers take.
    assert 8000 <= measure.peak_of_call(lambda: (x + 1) * 2) < 8100


def sample(*calls, first=2.0):
    return {"first_call": first, "turns": [{"median": call, "faults": 1.6} for call in calls], "error": 1e-7,
            "peak_call": 2048, "peak_process": 1, "report": {}}


def test_speed_is_a_ratio_of_turns_beside_each_other():
    # The machine is twice as slow in the second round, and four times in its last turn.
    eager = [sample(1e-6, 1e-6, 1e-6), sample(2e-6, 2e-6, 4e-6)]
    ours = [sample(5e-7, 5e-7, 5e-7), sample(1e-6, 1e-6, 2e-6, first=0.5)]
    row = run.combine(ours, eager)
    assert row["speed"] == 2 and row["spread"] == 0 and row["cold"] == 2 and row["warm"] == 0.5
    assert row["call"] == pytest.approx(7.5e-7)
    slower = [sample(5e-7, 5e-7, 5e-7), sample(2e-6, 2e-6, 4e-6)]
    assert run.combine(slower, eager)["spread"] == 1
    assert run.combine([{"failed": "no"}], eager[:1]) == {"failed": "no"}
    alone = run.combine(ours, [])
    assert alone["speed"] is None and alone["spread"] is None and alone["call"] == row["call"]


def test_table_and_readme(tmp_path):
    eager = [sample(2e-6), sample(4e-6), sample(3e-6)]
    rows = {"add_4": {"eager": run.combine(eager, eager),
                      "torch.compile": run.combine([sample(4e-6), sample(8e-6, first=0.5)], eager),
                      "dynamo_lite": run.combine([{"failed": "ValueError: no"}], eager)},
            "mul_4": {"eager": run.combine(eager, eager),
                      "torch.compile": run.combine([sample(4e-6), sample(8e-6, first=0.5)], eager),
                      "dynamo_lite": run.combine([sample(1e-6, first=0.5), sample(1e-6, first=0.25)], eager)}}
    results = {"machine": run.machine(), "rounds": 3, "seconds": 1.0, "titles": {"add_4": "x + y", "mul_4": "x * y"},
               "systems": ["eager", "torch.compile", "dynamo_lite"], "rows": rows}
    table = report.table(json.loads(json.dumps(results)))
    assert ("| x + y | 2.00 s / failed | 0.50 s / failed | 3.00 us / 6.00 us / failed | 0.50x / failed "
            "| 2.0 KB / 2.0 KB / failed | 2 / 2 / failed | 1e-07 / failed |") in table
    assert "- x + y, dynamo_lite: ValueError: no" in table
    assert ("in geometric mean of 1 rows: first call 1/4.0 of its time, next process 1/2.0, a call 6.00 times as fast; "
            "at least 6.00 times on every row, and 3.00 times eager's speed. Processes of dynamo_lite differ by 100%"
            ) in table
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.insert(table, readme)
    assert readme.read_text() == f"before\n{report.BEGIN}\n{table}\n{report.END}\nafter\n"


def test_the_readme_has_the_last_figures():
    figures = ROOT / "benchmarks" / "results" / "figures.json"
    if not figures.exists():
        pytest.skip("not measured yet")
    assert report.table(json.loads(figures.read_text())) in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", [n for n, w in WORKLOADS.items() if n not in ("bert_base", "gpt2", "resnet50")])
def test_workloads_can_be_built(name):
    fn, args, kwargs = WORKLOADS[name].build()
    with torch.set_grad_enabled(WORKLOADS[name].optimizer is not None):
        results = list(measure.tensors(fn(*args, **kwargs)))
    assert results and all(r.requires_grad == (WORKLOADS[name].optimizer is not None) for r in results)


def test_systems_take_turns(tmp_path):
    found = run.one_round("chain8_100", ["eager", "onnxruntime"], 0.01, tmp_path, timeout=120)
    result = found["eager"]
    assert result["error"] == 0 and result["peak_process"] > result["peak_call"] > 0
    assert len(result["turns"]) == run.TURNS and all(turn["median"] > 0 for turn in result["turns"])
    # Only modules are exported: the process has ended with that error, and the other goes on.
    assert "failed" in found["onnxruntime"] and "Error" in found["onnxruntime"]["failed"]


def test_a_process_that_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "HERE", tmp_path)
    (tmp_path / "measure.py").write_text("import time\ntime.sleep(60)\n")
    measurement = processes.Measurement("chain8_100", "eager", tmp_path, timeout=0.2)
    with pytest.raises(processes.Failed, match="took longer than"):
        measurement.answer()
    assert measurement._process.poll() is not None


def test_rows_of_the_coverage_page():
    fine = {"one_graph": True, "type": True, "layout": True, "difference": 1e-7, "graphs": 1, "breaks": 0}
    assert row(CASES[0], fine) == "| BERT | `BertModel` | yes | yes | 1 / 0 | 1e-07 |  |"
    broken = {**fine, "one_graph": False, "kind": "k", "reason": "a | b", "where": "/x/site-packages/m.py:3 in f"}
    assert row(CASES[0], broken).endswith("| a \\| b (`k`), m.py:3 in f |")
    assert "no" in row(CASES[0], {"failed": "Error: x"})


def test_the_report_of_the_survey():
    base = {"system": "dynamo_lite", "backend": "eager", "built": True, "one_graph": True, "equal": True}
    rows = [{**base, "type": "a", "seconds": 1.0}, {**base, "type": "b", "equal": False},
            {**base, "type": "c", "one_graph": False, "reason": "line 12 of it", "kind": "k"},
            {**base, "type": "d", "one_graph": False, "reason": "line 13 of it", "kind": "k"},
            {"type": "e", "system": "dynamo_lite", "backend": "eager", "built": False, "why_not_built": "no\nfile"}]
    lines = coverage.report(rows)
    assert lines[:3] == ["built and run in eager: 4 of 5", "captured in one graph: 2 of 4", "equal to eager: 3 of 4"]
    assert "  2: line … of it [k] (c, d)" in lines and "  1: different values (b)" in lines
    assert coverage.unbuilt(rows) == ["not built:", "  1: no (e)"]


def test_rows_that_were_tried_again():
    base = {"system": "dynamo_lite", "backend": "eager", "built": True, "one_graph": True, "equal": True, "commit": "x"}
    rows = [{**base, "type": f"t{n}"} for n in range(20)]
    rows += [{**base, "type": "b", "equal": False}, {**base, "type": "c", "one_graph": False, "reason": "r"}]
    assert coverage.doubtful(rows) == ["b", "c", "t0", "t10"]
    assert coverage.history(rows) == ["Of commit x (22 types)."]
    now = [*rows[:-2], {**base, "type": "b", "commit": "y", "before": rows[-2]},
           {**base, "type": "c", "commit": "y", "equal": False, "before": rows[-1]}]
    text = "\n".join(coverage.history(now))
    assert "21 in one graph and 21 equal of 22 built" in text and "commit y (2 types)" in text
    assert text.endswith("Worse than before: c.") and "by lot" not in text
    lot = coverage.drawn(rows, 5)
    assert lot == coverage.drawn(list(reversed(rows)), 5) and len(set(lot)) == 5 and not {"b", "c"} & set(lot)
    now[0] = {**now[0], "commit": "z", "drawn": True, "before": rows[0]}
    text = "\n".join(coverage.history(now))
    assert "1 were drawn at random" in text and "again at commit z (1 types)" in text and "commit y (2 types)" in text


def test_a_small_model_of_a_type():
    model, inputs, way = coverage_build.build("llama")
    assert way == "rules" and set(inputs) == {"input_ids", "attention_mask"}
    assert sum(p.numel() for p in model.parameters()) < 1_000_000
