"""What NumPy computes inside a compiled function: arrays from outside, and arrays in the memory of tensors."""
import copy
import warnings

import numpy as np
import pytest
import torch

import dynamo_lite

RNG = np.random.RandomState(0)
TABLE = RNG.randn(4).astype(np.float32)


def _doubles():
    return np.random.RandomState(1).randn(3, 4)


def _singles():
    return np.random.RandomState(2).randn(3, 4).astype(np.float32)


def _ints():
    return np.random.RandomState(3).randint(-5, 9, (3, 4))


def _tensor():
    return torch.arange(12, dtype=torch.float32).reshape(3, 4) / 7


def _parts(value):
    if isinstance(value, (list, tuple)):
        return [part for item in value for part in _parts(item)]
    return [value]


def _check_same(got, wanted):
    got, wanted = _parts(got), _parts(wanted)
    assert [type(a) for a in got] == [type(b) for b in wanted]
    for a, b in zip(got, wanted):
        if isinstance(b, torch.Tensor):
            assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
            assert torch.equal(a.nan_to_num(), b.nan_to_num())
        elif isinstance(b, np.ndarray):
            assert (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
            assert a.flags.writeable == b.flags.writeable
            assert a.tobytes() == b.tobytes()
        else:
            assert repr(a) == repr(b)


def _run(function, arguments, backend="inductor_lite", fullgraph=True):
    """Calls a function compiled twice and in plain Python; compares results and what is left of the arguments."""
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=fullgraph)
    dynamo_lite.reset_metrics()
    for _ in range(2):
        given, also = arguments(), arguments()
        _check_same(compiled(*given), function(*also))
        _check_same(given, also)
    return dynamo_lite.metrics()


CAPTURED = {
    "arithmetic": (lambda a, b: (a + b, a * 2 - 1, 2 / (a * a + 1), -a, abs(a), a**2, a // 0.5, a % 0.5),
                   lambda: (_doubles(), _singles())),
    "of_whole_numbers": (lambda a: (a / 2, a // 2, a % 3, a << 1, ~a, a & 3, a * 2.5, np.sqrt(abs(a))),
                         lambda: (_ints(),)),
    "comparisons": (lambda a: (a > 0, a == 1, np.logical_and(a > 0, a < 1), ~(a > 0)), lambda: (_singles(),)),
    "functions": (lambda a: (np.sin(a), np.exp(a), np.maximum(a, 0), np.where(a > 0, a, 0), np.clip(a, -1, 1)),
                  lambda: (_singles(),)),
    "sums": (lambda a: (a.sum(), np.sum(a, axis=0), a.mean(1, keepdims=True), np.std(a), a.max(), np.argmax(a, 1)),
             lambda: (_singles(),)),
    "numbers": (lambda a: (a.sum() * 2, a[0, 0] + a, a.mean() > 0, np.sqrt(a.max() ** 2)), lambda: (_singles(),)),
    "number_times_tensor": (lambda t, a: t * torch.from_numpy(a / a.max()), lambda: (_tensor(), _singles())),
    "products": (lambda a: (a @ a.T, np.dot(a, a.T), np.einsum("ij,ij->i", a, a), np.linalg.norm(a, axis=1)),
                 lambda: (_doubles(),)),
    "joined": (lambda a, b: (np.concatenate([a, b]), np.stack([a, b], 1), np.vstack((a, b)), np.hstack([a, b])),
               lambda: (_doubles(), _singles())),
    "types": (lambda a: (a.astype(np.float64), a.astype("int32"), a.astype(bool), a.astype(float, copy=False),
                         np.array(a, dtype=np.float16), np.asarray(a)), lambda: (_singles(),)),
    "layouts": (lambda a: (a.T + 1, a.T.copy(), np.ascontiguousarray(a.T), a[:, ::2] * 2, a.T[1:] @ a),
                lambda: (_doubles(),)),
    "views": (lambda a: [a.T, a[1], a[:, 1:3], a[..., None], a.reshape(2, 6), a.reshape(-1), a[::2, 1], a.ravel(),
                         *np.split(a, 2, axis=1), a.swapaxes(0, 1), a[None], np.squeeze(a[:1]), np.expand_dims(a, 1)],
              lambda: (_doubles(),)),
    "chosen": (lambda a: (a[[2, 0]], a[np.array([0, 2])], np.take(a, [1], axis=1), a[np.argsort(a[:, 0])]),
               lambda: (_doubles(),)),
    "metadata": (lambda a: (a.shape, a.ndim, a.size, a.dtype, len(a), a.itemsize, a.nbytes), lambda: (_singles(),)),
    "with_a_known_array": (lambda a: a * np.arange(4) + np.linspace(0, 1, 4), lambda: (_doubles(),)),
    "known_scalars": (lambda a: (a * np.float32(2), a + np.float64(1), np.float32(1) / a), lambda: (_singles(),)),
    "global_array": (lambda a: a * TABLE, lambda: (_doubles(),)),
    "rows": (lambda a: [row.sum() for row in a], lambda: (_doubles(),)),
    "empty": (lambda a: (a[:0] + 1, a[:0].sum(), np.concatenate([a[:0], a])), lambda: (_doubles(),)),
    "without_dimensions": (lambda a: (a + 1, a.reshape(1), a[()]), lambda: (np.array(2.5),)),
    "to_tensors": (lambda a: (torch.from_numpy(a) * 2, torch.tensor(a.T), torch.as_tensor(a), torch.asarray(a),
                              torch.tensor(a, dtype=torch.float64), torch.as_tensor(a, dtype=torch.int32),
                              torch.tensor(a.sum())), lambda: (_singles(),)),
    "of_tensors": (lambda t: (np.sin(t.numpy()), torch.from_numpy(t.numpy() * 2), np.asarray(t) + 1, np.array(t),
                              (t * 2).detach().cpu().numpy().sum(0)), lambda: (_tensor(),)),
    "into_a_network": (lambda t, a: torch.relu(t.t() - torch.from_numpy(np.log1p(np.abs(a.T)))),
                       lambda: (_tensor(), _singles())),
    "linear_algebra": (lambda a: (np.linalg.inv(a[:, :3]), np.linalg.det(a[:, :3]), np.fft.fft(a), np.cov(a),
                                  np.linalg.solve(a[:, :3], a[0, :3])), lambda: (_doubles(),)),
    "complex": (lambda a: (a * 1j, np.abs(a * 1j), (a + 2j).real, (a * 1j).imag + 1, a.real), lambda: (_doubles(),)),
    "other_layout": (lambda a: (a + 1, a.sum(0), a.ravel(), a.reshape(12)), lambda: (np.asfortranarray(_doubles()),)),
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", CAPTURED)
def test_numpy_is_captured(name, backend):
    assert _run(*CAPTURED[name], backend)["graphs"] == (name != "metadata")


def _element(a):
    a[0, 1] = 7
    return a.sum()


def _slices(a, b):
    a[1:] = b[:2]
    a[:, 0] = 3
    a[0] = [1, 2, 3, 4]
    return a * 2


def _shifted(a):
    a[1:] = a[:-1]
    return a


def _masked(a):
    a[a < 0] = 0
    return np.sqrt(a)


def _chosen(a):
    a[[0, 2]] = a[[2, 0]]
    a[np.array([1]), 2] = 5
    return a


def _in_place(a, b):
    kept = a
    a += b
    a *= 2
    a[0] -= 1
    a[:, 1] /= 4
    return kept, kept is a


def _of_a_tensor(t):
    array = t.numpy()
    array[0] = 5
    t.add_(1)
    return array * 2, t * 3


def _through_a_tensor(a):
    t = torch.from_numpy(a)
    t.mul_(2)
    a += 1
    return t + 1, a.sum()


def _of_a_result(t):
    made = np.cumsum(t.numpy(), axis=1)
    made[made > 1] = 1
    return torch.from_numpy(made) + t


WRITES = {
    "element": (_element, lambda: (_doubles(),)),
    "slices": (_slices, lambda: (_doubles(), _singles())),
    "shifted": (_shifted, lambda: (_doubles(),)),
    "masked": (_masked, lambda: (_doubles(),)),
    "chosen": (_chosen, lambda: (_ints(),)),
    "in_place": (_in_place, lambda: (_singles(), _doubles())),
    "of_a_tensor": (_of_a_tensor, lambda: (_tensor(),)),
    "through_a_tensor": (_through_a_tensor, lambda: (_singles(),)),
    "of_a_result": (_of_a_result, lambda: (_tensor(),)),
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", WRITES)
def test_writes_are_those_of_numpy(name, backend):
    assert _run(*WRITES[name], backend)["graphs"] == 1


def test_arrays_that_lie_in_one_memory():
    def step(a, b):
        a += 1
        return b * 2

    compiled = dynamo_lite.compile(step)
    for overlapping in (False, True, False):
        whole, also = np.arange(6.0), np.arange(6.0)
        pair = lambda x: (x[:4], x[2:]) if overlapping else (x[:3], x[3:])
        _check_same(compiled(*pair(whole)), step(*pair(also)))
        _check_same(whole, also)


def test_an_array_in_the_memory_of_a_tensor_argument():
    def step(t, a):
        t.add_(1)
        return a * 2

    compiled = dynamo_lite.compile(step)
    for shares in (False, True):
        t = torch.arange(4.0)
        a = t.numpy() if shares else np.arange(4.0, dtype=np.float32)
        assert list(compiled(t, a)) == ([2, 4, 6, 8] if shares else [0, 2, 4, 6])


def test_results_share_memory_as_in_numpy():
    def views(a):
        return a, a.T, torch.from_numpy(a), a.reshape(-1)[2:]

    a = _doubles()
    same, transposed, tensor, part = dynamo_lite.compile(views, fullgraph=True)(a)
    assert same is a
    a[0, 2] = 99
    assert transposed[2, 0] == tensor[0, 2] == part[0] == 99


def test_an_array_of_another_kind_is_another_graph():
    def step(a):
        return a * 2

    compiled = dynamo_lite.compile(step, fullgraph=True)
    dynamo_lite.reset_metrics()
    for array in (_doubles(), _singles(), np.asfortranarray(_doubles()), _doubles()):
        _check_same(compiled(array), step(array))
    assert dynamo_lite.metrics()["graphs"] == 3


def test_sizes_that_change_break():
    def step(a, x):
        return torch.from_numpy(a * 2) + x

    compiled = dynamo_lite.compile(step)
    for n in (3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14):
        a, x = np.arange(float(n)), torch.ones(n, dtype=torch.float64)
        dynamo_lite.reset_metrics()
        _check_same(compiled(a, x), step(a, x))
    assert dynamo_lite.metrics()["graphs"] == 0


def test_an_array_that_is_only_passed_on_may_have_any_shape():
    def step(a, x):
        return a, x + 1

    compiled = dynamo_lite.compile(step, fullgraph=True)
    dynamo_lite.reset_metrics()
    for n in (3, 4, 5):
        a = np.arange(n)
        assert compiled(a, torch.ones(2))[0] is a
    assert dynamo_lite.metrics()["graphs"] == 1


def test_read_only_arrays_and_arrays_of_objects():
    def step(a):
        return a + a

    compiled = dynamo_lite.compile(step)
    frozen = _doubles()
    frozen.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for array in (_doubles(), frozen, np.array(["a", None, 2][:1], dtype=object), np.array(["x"]),
                      _doubles()[::-1], np.ma.masked_array([1, 2])):
            with np.printoptions():
                try:
                    wanted = step(array)
                except np._core._exceptions._UFuncNoLoopError as error:
                    with pytest.raises(type(error)):
                        compiled(array)
                    continue
            got = compiled(array)
            assert type(got) is type(wanted) and got.tolist() == wanted.tolist()


def test_an_array_that_becomes_read_only():
    def step(a):
        a[0] = 1
        return a

    compiled, array = dynamo_lite.compile(step), _doubles()
    compiled(array)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        compiled(array)


def test_exceptions_and_warnings_are_numpys():
    def powers(a, b):
        return a**b

    def divided(a):
        return a / 0

    compiled = dynamo_lite.compile(powers)
    compiled(np.array([2, 3]), np.array([1, 2]))
    with pytest.raises(ValueError, match="negative integer powers"):
        compiled(np.array([2, 3]), np.array([1, -2]))
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        dynamo_lite.compile(divided)(np.array([1.0]))
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        dynamo_lite.compile(divided)(np.array([1.0]))
    with pytest.raises(ValueError, match="broadcast"):
        dynamo_lite.compile(lambda a, b: a + b)(np.ones(3), np.ones(4))
    with pytest.raises(IndexError):
        dynamo_lite.compile(lambda a: a[5])(np.ones(3))


def test_a_result_that_elements_decide_breaks():
    def positive(a):
        return a[a > 0] * 2

    def branch(a):
        return a + 1 if a.sum() > 0 else a - 1

    for function in (positive, branch):
        compiled = dynamo_lite.compile(function)
        for array in (_doubles(), -abs(_doubles()), abs(_doubles())):
            _check_same(compiled(array), function(array))


WHERE_ELEMENTS_DECIDE = {
    "row": lambda a: a[a[:, 0].argmax()] * 2,
    "element": lambda a: a[0, a[0].argmax()] * 2,
    "slice": lambda a: a[: np.argmax(a[:, 0])] * 2,
    "repeated": lambda a: np.repeat(a, (a[0] > 0).astype(int) + 1, axis=1),
    "repeated_by_a_number": lambda a: np.repeat(a, np.argmax(a[0])),
    "along": lambda a: np.sum(np.stack([a[:, :3]] * 3), axis=np.argmax(a[0, :3])),
    "split": lambda a: np.split(a, a[:1].argmax(1)),
    "padded": lambda a: np.pad(a, a.argmax(1)[0]),
    "tiled": lambda a: np.tile(a, a.argmax(0)[:2]),
    "shifted": lambda a: np.roll(a, np.argmax(a[0])),
}


@pytest.mark.parametrize("name", WHERE_ELEMENTS_DECIDE)
def test_elements_that_decide_about_a_shape_or_a_place(name):
    function = WHERE_ELEMENTS_DECIDE[name]
    compiled = dynamo_lite.compile(function)
    for seed in range(6):
        array = np.random.RandomState(seed).randn(3, 4)
        _check_same(compiled(array), function(array))


WRITTEN_OPERANDS = {
    "ufunc": lambda a: (np.add(a, 1, a), a * 2), "sum": lambda a: (a.sum(0, None, a[0]), a * 2),
    "clip": lambda a: (np.clip(a, 0, 1, a), a + 1), "round": lambda a: (a.round(1, a), a + 1),
    "cumsum": lambda a: (np.cumsum(a, 0, None, a), a + 1), "keyword": lambda a: (np.exp(a, out=a), a + 1),
    "diagonal": lambda a: (np.diagonal(a), a + 1), "sort": lambda a: (a.sort(), a + 1),
}


@pytest.mark.parametrize("name", WRITTEN_OPERANDS)
def test_functions_that_write_to_an_operand_break(name):
    function = WRITTEN_OPERANDS[name]
    compiled = dynamo_lite.compile(function)
    for _ in range(2):
        array, also = _doubles(), _doubles()
        _check_same(compiled(array), function(also))
        _check_same(array, also)


def test_results_that_share_memory_with_each_other():
    def several(x, a):
        made = x.numpy() + a
        return made, torch.from_numpy(made), made[1:], made.T

    for backend in ("eager", "inductor_lite"):
        made, tensor, part, turned = dynamo_lite.compile(several, backend=backend, fullgraph=True)(
            _tensor(), _singles())
        made[1, 0] = 77
        assert tensor[1, 0] == part[0, 0] == turned[0, 1] == 77


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies(copied):
    def twice(a):
        b = copied(a)
        b += 1
        return a, b

    array = _doubles()
    _check_same(dynamo_lite.compile(twice)(array), twice(_doubles()))


def test_gradients_beside_arrays():
    def loss(w, a):
        scale = torch.from_numpy(np.exp(-a))
        return (w * scale).sum()

    w, a = torch.ones(3, 4, requires_grad=True), _singles()
    dynamo_lite.compile(loss, fullgraph=True)(w, a).backward()
    assert torch.equal(w.grad, torch.from_numpy(np.exp(-a)))


def test_a_global_array_that_is_bound_anew(monkeypatch):
    def step(x):
        return x + torch.from_numpy(TABLE)

    compiled, x = dynamo_lite.compile(step, fullgraph=True), torch.zeros(4)
    assert torch.equal(compiled(x), torch.from_numpy(TABLE))
    TABLE[0] += 1
    assert torch.equal(compiled(x), torch.from_numpy(TABLE))
    monkeypatch.setitem(globals(), "TABLE", TABLE * 2)
    assert torch.equal(compiled(x), torch.from_numpy(TABLE))


def test_subclasses_and_operands_of_other_classes():
    class Odd:
        __array_ufunc__ = None

        def __radd__(self, other):
            return "odd"

    compiled = dynamo_lite.compile(lambda a, b: a + b)
    assert compiled(np.ones(2), Odd()) == "odd"
    assert compiled(np.ones(2), np.matrix([[1, 2]])).tolist() == [[2, 3]]
    assert type(compiled(np.ones(2), np.matrix([[1, 2]]))) is np.matrix
    t = torch.ones(2)
    for a, b in ((np.ones(2, np.float32), t), (t, np.ones(2, np.float32))):
        try:
            wanted = a + b
        except TypeError:
            with pytest.raises(TypeError):
                compiled(a, b)
            continue
        _check_same(compiled(a, b), wanted)


def _filled(t):
    made = np.zeros((3, 4))
    also = made
    made[0] = t.numpy()[1]
    for i in range(3):
        made[i, i] = i
    made += 1
    return also, made is also, np.zeros(2)


def _counted(t):
    made = np.arange(4)
    kept = made
    made += 1
    made[0] *= 3
    return torch.from_numpy(kept) + t[0], kept


def _written_after_use(t):
    made = np.ones(4)
    before = torch.tensor(made)
    twice = made * 2
    made[0] = 7
    return before + t[0], twice, made, t * torch.from_numpy(made)


def _shared_memory(t):
    made = np.zeros(4)
    tensor, part = torch.from_numpy(made), made[1:]
    made[1] = 5
    return tensor + t[0], part


def _written_by_a_tensor(t):
    made = np.zeros(4)
    view = made[1:]
    tensor = torch.from_numpy(made)
    tensor.add_(t[0])
    return made + 1, view.sum(), tensor


def _part(t):
    made = np.zeros((2, 4))
    part, turned = made[0], made.T
    part += 2
    made[1, 1] = 9
    return torch.from_numpy(made) + t[0], part, turned


def _positions(t):
    made = np.arange(3)[:, None] / np.power(10000, 2 * (np.arange(4) // 2) / 4)
    made[:, 0::2] = np.sin(made[:, 0::2])
    made[:, 1::2] = np.cos(made[:, 1::2])
    return t + torch.from_numpy(made).float()


def _with_fill(t):
    made, given = np.empty(3), t.numpy()
    made.fill(4)
    given[0].fill(2)
    return made, given, np.full((2, 2), 0.5)


@pytest.mark.parametrize("function", [_filled, _counted, _written_after_use, _part, _positions, _with_fill])
def test_arrays_that_are_made_and_written(function):
    assert _run(function, lambda: (_tensor(),))["graphs"] == 1


@pytest.mark.parametrize("function", [_shared_memory, _written_by_a_tensor])
def test_writes_to_made_arrays_that_share_their_memory_break(function):
    _run(function, lambda: (_tensor(),), fullgraph=False)
    with pytest.raises(dynamo_lite.exc.Unsupported):
        dynamo_lite.compile(function, fullgraph=True)(_tensor())


def test_what_is_asked_of_an_array():
    def asked(t, a):
        names = [name for name in ("shape", "cpu", "requires_grad", "sum") if hasattr(a, name)]
        try:
            a.missing
        except AttributeError as error:
            names.append(str(error))
        return t + len(a), names, np.shape(a), np.ndim(a.sum()), isinstance(a, np.ndarray), a is None, np.size(a)

    assert _run(asked, lambda: (_tensor(), _doubles()))["graphs"] == 1


def test_numbers_of_running_arrays():
    def scaled(t, a, i):
        return t * float(a.sum()), t + int(i[0, 0]), t * a.max().item(), t * a.mean(), a.sum() * t

    _run(scaled, lambda: (_tensor(), _doubles(), _ints()))
    _run(scaled, lambda: (_tensor(), _doubles(), _ints()), fullgraph=False)


INDEXED = {
    "known": lambda t, i: (t[np.array([0, 2])], t[:, np.array([[1], [0]])], t[np.array([0]), np.array([1])]),
    "running": lambda t, i: (t[i], t[i, i], t[..., i], t[np.argsort(t.numpy()[:, 0])]),
    "written": lambda t, i: (t.clone().index_fill_(0, torch.from_numpy(i), 0),
                             t.mul(2).put_(torch.as_tensor(i), t[0, :2])),
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", INDEXED)
def test_tensors_indexed_by_arrays(name, backend):
    assert _run(INDEXED[name], lambda: (_tensor(), np.array([0, 2])), backend)["graphs"] == 1


def test_writes_at_indices_in_arrays():
    def write(t, i):
        made = t * 2
        made[np.array([0, 1])] = 5
        made[i] += 1
        i[0] = 0
        return made

    assert _run(write, lambda: (_tensor(), np.array([1, 2])))["graphs"] == 1


def test_an_index_out_of_bounds_raises():
    compiled = dynamo_lite.compile(lambda t, i: t[i])
    compiled(_tensor(), np.array([0]))
    with pytest.raises(IndexError):
        compiled(_tensor(), np.array([9]))
