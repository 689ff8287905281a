"""`import dynamo_lite` is cheap: what a phase needs is imported when it first runs."""
import subprocess
import sys

import new_process
import pytest

# Each takes a tenth of a second or more.
HEAVY = ["sympy", "networkx", "torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "triton",
         "matplotlib", "torch.fx.experimental.symbolic_shapes", "dynamo_lite.backends.inductor.compile"]


def run(code):
    """What the program prints; importing torch again is no news to it."""
    p = new_process.run(code)
    assert p.returncode == 0, p.stderr
    return p.stdout


def test_nothing_heavy_is_imported():
    loaded = run("import torch, sys; before = set(sys.modules); import dynamo_lite; "
                 "print(*sorted(set(sys.modules) - before))").split()
    assert not set(HEAVY) & set(loaded)
    # Others come with our own modules only if the standard library has them; and `bytecode`, 6 ms of them.
    foreign = {name.split(".")[0] for name in loaded if not name.startswith("_sysconfigdata")}
    foreign -= {"dynamo_lite", "bytecode", "torch", *sys.stdlib_module_names}
    assert not foreign


def test_competitors_stay_out_of_a_compiled_call():
    out = run("""
import sys, torch, dynamo_lite

class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)

    def forward(self, x):
        with torch.no_grad():
            y = torch.softmax(self.b(self.a(x)), -1)
        dynamo_lite.graph_break()
        return torch.nn.functional.layer_norm(y, (4,)) if y.sum() > 0 else y.reshape(-1)

m = M().eval()
f = dynamo_lite.compile(m)
# layer_norm makes the rounding of nearly equal numbers 300 times as large.
assert torch.allclose(f(torch.ones(2, 4)), m(torch.ones(2, 4)), atol=1e-4)
dynamo_lite.explain(m)(torch.ones(2, 4))
print("LOADED", [n for n in sys.modules if n.startswith(("torch._dynamo", "torch._inductor", "functorch.compile"))])
""")
    assert "LOADED []" in out


@pytest.mark.parametrize("dynamic", [None, True])
def test_heavy_packages_stay_out_of_first_calls(dynamic):
    """torch imports some on its own where its rules ask about devices and symbols."""
    out = run(f"""
import sys, torch, dynamo_lite
import torch.nn.functional as F
from torch import nn

x, w = torch.randn(8, 16), torch.randn(16, 16)
for f in (lambda x: x.clamp(-1, 1), lambda x: F.layer_norm(x, (16,)), lambda x: F.linear(x, w), lambda x: x.flatten(),
          lambda x: torch.max(x, 1), lambda x: x.masked_fill(x > 0, 1), lambda x: F.cross_entropy(x, x.argmax(1)),
          lambda x: F.interpolate(x[None, None], scale_factor=2.0, mode="bilinear"), lambda x: x.clone().add_(1),
          lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]), lambda x: x.view(-1, 4, 4).sum(1)):
    dynamo_lite.compile(f, dynamic={dynamic})(x)
m = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(3))
y = torch.randn(2, 1, 16, 16)
m(y)
F.cross_entropy(dynamo_lite.compile(m, dynamic={dynamic})(y), torch.tensor([0, 1])).backward()
print("LOADED", [n for n in {HEAVY[:6] + ["torch.distributed.tensor"]} if n in sys.modules])
""")
    assert "LOADED []" in out


def test_a_free_threaded_build_is_refused():
    code = """
import sys
sys.abiflags = "t"
try:
    import dynamo_lite
except ImportError as error:
    print(error, "torch" in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == (
        "dynamo_lite needs the global interpreter lock; free-threaded builds of Python are not supported False\n"
    )
