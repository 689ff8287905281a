"""Graphs that take part in autograd: gradients, saved tensors, aliases, effects as in eager."""
import copy
import gc
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dynamo_lite


def run(fn, inputs, seed=3):
    torch.manual_seed(seed)
    results = fn(*inputs)
    results = results if isinstance(results, (tuple, list)) else (results,)
    heads = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    generator = torch.Generator().manual_seed(0)
    tangents = [torch.randn(r.shape, generator=generator, dtype=r.dtype) for r in heads]
    if heads:
        torch.autograd.backward(heads, tangents)
    return results, [x.grad if isinstance(x, torch.Tensor) else None for x in inputs]


def twins(inputs):
    return [x.detach().clone(memory_format=torch.preserve_format).requires_grad_(x.requires_grad)
            if isinstance(x, torch.Tensor) else x for x in inputs]


def check(fn, *inputs, rtol=1e-5, atol=1e-5, compiled=True):
    """Asserts that results and gradients equal eager's; ``compiled`` says whether no part may run in eager."""
    dynamo_lite.reset()
    theirs, ours = twins(inputs), twins(inputs)
    want, want_grads = run(fn, theirs)
    c = dynamo_lite.compile(fn)
    got, got_grads = run(c, ours)
    assert len(want) == len(got)
    for p, q in zip([*want, *want_grads, *theirs], [*got, *got_grads, *ours]):
        assert (p is None) == (q is None)
        if isinstance(p, torch.Tensor):
            assert p.dtype == q.dtype and p.shape == q.shape and p.stride() == q.stride()
            assert p.requires_grad == q.requires_grad and p.is_leaf == q.is_leaf
            torch.testing.assert_close(q, p, rtol=rtol, atol=atol, equal_nan=True)
    if compiled:
        assert not eager_runs(), eager_runs()
    return c


def eager_runs():
    return {k: v for k, v in dynamo_lite.metrics()["fallbacks"].items() if v}


def leaf(*shape, **kw):
    return torch.randn(*shape, **kw).requires_grad_()


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    dynamo_lite.reset()
    yield


CASES = {
    "pointwise": lambda x, y: torch.sin(x) * y + x,
    "matmul": lambda x, y: (x @ y.t()).relu(),
    "several results": lambda x, y: (x * y, x + 1, x.sum()),
    "same result twice": lambda x, y: (lambda z: (z, z))(x * y),
    "an input as a result": lambda x, y: (x, x * y),
    "views of an input": lambda x, y: (x.t(), x[1:], (x * y).sum()),
    "views of a result": lambda x, y: (lambda z: (z, z.t(), z[0]))(x * y),
    "detached": lambda x, y: ((x * y).detach(), x * 2, x.detach()),
    "detached result": lambda x, y: (lambda z: (z, z.detach()))(x * y),
    "unused input": lambda x, y: x.exp(),
    "integers": lambda x, y: (x.argmax(-1), x * y, (x > 0)),
    "softmax": lambda x, y: torch.softmax(x, -1) * torch.log_softmax(y, 0),
    "in place": lambda x, y: (x * 2).add_(y).mul_(y).relu_(),
    "in place through a view": lambda x, y: (lambda z: (z[0].mul_(3), z)[1])(x * y),
    "reductions": lambda x, y: (x.mean(0), y.var(1), x.amax(1), x.std(), (x * y).norm()),
    "indexing": lambda x, y: (x[torch.tensor([0, 2, 2])], torch.cat([x, y]), torch.stack([x, y])[0]),
    "scalars": lambda x, y: (x.sum() * y).sum(),
    "layer_norm": lambda x, y: F.layer_norm(x, (5,), y[0], y[1]),
    "expand": lambda x, y: x[0].expand(4, 5) * y,
    "where": lambda x, y: torch.where(x > 0, x, y * 2),
    "dropout": lambda x, y: F.dropout(x * y, 0.3) + F.dropout(x, 0.5),
    "chunks": lambda x, y: [a * 2 for a in x.split(2)],
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_eager(name):
    check(CASES[name], leaf(4, 5), leaf(4, 5))


@pytest.mark.parametrize("name", ["pointwise", "matmul", "several results", "views of an input", "where"])
def test_one_input_needs_no_gradient(name):
    check(CASES[name], leaf(4, 5), torch.randn(4, 5))
    check(CASES[name], torch.randn(4, 5), leaf(4, 5))


def test_no_grad_inside():
    def f(x, y):
        with torch.no_grad():
            z = x * 2
        return z * y, z

    check(f, leaf(3), leaf(3))


def test_inputs_that_are_written():
    def f(x, buffer):
        buffer.mul_(0.9).add_(x.detach().mean())
        return x * buffer.clone()

    check(f, leaf(3), torch.ones(3))


def test_inputs_written_under_autograd():
    def f(x, y):
        x.mul_(y)
        return x + 1

    check(f, torch.randn(3), leaf(3))


def test_non_leaf_inputs_and_layouts():
    w = leaf(5, 4)
    other = w.detach().clone().requires_grad_()

    def f(x):
        return x * 2 + x.sum()

    c = dynamo_lite.compile(f)
    for fn, p in ((f, w), (c, other)):
        fn((p * 3).t()).t().contiguous().view(-1)[::2].sum().backward()
    torch.testing.assert_close(w.grad, other.grad)
    assert not eager_runs()


def test_gradient_that_comes_in_expanded_or_not_at_all():
    def f(x, y):
        return x * y, (x - y).exp()

    c = dynamo_lite.compile(f)
    for choose in (lambda a, b: a.sum(), lambda a, b: b.sum(), lambda a, b: (a + b).mean(), lambda a, b: (a * b).sum()):
        grads = []
        for fn in (f, c):
            torch.manual_seed(1)
            x, y = leaf(3, 4), leaf(3, 4)
            choose(*fn(x, y)).backward()
            grads.append((x.grad, y.grad))
        for p, q in zip(*grads):
            torch.testing.assert_close(p, q)
    assert not eager_runs()


def test_a_result_that_gets_no_gradient_sends_none():
    def f(x):
        return x.sqrt(), x * 2

    c = dynamo_lite.compile(f)
    x = torch.zeros(3, requires_grad=True)
    c(x)[1].sum().backward()
    # Zeros sent into sqrt's gradient would give nan.
    assert torch.equal(x.grad, torch.full((3,), 2.0))


def test_accumulation_hooks_and_retain_graph():
    calls = []
    grads = []
    for fn in (lambda x: (x * x).exp(), dynamo_lite.compile(lambda x: (x * x).exp())):
        torch.manual_seed(0)
        x = leaf(4)
        x.register_hook(lambda g: calls.append(g.clone()))
        out = fn(x)
        out.register_hook(lambda g: g * 2)
        out.sum().backward(retain_graph=True)
        out.sum().backward()
        fn(x).sum().backward()
        grads.append(x.grad)
        with pytest.raises(RuntimeError, match="second time"):
            out.sum().backward()
    torch.testing.assert_close(*grads)
    for p, q in zip(calls[:3], calls[3:]):
        torch.testing.assert_close(p, q)


def test_a_saved_input_that_is_written_is_reported():
    c = dynamo_lite.compile(lambda x, w: x * w)
    x, w = torch.randn(3), leaf(3)
    out = c(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_an_input_that_eager_does_not_save_may_be_written():
    def f(x, w):
        return torch.exp(x * 1.0 + w)

    grads = []
    for fn in (f, dynamo_lite.compile(f)):
        torch.manual_seed(0)
        x, w = torch.randn(3), leaf(3)
        out = fn(x, w)
        x.add_(1)
        out.sum().backward()
        grads.append(w.grad)
    torch.testing.assert_close(*grads)


def test_results_may_be_written():
    def f(x):
        return x.sin() + 1, (x * 2).view(-1)

    grads = []
    for fn in (f, dynamo_lite.compile(f)):
        torch.manual_seed(0)
        x = leaf(2, 3)
        a, b = fn(x)
        a += 1
        b.mul_(3)
        (a.sum() + b.sum()).backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


def test_memory_goes_with_the_graph():
    c = dynamo_lite.compile(lambda x: (x.exp() @ x).tanh())
    x = leaf(8, 8)
    out = c(x)
    node = weakref.ref(out.grad_fn)
    out.sum().backward()
    with pytest.raises(RuntimeError, match="freed|second time"):
        out.grad_fn.saved_tensors
    del out
    gc.collect()
    assert node() is None


def saved_bytes(fn, inputs):
    sizes = {}

    def pack(t):
        sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        kept = fn(*inputs)
    del kept
    return sum(sizes.values())


def test_no_more_is_saved_than_in_eager():
    block = nn.Sequential(
        nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8), nn.Softmax(-1))
    x = torch.randn(16, 32)
    theirs = saved_bytes(block, (x,))
    c = dynamo_lite.compile(block)
    c(x)  # compiled before, as the tracing itself saves too
    assert 0 < saved_bytes(c, (x,)) <= theirs
    assert not eager_runs()


def test_threads():
    c = dynamo_lite.compile(lambda x: (x.sin() * x).cumsum(0))
    wrong = []

    def work(seed):
        for i in range(5):
            x = torch.randn(16, generator=torch.Generator().manual_seed(seed + i)).requires_grad_()
            y = x.detach().clone().requires_grad_()
            c(x).sum().backward()
            (y.sin() * y).cumsum(0).sum().backward()
            if not torch.allclose(x.grad, y.grad, atol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def train(model, inputs, make_optimizer, steps=3, **call):
    opt = make_optimizer(model.parameters())
    losses = []
    for step in range(steps):
        torch.manual_seed(step)
        opt.zero_grad()
        loss = call.get("loss", lambda out: out.square().mean())(call.get("fn", model)(*inputs))
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, [p.detach() for p in [*model.parameters(), *model.buffers()]]


@pytest.mark.parametrize("optimizer", [lambda p: torch.optim.AdamW(p, lr=1e-3), lambda p: torch.optim.SGD(p, 0.1, 0.9)])
def test_training_of_a_convolution_network(optimizer):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2),
        nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    other = copy.deepcopy(model)
    x = torch.randn(4, 3, 16, 16)
    want, state = train(model, (x,), optimizer)
    got, mine = train(other, (x,), optimizer, fn=dynamo_lite.compile(other))
    assert want == pytest.approx(got, rel=1e-4)
    for p, q in zip(state, mine):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)
    assert not eager_runs()


def test_autocast_and_grad_scaler():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    other = copy.deepcopy(model)
    x = torch.randn(4, 8)
    states = []
    for m, fn in ((model, model), (other, dynamo_lite.compile(other))):
        opt = torch.optim.SGD(m.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for _ in range(2):
            opt.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = fn(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        states.append([p.detach() for p in m.parameters()])
    for p, q in zip(*states):
        torch.testing.assert_close(p, q, rtol=2e-2, atol=1e-2)
    assert not eager_runs()


def test_bfloat16():
    check(lambda x, w: F.layer_norm(F.gelu(x @ w), (8,)).sum(0), leaf(4, 6, dtype=torch.bfloat16),
          leaf(6, 8, dtype=torch.bfloat16), rtol=5e-2, atol=5e-2)


def test_a_new_leaf_runs_in_eager():
    def f(x):
        z = (x.detach() * 2).requires_grad_()
        return z, x * 1

    check(f, leaf(3), compiled=False)


@pytest.mark.parametrize("inputs", [torch.randn(3), torch.randn(3).requires_grad_()])
def test_a_new_leaf_that_stays_inside_runs_in_eager(inputs):
    def made(x):
        return x * torch.ones(3, requires_grad=True) * 2

    def marked(x):
        return (x * 2).detach().requires_grad_() * 2

    check(made, inputs, compiled=False)
    check(marked, inputs, compiled=False)


def bert(transformers):
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                                     vocab_size=100)
    ids = torch.randint(0, 100, (2, 8))
    return transformers.BertForMaskedLM(config), {"input_ids": ids, "labels": ids}


def gpt2(transformers):
    ids = torch.randint(0, 100, (2, 8))
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100)
    return transformers.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}


def resnet(transformers):
    config = transformers.ResNetConfig(layer_type="basic", depths=[1, 1], hidden_sizes=[8, 16], embedding_size=8,
                                       num_labels=4, problem_type="single_label_classification")
    inputs = {"pixel_values": torch.randn(4, 3, 32, 32), "labels": torch.randint(0, 4, (4,))}
    return transformers.ResNetForImageClassification(config), inputs


@pytest.mark.parametrize("build", [bert, gpt2, resnet])
def test_training_of_models(build):
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    model, inputs = build(transformers)
    other = copy.deepcopy(model.train())
    results = []
    for m, fn in ((model, model), (other, dynamo_lite.compile(other))):
        opt = torch.optim.AdamW(m.parameters(), lr=1e-3, eps=1e-4)
        losses = []
        for step in range(3):
            torch.manual_seed(step)
            opt.zero_grad()
            loss = fn(**inputs).loss
            loss.backward()
            opt.step()
            losses.append(loss.item())
        results.append((losses, [t.detach() for t in (*m.parameters(), *m.buffers())], torch.rand(1)))
    (want, state, drawn), (got, mine, drawn_too) = results
    assert want == pytest.approx(got, rel=1e-5) and torch.equal(drawn, drawn_too)
    for p, q in zip(state, mine):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)


def test_a_recurrent_network():
    model = nn.LSTM(4, 6, batch_first=True)

    def f(x, *weights):
        return torch.func.functional_call(model, dict(zip(dict(model.named_parameters()), weights)), (x,))[0]

    check(f, leaf(2, 5, 4), *[p.detach().clone().requires_grad_() for p in model.parameters()], compiled=False)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, 0.9),
    "sgd, lists": lambda p: torch.optim.SGD(p, 0.1, 0.9, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2),
    "adamw, lists": lambda p: torch.optim.AdamW(p, 1e-2, foreach=True),
    "rmsprop, lists": lambda p: torch.optim.RMSprop(p, 1e-2, foreach=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_optimizer_steps(name):
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    other = copy.deepcopy(model)
    theirs, ours = OPTIMIZERS[name](model.parameters()), OPTIMIZERS[name](other.parameters())
    compiled_step = dynamo_lite.compile(ours.step)
    for _ in range(4):
        x = torch.randn(4, 8)
        for m, step in ((model, theirs.step), (other, compiled_step)):
            m.zero_grad()
            m(x).square().mean().backward()
            step()
    for p, q in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


MODULES = {
    "Conv1d": (lambda: nn.Conv1d(3, 4, 3), (2, 3, 9)),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), (2, 3, 5, 5)),
    "grouped Conv2d": (lambda: nn.Conv2d(4, 8, 3, groups=2, padding=1, stride=2), (2, 4, 7, 7)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(6), (5, 6)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), (4, 3, 5, 5)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(2), (3, 2, 3, 3, 3)),
    "plain BatchNorm2d": (lambda: nn.BatchNorm2d(3, affine=False, track_running_stats=False), (4, 3, 5, 5)),
    "averaging BatchNorm2d": (lambda: nn.BatchNorm2d(3, momentum=0.3), (4, 3, 5, 5)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(3, affine=True), (2, 3, 5, 5)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (2, 4, 5, 5)),
    "LayerNorm": (lambda: nn.LayerNorm((4, 5)), (3, 4, 5)),
    "RMSNorm": (lambda: nn.RMSNorm(6), (3, 6)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), (2, 4, 5, 5)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), (2, 3, 6, 6)),
    "AvgPool2d": (lambda: nn.AvgPool2d(3, 2, 1), (2, 3, 6, 6)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(3), (2, 3, 7, 7)),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(3), (2, 3, 7, 7)),
    "LPPool2d": (lambda: nn.LPPool2d(2, 2), (2, 3, 6, 6)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 4, 4)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), (2, 8, 3, 3)),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(1), (2, 3, 4, 4)),
    "ReplicationPad2d": (lambda: nn.ReplicationPad2d(1), (2, 3, 4, 4)),
    "Unfold": (lambda: nn.Unfold(2), (2, 3, 4, 4)),
    "Bilinear": (lambda: _Twice(nn.Bilinear(4, 4, 3)), (5, 4)),
    "PReLU": (lambda: nn.PReLU(3), (2, 3, 4)),
    "ELU": (nn.ELU, (3, 4)),
    "SELU": (nn.SELU, (3, 4)),
    "CELU": (nn.CELU, (3, 4)),
    "GLU": (nn.GLU, (3, 4)),
    "Hardswish": (nn.Hardswish, (3, 4)),
    "LogSigmoid": (nn.LogSigmoid, (3, 4)),
    "Mish": (nn.Mish, (3, 4)),
    "Softplus": (nn.Softplus, (3, 4)),
    "Softsign": (nn.Softsign, (3, 4)),
    "Tanhshrink": (nn.Tanhshrink, (3, 4)),
    "Softmin": (lambda: nn.Softmin(-1), (3, 4)),
    "AlphaDropout": (lambda: nn.AlphaDropout(0.3), (3, 4)),
    "Dropout2d": (lambda: nn.Dropout2d(0.3), (2, 3, 4, 4)),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "GRUCell": (lambda: nn.GRUCell(4, 4), (3, 4)),
    "LSTMCell": (lambda: nn.LSTMCell(4, 4), (3, 4)),
}


class _Twice(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x, x)


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    make, shape = MODULES[name]
    module = make().train()
    other = copy.deepcopy(module)
    x = leaf(*shape)
    y = x.detach().clone().requires_grad_()
    want, got = run(module, [x]), run(dynamo_lite.compile(other), [y])
    before = [t.grad if isinstance(t, nn.Parameter) else t for t in (*module.parameters(), *module.buffers())]
    after = [t.grad if isinstance(t, nn.Parameter) else t for t in (*other.parameters(), *other.buffers())]
    for p, q in zip([*want[0], *want[1], *before], [*got[0], *got[1], *after]):
        assert p.stride() == q.stride() and p.dtype == q.dtype
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5)
    assert not eager_runs()


@pytest.mark.parametrize("shape", [(4, 3), ()])
@pytest.mark.parametrize("factor", [1j, 2 - 0.5j])
def test_the_gradient_of_a_product_with_a_complex_number(shape, factor):
    """It asks for the number's conjugate, a view of what is no tensor: such graphs ran in eager."""
    def fn(x):
        return torch.exp(factor * x).real + (x / factor).imag

    compiled = dynamo_lite.compile(fn)
    for _ in range(2):
        x = torch.randn(shape, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        want, got = fn(x), compiled(y)
        want.sum().backward()
        got.sum().backward()
        torch.testing.assert_close((got, y.grad), (want, x.grad))
    assert not dynamo_lite.metrics()["fallbacks"]
