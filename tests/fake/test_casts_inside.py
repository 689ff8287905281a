"""Under autocast, what an operation's own kernel calls is cast: dtypes while tracing and results are eager's, with
gradients or without."""
import contextlib
import itertools
import sys
import types

import pytest
import thorough
import torch
import torch.utils._pytree as pytree
from torch import nn

import dynamo_lite
from dynamo_lite import log
from dynamo_lite.backends.aot.functional import CannotFunctionalize
from dynamo_lite.backends.aot.record import record
from dynamo_lite.fake.mode import TraceFakeMode
from dynamo_lite.runtime import casts_inside

if "expecttest" not in sys.modules:
    # torch's test helpers import it for what is not used here.
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=object, assert_expected_inline=None)
op_db = pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db

MODES = {"grad": contextlib.nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode}
CELL, LAYER = nn.RNNCell(12, 12), nn.TransformerEncoderLayer(12, 2, 24, batch_first=True).eval()
FUNCTIONS = {
    "cell": CELL, "tensordot": lambda x: torch.tensordot(x, x.t(), 1),
    "matrix_power": lambda x: torch.linalg.matrix_power(x @ x.t(), 3),
    "multi_dot": lambda x: torch.linalg.multi_dot([x, x.t(), x]), "bilinear": lambda x: nn.functional.bilinear(
        x, x, torch.ones(2, 12, 12)), "cdist": lambda x: torch.cdist(x, x),
    "einsum": lambda x: torch.einsum("ij,kj", x, x),
    "norm": lambda x: torch.nn.functional.normalize(x @ x.t()), "sum": lambda x: (x @ x.t()).sum() + x.sum(),
}
OPAQUE = {"layer": lambda x: LAYER(x[None]), "pinv": lambda x: torch.linalg.pinv(x)}


def cases():
    """Each function in each mode; with the context inside or around, and with either backend, by turns."""
    for turn, (name, mode) in enumerate(itertools.product([*FUNCTIONS, *OPAQUE], MODES)):
        for inside in thorough.share((False, True), turn):
            for kernels in thorough.share((False, True), turn // 2):
                yield name, mode, inside, kernels


@pytest.mark.parametrize("name, mode, inside, kernels", cases())
def test_dtypes_are_eagers(name, mode, inside, kernels):
    function = (FUNCTIONS | OPAQUE)[name]

    def fn(x):
        before = x @ x.t()
        with torch.autocast("cpu", torch.bfloat16) if inside else contextlib.nullcontext():
            y = function(x)
            z = y * 2 if y.dtype is torch.bfloat16 else y * 3
        return before, y, z, str(y.dtype), x @ x.t()

    dynamo_lite.reset()
    log.reset_counters()
    with_kernels = "inductor_lite" if mode == "no_grad" else "aot_eager"
    compiled = dynamo_lite.compile(fn, backend=with_kernels if kernels else "eager")
    with MODES[mode](), torch.autocast("cpu", torch.bfloat16, enabled=not inside):
        for n in (3, 4, 5):
            x = torch.randn(n, 12)
            want, got = fn(x), compiled(x)
            assert got[3] == want[3]
            for a, b in zip(want, got):
                if isinstance(a, torch.Tensor):
                    assert (b.dtype, b.stride(), b.requires_grad) == (a.dtype, a.stride(), a.requires_grad)
                    torch.testing.assert_close(b, a, rtol=0.1, atol=0.1)
    # The layer's whole operation is taken where no gradients are wanted.
    whole = name in OPAQUE and (name != "layer" or mode != "grad")
    assert bool(log.counters().get("graph_breaks")) == whole


def _tensors(value):
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


OPERATORS = [op for op in op_db if torch.float32 in op.supported_dtypes("cpu") and "jiterator" not in op.name]


def test_operators_of_op_db_have_eagers_dtypes():
    """As a graph of its own each; without data, as only metadata matters: the fake mode's."""
    wrong = []
    for op in thorough.share(OPERATORS, 0, 18):
        with torch.inference_mode():
            sample = next(iter(op.sample_inputs("cpu", torch.float32)), None)
            if sample is None or any(t.layout is not torch.strided for t in _tensors((sample.input, sample.args))):
                continue

            def fn(sample=sample, op=op):
                found = op.op(sample.input, *sample.args, **sample.kwargs)
                return [str(t.dtype) for t in _tensors(found)]

            with torch.autocast("cpu", torch.bfloat16):
                dynamo_lite.reset()
                try:
                    want = fn()
                except (RuntimeError, NotImplementedError):
                    continue
                got = dynamo_lite.compile(fn, backend="eager")()
            if got != want:
                wrong.append((op.name, op.variant_test_name, want, got))
    assert not wrong, wrong


def test_the_state_is_as_before():
    keys = (torch._C.DispatchKey.AutocastCPU,)
    assert casts_inside.keys() == ()
    with torch.autocast("cpu", torch.bfloat16):
        assert casts_inside.keys() == keys
        with torch.autocast("cpu", enabled=False), casts_inside.on(keys):
            assert torch.is_autocast_enabled("cpu")
        assert torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("cpu")


def test_a_recorder_that_is_given_such_an_operation_refuses_it():
    graph = torch.fx.Graph()
    graph.output((graph.call_function(torch.linalg.pinv, (graph.placeholder("x"),)),))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), pytest.raises(CannotFunctionalize, match="autocast"):
        record(torch.fx.GraphModule({}, graph), [TraceFakeMode().from_tensor(torch.ones(3, 3))], {})
