"""torch's own sample inputs through kernels for GPUs, in Triton's interpreter, against eager on the CPU.

    TRITON_INTERPRET=1 python tests/backends/inductor/gpu_op_db.py [--dtype float32] [OPERATOR ...]

Without names all operators are tried. Prints how many samples are computed by kernels alone and which are wrong; exits
with 1 if any is.
"""
import argparse
import sys
import time
import types
import warnings

import torch
import torch.utils._pytree as pytree
from gpu_programs import Gpu

from dynamo_lite.backends.aot.decompositions import FOR_KERNELS
from dynamo_lite.backends.aot.record import record
from dynamo_lite.fake.mode import TraceFakeMode

sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=object, assert_expected_inline=None))
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402  (needs the line above)

RANDOM = ("empty", "rand", "bernoulli", "cauchy", "exponential", "geometric", "normal", "uniform", "multinomial",
          "dropout", "rrelu", "fractional", "lowrank", "jiterator")
TOLERANCES = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}


def outcome(op, sample, dtype) -> str:
    """"kernels" if kernels alone compute it as eager does, "library" if others take part, "wrong: ..." otherwise."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    mode, gm = TraceFakeMode(), torch.fx.GraphModule({}, torch.fx.Graph())

    def run(*given):
        full = list(leaves)
        for at, value in zip(places, given):
            full[at] = value
        first, args, kwargs = pytree.tree_unflatten(full, spec)
        return tuple(x for x in pytree.tree_leaves(op.op(first, *args, **kwargs)) if isinstance(x, torch.Tensor))

    inputs = [gm.graph.placeholder(f"x{at}") for at in places]
    call = gm.graph.call_function(run, tuple(inputs))
    gm.graph.output(call)
    gm.recompile()
    gm.meta["fake_mode"] = mode
    tensors = [leaves[at].detach() for at in places]
    try:
        want = run(*(t.clone() for t in tensors))
        aten = record(gm, [mode.from_tensor(t) for t in tensors], FOR_KERNELS)
    except Exception:
        return "library"  # eager's, or the recorder's affair
    gpu = Gpu()
    gpu.mode = mode
    try:
        function, _ = gpu._build(aten, {})
        if gpu.artifacts[0].library_calls or not gpu.artifacts[0].source:
            return "library"
        got = function(*(t.clone() for t in tensors))
        for a, b in zip(got, want):
            assert a.dtype is b.dtype and a.stride() == b.stride() or not a.numel()
            tolerance = TOLERANCES.get(dtype, 1e-4)
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    except Exception as e:
        return f"wrong: {type(e).__name__}: {' '.join(str(e).split())[:160]}"
    return "kernels"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    counts = {"kernels": 0, "library": 0, "wrong": 0}
    end = time.monotonic() + options.seconds
    done = 0
    for op in op_db:
        named = not options.names or op.name in options.names
        if not named or dtype not in op.supported_dtypes("cpu") or any(word in op.name for word in RANDOM):
            continue
        if time.monotonic() > end:
            print(f"time is over before {op.name}")
            break
        samples = list(op.sample_inputs("cpu", dtype))
        done += 1
        for sample in samples[:: max(1, len(samples) // options.samples)][: options.samples]:
            with torch.no_grad():
                found = outcome(op, sample, dtype)
            counts[found.partition(":")[0]] += 1
            if found.startswith("wrong"):
                print(f"{op.name} {op.variant_test_name}: {found}", flush=True)
    print(f"{done} operators, {options.dtype}: {counts['kernels']} samples by kernels alone, "
          f"{counts['library']} with library calls, {counts['wrong']} wrong")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
