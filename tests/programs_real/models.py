"""Models written by hand, called a few times in a row or trained for three steps."""
import math

import torch
import torch.nn.functional as F
from torch import nn

from .training import _steps


class CausalAttention(nn.Module):
    def __init__(self, size, heads, block):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.heads = heads
        self.register_buffer("bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, size, heads, block):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(size), CausalAttention(size, heads, block), nn.LayerNorm(size)
        self.mlp = nn.ModuleDict(dict(c_fc=nn.Linear(size, 4 * size), c_proj=nn.Linear(4 * size, size), act=nn.GELU()))
        m = self.mlp
        self.mlpf = lambda x: m.c_proj(m.act(m.c_fc(x)))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlpf(self.ln_2(x))


class GPT(nn.Module):
    """As in minGPT and nanoGPT."""

    def __init__(self, words=32, size=16, heads=2, layers=2, block=12):
        super().__init__()
        self.block = block
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(words, size), wpe=nn.Embedding(block, size), drop=nn.Dropout(0.1),
            h=nn.ModuleList([Block(size, heads, block) for _ in range(layers)]), ln_f=nn.LayerNorm(size)))
        self.lm_head = nn.Linear(size, words, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._init)

    def _init(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, idx, targets=None):
        b, t = idx.size()
        assert t <= self.block, f"Cannot forward sequence of length {t}, block size is only {self.block}"
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device).unsqueeze(0)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        if targets is None:
            return logits[:, [-1], :], None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-1)


def nanogpt_training(compile):
    torch.manual_seed(0)
    model = GPT()
    data = torch.randint(0, 32, (3, 2, 13))
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    compiled, losses = compile(model), []
    for batch in data:
        _, loss = compiled(batch[:, :-1], batch[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach() for p in model.parameters()]


def nanogpt_sampling(compile):
    """Each call is one token longer: the sizes become changing ones, or entries up to the limit."""
    torch.manual_seed(0)
    model = GPT().eval()
    compiled = compile(model)
    idx = torch.zeros(1, 1, dtype=torch.long)
    with torch.no_grad():
        for _ in range(6):
            logits, _ = compiled(idx if idx.size(1) <= model.block else idx[:, -model.block :])
            logits = logits[:, -1, :] / 0.8
            v, _ = torch.topk(logits, 5)
            logits[logits < v[:, [-1]]] = -float("Inf")
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)), dim=1)
    return idx


def torch_transformer(compile):
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 2, 2, 32, dropout=0.0, batch_first=True)
    embed, head = nn.Embedding(20, 16), nn.Linear(16, 20)
    both = nn.ModuleList([model, embed, head])
    source, target = torch.randint(0, 20, (2, 7)), torch.randint(0, 20, (2, 6))
    padding = torch.tensor([[False] * 7, [False] * 5 + [True] * 2])

    def loss_of(step):
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        out = model(embed(source), embed(target[:, :-1]), tgt_mask=mask, src_key_padding_mask=padding,
                    memory_key_padding_mask=padding, tgt_is_causal=True)
        return F.cross_entropy(head(out).flatten(0, 1), target[:, 1:].flatten())

    # No Adam: the gradient of the keys' bias is rounding alone.
    return _steps(both, torch.optim.SGD(both.parameters(), lr=0.1), loss_of, compile)


class ViT(nn.Module):
    def __init__(self, size=16, patch=4, dim=16, depth=2, heads=2, classes=5):
        super().__init__()
        self.patch, self.heads = patch, heads
        self.to_patch = nn.Linear(3 * patch * patch, dim)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, dim))
        self.layers = nn.ModuleList([nn.ModuleList([
            nn.LayerNorm(dim), nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim), nn.LayerNorm(dim),
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))]) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, image):
        b, c, h, w = image.shape
        p = self.patch
        x = image.reshape(b, c, h // p, p, w // p, p).permute(0, 2, 4, 3, 5, 1)
        x = x.reshape(b, (h // p) * (w // p), p * p * c)
        x = torch.cat([self.cls.expand(b, -1, -1), self.to_patch(x)], dim=1) + self.pos
        for norm1, qkv, out, norm2, mlp in self.layers:
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in qkv(norm1(x)).chunk(3, dim=-1))
            x = x + out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            x = x + mlp(norm2(x))
        return self.head(self.norm(x)[:, 0])


def vit(compile):
    torch.manual_seed(0)
    model = ViT()
    x, y = torch.randn(2, 3, 16, 16), torch.tensor([1, 3])
    return _steps(model, torch.optim.SGD(model.parameters(), lr=0.1), lambda _: F.cross_entropy(model(x), y), compile)


class DoubleConv(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down1, self.down2 = DoubleConv(3, 4), DoubleConv(4, 8), DoubleConv(8, 8)
        self.up1 = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.up2 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.conv1, self.conv2, self.out = DoubleConv(16, 8), DoubleConv(12, 4), nn.Conv2d(4, 2, 1)

    @staticmethod
    def join(x, skip):
        dy, dx = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
        return torch.cat([skip, F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])], dim=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(F.max_pool2d(x1, 2))
        x3 = self.down2(F.max_pool2d(x2, 2))
        x = self.conv1(self.join(self.up1(x3), x2))
        return self.out(self.conv2(self.join(self.up2(x), x1)))


def unet(compile):
    torch.manual_seed(0)
    model = UNet()
    x, y = torch.randn(2, 3, 18, 14), torch.randint(0, 2, (2, 18, 14))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
    return _steps(model, optimizer, lambda _: F.cross_entropy(model(x), y), compile)


class WaveNet(nn.Module):
    def __init__(self, channels=8, dilations=(1, 2, 4, 8)):
        super().__init__()
        self.start = nn.Conv1d(1, channels, 1)
        self.gates = nn.ModuleList([nn.Conv1d(channels, 2 * channels, 2, dilation=d) for d in dilations])
        self.skips = nn.ModuleList([nn.Conv1d(channels, channels, 1) for _ in dilations])
        self.end = nn.Conv1d(channels, 4, 1)

    def forward(self, x):
        x, skip = self.start(x), 0
        for gate, out in zip(self.gates, self.skips):
            a, b = gate(x).chunk(2, dim=1)
            s = out(torch.tanh(a) * torch.sigmoid(b))
            try:
                skip = skip[:, :, -s.size(2) :]
            except TypeError:
                skip = 0
            skip = s + skip
            x = s + x[:, :, -s.size(2) :]
        return self.end(F.relu(skip))


def wavenet(compile):
    torch.manual_seed(0)
    model = WaveNet()
    x = torch.randn(2, 1, 32)
    y = torch.randint(0, 4, (2, 17))
    return _steps(model, torch.optim.Adam(model.parameters()), lambda _: F.cross_entropy(model(x), y), compile)


class GCN(nn.Module):
    """Neighbours gathered with index_add, normalised by degrees, as in torch_geometric's example."""

    def __init__(self):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(5, 8, bias=False), nn.Linear(8, 3)

    def propagate(self, x, edges):
        source, target = edges
        degree = torch.zeros(x.size(0)).scatter_add_(0, target, torch.ones(target.size(0)))
        norm = degree.clamp(min=1).pow(-0.5)
        messages = x[source] * (norm[source] * norm[target]).unsqueeze(-1)
        return torch.zeros_like(x).index_add_(0, target, messages)

    def forward(self, x, edges):
        x = F.relu(self.propagate(self.lin1(x), edges))
        x = F.dropout(x, p=0.5, training=self.training)
        return F.log_softmax(self.propagate(self.lin2(x), edges), dim=1)


def gcn(compile):
    torch.manual_seed(0)
    model = GCN()
    x, edges, y = torch.randn(9, 5), torch.randint(0, 9, (2, 30)), torch.randint(0, 3, (9,))
    train = torch.arange(9) < 5
    loss_of = lambda _: F.nll_loss(model(x, edges), torch.where(train, y, -100))
    return _steps(model, torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4), loss_of, compile)


class MixtureOfExperts(nn.Module):
    """Each expert sees the tokens that were sent to it: how many is known only when it runs."""

    def __init__(self, size=8, experts=4, k=2):
        super().__init__()
        self.router, self.k = nn.Linear(size, experts), k
        expert = lambda: nn.Sequential(nn.Linear(size, 16), nn.SiLU(), nn.Linear(16, size))
        self.experts = nn.ModuleList([expert() for _ in range(experts)])

    def forward(self, x):
        weights, chosen = F.softmax(self.router(x), dim=-1).topk(self.k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == i)
            out.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
        return out


def mixture_of_experts(compile):
    torch.manual_seed(0)
    model = MixtureOfExperts()
    x, y = torch.randn(12, 8), torch.randn(12, 8)
    return _steps(model, torch.optim.SGD(model.parameters(), lr=0.1), lambda _: F.mse_loss(model(x), y), compile)


class ResnetBlock(nn.Module):
    """A block of a diffusion model's UNet: time embedding, group norm, attention at low resolution."""

    def __init__(self, i, o, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, i), nn.Conv2d(i, o, 3, padding=1)
        self.time, self.norm2, self.conv2 = nn.Linear(time, o), nn.GroupNorm(4, o), nn.Conv2d(o, o, 3, padding=1)
        self.shortcut = nn.Conv2d(i, o, 1) if i != o else None

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return (x if self.shortcut is None else self.shortcut(x)) + h


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.mid = nn.Conv2d(3, 8, 3, padding=1), ResnetBlock(8, 16, 16)
        self.attention, self.out = nn.MultiheadAttention(16, 2, batch_first=True), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x, step):
        frequencies = torch.exp(-math.log(10000) * torch.arange(8) / 8)
        angles = step[:, None].float() * frequencies[None]
        h = self.mid(self.inp(x), torch.cat([angles.sin(), angles.cos()], dim=-1))
        b, c, height, width = h.shape
        tokens = h.flatten(2).transpose(1, 2)
        tokens = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return self.out(tokens.transpose(1, 2).reshape(b, c, height, width))


def diffusion(compile):
    torch.manual_seed(0)
    model, x = Denoiser(), torch.randn(2, 3, 8, 8)
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0)

    def loss_of(step):
        t = torch.randint(0, 50, (2,))
        noise = torch.randn_like(x)
        a = alphas[t].view(-1, 1, 1, 1)
        return F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)

    return _steps(model, torch.optim.AdamW(model.parameters()), loss_of, compile)


def siamese_with_dynamic_batches(compile):
    """The last batch is smaller, as a DataLoader gives it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    compiled = compile(lambda a, b, same: F.cosine_embedding_loss(model(a), model(b), same, margin=0.2))
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for n in (8, 8, 8, 3, 8, 8, 3):
        optimizer.zero_grad()
        loss = compiled(torch.randn(n, 6), torch.randn(n, 6), torch.randint(0, 2, (n,)) * 2 - 1)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach() for p in model.parameters()]


# How many graphs a program is compiled to; None: it breaks, or is compiled once for each size.
PROGRAMS = {
    nanogpt_training: 1, nanogpt_sampling: None, torch_transformer: 1, vit: 1, unet: 1, wavenet: 1, gcn: 1,
    mixture_of_experts: None, diffusion: 1, siamese_with_dynamic_batches: 2,
}
