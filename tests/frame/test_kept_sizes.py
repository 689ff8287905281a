"""What calls have taught about sizes and numbers, kept for the next process: values, graphs, recompiles."""
import json
import logging
import os

import new_process
import pytest
import torch

import dynamo_lite
from dynamo_lite import config, log
from dynamo_lite.frame import kept_sizes

PROGRAM = """
import torch
import dynamo_lite
from dynamo_lite import log


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step, self.scale, self.seen = 0, 0.5, {"tokens": 3}

    def forward(self, x, sizes):
        self.step += 1
        self.scale *= 0.5
        self.seen["tokens"] += x.shape[1]
        h = x.sum(1) * self.step + self.scale + self.seen["tokens"]
        print(end="")
        return h, torch.ones(sizes[0], x.shape[0])


ours, theirs = Net(), Net()
compiled = dynamo_lite.compile(ours)
for i in range(5):
    x = torch.randn(3 + i, 8 - i)
    for got, want in zip(compiled(x, [i + 2, 7]), theirs(x, [i + 2, 7])):
        torch.testing.assert_close(got, want)
counters = log.counters()
print(counters["graphs"], counters.get("recompiles", 0), counters.get("kept_sizes_found", 0))
"""


def test_the_next_process_begins_with_symbols(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    results = []
    for switch in ("1", "1", "0"):
        settings = {"DYNAMO_LITE_CACHE_DIR": str(tmp_path / "cache"), "DYNAMO_LITE_CACHE_SIZES": switch}
        done = new_process.run(PROGRAM, env={**os.environ, **settings}, timeout=120)
        assert done.returncode == 0, done.stderr
        results.append(done.stdout.split())
    # forward and what goes on behind the break, each compiled twice, and then once
    assert results == [["4", "2", "0"], ["2", "0", "2"], ["4", "2", "0"]]


# ---------------------------------------------------------------- in one process: a reset is as good as a new one
@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path):
    with config.patch(cache_sizes=True, cache_dir=str(tmp_path)):
        yield


def anew(fn, *calls, **options):
    """The graphs and recompiles of the calls of a function that is compiled anew; each has eager's result."""
    dynamo_lite.reset()
    log.reset_counters()
    compiled = dynamo_lite.compile(fn, **options)
    for args in calls:
        torch.testing.assert_close(compiled(*args), fn(*args))
    return log.counters().get("graphs", 0), log.counters().get("recompiles", 0)


def rows(x, n=2):
    return x.sum(0) + x.shape[0] * n


def test_a_size_and_a_number():
    calls = [(torch.randn(k, 4), k + 1) for k in (3, 5, 9)]
    assert anew(rows, *calls) == (2, 1)
    assert anew(rows, *calls) == (1, 0)
    assert anew(rows, *calls, dynamic=False) == (3, 2)
    with config.patch(cache_sizes=False):
        assert anew(rows, *calls) == (2, 1)


def test_what_an_earlier_process_has_not_met_is_learned_and_added():
    assert anew(rows, (torch.randn(3, 4), 2), (torch.randn(5, 4), 2)) == (2, 1)
    assert anew(rows, (torch.randn(3, 4), 2), (torch.randn(5, 4), 2), (torch.randn(5, 4), 6)) == (2, 1)
    assert anew(rows, (torch.randn(3, 4), 2), (torch.randn(5, 4), 6), (torch.randn(7, 4), 4)) == (1, 0)


def test_sizes_that_are_not_equal_are_kept_apart():
    def outer(x, y):
        return x[:, None] * y

    calls = [(torch.randn(a), torch.randn(b)) for a, b in ((3, 3), (4, 4), (4, 6), (7, 3))]
    assert anew(outer, *calls) == (3, 2)
    assert anew(outer, *calls) == (1, 0)


def test_a_wrong_hint_costs_nothing_but_generality():
    assert anew(rows, (torch.randn(3, 4), 2), (torch.randn(5, 4), 3)) == (2, 1)
    assert anew(rows, (torch.randn(1, 4), 1)) == (1, 0)
    assert anew(rows, (torch.randn(6, 4), 2.5)) == (1, 0)
    assert anew(rows, (torch.randn(6, 4), torch.ones(4)), (torch.randn(8, 4), torch.ones(4))) == (1, 0)


def test_one_graph_is_given_without_hints_where_there_is_none_with_them(monkeypatch):
    def fn(x):
        return x.view(torch.Size([x.shape[0]])) + 1

    assert anew(fn, (torch.randn(3),), (torch.randn(5),), fullgraph=True) == (2, 1)
    real, asked = dynamo_lite.frame.convert_frame._attempts, []

    def refuses(settings, request):
        asked.append(bool(request.dynamic))
        if request.dynamic:
            raise dynamo_lite.exc.Unsupported("changing_value", "symbols")
        return real(settings, request)

    monkeypatch.setattr(dynamo_lite.frame.convert_frame, "_attempts", refuses)
    assert anew(fn, (torch.randn(5),), fullgraph=True) == (1, 0)
    assert asked == [True, False]


def test_other_functions_and_edited_ones_know_nothing():
    def made(constant):
        namespace = {}
        exec(compile(f"def fn(x):\n    return x.sum(0) + {constant}", "edited.py", "exec"), namespace)
        return namespace["fn"]

    calls = [(torch.randn(k, 4),) for k in (3, 5)]
    assert anew(made(1), *calls) == (2, 1)
    assert anew(made(2), *calls) == (2, 1)
    assert anew(made(1), *calls) == (1, 0)


def test_what_one_module_has_met_is_no_other_modules():
    """All modules are called by the same lines."""
    def made(width):
        return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.ReLU())

    calls = [(torch.randn(k, 4),) for k in (3, 5)]
    with torch.no_grad():
        assert anew(made(6), *calls) == (2, 1)
        assert anew(made(7), *calls) == (2, 1)
        assert anew(torch.nn.Linear(4, 6), *calls) == (2, 1)
        assert anew(made(6), *calls) == (1, 0)


def test_what_one_optimizer_has_met_is_no_other_optimizers():
    def steps(width):
        dynamo_lite.reset()
        log.reset_counters()
        p = torch.randn(width, requires_grad=True)
        optimizer = torch.optim.SGD([p], lr=1.0)
        step = dynamo_lite.compile(optimizer.step)
        for rate in (1.0, 0.5, 0.25):
            p.grad, optimizer.param_groups[0]["lr"] = torch.ones(width), rate
            step()
        return log.counters()["graphs"]

    assert [steps(width) for width in (3, 4, 3)] == [2, 2, 1]


def test_a_backend_that_keeps_nothing_learns_from_its_own_calls_alone():
    calls = [(torch.randn(k, 4),) for k in (3, 5)]
    assert anew(rows, *calls) == (2, 1)
    assert anew(rows, *calls, backend="eager") == (2, 1)


def test_elements_that_change_are_not_kept():
    def fn(x, lengths):
        return [part.sum() for part in x.split(lengths.tolist())]

    calls = [(torch.randn(6), torch.tensor(lengths)) for lengths in ([2, 4], [3, 3], [1, 5])]
    assert anew(fn, *calls[:1]) == (1, 0)
    anew(fn, *calls)
    assert anew(fn, *calls[:1]) == (1, 0)  # it relies on the elements again, and does not break


# ---------------------------------------------------------------- files
GOOD = [None, ["size", 0], ["local", 0]]
FORMAT = kept_sizes._FORMAT


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"[" * 100_000, b"\xff\xfe", json.dumps({"format": FORMAT + 1, "paths": []}).encode(),
    json.dumps({"format": FORMAT, "paths": 3}).encode(),
    *(json.dumps({"format": FORMAT, "paths": [path]}).encode() for path in (
        3, [], [None], [0, ["local", 0]], [False, ["local", 0]], ["no mark", ["local", 0]], [None, []],
        [None, "local"], [None, ["const", 3]], [None, ["local", 1.5]],
        [None, ["item", {"type": "object"}, 3], ["local", 0]], [None, ["local", [0]]], [None] + [["dict"]] * 100)),
    json.dumps({"format": FORMAT, "paths": [GOOD] * 300}).encode(),
])
def test_a_file_that_is_sealed_and_malformed_is_said_and_not_used(body, monkeypatch, caplog):
    calls = [(torch.randn(k, 4),) for k in (3, 5)]
    kept = dynamo_lite.lookup_backend("inductor_lite").kept_files
    monkeypatch.setattr(dynamo_lite.lookup_backend("inductor_lite"), "kept_files",
                        kept._replace(read=lambda key, suffix: body))
    dynamo_lite.frame.eval_frame._hooks.clear()
    with caplog.at_level(logging.WARNING, logger="dynamo_lite"):
        assert anew(rows, *calls, backend="inductor_lite", mode="default") == (2, 1)
    assert any("can't be read, and is not used" in r.getMessage() for r in caplog.records)
    dynamo_lite.frame.eval_frame._hooks.clear()


@pytest.mark.parametrize("damage", [
    lambda data: data[:-1], lambda data: data.replace(b"size", b"dict"), lambda data: b""])
def test_a_file_that_is_damaged_or_not_this_users_is_said_and_not_used(damage, tmp_path, caplog):
    calls = [(torch.randn(k, 4),) for k in (3, 5)]
    anew(rows, *calls)
    (path,) = tmp_path.rglob("*.sizes")
    path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.WARNING, logger="dynamo_lite"):
        assert anew(rows, *calls) == (2, 1)
    assert any(str(path) in r.getMessage() for r in caplog.records)
    assert anew(rows, *calls) == (1, 0)  # it was made again


def test_a_file_that_others_can_write_is_not_used(tmp_path):
    calls = [(torch.randn(k, 4),) for k in (3, 5)]
    anew(rows, *calls)
    (path,) = tmp_path.rglob("*.sizes")
    path.chmod(0o666)
    assert anew(rows, *calls) == (2, 1)


def test_no_more_is_kept_than_a_file_may_hold(monkeypatch, tmp_path):
    monkeypatch.setattr(kept_sizes, "MOST_PATHS", 1)
    anew(rows, (torch.randn(3, 4), 2), (torch.randn(5, 4), 3))
    assert not list(tmp_path.rglob("*.sizes"))


def test_only_paths_that_mean_the_same_elsewhere_are_kept():
    from dynamo_lite.guards import source as s

    x, y = s.LocalSource("x", 0), s.ConstSource(object(), "object")
    good = [s.SizeSource(x, 1), s.DictItemSource(s.InstanceDictSource(x), "n"), s.SequenceItemSource(x, 2, True),
            s.ItemSource(x, None), s.DictItemSource(s.GlobalsSource(), "n"),
            s.CellContentsSource(s.ClosureCellSource("c", 0), "c")]
    for source in good:
        for key in (source.key, (kept_sizes.APART, source.key)):
            assert kept_sizes._is_portable(key)
            again = kept_sizes._path_of(json.loads(json.dumps(kept_sizes._as_data(key))))
            assert again == key and hash(again) == hash(key)
    for source in (s.SizeSource(y, 0), s.DictItemSource(x, 2.5), s.DictItemSource(x, (1, 2)), s.NumberSource(3)):
        assert not kept_sizes._is_portable(source.key)
