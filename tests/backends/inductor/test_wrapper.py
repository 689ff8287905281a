"""The wrapper around hand-written programs: entries, offsets, reuse of memory, lifetimes, results."""
import gc
import weakref

import pytest
import torch

from dynamo_lite.backends.aot.graph import InputOutput, LiteralOutput, OutputAlias, ValueOutput
from dynamo_lite.backends.inductor import _runtime, artifact, codecache
from dynamo_lite.backends.inductor.codegen.wrapper import write_wrapper
from dynamo_lite.backends.inductor.codegen.wrapper.lifetimes import plan_memory
from dynamo_lite.backends.inductor.program import (
    BufferRef,
    BufferSpec,
    CopyInto,
    ExternCall,
    KernelCall,
    Program,
    View,
)
from dynamo_lite.symbols.integers import Sym, atom

aten = torch.ops.aten
SOURCE = """
#include <stdint.h>
extern "C" void add4(const void *a, const void *b, void *o)
{ for (int i = 0; i < 4; i++) ((float *)o)[i] = ((const float *)a)[i] + ((const float *)b)[i]; }
extern "C" void twice4(const void *a, void *o)
{ for (int i = 0; i < 4; i++) ((float *)o)[i] = 2 * ((const float *)a)[i]; }
extern "C" void scale(const void *a, void *o, int64_t n)
{ for (int64_t i = 0; i < n; i++) ((float *)o)[i] = n * ((const float *)a)[i]; }
"""


def spec(name, *size, stride=None):
    strides = stride or tuple(torch.empty(size).stride())
    return BufferSpec(name, size, strides, torch.float32)


def program(inputs, steps, outputs, specs, constants=None):
    p = Program(tuple(inputs), constants or {}, {}, {s.name: s for s in specs}, steps, tuple(outputs), SOURCE)
    p.check()
    return p


def build(p, recipes=None, **scopes):
    wrapper = write_wrapper(p, recipes or tuple(ValueOutput(i) for i in range(len(p.outputs))), **scopes)
    library = codecache.shared_library(p.source + wrapper.entries) if wrapper.entry_specs else None
    return artifact._load(wrapper, library), wrapper


def test_one_kernel():
    p = program("ab", [KernelCall("add4", ("a", "b", "o"), ("o",))], ["o"], [spec(n, 4) for n in "abo"])
    call, wrapper = build(p)
    a, b = torch.randn(4), torch.randn(9)[3:7]
    assert torch.equal(call(a, b)[0], a + b)
    assert len(wrapper.entry_specs) == 1 and "del" not in wrapper.python


def test_a_constant_or_an_unused_input():
    c = torch.randn(4)
    p = program("ab", [KernelCall("add4", ("a", "c", "o"), ("o",))], ["o"], [spec(n, 4) for n in "abco"], {"c": c})
    call, wrapper = build(p)
    a, b = torch.randn(4), torch.randn(4)
    assert torch.equal(call(a, b)[0], a + c) and not wrapper.direct
    p = program("ab", [KernelCall("twice4", ("b", "o"), ("o",))], ["o"], [spec(n, 4) for n in "abo"])
    call, wrapper = build(p)
    assert torch.equal(call(a, b)[0], b * 2) and wrapper.direct


def test_a_run_of_kernels_is_one_entry_and_reuses_memory():
    steps = [KernelCall("twice4", ("a", "t0"), ("t0",))]
    steps += [KernelCall("twice4", (f"t{i}", f"t{i + 1}"), (f"t{i + 1}",), inplace=((f"t{i + 1}", f"t{i}"),))
              for i in range(5)]
    p = program("a", steps, ["t5"], [spec("a", 4), *(spec(f"t{i}", 4) for i in range(6))])
    call, wrapper = build(p)
    a = torch.randn(4)
    assert torch.equal(call(a)[0], a * 64)
    assert len(wrapper.entry_specs) == 1 and wrapper.direct
    assert wrapper.entry_specs[0].tensors == 1 and len(wrapper.entry_specs[0].layouts) == 1


def test_memory_of_inputs_and_results_is_never_reused():
    steps = [
        KernelCall("twice4", ("a", "x"), ("x",)),
        KernelCall("twice4", ("x", "y"), ("y",), inplace=(("y", "x"),)),
        KernelCall("twice4", ("y", "z"), ("z",), inplace=(("z", "y"),)),
    ]
    p = program("a", steps, ["x", "z"], [spec(n, 4) for n in "axyz"])
    call, _ = build(p)
    a = torch.randn(4)
    x, z = call(a)
    assert torch.equal(x, a * 2) and torch.equal(z, a * 8)
    assert plan_memory(p).reuse == {"z": "y"}


def test_dead_memory_of_one_layout_serves_later_kernels():
    steps = [
        KernelCall("twice4", ("a", "x"), ("x",)),
        ExternCall(aten.sin.default, (BufferRef("x"),), {}, ("s",)),
        KernelCall("twice4", ("s", "y"), ("y",)),
        ExternCall(aten.cos.default, (BufferRef("y"),), {}, ("c",)),
        KernelCall("twice4", ("c", "z"), ("z",)),
    ]
    p = program("a", steps, ["z"], [spec(n, 4) for n in "axsycz"])
    call, wrapper = build(p)
    a = torch.randn(4)
    torch.testing.assert_close(call(a)[0], ((a * 2).sin() * 2).cos() * 2)
    assert plan_memory(p).reuse == {"y": "x", "z": "y"}


def test_views_are_offsets_for_kernels_and_tensors_for_the_library():
    steps = [
        KernelCall("twice4", ("a", "x"), ("x",)),
        View("v", "a", 2),
        View("w", "v", 1),
        KernelCall("add4", ("w", "x", "o"), ("o",)),
        ExternCall(aten.exp.default, (BufferRef("v"),), {}, ("e",)),
        View("q", "e", 1),
        KernelCall("twice4", ("q", "r"), ("r",)),
    ]
    specs = [spec("a", 8), *(spec(n, 4) for n in "xwor"), spec("v", 5), spec("e", 5), spec("q", 4)]
    call, wrapper = build(program("a", steps, ["o", "r", "q"], specs))
    for a in (torch.randn(8), torch.randn(20)[5:13]):
        o, r, q = call(a)
        assert torch.equal(o, a[3:7] + 2 * a[:4])
        torch.testing.assert_close(r, 2 * a[3:7].exp())
        torch.testing.assert_close(q, a[3:7].exp())


def test_an_input_is_overwritten_by_copy_or_by_a_kernel():
    steps = [
        KernelCall("twice4", ("a", "x"), ("x",)),
        CopyInto("b", "x"),
        KernelCall("twice4", ("x", "a"), ("a",)),
    ]
    call, _ = build(program("ab", steps, [], [spec(n, 4) for n in "abx"]))
    a, b = torch.ones(4), torch.zeros(4)
    versions = a._version, b._version
    assert call(a, b) == ()
    assert torch.equal(a, torch.full((4,), 4.0)) and torch.equal(b, torch.full((4,), 2.0))
    assert a._version > versions[0] and b._version > versions[1]


def test_results_by_recipe():
    p = program("ab", [KernelCall("add4", ("a", "b", "o"), ("o",))], ["o"], [spec(n, 4) for n in "abo"])
    view = OutputAlias(InputOutput(0), (2,), (1,), 1)
    recipes = (ValueOutput(0), InputOutput(1), LiteralOutput(None), view, view,
               OutputAlias(ValueOutput(0), (2, 2), (1, 2), 0), LiteralOutput(float("inf")),
               OutputAlias(InputOutput(1), (4,), (1,), 0, ((aten.view.dtype, (torch.int32,), {}, None),)))
    call, _ = build(p, recipes)
    a, b = torch.randn(10)[2:6], torch.randn(4)
    o, same, none, v, again, square, inf, ints = call(a, b)
    assert same is b and none is None and inf == float("inf") and v is again
    assert v.data_ptr() == a[1:].data_ptr() and v.shape == (2,) and v._base is not None
    assert torch.equal(square, o.view(2, 2).t()) and square.data_ptr() == o.data_ptr()
    assert ints.dtype == torch.int32 and ints.data_ptr() == b.data_ptr()


def test_sizes_are_passed_to_kernels():
    n = atom(Sym("n"))
    p = program(["a", "n"], [KernelCall("scale", ("a", "o"), ("o",), sizes=(n,))], ["o"],
                [BufferSpec("a", (n,), (1,), torch.float32), BufferSpec("o", (n,), (1,), torch.float32)])
    p.symbols["n"] = n
    call, _ = build(p)
    for size in (1, 5, 9):
        a = torch.randn(size)
        assert torch.equal(call(a, size)[0], a * size)


def test_without_tensors_made_in_c():
    steps = [KernelCall("twice4", ("a", "x"), ("x",)), KernelCall("add4", ("a", "x", "o"), ("o",))]
    p = program("a", steps, ["o"], [spec(n, 4) for n in "axo"])
    call, wrapper = build(p, allocate=False)
    a = torch.randn(4)
    assert torch.equal(call(a)[0], a * 3) and "empty_strided" in wrapper.python and not wrapper.direct


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64,
                                   torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64,
                                   torch.complex128])
def test_tensors_made_in_c_are_as_torch_makes_them(dtype):
    layouts = [((4,), (1,)), ((2, 3), (1, 2)), ((), ()), ((0, 3), (3, 1)), ((2, 2), (8, 2))]
    specs = [BufferSpec(f"o{i}", size, stride, dtype) for i, (size, stride) in enumerate(layouts)]
    names = tuple(s.name for s in specs)
    p = program([], [KernelCall("nothing", names, names)], names, specs)
    p.source = 'extern "C" void nothing(void *, void *, void *, void *, void *) {}\n'
    call, wrapper = build(p)
    assert wrapper.direct
    for out, (size, stride) in zip(call(), layouts):
        want = torch.empty_strided(size, stride, dtype=dtype)
        assert (out.shape, out.stride(), out.dtype, out.device) == (want.shape, want.stride(), dtype, want.device)
        assert type(out) is torch.Tensor and not out.requires_grad and out._version == 0
        assert out.untyped_storage().nbytes() == want.untyped_storage().nbytes() and not out.is_inference()
        out.resize_(7).zero_()
    with torch.inference_mode():
        assert call()[0].is_inference()


def test_layouts_that_fake_tensors_did_not_foresee():
    def surprising(a):
        return a.t().contiguous().t()

    steps = [ExternCall(surprising, (BufferRef("a"),), {}, ("b",)), KernelCall("twice4", ("b", "o"), ("o",))]
    call, wrapper = build(program("a", steps, ["o"], [spec(n, 2, 2) for n in "abo"]))
    a = torch.randn(2, 2)
    assert torch.equal(call(a)[0], a * 2)


def test_dtypes_that_fake_tensors_did_not_foresee():
    steps = [ExternCall(torch.Tensor.double, (BufferRef("a"),), {}, ("b",)), KernelCall("twice4", ("b", "o"), ("o",))]
    call, wrapper = build(program("a", steps, ["o"], [spec(n, 2, 2) for n in "abo"]))
    a = torch.randn(2, 2)
    assert torch.equal(call(a)[0], a * 2)


def test_strides_are_compared_where_they_matter():
    t = torch.empty_strided((2, 1, 3), (3, 7, 1))
    assert _runtime.has_strides(t, (3, 3, 1)) and not _runtime.has_strides(t, (1, 3, 2))
    assert not _runtime.has_strides(t, (3, 1)) and _runtime.has_strides(torch.empty(0, 3), (9, 9))
    assert _runtime.has_strides(torch.empty(2, dtype=torch.uint16), (1,))
    with pytest.raises(TypeError):
        _runtime.has_strides(t)


def test_several_results_and_names_that_are_keywords():
    steps = [
        ExternCall(aten.max.dim, (BufferRef("class"), 0), {"keepdim": True}, ("values", None), unpack=True),
        ExternCall(aten.unbind.int, (BufferRef("values"),), {}, ("row",), unpack=True),
        ExternCall(aten.sin.default, (BufferRef("row"),), {}, ("sin",)),
    ]
    p = program(["class"], steps, ["sin"], [spec("class", 3, 4), spec("values", 1, 4), spec("row", 4), spec("sin", 4)])
    call, wrapper = build(p)
    x = torch.randn(3, 4)
    assert torch.equal(call(x)[0], x.max(0).values.sin())


def test_scopes():
    p = program("a", [ExternCall(aten.mm.default, (BufferRef("a"), BufferRef("a")), {}, ("o",))], ["o"],
                [spec(n, 2, 2) for n in "ao"])
    a = torch.randn(2, 2, requires_grad=True)
    assert not build(p, no_grad=True)[0](a)[0].requires_grad
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert build(p, no_autocast=True, no_grad=True)[0](a)[0].dtype == torch.float32
    assert build(p, inference=True)[0](a)[0].is_inference()


def test_many_tensors_and_large_work():
    count = 100
    steps = [KernelCall("twice4", (f"a{i}", f"o{i}"), (f"o{i}",), work=10**6) for i in range(count)]
    specs = [spec(f"{n}{i}", 4) for n in "ao" for i in range(count)]
    call, wrapper = build(program([f"a{i}" for i in range(count)], steps, [f"o{i}" for i in range(count)], specs))
    assert wrapper.entry_specs[0].release_gil and wrapper.entry_specs[0].tensors == count
    inputs = [torch.randn(4) for _ in range(count)]
    assert all(torch.equal(o, 2 * a) for o, a in zip(call(*inputs), inputs))


def test_nothing_keeps_tensors_alive():
    p = program("ab", [KernelCall("add4", ("a", "b", "o"), ("o",))], ["o"], [spec(n, 4) for n in "abo"])
    call, _ = build(p)
    a, b = torch.randn(4), torch.randn(4)
    (o,) = call(a, b)
    refs = [weakref.ref(t) for t in (a, b, o)]
    del a, b, o
    gc.collect()
    assert not any(r() is not None for r in refs)


def test_entries_check_their_arguments():
    p = program("ab", [KernelCall("add4", ("a", "b", "o"), ("o",))], ["o"], [spec(n, 4) for n in "abo"])
    _, wrapper = build(p)
    library = _runtime.load(str(codecache.shared_library(p.source + wrapper.entries)))
    entry = _runtime.entry(library, "run0", 3, 0, (), False)
    with pytest.raises(TypeError, match="3 tensors"):
        entry(torch.ones(4))
    with pytest.raises(AttributeError):
        entry(1, 2, 3)
    with pytest.raises(OSError, match="nosuch"):
        _runtime.entry(library, "nosuch", 1, 0, (), False)
    with pytest.raises(OSError):
        _runtime.load("/nosuch/file.so")


def test_pointers_of_every_kind_of_tensor():
    base = torch.randn(8)
    tensors = [base, base[3:], torch.nn.Parameter(base), base.view(2, 4).t(), torch.ones(3, dtype=torch.bool),
               torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.complex64), torch.tensor(1.0),
               torch.empty(0), torch.ones(2, dtype=torch.uint16), torch.ones(2).requires_grad_()]
    for t in tensors:
        assert _runtime.data_pointer(t) == t.data_ptr(), t


def test_a_program_that_breaks_its_rules_is_refused():
    specs = [spec(n, 4) for n in "abo"]
    with pytest.raises(AssertionError, match="before it is made"):
        program("a", [KernelCall("add4", ("a", "b", "o"), ("o",))], ["o"], specs)
    with pytest.raises(AssertionError, match="made twice"):
        program("ab", [KernelCall("add4", ("a", "b", "o"), ("o",))] * 2, ["o"], specs)
    with pytest.raises(AssertionError, match="never made"):
        program("ab", [], ["o"], specs)
