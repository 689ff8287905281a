"""What a program may do around a compiled forward and backward pass: hooks, several passes, threads, copies, modes."""
import copy
import io
import pickle
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dynamo_lite


class Net(nn.Module):
    def __init__(self, tied=False):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.first = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.unused = nn.Linear(3, 3)
        self.last = nn.Linear(16, 8)
        self.head = nn.Linear(8, 11, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.last(F.gelu(self.norm(self.first(x))))
        return self.head(x)


TOKENS = torch.tensor([[1, 2, 3], [4, 5, 1]])


@pytest.fixture(autouse=True)
def fresh():
    dynamo_lite.reset()
    torch.manual_seed(0)


def nets(**options):
    model = Net(**options)
    return model, copy.deepcopy(model)


def same_gradients(a, b, tolerance=1e-5):
    for (name, p), (_, q) in zip(a.named_parameters(), b.named_parameters()):
        assert (p.grad is None) == (q.grad is None), name
        if p.grad is not None:
            torch.testing.assert_close(q.grad, p.grad, rtol=tolerance, atol=tolerance)


def both(use, compile=dynamo_lite.compile, **options):
    """Runs ``use(forward, model)`` in eager and compiled; compares gradients and what it returns."""
    model, other = nets(**options)
    torch.manual_seed(1)
    want = use(model, model)
    torch.manual_seed(1)
    got = use(compile(other), other)
    if want is not None:
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    same_gradients(model, other)
    assert not dynamo_lite.metrics()["fallbacks"]


def loss_of(forward):
    return F.cross_entropy(forward(TOKENS).flatten(0, 1), TOKENS.flatten())


@pytest.mark.parametrize("tied", [False, True])
def test_unused_and_tied_parameters(tied):
    both(lambda forward, model: loss_of(forward).backward(), tied=tied)


def test_accumulation_over_batches():
    def use(forward, model):
        for _ in range(3):
            loss_of(forward).backward()

    both(use)


def test_frozen_parameters():
    def use(forward, model):
        model.first.requires_grad_(False)
        model.embed.requires_grad_(False)
        loss_of(forward).backward()

    both(use)


def test_freezing_between_calls():
    def use(forward, model):
        loss_of(forward).backward()
        model.first.requires_grad_(False)
        model.zero_grad()
        loss_of(forward).backward()
        model.first.requires_grad_(True)
        loss_of(forward).backward()

    both(use)


def test_partial_gradients():
    def use(forward, model):
        loss = loss_of(forward)
        return torch.autograd.grad(loss, [model.norm.weight, model.embed.weight])

    both(use)


def test_gradients_of_some_results_only():
    def f(x):
        return x.sin(), x.cos(), x.argmax(), (x * 2).detach()

    x = torch.randn(5, requires_grad=True)
    compiled = dynamo_lite.compile(f)
    for choose in (lambda r: r[0], lambda r: r[1], lambda r: r[0] + r[1]):
        want, = torch.autograd.grad(choose(f(x)).sum(), x)
        got, = torch.autograd.grad(choose(compiled(x)).sum(), x)
        torch.testing.assert_close(got, want)
    assert not compiled(x)[2].requires_grad and not compiled(x)[3].requires_grad


def test_backward_twice():
    def use(forward, model):
        loss = loss_of(forward)
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time|freed"):
            loss.backward()

    both(use)


def test_double_backward_that_is_not_to_be_had_is_refused_in_words():
    x, bias = torch.randn(3, requires_grad=True), torch.randn(3)
    y = dynamo_lite.compile(lambda x, bias: (x ** 3 + bias).exp()[0])(x, bias)
    bias.add_(1)
    grad, = torch.autograd.grad(y, x, create_graph=True)
    with pytest.raises(RuntimeError, match="compiled"):
        grad.sum().backward()


def test_hooks():
    def use(forward, model):
        seen = []
        handles = [
            model.first.weight.register_hook(lambda g: seen.append(g.sum()) or g * 2),
            model.last.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum())),
        ]
        out = forward(TOKENS)
        out.register_hook(lambda g: g * 3)
        out.retain_grad()
        out.square().mean().backward()
        seen.append(out.grad)
        for handle in handles:
            handle.remove()
        return seen

    both(use)


def test_hooks_of_modules():
    def use(forward, model):
        seen = []
        handles = [
            model.norm.register_forward_hook(lambda m, args, out: out * 2),
            model.last.register_forward_pre_hook(lambda m, args: (args[0] + 1,)),
        ]
        out = forward(TOKENS)
        seen.append(out.detach())
        out.sum().backward()
        for handle in handles:
            handle.remove()
        return seen

    both(use)


def test_full_backward_hooks():
    model, other = nets()
    results = []
    for m, forward in ((model, model), (other, dynamo_lite.compile(other))):
        seen = []
        m.norm.register_full_backward_hook(lambda module, inputs, outputs, seen=seen: seen.append(outputs[0].sum()))
        forward(TOKENS).sum().backward()
        results.append(seen)
    torch.testing.assert_close(*results)
    same_gradients(model, other)


def test_gradient_of_an_input_that_is_computed():
    w, v = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    f = lambda x: (x.exp() * x).cumsum(0)
    compiled = dynamo_lite.compile(f)
    torch.autograd.backward(f(w * 2).sum())
    v.data.copy_(w.data)
    compiled(v * 2).sum().backward()
    torch.testing.assert_close(v.grad, w.grad)


def test_saved_tensors_hooks():
    packed = []

    def use(forward, model):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t.clone(), lambda t: t):
            loss = loss_of(forward)
        loss.backward()

    both(use)
    assert packed


def test_saved_input_that_is_written_later_is_reported():
    x, y = torch.randn(3, requires_grad=True), torch.randn(3)
    out = dynamo_lite.compile(lambda x, y: (x * y).sum())(x, y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_backward_in_another_thread():
    def use(forward, model):
        loss = loss_of(forward)
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()

    both(use)


def test_forward_and_backward_in_several_threads():
    model = Net()
    compiled = dynamo_lite.compile(lambda m, tokens: m(tokens).square().sum())
    copies = [copy.deepcopy(model) for _ in range(4)]

    def run(m):
        for _ in range(3):
            compiled(m, TOKENS).backward()

    threads = [threading.Thread(target=run, args=(m,)) for m in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(3):
        model(TOKENS).square().sum().backward()
    for m in copies:
        same_gradients(model, m, 1e-4)


def test_copies_of_a_compiled_module():
    model, other = nets()
    compiled = dynamo_lite.compile(other)
    loss_of(compiled).backward()
    for made in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        made.zero_grad()
        loss_of(made).backward()
        model.zero_grad()
        loss_of(model).backward()
        same_gradients(model, made)


def test_state_dict_of_a_compiled_module():
    model, other = nets()
    compiled = dynamo_lite.compile(other)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    compiled.load_state_dict(torch.load(file))
    loss_of(model).backward()
    loss_of(compiled).backward()
    same_gradients(model, other)


def test_parameters_that_are_replaced():
    def use(forward, model):
        loss_of(forward).backward()
        model.first.weight = nn.Parameter(torch.ones(16, 8))
        loss_of(forward).backward()

    both(use)


def test_training_and_evaluation_take_turns():
    def use(forward, model):
        results = []
        for train in (True, False, True):
            model.train(train)
            loss = loss_of(forward)
            if train:
                loss.backward()
            else:
                with torch.no_grad():
                    results.append(loss_of(forward))
        return results

    both(use)


def test_autocast():
    model, other = nets()
    compiled = dynamo_lite.compile(other)
    for m, forward in ((model, model), (other, compiled)):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(forward)
        loss.backward()
    same_gradients(model, other, 3e-2)
    # The casts are no part of what the next call without autocast computes.
    model.zero_grad()
    other.zero_grad()
    loss_of(model).backward()
    loss_of(compiled).backward()
    same_gradients(model, other)


def test_anomaly_detection():
    def use(forward, model):
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            loss_of(forward).backward()

    both(use)


def test_gradients_that_are_none_for_some_inputs():
    def f(x, y, z):
        return x * 2, y.detach() * z

    inputs = [torch.randn(3, requires_grad=True) for _ in range(3)]
    a, b = dynamo_lite.compile(f)(*inputs)
    assert torch.autograd.grad(a.sum(), inputs, allow_unused=True, retain_graph=True)[1:] == (None, None)
    grads = torch.autograd.grad((a + b).sum(), inputs, allow_unused=True)
    assert grads[1] is None and torch.equal(grads[2], inputs[1].detach())


def test_version_counters_and_leaves():
    def f(x, buffer):
        buffer.add_(1)
        return x * buffer

    x, buffer = torch.randn(3, requires_grad=True), torch.zeros(3)
    compiled = dynamo_lite.compile(f)
    out = compiled(x, buffer)
    assert buffer._version == 1 and not out.is_leaf and out.grad_fn is not None
    out.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(3))


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_optimizer_in_the_backward_pass(name):
    """A parameter is stepped as soon as its gradient is there."""
    results = []
    for compile in (lambda m: m, dynamo_lite.compile):
        torch.manual_seed(0)
        model = Net()
        optimizers = {p: getattr(torch.optim, name)([p], lr=0.01) for p in model.parameters()}

        def step(p, optimizers=optimizers):
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(step)
        forward = compile(model)
        for _ in range(3):
            loss_of(forward).backward()
        results.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
