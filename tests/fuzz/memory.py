"""Templates for tensors, by topic: memory that several tensors share, writes, types, operations that raise on data."""
from __future__ import annotations

from .topical import Topical, group

VIEWS = group(
    "VIEWS",
    simple='''
{+t:v} = {t0}.view(-1); {v}[0] = {n}
{+t:v} = {t0}.T; {v}.add_(1)
{+t:v} = {t0}.mT; {v}.mul_({t0})
{+t:v}, *{+l} = {t0}.chunk(2, -1); {v}.neg_()
{+t}, {+t} = {t0}.split(2, -1)
{+t}, {+t:v}, *{+l} = {t0}.unbind(0); {v}.add_({n})
{+t:v} = {t0}.expand(2, 3, 4); {v}[0].add_(1)
{+t:v} = {t0}.as_strided((2, 2), (1, 2), 1); {v}.zero_()
{+t:v} = {t0}.narrow(-1, 1, 2); {v}.mul_(2)
{+t:v} = {t0}.select(-1, {i}); {v}.copy_({t0}.sum(-1))
{+t:v} = {t0}[..., 1:]; {v} += {t0}[..., :-1]
{+t:v} = {t0}.reshape(-1)[1::2]; {v}.fill_({n})
{+t:v} = {t0}.unfold(-1, 2, 1); {v}[..., 0].add_(1)
{+t:v} = {t0}.movedim(0, -1); {v}[0] = 7
{+t:v} = {t0}.unsqueeze(1); {v}.squeeze_()
{+t:v} = {t0}.diagonal(); {v}.copy_({v} * 2)
{+t:v} = {t0}.flatten(); {v}.add_({t0}.flatten())
{+t:v} = {t0}.permute(1, 0)[1:]; {v}.clamp_(0, 1)
{+t:v} = {t0}.detach(); {v}.sub_(1)
{+t:v} = {t0}.data; {v}.add_(1)
{+t:v} = {t0}.view_as({t0}); {v}.neg_()
{+t:v} = {t0}.contiguous(); {v}.add_(1)
{+t:v} = {t0}.to(torch.float32); {v}.add_(1)
{+t:v} = {t0}.float(); {v}[0] = {n}
{+t:v} = {t0}.view(torch.int32); {v}.bitwise_and_(-2)
{+t:v} = {t0}.real; {v}.add_(1)
{+t:v} = {t0}.clone(); {v}.t_(); {v}.add_(1)
{+t:v} = {t0}.swapaxes(0, 1).contiguous(); {v}.add_(1)
{+t:v} = torch.broadcast_to({t0}, (3, 4)); {v} += 1
{+t:v} = torch.atleast_2d({t0}); {v}[0] += {n}
{+t:v} = {t0}.hsplit(2)[1]; {v}.zero_()
{+t:v} = {t0}.expand_as({t0}); {v}.mul_(2)
{+t:v} = {t0}.squeeze(0); {v}.add_(1)
torch.add({t0}, 1, out={$t})
torch.mul({t0}, {t0}, out={$t}[:1])
torch.cumsum({t0}, 0, out={$t})
torch.cat([{$t}, {$t}], out={$t})
torch.sum({t0}, 0, out=torch.empty(1))
torch.matmul({t0}, {t0}.mT, out=torch.empty(3, 3))
{!t} = torch.sort({t0}, out=({$t}.clone(), torch.empty(0, dtype=torch.long)))[0]
{$t}.set_({t0})
{$t}.resize_(2)
{$t}.data = {t0}
{$t}.data = {$t}.data * 2
{$t}.swapdims_(0, 1)
{$t}.copy_({t0}.T)
{$t}[0].copy_({$t}[1])
{$t}[1:].copy_({$t}[:-1])
{$t}[:, 1:] = {$t}[:, :-1]
{$t}[:] = {$t}.flip(-1)
{$t}[:, [0, 1]] = {$t}[:, [1, 0]]
{$t}[0], {$t}[1] = {$t}[1], {$t}[0]
{!t}, {!t} = {!t}, {!t}
said.append({$t}.data_ptr() == {$t}.data_ptr())
said.append({$t}._base is {$t})
said.append({$t}.is_set_to({$t}))
said.append(({$t}.stride(), {$t}.storage_offset()))
said.append({$t}._is_view())
said.append({$t}.untyped_storage().nbytes())
{$l}[0].add_({t0}); {$l}.append({$l}[0].T)
{$o}.t.mul_({n}); {+t} = {$o}.t[0]
{$d}['a'].add_(1); {$d}['v'] = {$d}['a'].view(-1)
{$o}.t[...] = {n}
STATE['view'] = {$t}[0]
WEIGHT.add_({n})
''',
    compound='''
for {=t:v} in {$t}:
    {v}.add_({n})
    {@}

for {=t:v} in {$t}.unbind(-1):
    {@}
    {v} *= 2

def {=f:h}({=t:a}):
    {a}[0] = {n}
    {@f}
    return {a}.view(-1)
{+t} = {h}({t0})
{+t} = {h}({$t}.T)
''',
    t="{t0}.as_strided((3, 4), (0, 1))\n{t0}.view(-1, 2)\n{t0}.chunk(2, 0)[-1]\n{t0}.split([1, 2])[1]\n"
      "{t0}.tensor_split(2)[1]\n"
      "{t0}.view(2, -1)\n{t0}.ravel()\n{t0}.H\n{t0}.adjoint()\n{t0}.unflatten(-1, (2, 2))\n{t0}.rot90()\n"
      "{t0}.tile(1, 2)\n"
      "torch.tensor_split({t0}, 2, -1)[0]\n{t0}.repeat_interleave(2, 0)\n{t0}.roll(1, 0)\ntorch.as_tensor({t0})\n"
      "torch.empty_like({t0}).copy_({t0})\n{t0}.new_tensor([{n}])")

WRITES = group(
    "WRITES",
    simple='''
{$t}[torch.tensor([0, 0, 1])] = torch.tensor([1., 2., 3.])
{$t}[torch.tensor([0, 0])] += 1
{$t}.index_put_((torch.tensor([0, 0]),), {t0}, accumulate=True)
{$t}.index_put_((torch.tensor([{i}]),), torch.tensor({n}))
{$t}.index_add_(0, torch.tensor([0, 0, {i}]), {t0}, alpha=2)
{$t}.index_copy_(0, torch.tensor([{i}, 0]), {t0}[:2])
{$t}.index_fill_(-1, torch.tensor([0, {i}]), {n})
{$t}.scatter_add_(0, torch.zeros(3, 4, dtype=torch.long), {t0})
{$t}.scatter_reduce_(0, torch.zeros(3, 4, dtype=torch.long), {t0}, 'amax', include_self={c})
{$t}.scatter_(0, torch.tensor([[0, 1, {i}, 0]]), {t0})
{$t}.masked_scatter_({$t} > 0, torch.arange(12.))
{$t}[{$t} > 0] += {n}
{$t}[{$t} < 0] = {$t}[{$t} < 0] * 2
{$t}[{$t} > 100] = 0
{$t}[None, 0] = {n}
{$t}[..., {i}] = {t0}.sum()
{$t}[{i}, 1:] *= {n}
{$t}[torch.tensor(True)] = {n}
{$t}[[0, 1], [0, {i}]] = {n}
{$t}[0] = {$t}
{$t}.addmm_({t0}, {t0}.mT)
{$t}.addcmul_({t0}, {t0}, value=2)
{$t}.addcdiv_({t0}, {t0} + 3)
{$t}.lerp_({t0}, 0.5)
{$t}.sigmoid_().mul_({t0})
{$t}.floor_divide_({n})
{$t}.remainder_({t0})
{$t}.fmod_(2)
{$t}.logical_not_()
{$t}.bitwise_or_({t0})
{$t}.eq_({t0})
{$t}.gt_(0)
{$t}.cumsum_(0)
{$t}.cumprod_(-1)
{$t}.clip_(max={n})
{$t}.nan_to_num_()
{$t}.round_(); {$t}.trunc_()
{$t}.sqrt_().neg_()
{$t}.tril_().triu_(-1)
{$t}.fill_diagonal_({n})
{$t}.renorm_(2, 0, 1.0)
{$t}.zero_().copy_({t0})
{$t}.unsqueeze_(0).squeeze_(0)
{$t}.t_()
{$t}.hypot_({t0})
{$t}.copysign_({t0})
{$t}.rsub_({t0}) if hasattr({$t}, 'rsub_') else None
{$t}.atan2_({t0})
F.relu({$t}, inplace=True)
F.dropout({$t}, 0.5, True, inplace=True)
F.hardtanh_({$t})
F.leaky_relu({$t}, 0.1, inplace=True)
F.normalize({$t}, dim=-1, out={$t})
torch.nn.init.uniform_({$t})
torch.clamp({$t}, 0, 1, out={$t})
torch.where({$t} > 0, {$t}, 0.0, out={$t})
{!t} += {n}
{!t} -= {t0}
{!t} *= {t0}
{!t} /= {t0}
{!t} //= {n}
{!t} %= {n}
{!t} **= 2
{!t} **= {t0}
{!t} @= {t0}.mT
{!t} &= {t0}
{!t} |= 1
{!t} ^= {t0}
{!t} <<= 1
{!t} >>= {i}
{!t} += True
{!t} += 1.5
{!t} *= 2j
{!t} -= {$l}[0]
operator.iadd({$t}, {t0})
{$l}[0] *= {t0}
{$d}['a'] -= {n}
{$o}.t /= {t0}
''',
    t="torch.index_add({t0}, 0, torch.tensor([0, {i}]), torch.ones(2, 4))\n"
      "{t0}.masked_scatter({t0} > 0, torch.ones(12))\n"
      "torch.scatter_reduce({t0}, 0, torch.zeros(3, 4, dtype=torch.long), {t0}, 'mean')\n"
      "{t0}.index_put((torch.tensor([0, 0]),), torch.tensor({n}), accumulate=True)\n"
      "{t0}.select_scatter({t0}[0], 0, {i})\n"
      "{t0}.slice_scatter({t0}[:1], 0, 1, 2)\n{t0}.diagonal_scatter(torch.ones(3))\n"
      "{t0}.put(torch.tensor([0, {i}]), torch.ones(2))")

DTYPES = group(
    "DTYPES",
    simple='''
{+t} = {t0}.to({dt})
{+t} = {t0}.to({dt}) + {t0}.to({dt})
{+t} = {t0}.to({dt}) * {n}
{+t} = {t0}.to({dt}) / {n}
{+t} = {t0}.to({dt}) // {n}
{+t} = {t0}.to({dt}) % {n}
{+t} = {n} - {t0}.to({dt})
{+t} = {t0}.to({dt}) ** {i}
{+t} = {t0}.to({dt}).sum()
{+t} = {t0}.to({dt}).mean(0)
{+t} = {t0}.to({dt}).cumsum(0)
{+t} = {t0}.to({dt}) > {n}
{+t} = torch.where({t0}.bool(), {t0}.to({dt}), {n})
{+t} = torch.cat([{t0}.to({dt}), {t0}.to({dt})])
{+t} = torch.tensor({n}, dtype={dt})
{+t} = torch.full((3, 4), {n})
{+t} = torch.full((4,), {n}, dtype={dt})
{+t} = torch.tensor([{n}, {i}])
{+t} = torch.arange({i}, 5, {n})
{+t} = torch.linspace(0, {n}, 4)
{+t} = torch.complex({t0}.float(), {t0}.float())
{+t} = torch.view_as_real({t0})
{+t} = {t0}.abs().to({dt}).prod(-1)
{+t} = {t0}.to({dt}) & 3
{+t} = {t0}.to({dt}) << {i}
{+t} = ~{t0}.to({dt})
{+t} = -{t0}.to({dt})
{+t} = {t0}.to({dt}).clamp({i}, 2)
{+t} = {t0}.to({dt}).exp()
{+t} = {t0}.to({dt}).max(0)[0]
{+t} = {t0}.to({dt}).argmax()
{+t} = {t0}.to({dt}).softmax(-1)
{+t} = torch.tensor({n}) * {t0}.to({dt})
{+t} = {t0}.to({dt}) @ {t0}.to({dt}).mT
{+t} = {t0}.to({dt}).var(0)
{+t} = {t0}.to({dt}).round().long()
{+t} = {t0}.to({dt}).sign()
{+t} = {t0}.to({dt}).sort(-1)[0]
{+t} = {t0}.to({dt}).view({dt})
{!t} += {t0}.to({dt})
{$t}.copy_({t0}.to({dt}))
{$t}.add_({t0}.to({dt}), alpha={n})
{$t}[0] = {t0}.to({dt})[0]
said.append(torch.result_type({t0}, {n}))
said.append(torch.promote_types({$t}.dtype, {dt}))
said.append(torch.can_cast({dt}, {$t}.dtype))
said.append({$t}.dtype.is_floating_point)
said.append({$t}.element_size())
said.append(torch.finfo({$t}.dtype).max)
{+t} = torch.zeros(0, 4)
{+t} = {t0}[:0]
{+t} = {t0}[:0].sum(0)
{+t} = {t0}[:0].amax()
{+t} = torch.cat([{t0}, {t0}[:0]])
{+t} = torch.tensor([])
{+t} = torch.tensor({n}) + {n}
{+t} = torch.tensor({n}).expand(3, 1)
{+t} = {t0}.mean().double() * {t0}
{+n} = {t0}.sum().long().item()
{+n} = int({t0}.sum())
{+n} = float({t0}.mean())
{+n} = bool({t0}.any())
{+m} = {t0}.long().flatten().tolist()
{+n} = {t0}.max().item()
{+n} = len({t0}.tolist())
said.append(f'{{{$t}.sum().item():.3f}}')
said.append(f'{{{$t}.shape}}')
said.append(f'{{{$t}}}')
said.append(str({$t}.dtype))
said.append(repr({$t}))
said.append('%s' % {$t}.sum())
print({$t})
print({n}, {$t}.dtype)
said.append([i for i in range(5)][torch.tensor({i})])
said.append(range(int({$t}.dim())))
{+n} = operator.index({t0}.argmax())
{+l} = [v for v in {$l} if v.sum() > 0]
{+l} = sorted({$l}, key=lambda v: v.sum().item())
{+l} = sorted({$l}, key=lambda v: float(v.mean()), reverse=True)
{+t} = sum({t0}.flatten())
{+t} = min({$l}, key=lambda v: v.double().sum())
said.append({$t} in {$l})
said.append({$t}.shape == {$t}.shape)
said.append(torch.equal({$t}, {t0}))
said.append(torch.allclose({$t}, {t0}))
''',
    compound='''
if {$t}.any():
    {@}
else:
    {@}

while {$t}.abs().sum() > 3:
    {!t} = {$t} / 4
    {@}
    break

if {t0}.sum() > {n} and {c}:
    {@}

for {=n:i} in range(int({t0}.bool().sum()) % 3):
    {@}

for {=n} in {t0}.flatten()[:2].tolist():
    {@}

assert ({$t} == {$t}).all(), {s}
{@}
''',
    dt="torch.int8\ntorch.uint8\ntorch.int16\ntorch.int32\ntorch.int64\ntorch.bool\ntorch.bfloat16\ntorch.float16\n"
       "torch.float32\n"
       "torch.float64\ntorch.complex64\n{$t}.dtype",
    c="{$t}.any()\n{$t}.sum() > 0\n({t0} > 0).all()\n{t0}.max() > {n}\ntorch.equal({$t}, {t0})\n"
      "{$t}.is_floating_point()",
    n="{$t}.sum().item()\nint({$t}.argmax())\n{$t}.flatten()[0].item()\n1.5\n-2\nTrue\n{$t}.long().sum()")

DATA = group(
    "DATA",
    simple='''
{$t}[torch.tensor([{i}, {j}])]
{+t} = {$t}[torch.tensor({j})]
{+t} = {t0}[[{i}, {j}]]
{+t} = {t0}.gather(0, torch.tensor([[{j}, 0]]))
{+t} = {t0}.index_select(0, torch.tensor([{j}]))
{$t}.index_add_(0, torch.tensor([{j}]), torch.ones(1, 4))
{$t}.scatter_(0, torch.tensor([[{j}]]), 2.0)
F.one_hot(torch.tensor([{i}, {j}]), 3)
{+t} = F.one_hot(torch.tensor([{i}, {j}])).float()
{+t} = F.embedding(torch.tensor([{j}]), torch.ones(3, 4))
{+t} = F.embedding_bag(torch.tensor([{j}, 0]), torch.ones(3, 4), torch.tensor([0]))
{+t} = torch.tensor([4, 2]) // torch.tensor([{j}, 1])
{+t} = torch.tensor([4, 2]) % torch.tensor([{j}, 1])
torch.tensor([4, 2]).fmod(torch.tensor([{i}, {j}]))
torch.linalg.cholesky(torch.eye(3) * {j})
{+t} = torch.linalg.cholesky({t0} @ {t0}.mT + {j} * torch.eye(3))
{+t} = torch.linalg.inv(torch.eye(2) * {j})
{+t} = torch.linalg.solve(torch.eye(3) * {j}, {t0})
{+t} = F.cross_entropy({t0}, torch.tensor([0, 1, {j}]))
{+t} = F.nll_loss({t0}, torch.tensor([0, 1, {j}]))
{+t} = torch.bincount(torch.tensor([{i}, {j}]))
{+t} = torch.multinomial(torch.tensor([0.5, {j} * 0.1]), 1)
{+t} = torch.bernoulli(torch.tensor([0.5, {j} * 0.3]))
{+t} = torch.repeat_interleave({t0}, torch.tensor([1, {j}, 0]), 0)
{+t} = {t0}.take(torch.tensor([{j}, 20 * {i}]))
{+t} = torch.take_along_dim({t0}, torch.tensor([[{j}]]), 0)
{+t} = torch.normal(torch.zeros(2), torch.tensor([1., {j} * 1.0]))
{+t} = {t0}.view({j}, -1)
{+t} = {t0}.narrow(0, {j}, 1)
{+t} = {t0}.select(0, {j})
{+t} = {t0}.split({j})[0]
{+t} = {t0}.reshape({j}, 4)
{+t} = torch.zeros({j})
{+t} = {t0}.unsqueeze({j})
{+t} = torch.arange({j}, 9, {i})
{+n} = {$l}[{j}].dim()
{+n} = {$m}[{j}] // {i}
{+n} = {n} % {i}
{+t} = torch.stack({$l})
{+t} = torch.cat({$l})
{+t} = torch.searchsorted({t0}, {t0})
{+t} = {t0}[{t0}.long().clamp(0, 2)[0]]
torch._assert({$t}.sum() > {j}, {s})
torch._assert_async(({$t}.abs().sum() > {i}))
{+n} = int({t0}.flatten()[{j}])
''',
    compound='''
try:
    {@}
    {data}
    {@}
except (IndexError, RuntimeError) as e:
    said.append(type(e).__name__)
    {@}

{data}
{@}

with contextlib.suppress(RuntimeError, IndexError), Manager(said, {n}):
    {@}
    {data}
    {@}

for {=n:i} in range({i}, 4):
    try:
        {+t} = {$t}[torch.tensor({i} + {j})]
        {@}
    except IndexError:
        {@}
        break
''',
    j="n\nn + 1\n2 * n\n3 * flag\n-n\n5\n0\nlen({$l})\nSTATE['count']",
    data="{$t}[torch.tensor([{i}, {j}])]\ntorch.tensor([4, 2]) // torch.tensor([{j}, 1])\n"
         "F.one_hot(torch.tensor([{i}, {j}]), 3)\n"
         "torch.linalg.cholesky(torch.eye(2) * {j})\n{+t} = {t0}.index_select(0, torch.tensor([{j}]))\n"
         "{+t} = F.embedding(torch.tensor([{j}]), torch.ones(3, 4))\n{$t}.index_fill_(0, torch.tensor([{j}]), 2)")

TENSORS: dict[str, Topical] = {t.name: t for t in (VIEWS, WRITES, DTYPES, DATA)}
