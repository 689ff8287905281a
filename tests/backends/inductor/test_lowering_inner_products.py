"""Products with a vector: generated code against eager and the interpreter."""
import pytest
import torch

from dynamo_lite.backends.inductor import target_info

TOLERANCE = {torch.float32: (1e-5, 1e-5), torch.float64: (1e-13, 1e-13)}


def numbers(*shape, dtype=torch.float32):
    torch.manual_seed(sum(shape))
    return torch.randn(shape).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values(check_many, dtype):
    cases = []
    for n in (1, 2, 7, 33, 300):
        a, b = numbers(n, dtype=dtype), numbers(n, dtype=dtype).flip(0)
        cases += [(f"dot {n}", lambda a, b: (a * 2).dot(b.exp()) + 1, [a, b]), (f"vdot {n}", torch.vdot, [a, b]),
                  (f"gaps {n}", lambda a, b: torch.dot(a[::2], b[::2]), [a, b])]
        for rows in (1, 5, 40):
            m, v = numbers(rows, n, dtype=dtype), numbers(n, dtype=dtype)
            cases += [(f"mv {rows} {n}", lambda m, v: (m @ v).relu(), [m, v]),
                      (f"transposed {rows} {n}", lambda m, v: m.t() @ v, [numbers(n, rows, dtype=dtype), v]),
                      (f"addmv {rows} {n}", lambda c, m, v: torch.addmv(c, m, v, beta=0.5, alpha=2), [m[:, 0], m, v])]
    check_many(cases, TOLERANCE, interpreted=dtype is torch.float64)


def test_what_beta_of_0_leaves_out(check_many):
    nan = torch.full((4,), torch.nan)
    check_many([("beta 0", lambda c, m, v: torch.addmv(c, m, v, beta=0), [nan, numbers(4, 3), numbers(3)])], TOLERANCE)


def test_joins_what_surrounds_it(build):
    def attention(q, k, v):
        weights = (k @ q).softmax(0)
        return v.t() @ weights

    q, k, v = numbers(16), numbers(50, 16), numbers(50, 16)
    built = build(attention, [q, k, v])
    assert not built.library and built.kernels <= 3
    torch.testing.assert_close(built.call(q, k, v)[0], attention(q, k, v), rtol=1e-5, atol=1e-5)


def test_long_sums_are_accurate(build):
    x = torch.full((1 << 20,), 0.1)
    got = build(lambda x: x.dot(x), [x]).call(x)[0]
    want = x.double().dot(x.double())
    assert abs(got.double() - want) <= 2 * abs(x.dot(x).double() - want) + 1e-7 * want


def test_other_dtypes_are_the_library_s(check_many):
    n = torch.arange(5)
    check_many([("ints", lambda n: n.dot(n), [n])], library=["aten.dot.default"])


def test_large_matrices_are_the_library_s(build, kernels):
    """Of the C++ target: that of Triton has no limit (Abilities.near_vector)."""
    rows = target_info.current().near_vector // 1024 + 1
    library = build(lambda m, v: m @ v, [torch.ones(rows, 1024), torch.ones(1024)]).library
    assert library == (["aten.mv.default"] if kernels == "cpp" else [])
