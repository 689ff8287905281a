"""Modules with all that hangs on them, and the forms in which torch is used."""
from __future__ import annotations

import math

import new_process
import pytest
import torch
import torch.nn.functional as F
from language_support import Programs
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

program = Programs()
torch.manual_seed(0)


# ---------------------------------------------------------------- modules
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])
        self.table = nn.ModuleDict({"a": nn.Tanh(), "b": nn.Sigmoid()})
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(4)), nn.Parameter(torch.full((4,), 2.0))])
        self.named = nn.ParameterDict({"k": nn.Parameter(torch.ones(4))})
        self.register_buffer("scale", torch.full((4,), 0.5))
        self.seq = nn.Sequential(nn.Linear(4, 4), nn.GELU())

    def forward(self, x, which="a"):
        x = self.first(x)
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
        x = self.table[which](x)
        for w in self.weights:
            x = x * w
        x = x * self.named["k"] + self.scale
        return self.seq(x)


NET = Net()


@program
def module_containers(x):
    return NET(x), NET(x, which="b"), len(NET.layers), list(NET.table), NET.seq[0](torch.ones(1,
        4)), NET.layers[-1] is NET.layers[1]


@program
def module_iteration(x):
    names = [n for n, _ in NET.named_parameters()]
    total = sum(p.sum() for p in NET.parameters())
    kinds = [type(m).__name__ for m in NET.modules()]
    return x + total, names, kinds, [n for n, _ in NET.named_children()], [n for n,
        _ in NET.named_modules()][:3], [n for n,
        _ in NET.named_buffers()], sum(p.numel() for p in NET.parameters()), list(NET.state_dict())[:2]


@program
def module_attributes(x):
    return x + NET.scale.sum(), NET.training, NET.first.weight.shape, NET.first.in_features, isinstance(NET,
        nn.Module), hasattr(NET, "nothing"), getattr(NET, "nothing",
        1), NET.get_submodule("seq.0").out_features, "scale" in NET._buffers, NET.first.bias is None


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.inner.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
        self.inner.register_forward_hook(lambda m, args, out: out + 1)
        self.inner.register_forward_hook(lambda m, args, kwargs, out: out * (1 + len(kwargs)), with_kwargs=True)

    def forward(self, x):
        return self.inner(x)


HOOKED = Hooked()


@program
def module_hooks(x):
    return HOOKED(x)


SEEN: list = []


class Recording(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.ReLU()
        self.inner.register_forward_hook(self.note)

    def note(self, module, args, out):
        SEEN.append(tuple(out.shape))

    def forward(self, x):
        return self.inner(x - 2)


RECORDING = Recording()


@program.breaks("recompiled, since a list grows")
def module_hook_with_effects(x):
    before = len(SEEN)
    y = RECORDING(x)
    return y, len(SEEN) - before


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.calls = 0

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def __call__(self, x, *more):
        return super().__call__(x) + len(more)

    def forward(self, x):
        self.calls += 1
        self.last = x
        return self.inner(x) * self.in_features


CUSTOM = Custom()


@program.breaks("recompiled, since a number changes")
def module_overrides(x):
    return CUSTOM(x, 1)


class Changing(nn.Module):
    def forward(self, x):
        self.extra = nn.Identity()
        self.register_buffer("buf", x * 2, persistent=False)
        self.flag = True
        return self.extra(x) + self.buf


@program
def module_made_and_changed(x):
    m = Changing()
    return m(x), m.flag, len(list(m.children())), m.buf


@program.breaks("rng_state")
def module_constructed(x):
    torch.manual_seed(1)
    m = nn.Linear(3, 2)
    return m(x)


BN = nn.BatchNorm1d(3)


@program
def batch_norm_training(x):
    BN.train()
    BN.reset_running_stats()
    y = BN(x)
    return y, BN.running_mean.clone(), BN.running_var.clone(), BN.num_batches_tracked.clone()


@program
def batch_norm_eval(x):
    BN.eval()
    return BN(x)


LAZY = nn.LazyLinear(4)


@program
def lazy_module(x):
    return LAZY(x).shape


WEIGHT_NORM = parametrizations.weight_norm(nn.Linear(3, 2))
SPECTRAL = parametrizations.spectral_norm(nn.Linear(3, 2)).eval()


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


SYMMETRIC = nn.Linear(3, 3)
parametrize.register_parametrization(SYMMETRIC, "weight", Symmetric())


@program
def weight_norms(x):
    return WEIGHT_NORM(x)


@program
def spectral_norms(x):
    return SPECTRAL(x)


@program
def parametrized_module(x):
    return SYMMETRIC(x)


@program
def parametrize_cached(x):
    with parametrize.cached():
        return SYMMETRIC(x)


LSTM = nn.LSTM(3, 4, batch_first=True)
GRU_CELL = nn.GRUCell(3, 3)
MHA = nn.MultiheadAttention(3, 1, batch_first=True)
ENCODER = nn.TransformerEncoderLayer(3, 1, 6, batch_first=True, dropout=0.0)
EMBED = nn.Embedding(10, 3)


@program
def recurrent(x):
    out, (h, c) = LSTM(x.unsqueeze(0))
    return out, h, c, GRU_CELL(x)


@program
def attention(x):
    q = x.unsqueeze(0)
    return MHA(q, q, q)[0], ENCODER(q)


@program
def common_layers(x):
    v = x.reshape(1, 1, 2, 3)
    return (
        F.conv2d(v, torch.ones(1, 1, 2, 2)), F.max_pool2d(v, 2), F.layer_norm(x, (3,)), F.softmax(x, -1), F.gelu(x),
        EMBED(torch.tensor([1, 2])),
        F.pad(x, (1, 1)), F.one_hot(torch.tensor([0, 2]), 3), F.cross_entropy(x, torch.tensor([0, 1])),
        F.interpolate(v, scale_factor=2),
        F.scaled_dot_product_attention(v, v, v), F.adaptive_avg_pool2d(v, 1), F.dropout(x, 0.5, training=False),
        F.linear(x, torch.ones(2, 3)),
        F.normalize(x), F.group_norm(v, 1), F.unfold(v, 2), F.log_softmax(x, 0), F.silu(x), F.mse_loss(x, x + 1),
        F.cosine_similarity(x, x),
    )


@program
def dropout_training(x):
    return F.dropout(x, 0.5, training=True), torch.rand(2), torch.randn(2, 2), torch.randint(0, 5,
        (2,)), torch.rand_like(x), torch.bernoulli(torch.full((3,),
        0.5)), torch.randperm(4), x.clone().normal_(), nn.init.uniform_(torch.empty(2)) if False else 1


@program
def functional_modes(x):
    with torch.no_grad():
        a = x * 2
    with torch.enable_grad():
        b = (x.requires_grad, torch.is_grad_enabled())
    c = x + 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        d = x @ x.t()
    with torch.set_grad_enabled(False):
        e = torch.is_grad_enabled()
    return a, b, c, d, e


@torch.no_grad()
def graded(x):
    return x * 2, torch.is_grad_enabled()


@program
def no_grad_decorator(x):
    return graded(x), torch.is_grad_enabled()


# ---------------------------------------------------------------- tensors
@program
def indexing(x):
    i, m = torch.tensor([1, 0]), x > 2
    y = x.clone()
    y[0] = 5
    y[:, 1] += 2
    y[i, 0] = torch.tensor([7.0, 8.0])
    y[m] = 0
    y[..., -1] *= 2
    z = torch.zeros(2, 3)
    z[:] = x
    z[1:, ::2] = 9
    return (
        x[0], x[-1, 1], x[:, 1:], x[..., None], x[None], x[i], x[i, i], x[:, [0, 2]], x[i][:, i], y, z, x[0:1, ..., -1],
        x[True], x[[1]],
        x[slice(0, 1)], x[(0, 1)], x[torch.tensor(1)], x[0][1],
    )


@program
def boolean_mask(x):
    """The selection is made behind the graph."""
    y = x + 1
    return y[x > 2] * 2


@program
def inplace_and_out(x):
    y = x.clone()
    z = y.add_(1)
    y.mul_(2).sub_(1)
    y += 3
    out = torch.empty(2, 3)
    torch.add(x, 1, out=out)
    w = torch.empty(3, 2).t()
    w.copy_(x)
    v = y.view(-1)
    v[0] = 100
    return y, z is y, out, w, v, x.t().contiguous().stride()


@program
def input_mutation(x):
    x.add_(1)
    x[0, 0] = 9
    y = x.view(3, 2)
    y.mul_(2)
    return x, y


@program
def metadata(x):
    return (
        x + x.shape[0], x.size(), x.size(1), x.dim(), x.ndim, x.numel(), x.dtype, x.device, x.stride(),
        x.is_contiguous(), x.requires_grad, x.element_size(), x.is_floating_point(), x.T.shape, x.layout, x.shape[-1],
        len(x), x.is_cuda, x.nelement(), x.dtype.is_floating_point, torch.finfo(x.dtype).eps,
        torch.iinfo(torch.int8).max, x.itemsize, tuple(x.shape), x.shape == (2, 3), x.shape.numel()
    )


@program
def conversions(x):
    return (
        x.to(torch.float64), x.int(), x.long(), x.half(), x.to("cpu"), x.type(torch.int32), x.to(x), x.double().float(),
        x.bool(), x.type_as(torch.ones(1, dtype=torch.int16)), x.new_zeros(2), x.new_ones((2, 2)), x.new_full((1,), 3),
        x.new_tensor([1, 2]), x.cpu()
    )


@program
def creation(x):
    return torch.zeros(2, 3), torch.ones_like(x), torch.full((2,), 7), torch.arange(0, 6, 2), torch.linspace(0, 1,
        3), torch.eye(2), torch.tensor([[1, 2], [3,
        4.0]]), torch.tensor(3), torch.empty(0), torch.zeros(x.shape), torch.as_tensor([1.0]), torch.tril(torch.ones(3,
        3)), torch.scalar_tensor(2), torch.zeros((), dtype=torch.int64), torch.full_like(x,
        2.0), torch.tensor([True, False]), torch.complex(x, x)


@program
def shape_changes(x):
    return x.view(3, 2), x.reshape(-1), x.permute(1, 0), x.transpose(0, 1), x.unsqueeze(0).squeeze(), x.expand(2, 2,
        3), x.repeat(2, 1), torch.cat([x, x], 1), torch.stack([x, x]), x.flatten(), x.chunk(2), x.split(2,
        dim=1), torch.split(x, [1, 2], dim=1), x.unbind(0), torch.unbind(x, 1), x.narrow(1, 0, 2), x.roll(1,
        0), x.flip(0), torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"), x.unfold(1, 2, 1), torch.tile(x,
        (2,)), x.movedim(0, 1), torch.broadcast_to(x, (2, 2, 3)), x.swapaxes(0, 1), x.view(x.shape[0],
        -1), x.tensor_split(2), torch.hsplit(x, 3), x.diagonal(), x.as_strided((2,), (1,))


@program
def reductions(x):
    values, indices = x.max(dim=1)
    s = torch.sort(x, descending=True)
    return x.sum(), x.mean(0), x.std(), x.var(1,
        keepdim=True), values, indices, x.max(), x.argmax(1), x.min(dim=0).values, torch.topk(x,
        2).indices, s.values, s[1], x.cumsum(0), x.prod(), x.norm(), torch.logsumexp(x,
        0), x.any(), (x > 1).all(), torch.aminmax(x), x.amax(1), x.median(), torch.var_mean(x, 0), x.count_nonzero()


@program
def elementwise(x):
    return (
        torch.where(x > 2, x, -x), x.clamp(1, 4), x.masked_fill(x > 3, 0.0), torch.maximum(x,
        x.flip(0)), x**2, 2**x, x % 2, x // 2, -x, abs(x), ~(x > 1), (x > 1) & (x < 4), x == 2, x.eq(2), 1 / (x + 1),
        5 - x, x.exp().log(), torch.sigmoid(x), x.lerp(x * 2, 0.5), torch.addcmul(x, x, x), x.round(),
        torch.floor(x / 2), x.sign(), math.pi * x, x != x, (x > 1) | True, x.int() << 1, x.int() ^ 3,
        round(x, decimals=1) if False else 1, divmod(7, 2), torch.nan_to_num(x / 0)
    )


@program
def products(x):
    return x @ x.t(), torch.matmul(x, x.t()), torch.einsum("ij,kj->ik", x, x), torch.mm(x, x.t()), torch.bmm(x[None],
        x.t()[None]), torch.outer(x[0], x[1]), torch.dot(x[0], x[1]), torch.tensordot(x, x,
        dims=2), torch.linalg.norm(x), torch.einsum("ij->ji", [x]), torch.kron(x, x), torch.addmm(torch.ones(2, 2), x,
        x.t()), torch.cdist(x, x), torch.baddbmm(torch.ones(1, 2, 2), x[None],
        x.t()[None]), x.mv(torch.ones(3)), torch.linalg.det(x @ x.t() + torch.eye(2)), torch.chain_matmul(x,
        x.t()) if False else 1


@program
def gather_scatter(x):
    i = torch.tensor([[0, 1], [1, 2]])
    return x.gather(1, i), torch.zeros(2, 3).scatter_(1, i, 1.0), x.index_select(1,
        torch.tensor([0, 2])), torch.zeros(2, 3).scatter_add(1, i,
        torch.ones(2, 2)), x.take(torch.tensor([0, 5])), torch.take_along_dim(x, i, 1), x.index_add(0,
        torch.tensor([0]), torch.ones(1, 3)), torch.bucketize(x,
        torch.tensor([1.0, 3.0])), torch.searchsorted(torch.arange(5.0), x), torch.isin(x,
        torch.tensor([1.0])), x.index_copy(0, torch.tensor([0]), torch.ones(1, 3)), x.index_fill(1, torch.tensor([1]),
        4), x.masked_scatter(x > 9, x)


@program
def complex_numbers(x):
    z = torch.complex(x, x + 1)
    return z * 1j, z.real, z.imag, z.conj(), z.abs(), torch.view_as_real(z), z.angle(), torch.fft.fft(x), torch.polar(x,
        x), (z * z.conj()).real, 2j * x, torch.fft.rfft(x), z.is_complex()


@program
def tensor_attributes(x):
    y = x * 2
    y.tag = "t"
    y.more = [1]
    y.more.append(2)
    return y, y.tag, y.more, hasattr(y, "nothing"), getattr(y, "tag2", None)


@program
def iteration_over_tensor(x):
    out = []
    for row in x:
        a, b, c = row
        out.append(a + b * c)
    return torch.stack(out), [r.sum() for r in x], dict(enumerate(x))[1], list(zip(x, x))[0][1], sum(x), len(list(x))


@program
def tensor_in_containers(x):
    d = {"a": x, "b": [x, (x,)]}
    return d["b"][1][0] + 1, d["a"] is x, x is not None, [t is x for t in d["b"][:1]], {"k": x.sum()}, any(t is x
        for t in [x])


@program
def methods_as_functions(x):
    f = torch.Tensor.add
    g = x.mul
    return f(x, 1), g(2), getattr(torch, "relu")(x), getattr(F, "silu")(x), torch.Tensor.sum(x,
        dim=0), {"relu": torch.relu}["relu"](x), (lambda fn: fn(x))(torch.exp), list(map(torch.sum,
        [x, x])), torch.ops.aten.relu.default(x), torch.ops.aten.add(x, 1), torch._C._nn.gelu(x)


@program.breaks("tensor_to_python")
def data_to_python(x):
    y = x.sum()
    n = int(y.item())
    z = x * n
    if z.max() > 100:
        z = z - 1
    return z, x.tolist(), float(y), bool(y > 1)


@program.breaks("sparse_or_quantized")
def sparse(x):
    return (x + 1).to_sparse().to_dense() * 2


@program
def to_numpy(x):
    return torch.from_numpy((x + 1).numpy() * 2) + 1


@program.breaks("tensor_formatting")
def printed(x):
    y = x + 1
    s = str(y)
    return y, len(s), f"{y.shape}"


# ---------------------------------------------------------------- autograd and higher order
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k, None


WEIGHT = nn.Parameter(torch.ones(3))


@program
def autograd_function(x):
    y = Double.apply(x * WEIGHT, 3)
    return y + 1


@program
def checkpointed(x):
    return checkpoint(lambda v: torch.relu(v * WEIGHT) + 1, x, use_reentrant=False) * 2


@program
def gradients(x):
    w = WEIGHT.detach().clone().requires_grad_()
    loss = (x * w).sum()
    (g,) = torch.autograd.grad(loss, w)
    return g


@program.breaks("autograd_in_graph")
def backward(x):
    WEIGHT.grad = None
    (x * WEIGHT).sum().backward()
    return WEIGHT.grad.clone()


@program
def needs_grad(x):
    y = x * WEIGHT
    return y.requires_grad, y.detach() + 1, y.data + 1, y, WEIGHT.requires_grad, WEIGHT.is_leaf


@program
def vmapped(x):
    return torch.vmap(lambda v: v.sum() * v)(x + 1)


@program
def functional_grad(x):
    return torch.func.grad(lambda v: (v**2).sum())(x) + 1


@program
def functional_call(x):
    params = {k: v.detach() for k, v in NET.named_parameters()}
    return torch.func.functional_call(NET, params, (x,))


@program
def distributions(x):
    d = torch.distributions.Normal(x, torch.ones_like(x))
    return d.log_prob(x + 1), d.mean, torch.distributions.kl_divergence(d,
        d), d.sample().shape, torch.distributions.Categorical(logits=x).entropy()


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


@program
def subclass(x):
    t = x.as_subclass(Tagged)
    return (t + 1).as_subclass(torch.Tensor)


@program.breaks("rng_state")
def seeded(x):
    torch.manual_seed(5)
    a = torch.rand(3)
    g = torch.Generator().manual_seed(2)
    return a, torch.rand(2, generator=g), x + 1


@program
def default_dtype_and_device(x):
    return (
        torch.get_default_dtype(), torch.ones(1,
        device="cpu").device, torch.device("cpu") == x.device, x.device.type, str(x.device), torch.is_tensor(x),
        torch.is_floating_point(x), torch.numel(x), torch.result_type(x, 1),
        torch.promote_types(torch.int8, torch.float16), torch.broadcast_shapes((2, 1), (3,)), torch.Size([1, 2]) + (3,),
        torch.compiler.is_compiling() or True
    )


@program.breaks("unsupported_method")
def inference_mode(x):
    with torch.inference_mode():
        y = x + 1
        inside = torch.is_inference_mode_enabled(), y.is_inference()
    return x * 2, inside, torch.is_inference_mode_enabled()


@program
def default_device(x):
    with torch.device("cpu"):
        y = torch.ones(2)
    return y, x + 1


@program.breaks("unsupported_torch_call")
def optimizer_step(x):
    w = nn.Parameter(torch.ones(3))
    opt = torch.optim.SGD([w], lr=0.1)
    loss = (x * w).sum()
    loss.backward()
    opt.step()
    return w.detach().clone()


@pytest.mark.parametrize("name", program.names())
def test_torch(name):
    program.check(name)


def test_cond_is_a_break():
    """In a process of its own: torch.cond in eager runs torch.compile, which patches torch for good."""
    script = """
import torch, dynamo_lite
def fn(x):
    return torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,)) * 2
x = torch.ones(3)
print(torch.equal(dynamo_lite.compile(fn, backend="eager")(x), fn(x)))
"""
    done = new_process.run(script, modules=new_process.TORCH_COMPILE)
    assert done.stdout == "True\n", done.stderr[-2000:]
