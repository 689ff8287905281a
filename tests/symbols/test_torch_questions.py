"""Tracing imports neither sympy nor what imports it, and whoever wants these gets the real ones."""
import textwrap

import new_process
import pytest


def run(code):
    done = new_process.run(textwrap.dedent(code), timeout=300, warnings=("ignore",))
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


MODEL = """
    import sys, torch, dynamo_lite
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    compiled, x = dynamo_lite.compile(layer), torch.randn(2, 5, 32)
"""


def test_a_first_call_does_without_sympy():
    out = run(MODEL + """
    with torch.no_grad():
        print(torch.allclose(compiled(x), layer(x), atol=1e-5))
    print("sympy" in sys.modules, "torch.fx.experimental.symbolic_shapes" in sys.modules)
    import sympy
    from torch.fx.experimental import symbolic_shapes
    print(sympy.Symbol("x") + 1, symbolic_shapes.ShapeEnv().__class__.__module__, type(sympy).__name__)
    """)
    assert out.split("\n")[:3] == ["True", "False False", "x + 1 torch.fx.experimental.symbolic_shapes module"]


@pytest.mark.parametrize("name", ["sympy", "torch.fx.experimental.symbolic_shapes"])
def test_the_real_modules_are_used_where_they_are_there(name):
    out = run(MODEL.replace("torch,", f"torch, {name},") + f"""
    before = sys.modules[{name!r}]
    with torch.no_grad():
        print(torch.allclose(compiled(x), layer(x), atol=1e-5))
    print(sys.modules[{name!r}] is before, type(before).__name__)
    """)
    assert out.split("\n")[:2] == ["True", "True module"]


def test_what_has_no_answer_is_the_real_modules():
    out = run("""
    import sys, torch
    from dynamo_lite.symbols import torch_questions
    name = "torch.fx.experimental.symbolic_shapes"
    with torch_questions.scope(symbols=False):
        import sympy as lazy
        from torch.fx.experimental.symbolic_shapes import guard_or_false
        print(isinstance(3, lazy.Basic), "sympy.core" in sys.modules)
        from torch.fx.experimental.symbolic_shapes import ShapeEnv
        print(lazy.Integer(3) + 1, isinstance(lazy.Integer(3), lazy.Basic))
    import sympy
    print(sys.modules[name].ShapeEnv is ShapeEnv, type(sys.modules[name]).__name__, lazy.Integer is sympy.Integer)
    """)
    assert out.split("\n")[:3] == ["False False", "4 True", "True module True"]


def test_answers_stay_while_the_real_module_is_imported():
    """Who goes through all modules and asks for their files imports nothing; where a question of torch's imports the
    real module, the next ones of the same operator are answered here all the same."""
    out = run("""
    import sys, torch
    from dynamo_lite.symbols import torch_questions as q
    with q.scope(symbols=True):
        print(any(hasattr(sys.modules[name], "__file__") for name in (q.NAME, "sympy", "torch.utils._sympy.functions")))
        from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols
        print(ShapeEnv.__name__, free_unbacked_symbols is q.ANSWERS["free_unbacked_symbols"])
        from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
        print(free_unbacked_symbols is q.ANSWERS["free_unbacked_symbols"])
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
    print(free_unbacked_symbols is q.ANSWERS["free_unbacked_symbols"])
    """)
    assert out.split("\n")[:4] == ["False", "ShapeEnv True", "True", "False"]
