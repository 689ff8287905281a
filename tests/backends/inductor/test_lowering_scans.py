"""Running sums, products and extremes: generated code against eager, bit for bit, and against the interpreter."""
import math

import pytest
import thorough
import torch

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.backends.inductor.ir.interpreter import run_nests
from dynamo_lite.backends.inductor.ir.loops import LoopNest
from dynamo_lite.backends.inductor.lowering.scans import FEW_ROWS
from dynamo_lite.backends.inductor.pipeline import target_named
from dynamo_lite.backends.inductor.scheduler import Kernel, schedule
from dynamo_lite.backends.inductor.scheduler.checker import check_kernel, run_kernel
from dynamo_lite.backends.inductor.target_info import current

pytestmark = pytest.mark.by_turns(3)

SHAPES = [(5,), (40,), (3, 7), (17, 33), (2, 3, 5), (1, 19, 1), (4, 1, 9)]
SCANS = {
    "cumsum": torch.cumsum, "cumprod": torch.cumprod, "cummax": torch.cummax, "cummin": torch.cummin,
    "logcumsumexp": torch.logcumsumexp,
}
LAYOUTS = {
    "as it is": lambda x: x, "transposed": lambda x: x.transpose(0, -1), "every other": lambda x: x[..., ::2],
    "reversed": lambda x: x.flip(-1), "computed": lambda x: x * 2 - 1, "broadcast": lambda x: x[:1].expand(x.shape),
}


def long(shape, d):
    """A dimension of one element is no loop."""
    return shape[d] > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64,
                                   torch.int32, torch.uint8])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
def test_exact(check_many, data, name, dtype):
    cases = []
    turns = len(name) + dtype.itemsize + dtype.is_floating_point
    for turn, shape in enumerate(SHAPES[:: 1 if dtype in (torch.float32, torch.float16, torch.int64) else 2], turns):
        for layout, laid in thorough.share(list(LAYOUTS.items()), turn, 3):
            x = data.random(*shape, dtype=dtype, scale=1.2)
            made = laid(x)
            cases += [(f"{shape} {layout} {d}", lambda x, d=d, laid=laid: SCANS[name](laid(x), d), [x])
                      for d in range(len(shape)) if long(made.shape, d)]
    check_many(cases, interpreted=dtype in (torch.float32, torch.int64))


@pytest.mark.parametrize("simd", ["avx2", "scalar"])
def test_other_processors(check_many, data, simd):
    x = data.random(9, 21)
    cases = [(f"{name} {d}", lambda x, d=d, f=f: f(x, d), [x]) for name, f in SCANS.items() for d in (0, 1)]
    with config.patch(cpp_simd=simd):
        check_many(cases, data.CLOSE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_logcumsumexp(check_many, data, dtype):
    cases = [(f"{shape} {layout} {d}", lambda x, d=d, laid=laid: laid(x).logcumsumexp(d), [x])
             for turn, shape in enumerate(SHAPES)
             for layout, laid in thorough.share(list(LAYOUTS.items()), turn + dtype.itemsize // 4)
             for x in [data.random(*shape, dtype=dtype, scale=8.0)] for d in range(len(shape))
             if long(laid(x).shape, d) and laid(x).numel() >= FEW_ROWS * laid(x).shape[d]]
    check_many(cases, data.CLOSE, interpreted=dtype is torch.float32)


def test_special_values(check_many, data):
    x = data.special
    orders = [x, x.flip(0), x[torch.tensor([4, 4, 5, 5, 6, 4, 0, 1])], x[torch.tensor([5, 5, 5, 0, 1, 0, 5])],
              x[torch.tensor([1, 0, 1, 0, 6, 3, 6, 4])]]
    exact = [(f"{name} {k}", lambda x, f=SCANS[name]: f(x, 0), [o]) for k, o in enumerate(orders)
             for name in ("cumsum", "cumprod", "cummax", "cummin")]
    check_many(exact, interpreted=True)
    two = torch.stack([o[:7] for o in orders], 1)
    check_many([(name, lambda x, f=f: f(x, 0), [two]) for name, f in SCANS.items()], data.CLOSE, interpreted=True)


def test_other_dtypes_of_results(check_many, data):
    x, n, b = data.random(4, 6), data.random(4, 6, dtype=torch.int32), data.random(4, 6, dtype=torch.bool)
    check_many([
        ("of bools", lambda b: b.cumsum(1), [b]), ("narrower", lambda x: x.cumsum(0, dtype=torch.bfloat16), [x]),
        ("wider", lambda x: x.cumprod(1, dtype=torch.float64), [x]), ("of ints", lambda n: n.cumsum(0), [n]),
        ("ints that run over", lambda n: n.cumsum(0, dtype=torch.int8), [n * 60]),
        ("floats of ints", lambda n: n.cumsum(0, dtype=torch.float32), [n]),
    ])


def test_what_surrounds_it(check_many, data):
    x, m = data.random(6, 50), (data.random(6, 50) > 0).long()
    check_many([
        ("positions", lambda m: (m.cumsum(1) * m) + 1, [m]),
        ("nucleus", lambda x: x.softmax(-1).cumsum(-1) > 0.7, [x]),
        ("reversed sums", lambda x: x.flip(-1).cumsum(-1).flip(-1), [x]),
        ("of gathered", lambda x, m: x.gather(1, m).cumsum(1), [x, m]),
        ("of padded", lambda x: torch.nn.functional.pad(x, (3, 2)).cumsum(1), [x]),
        ("of joined", lambda x: torch.cat([x, x * 2], 1).cumsum(1), [x]),
        ("of sums", lambda x: x.sum(1).cumsum(0), [x]),
        ("of a view of several dims", lambda x: x.view(6, 5, 10).transpose(1, 2).reshape(60, 5).cumsum(0), [x]),
        ("twice", lambda x: x.cumsum(0).cumsum(1), [x]),
        ("differences", lambda x: x.cumsum(1).diff(dim=1), [x]),
    ], data.CLOSE)


def test_one_vector_loop_where_memory_is_contiguous(build, data, in_cpp):
    source = build(lambda x: x.cumsum(0), [data.random(50, 40)]).program.source
    assert "for_lanes<L>(0, 40" in source
    source = build(lambda x: x.cumsum(1), [data.random(5, 40)]).program.source
    assert "for_lanes<L>(" not in source.split("KERNEL")[-1]


def test_only_what_is_read_is_computed(build, data):
    assert build(lambda x: x.cummax(1)[0], [data.random(5, 6)]).kernels == 1
    assert build(lambda x: x.cummax(1)[1], [data.random(5, 6)]).kernels == 1


def test_results_of_one_scan_are_one_kernel(build, check_many, data):
    x, y = data.random(5, 6), data.random(6, 6)
    assert build(lambda x: x.cummax(1), [x]).kernels == 1
    assert build(lambda x, y: (x.cumsum(0), y.cumsum(0)), [x, y]).kernels == 2
    built = check_many([
        ("one", lambda x: (*x.exp().cummax(0), *x.cummin(1)), [x]), ("another", lambda y: y.cummax(1), [y]),
        ("of each other", lambda x: x.cummax(1)[0].cummax(1), [x]),
        ("side by side", lambda y: (y.cumsum(0), (y * 2).cumsum(0), y.cumsum(1), y.cummax(1)[1], y.cumsum(1)), [y])],
        data.CLOSE)
    assert all("running" not in step.origin for step in built.program.kernel_calls())


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_the_kernel_computes_what_the_nest_means(build, data, dim):
    x = data.random(3, 4, 6)
    built = build(lambda x: (x.transpose(0, 1).cumsum(dim), x.view(12, 6).view(3, 4, 6).cummin(dim)[1]), [x])
    steps = schedule(built.lowered, target_named("cpp").arrangement).steps
    kernels = [step for step in steps if isinstance(step, Kernel)]
    memory = {built.lowered.inputs[0]: x.reshape(-1)}
    meant = dict(memory)
    run_nests([op for op in built.lowered.operations if isinstance(op, LoopNest)], meant)
    for kernel in kernels:
        check_kernel(kernel)
        run_kernel(kernel, memory)
        for name in kernel.outputs:
            assert torch.equal(memory[name], meant[name])


def test_gradients():
    torch.manual_seed(0)
    x = torch.rand(5, 7) + 0.5

    def f(x):
        return (x.cumsum(1).sin() * x.cumprod(0)).sum() + x.logcumsumexp(1).mean() + x.cummax(0)[0].square().sum()

    grads = []
    for fn in (f, dynamo_lite.compile(f)):
        leaf = x.clone().requires_grad_()
        fn(leaf).backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(grads[1], grads[0])
    assert not dynamo_lite.metrics()["fallbacks"]


def test_a_long_sum_is_as_accurate_as_in_eager(build):
    x = torch.full((1 << 16,), 0.1)
    got = build(lambda x: x.cumsum(0), [x]).call(x)[0]
    assert torch.equal(got, x.cumsum(0)) and math.isclose(got[-1].item(), 0.1 * (1 << 16), rel_tol=1e-6)


def test_dear_values_are_computed_ahead(build, check_many, data, in_cpp):
    """In vectors, block by block (``codegen.cpp.scans``), to the same bits as by themselves."""
    source = build(lambda x: x.tanh().cumsum(1), [data.random(5, 300)]).program.source.split("KERNEL")[-1]
    assert "for_lanes<L>(block" in source
    cases = []
    for length in (1 + 8 * 16, 8 * 16, 8 * 16 - 1, 5, 700):
        x, i = data.random(5, length), torch.randint(0, length, (5, length))
        n = (x.abs() * 100).int() + 1
        cases += [
            (f"sum {length}", lambda x: x.tanh().cumsum(1), [x]),
            (f"one row {length}", lambda x: x[0].tanh().cumsum(0), [x]),
            (f"wide {length}", lambda x: x.double().tanh().cumprod(-1), [x]),
            (f"half {length}", lambda x: x.bfloat16().exp().cumsum(-1), [x]),
            (f"extremes {length}", lambda x: (*x.sin().cummax(-1), *x.sin().cummin(-1)), [x]),
            (f"ints {length}", lambda n: (n.cos() * n).long().cumsum(-1), [n]),
            (f"bools {length}", lambda x: (x.exp() > 1).cumsum(-1), [x]),
            (f"of positions {length}", lambda x: (x / torch.arange(1, x.shape[1] + 1)).exp().cumsum(1), [x]),
            (f"backwards {length}", lambda x: x.flip(-1).exp().cumsum(-1), [x]),
            (f"gathered {length}", lambda x, i: x.gather(1, i).exp().cumsum(1), [x, i]),
            (f"padded {length}", lambda x: torch.nn.functional.pad(x, (3, 2)).exp().cumsum(1), [x]),
            (f"joined {length}", lambda x: torch.cat([x, x.exp()], 1).sigmoid().cumsum(1), [x]),
            (f"with a cheap use {length}", lambda x: (x.exp() + x).cumsum(1) * x, [x]),
        ]
    check_many(cases, data.CLOSE)
    x = data.random(3, 301)
    ahead, alone = (dynamo_lite.compile(f) for f in (lambda x: x.tanh().cumsum(1), lambda x: x.tanh()))
    assert torch.equal(ahead(x), alone(x).cumsum(1))


def test_dear_values_of_symbolic_lengths(data):
    compiled = dynamo_lite.compile(lambda x: (x.exp() / x.shape[1]).cumsum(1))
    for length in (20, 33, 129, 300, 127):
        x = data.random(6, length)
        torch.testing.assert_close(compiled(x), (x.exp() / length).cumsum(1))
    assert dynamo_lite.metrics()["graphs"] == 2


def test_rows_are_shared_by_what_an_element_after_the_other_costs(build, in_cpp):
    """Of so many elements, a body as short that runs in vectors is not worth a second thread."""
    x = torch.randn(7, 2 * current().grain(False) // (7 * 6))
    assert "share_loop(" in build(lambda x: x.cumsum(1), [x]).program.source.split("KERNEL")[-1]
    kernel = build(lambda x: x + 1, [x]).program.source.split("KERNEL")[-1]
    assert "share_loop(" not in kernel and "parallel(" not in kernel


@pytest.mark.parametrize("rows", [2, 3, 7])
def test_few_long_rows_are_shared_too(build, in_cpp, rows):
    """Nothing inside a scan can be: each row is a thread's."""
    x = torch.randn(rows, 2 * current().grain(False) // (rows * 4))
    built = build(lambda x: x.cumsum(1), [x])
    assert "share_loop(" in built.program.source.split("KERNEL")[-1]
    assert torch.equal(built.call(x)[0], x.cumsum(1))


@pytest.mark.parametrize("shape, dtype", [
    (shape, dtype) for turn, dtype in enumerate((torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32,
                                                 torch.uint8))
    for shape in thorough.share([(8, 8), (19, 45), (3, 33, 70), (40, 9)], turn, 4)])
def test_lines_side_by_side_are_read_and_written_in_tiles(check_many, data, in_cpp, dtype, shape):
    """The bits are those of one line after the other, as eager has them."""
    x = data.random(*shape, dtype=dtype, scale=1.2)
    y = data.random(*shape[:-1], 1, dtype=dtype)
    wide = data.random(*shape[:-1], 2 * shape[-1], dtype=dtype)
    cases = [(name, lambda x, f=f: f(x, -1), [x]) for name, f in SCANS.items() if name != "logcumsumexp"]
    cases += [
        ("of two", lambda x, y: (x + y).cumsum(-1), [x, y]),
        ("part of lines", lambda w: w[..., 3:-2].cumsum(-1), [wide]),
        ("what follows", lambda x, y: x.cumsum(-1) * 2 + y, [x, y]),
        ("compared", lambda x: x.cumsum(-1) > 1, [x]),
        ("every other", lambda w: w[..., ::2].cumsum(-1), [wide]),
    ]
    source = check_many(cases, interpreted=dtype is torch.float32).program.source
    assert source.split("KERNEL", 1)[-1].count("store_tile<L>") >= 6


def test_tiles_of_symbolic_lines(data, in_cpp):
    compiled = dynamo_lite.compile(lambda x: (x * 2).cumsum(-1), dynamic=True)
    for rows, length in ((9, 20), (40, 33), (7, 8), (2, 3), (17, 1000)):
        x = data.random(rows, length)
        assert torch.equal(compiled(x), (x * 2).cumsum(-1))
    assert dynamo_lite.metrics()["graphs"] == 1 and "store_tile<L>" in dynamo_lite.generated_code(compiled)
