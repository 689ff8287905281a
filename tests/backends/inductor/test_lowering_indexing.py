"""Elements chosen by indices in memory: generated code against eager, and what happens to an index out of bounds."""
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite


def numbers(*shape, dtype=torch.float32):
    torch.manual_seed(sum(shape))
    return torch.randn(shape).to(dtype)


def places(high, *shape, low=0, dtype=torch.int64):
    torch.manual_seed(high + sum(shape))
    return torch.randint(low, high, shape, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.uint8])
def test_embedding_and_index_select(check_many, dtype):
    w = numbers(19, 37, dtype=dtype)
    cases = []
    for shape in ((), (1,), (7,), (3, 5), (2, 0)):
        for index in (torch.int64, torch.int32):
            i = places(19, *shape, dtype=index)
            cases.append((f"embedding {shape}", lambda w, i: F.embedding(i, w), [w, i]))
            if len(shape) == 1:
                for d, x in ((0, w), (1, w.t()), (1, w.unsqueeze(0)), (-2, w[:, ::2])):
                    cases.append((f"select {shape} {d}", lambda x, i, d=d: x.index_select(d, i), [x, i]))
    check_many(cases, library=["aten.embedding.default", "aten.index_select.default"])


def test_gather(check_many):
    cases = []
    for shape, index in (((9,), (5,)), ((7, 5), (7, 5)), ((7, 5), (3, 4)), ((2, 3, 4), (2, 2, 9)), ((33, 40), (33, 1))):
        for d in range(len(shape)):
            high = shape[d]
            size = tuple(min(a, b) if k != d else a for k, (a, b) in enumerate(zip(index, shape)))
            i = places(high, *size)
            cases.append((f"{shape} {d}", lambda x, i, d=d: x.gather(d, i) * 2, [numbers(*shape), i]))
            cases.append((f"relu {shape} {d}", lambda x, i, d=d: x.relu().gather(d, i), [numbers(*shape), i]))
            if len(shape) > 1:
                i2 = i.transpose(0, 1).contiguous().transpose(0, 1)
                cases.append((f"{shape} {d} strided", lambda x, i, d=d: x.gather(d, i), [numbers(*shape), i2]))
    check_many(cases)


def test_indexing_of_every_form(check_many):
    x = numbers(6, 7, 8)
    i, j, k = places(6, 5, low=-6), places(7, 5, low=-7), places(8, 4, 1, low=-8)
    cases = [
        ("first", lambda x, i: x[i], [x, i]),
        ("second", lambda x, i: x[:, i], [x, j]),
        ("last", lambda x, i: x[..., i], [x, k]),
        ("pair", lambda x, i, j: x[i, j], [x, i, j]),
        ("apart", lambda x, i, j: x[i, :, j], [x, i, k]),
        ("apart, broadcast", lambda x, i, j: x[i, :, j], [x, i, k[:1, 0]]),
        ("all", lambda x, i, j, k: x[i, j, k], [x, i, j, k]),
        ("with range", lambda x, i: x[torch.arange(5), i] + x[torch.arange(5), 2], [x, j]),
        ("of a sum", lambda x, i: (x.exp() + 1)[i] * 2, [x, i]),
        ("strided", lambda x, i: x.transpose(0, 2)[:, i, ::2], [x, j]),
        ("twice", lambda x, i, j: x[i][:, j], [x, i, j]),
        ("int32", lambda x, i: x[:, i], [x, j.int()]),
        ("new dims", lambda x, i, j: x[None, i, None, j], [x, i, j]),
        ("take", lambda x, i: x.take(i), [x, places(300, 3, 4, low=-300)]),
        ("take along", lambda x, i: torch.take_along_dim(x, i, 1), [x, places(7, 6, 2, 8)]),
        ("computed", lambda x, i: x[(i * 2).clamp(0, 5)].sum(-1), [x, i]),
    ]
    check_many(cases, tolerance={torch.float32: (1e-6, 1e-6)})


def test_a_dimension_of_one_element_is_the_library_s(check_many):
    x, i = numbers(1, 7), torch.zeros(3, dtype=torch.int64)
    check_many([("one", lambda x, i: x[i], [x, i])], library=["aten.index.Tensor"])


def _message(fn, *args):
    with pytest.raises(Exception) as caught:
        fn(*args)
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("fn", [
    lambda x, i: x[i], lambda x, i: x[:, i] + 1, lambda x, i: F.embedding(i, x), lambda x, i: x.index_select(0, i),
    lambda x, i: x.index_select(1, i), lambda x, i: x.gather(0, i.unsqueeze(1)),
    lambda x, i: x.gather(1, i.expand(5, -1)),
    lambda x, i: x[i][:1], lambda x, i: x.exp()[i].sum(), lambda x, i: x[i, i],
], ids=range(10))
@pytest.mark.parametrize("index", [[0, 5, 1], [0, -6, 2], [99] * 40], ids=str)
def test_an_index_out_of_bounds_raises_as_in_eager(fn, index):
    x, good, bad = numbers(5, 5), torch.zeros(len(index), dtype=torch.int64), torch.tensor(index)
    compiled = dynamo_lite.compile(fn)
    torch.testing.assert_close(compiled(x, good), fn(x, good))
    want, got = _message(fn, x, bad), _message(compiled, x, bad)
    assert got == want
    torch.testing.assert_close(compiled(x, good), fn(x, good))


def test_nothing_is_written_when_an_index_is_out_of_bounds():
    def fn(x, y, i):
        y.add_(1)
        z = x[i] * 2
        y.mul_(3)
        return z

    x, y = numbers(5, 5), numbers(40, 40)
    compiled = dynamo_lite.compile(fn)
    compiled(x, y.clone(), torch.tensor([1, 2]))
    for index in ([1, 2], [1, 7]):
        a, b, i = y.clone(), y.clone(), torch.tensor(index)
        if index[1] < 5:
            torch.testing.assert_close(compiled(x, a, i), fn(x, b, i))
        else:
            assert _message(compiled, x, a, i) == _message(fn, x, b, i)
        torch.testing.assert_close(a, b)


def test_a_fault_in_one_thread_is_not_another_s():
    import threading

    x = numbers(50, 300)
    compiled = dynamo_lite.compile(lambda x, i: x[i] * 2)
    good, bad = places(50, 400), torch.full((400,), 50)
    compiled(x, good)
    found = {"good": 0, "bad": 0}

    def run(kind, i):
        for _ in range(50):
            try:
                compiled(x, i)
                found[kind] += kind == "good"
            except IndexError:
                found[kind] += kind == "bad"

    threads = [threading.Thread(target=run, args=a) for a in (("good", good), ("bad", bad))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {"good": 50, "bad": 50}


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_index_that_counts_is_no_gather(dynamic, in_cpp):
    """As masks are indexed: a range with a small number added or subtracted, where it is known to lie inside."""
    def moved(x, by):
        rows, columns = torch.arange(x.shape[0]), torch.arange(x.shape[1] - 3)
        return x[(rows + 0)[:, None], (columns + by)[None] - 1]

    def shifted(x):
        return moved(x, 3) + moved(x, 1)

    def negative(x):
        return moved(x, 0)

    def outside(x):
        return moved(x, 5)

    x = numbers(9, 21)
    compiled = dynamo_lite.compile(shifted, dynamic=dynamic)
    assert torch.equal(compiled(x), shifted(x)) and torch.equal(compiled(x[1:, :18]), shifted(x[1:, :18]))
    source = "".join(map(str, dynamo_lite.generated_code(compiled))).split("//--", 1)[1]
    assert "load_lanes" not in source and "bounded" not in source
    assert torch.equal(dynamo_lite.compile(negative, dynamic=dynamic)(x), negative(x))
    with pytest.raises(IndexError, match="out of bounds"):
        dynamo_lite.compile(outside, dynamic=dynamic)(x)
