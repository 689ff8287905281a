"""Templates for parts of tensors: writes to one part beside reads of others and of the whole, diagonal and strided
parts, memory read at explicit offsets or as another dtype, arrays that share memory; and for hooks of modules.

Invariant: what has no meaning in plain Python is not among them. A part that is written is a tensor of the program's
own or one of its arguments, so that a write to it is seen in the results.
"""
from __future__ import annotations

from .topical import Topical, group

PARTS = group(
    "PARTS",
    simple='''
{+t:v} = {t0}.clone(); {v}[..., :2] = {n}; {+t} = {v}[..., 2:] * 2
{+t:v} = {t0}.clone(); {v}[..., :2] = {t0}[..., -2:]; {+t} = {v}[..., :1] + {v}.sum()
{+t:v} = torch.zeros(3, 4); {v}[0] = {t0}[0]; {v}[1] = {v}[0] * {n}; {v}[2] = {v}[1] + {v}[0]
{+t:v} = torch.empty(3, 4); {v}[:, 0] = {n}; {v}[:, 1:3] = {t0}[..., :2]; {v}[:, -1] = {v}[:, 1]
{+t:v} = torch.empty(4, 3).t(); {v}[:, :2] = {t0}[..., 2:]; {v}[:, 2:] = {v}[:, :2]; {+t} = {v}[1:, 1:]
{+t:v} = {t0}.clone(); {+t:a} = {v}[..., 1:3]; {a}.mul_({n}); {+t} = {v}[..., 2]; {v}[..., 2:].zero_()
{+t:v} = {t0}.clone(); {+t:a} = {v}[:1]; {+t:b} = {v}[1:]; {a}.copy_({b}[:1]); {b}.add_({a})
{+t:v} = {t0}.clone(); {+t:a} = {v}[..., 0]; {v}[..., 0] = {n}; {a}.add_(1); {+t} = {v}[..., :2].clone()
{+t:v} = {t0}.clone(); {v}[..., :3] = {n}; {v}[..., 1:] = {t0}[..., 1:]; {+t} = {v}[..., 0] - {v}[..., 3]
{+t:v} = {t0}.clone(); {v}[..., 0:0] = {n}; {v}[..., 5:] = 1; {+t} = {v}[..., 0:0].sum() + {v}
{+t:v} = {t0}.clone(); {v}[-1], {v}[0] = {v}[0], {v}[-1]
{+t:v} = {t0}.clone(); {v}[1:2, :2] = {v}[:1, 2:]; {+t} = {v}[1] + {v}[0]
{+t:a}, {+t:b} = {$t}.chunk(2, -1); {a}.mul_({n}); {b}.add_({a}); {+t} = {$t} + {b}.sum()
{+t:a}, {+t:b} = {$t}.split([1, 3], -1); {b}.copy_({a}); {+t} = {a} + 1
{+t:a}, {+t:b} = {t0}.clone().chunk(2, -1); {a}.copy_({b}); {b}.zero_(); {+t} = torch.cat([{b}, {a}], -1)
{+t:a}, {+t:b}, *{+l} = {t0}.clone().unbind(-1); {a}.copy_({b}); {b}.neg_()
{+t:a}, {+t:b} = {t0}.unsafe_chunk(2, -1); {+t} = {a} * {b}
{+t:a}, {+t:b} = torch.unsafe_split({t0}, 2, -1); {+t} = {b} - {a}
{+t:a}, {+t:b} = torch.unsafe_split_with_sizes({t0}, [1, 3], -1); {+t} = {b} + {a}
{+t:v} = {t0}.clone(); {+t:a}, {+t:b} = {v}.unsafe_chunk(2, -1); {a}.mul_(2); {+t} = {a} + {b}
{+t:v} = {t0}.clone(); {+t:a}, {+t:b} = {v}.unsafe_chunk(2, -1); {v}.mul_(2); {+t} = {a} + {b}
{+t:v} = {t0}.clone(); {+t:a}, {+t:b} = {v}.unsafe_split(2, -1); {a}.add_({b}); {b}.add_({a}); {+t} = {v} + 0
{+t:v} = {t0}.clone(); {+t:a} = {v}.unsafe_split_with_sizes([1, 3], -1)[1]; {a}.fill_({n}); {+t} = {v}[..., 1:]
{+t:v} = {t0} @ torch.eye(4); {+t:a}, {+t:b} = {v}.unsafe_chunk(2, -1); {a}.sigmoid_(); {b}.tanh_(); {+t} = {a} * {b}
{$t}.diagonal().copy_({t0}.diagonal() + {n})
{$t}.diagonal({i}).mul_(2); {+t} = {$t}.diagonal().clone()
{+t:v} = torch.eye(4)[:3]; {v}.diagonal(1).fill_({n}); {+t} = {v}.diagonal(-1) + {v}.diagonal(1)[:2]
{+t:v} = {t0}.clone(); {v}.diagonal(0, -2, -1).add_({v}.sum()); {+t} = {v}[1:] + 1
{+t:v} = {t0}.expand(2, 3, 4).clone(); {v}.diagonal(dim1=0, dim2=2)[1].zero_(); {+t} = {v}[0]
{+t:v} = torch.zeros(4, 4); {v}.diagonal()[1:] = {n}; {v}.diagonal(1)[::2] = {t0}.flatten()[:2]
{+t} = torch.diag_embed({t0}[..., :3]).diagonal(dim1=-2, dim2=-1) + 1
{$t}[..., ::2] = {$t}[..., 1::2]
{$t}[::2] *= {n}; {+t} = {$t}[1::2] + 1
{$t}[..., ::2].add_({t0}[..., 1::2]); {+t} = {$t}[..., 1::2].clone()
{$t}[..., 1::2].copy_({t0}[..., ::2]); {+t} = {$t}[..., ::2] - {$t}[..., 1::2]
{+t:v} = {t0}.clone(); {v}[::2, 1::2] = {n}; {+t} = {v}[1::2] + {v}[::2].sum(); {v}[:, ::3].neg_()
{+t:v} = {t0}.clone(); {v}.t()[::2] = {t0}.t()[1::2]; {+t} = {v}[..., :2]
{+t:v} = {t0}.repeat(2, 1); {v}[1:5:2].zero_(); {+t} = {v}[2:4] + {v}[1]
{+t} = {t0}.as_strided((2, 2), (4, 1), {i})
{+t} = {t0}.as_strided((2, 3), (1, 2), 1) * 2
{+t:v} = {t0}.clone(); {v}.as_strided((2, 2), (4, 1), 1).zero_(); {+t} = {v}[..., :2]
{+t:v} = torch.arange(12.); {v}.as_strided((3,), (4,), 2).add_({n}); {+t} = {v}.as_strided((3, 2), (4, 1), 1)
{+t:v} = torch.arange(12.)[2:]; {+t:a} = {v}.as_strided((2, 2), (2, 1)); {a}.neg_(); {+t} = {v} + 0
{+t:v} = torch.arange(12.)[2:]; {+t:a} = {v}.as_strided((2, 2), (2, 1), 0); {a}.neg_(); {+t} = {v} + 0
{+t:v} = torch.arange(12.).view(3, 4); {v}[1].as_strided((2,), (1,), 0).fill_({n}); {+t} = {v}[0] + {v}[1]
{$t}.as_strided((2, 2), (1, 2), 0).mul_(2); {+t} = {$t} * 2
{+t:v} = {t0}.clone(); torch.as_strided_({v}, (2, 2), (2, 1), 1); {v}.add_({n})
{+t} = torch.as_strided_scatter({t0}, torch.ones(2, 2), (2, 2), (4, 1), 1)
{$t}.data[0] = {n}; {+t} = {$t} * 2
{$t}.data.add_({t0}.data); {+t} = {$t} + {$t}.data
{$t}[..., :2].data.zero_(); {+t} = {$t}[..., 1:]
{+t:v} = {t0}.clone(); {v}.data[..., 1] = {n}; {+t} = {v}[..., 1] + {v}[..., 2]
{+t:v} = {t0}.clone(); {+t:a} = {v}.data; {v}[0] = {n}; {a}[-1] = 2; {+t} = {a} + {v}
{+t:v} = {t0}.clone(); {v}.data = {v}[..., :2]; {v}.add_(1)
{+t:v} = {t0}.clone(); {+t:a} = {v}[0]; {v}.data = {t0} * 2; {a}.add_({n}); {+t} = {v} + {a}
{$t}.detach()[..., 0] = {n}; {+t} = {$t}[..., 1:].sum()
{+t:v} = {t0}.float().clone(); {v}.view(torch.int32)[..., :2] = 0; {+t} = {v}[..., 1:] + 1
{+t:v} = {t0}.float().clone(); {+t:a} = {v}.view(torch.uint8); {v}[..., 0] = 1.0; {+t} = {a}[..., :4].long()
{+t:v} = {t0}.float().contiguous().clone(); {v}.view(torch.int16)[..., 1::2].bitwise_xor_(-32768); {+t} = {v} * 2
{+t:v} = {t0}.float().contiguous().clone(); {v}[0] = 1; {+t} = {v}.view(torch.float64); {v}[1] = 2
{+t:v} = {t0}.double().clone(); {v}.view(torch.int64)[0] = {i}; {+t} = {v}[:2]
{+t:v} = {t0}.to(torch.complex64); torch.view_as_real({v})[..., 1] = {n}; {+t} = {v}.imag + {v}.real
{+t:v} = {t0}.to(torch.complex64); {v}.imag.add_({n}); {v}.real[0] = 2; {+t} = torch.view_as_real({v}.conj())
{+t:v} = {t0}.half().clone(); {v}.view(torch.int16)[..., 0] = 15360; {+t} = {v}.float()
{+t:v} = {t0}.bool(); {v}.view(torch.uint8)[0] = 1; {+t} = {v}.int()
{+t:v} = {t0}.clone(); {v}.flatten()[{i}:] = {n}; {+t} = {v}[0]
{+t:v} = {t0}.clone(); {v}.view(-1)[3:7] = {n}; {+t} = {v}[1] + {v}[0]; {v}[0].copy_({v}[1])
{+t:v} = {t0}.clone(); {v}.unfold(-1, 2, 2)[..., 0].fill_({n}); {+t} = {v}[..., 1::2]
{+t:v} = {t0}.clone(); {v}.unflatten(-1, (2, 2))[..., 1].neg_(); {+t} = {v}[..., :2] + {v}[..., 2:]
{+t:v} = {t0}.clone(); {v}.narrow(-1, 1, 2).select(0, {i}).zero_(); {+t} = {v}.narrow(-1, 0, 2)
{+t:v} = {t0}.clone(); {v}.movedim(0, -1)[1:3] = {n}; {+t} = {v}[..., 1] + {v}[..., 3]
{+t:v} = {t0}.clone(); {v}[..., None, 1:].squeeze(-2).mul_({n}); {+t} = {v}[..., :1]
{+t:v} = {t0}.clone(); torch.add({t0}[..., :2], 1, out={v}[..., 2:]); {+t} = {v}[..., 1:3]
{+t:v} = {t0}.clone(); torch.cumsum({v}[..., 1:], -1, out={v}[..., 1:]); {+t} = {v}[..., 0]
{+t:v} = {t0}.clone(); torch.sum({v}, 0, out={v}[0]); {+t} = {v}[1:]
{+t:v} = {t0}.clone(); {v}[:, {i}].index_fill_(0, torch.tensor([0]), 7); {+t} = {v}[:, 1:3]
{+t:v} = {t0}.clone(); {v}[1:].masked_fill_({v}[1:] > 0, {n}); {+t} = {v}[:2]
{+t:v} = {t0}.clone(); {v}[..., 1:].cumsum_(-1); {v}[..., :1].normal_(); {+t} = {v}[..., 1]
{+t:v} = {t0}.clone(); F.dropout({v}[1:], 0.5, True, True); {+t} = {v}[0]
{+t:v} = {t0}.clone(); {v}[0].copy_({v}[:, 0].sum() + {v}[1]); {+t} = {v}.t()[1:]
{+t:v} = torch.stack([{t0}, {t0}]); {v}[1] -= {v}[0]; {v}[0, :, 1:] += {v}[1, :, :-1]; {+t} = {v}[:, 1]
{+t:v} = torch.ones(1, 3, 4); {v}[0, 1:] = {n}; {+t} = {v}.squeeze(0)[:2]; {v}[:, :, 1] = {t0}.sum()
{+t:v} = torch.ones(3, 1); {v}[1:] = {n}; {+t} = {v}.expand(3, 4)[1]; {v}[0, 0] = {t0}.sum()
{+t:v} = {t0}.new_empty(3, 4).fill_(0); {v}[:, :2].copy_({t0}[..., :2]); {$l}.append({v}[:, 2:])
''',
    compound='''
{+t:v} = torch.zeros(3, 4)
for {=n:i} in range(3):
    {v}[{i}] = {t0}[0] + {v}[{i} - 1]
    {@}

{+t:v} = {t0}.clone()
for {=n:i} in range(4):
    {v}[..., {i}] = {v}[..., {i}:].sum(-1)
    {@}
{+t} = {v}[..., 1:]

{+t:v} = torch.empty(4, 4)
for {=t:a} in ({t0}, {t0}):
    {v}[:2, 1:] = {a}.sum()
    {v}[2:] = {v}[:2] * {n}
    {v}[:, 0] = {v}[0, 1]
    {@}

{+t:v} = {t0}.clone()
{+t:a}, {+t:b} = {v}.chunk(2, -1)
{@}
{a}.add_({b})
{@}
{b}[0] = {n}
{+t} = {v}[..., 1:3]

def {=f:h}({=t:a}):
    {a}[..., :2] = {n}
    {@f}
    return {a}[..., 2:] + {a}[..., 0:1]
{+t} = {h}({t0})
{+t} = {h}({$t}[1:])
''',
    t="{t0}[..., :2]\n{t0}[..., 2:]\n{t0}[..., 1:3]\n{t0}[..., ::2]\n{t0}.diagonal()\n{t0}.chunk(2, -1)[1]\n"
      "{t0}.unsafe_chunk(2, -1)[0]\n{t0}.unsafe_split(2, -1)[-1]\n{t0}.as_strided((2, 2), (4, 1), 2)\n"
      "{t0}.unbind(-1)[1]\n"
      "{t0}.select(-1, {i})\n{t0}.data\n{t0}.split([1, 3], -1)[1]\n{t0}[1:, 1:]\n{t0}[..., {i}]")

ARRAYS = group(
    "ARRAYS",
    simple='''
{+a:v} = {t0}.detach().numpy(); {v}[0] = {n}; {+t} = {$t} * 2
{+a:v} = ({t0} * 2).detach().numpy(); {v}[..., :2] += 1; {+t} = torch.from_numpy({v})[..., 1:]
{+t:v} = {t0}.detach().clone(); {+a:a} = {v}.numpy(); {v}[0] = {n}; {+t} = {v} + torch.from_numpy({a})
{+t:v} = {t0}.detach().clone(); {+a:a} = {v}.numpy(); {a}[..., 1] = {n}; {+t} = {v}[..., 1:] + 1
{+t:v} = {t0}.detach().clone(); {+a:a} = {v}[..., 1:].numpy(); {v}.zero_(); said.append({a}.sum())
{+a} = {t0}.detach().numpy().copy()
{+a} = {t0}.detach().numpy()[..., ::2]
{+a} = numpy.asarray({t0}.detach())
{+t} = torch.as_tensor({$a})
{+t} = torch.tensor({$a})
{+t} = torch.from_numpy({$a} * 2)
{$a}[0] = {n}
{$a} *= 2
said.append({$a}.sum())
said.append(({$a}.strides, {$a}.dtype.str))
said.append({$a}.base is None)
{+t} = {t0}.detach() + torch.from_numpy({$a}.astype('float32'))
''',
    a="{t0}.detach().numpy()\n({t0} + 1).detach().numpy()\n{t0}.detach().clone().numpy()")

HOOKS = group(
    "HOOKS",
    simple='''
{+hk:h} = NET.register_forward_hook(lambda m, a, out: out * {n}); {+t} = NET({t0}.float()); {h}.remove()
{+hk:h} = NET.register_forward_pre_hook(lambda m, a: (a[0] + {n},)); {+t} = NET({t0}.float()); {h}.remove()
{+hk:h} = NET.register_forward_hook(lambda m, a, out: out[0].mul_(2) and None); NET(x.float()[1:]); {h}.remove()
{+hk:h} = NET.register_forward_hook(lambda m, a, out: {$l}.append(out)); {+t} = NET({t0}.float()); {h}.remove()
{+hk:h} = NET.register_forward_hook(named_hook, with_kwargs=True); {+t} = NET(input={t0}.float()); {h}.remove()
{+hk:h} = NET.register_forward_pre_hook(doubling_hook, with_kwargs=True); {+t} = NET(input={t0}.float()); {h}.remove()
{+hk:h} = NET.register_forward_hook(noting_hook, always_call=True); {+t} = NET({t0}.float()); {h}.remove()
{+hk:h} = NET.register_forward_hook(lambda m, a, out: -out, prepend=True); {+t} = NET({t0}.float()); {h}.remove()
{+hk:h} = NET.register_full_backward_hook(lambda m, gi, go: None); {+t} = NET({t0}.float()); {h}.remove()
{+hk:h} = NET.register_full_backward_pre_hook(lambda m, go: None); {+t} = NET({t0}.float()); {h}.remove()
{+hk:h} = GLOBAL_HOOKS.register_module_forward_hook(lambda m, a, out: out + {n}); {+t} = NET({t0}.float()); {h}.remove()
{+hk:h} = GLOBAL_HOOKS.register_module_forward_pre_hook(shown_hook); {+t} = NET({t0}.float()); {h}.remove()
said.append((len(NET._forward_hooks), len(NET._forward_pre_hooks)))
{+t} = NET({t0}.float())
{+t} = torch.nn.Sequential(NET, torch.nn.ReLU(), NET)({t0}.float())
NET.weight.data[0] = {n}
NET.weight.data.mul_(0.5); {+t} = NET({t0}.float())
with torch.no_grad(): NET.bias[:2] = {n}
{+t} = NET.weight[:2] + NET.bias[None, :]
NET.register_buffer('late', {t0}.detach().clone()); {+t} = NET.late * 2
{+t} = torch.func.functional_call(NET, {{'bias': torch.full((4,), {n} * 1.0)}}, ({t0}.float(),))
{+t} = torch.nn.utils.parametrize.is_parametrized(NET) * {t0}
''',
    compound='''
{=hk:h} = NET.register_forward_hook(lambda m, a, out: out * 2)
try:
    {+t} = NET({t0}.float())
    {@}
finally:
    {h}.remove()

with NET.register_forward_hook(lambda m, a, out: out + {n}):
    {+t} = NET({t0}.float())
    {@}

def {=f:hook}(m, a, out):
    said.append(tuple(out.shape))
    {@@}
    return out * {n}
with NET.register_forward_hook({hook}):
    {+t} = NET({t0}.float())
    {+t} = NET({t0}.float()[0])
''')

TOPICS: dict[str, Topical] = {t.name: t for t in (PARTS, ARRAYS, HOOKS)}
