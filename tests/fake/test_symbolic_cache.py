"""What operators on symbolic sizes give is computed once for each kind of call of a trace."""
from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.fake import symbolic, symbolic_cache
from dynamo_lite.fake.mode import TraceFakeMode
from dynamo_lite.symbols.nodes import expression_of, symbolic_int


def block(x, w):
    x = F.layer_norm(x, (8,))
    y = x.view(x.shape[0], -1, 2, 4).transpose(1, 2)
    x = x + y.transpose(1, 2).reshape(x.shape) @ w
    return torch.cat([x[:, 1:], x[:, :1]], 1)


def net(x, w):
    for _ in range(3):
        x = block(x, w)
    return x


def test_layers_are_run_once(monkeypatch):
    ran: Counter[str] = Counter()
    whole = symbolic._with_symbols

    def counted(mode, static, expected, run, func, args, kwargs):
        ran[str(func)] += 1
        return whole(mode, static, expected, run, func, args, kwargs)

    monkeypatch.setattr(symbolic, "_with_symbols", counted)
    compiled = dynamo_lite.compile(net, dynamic=True, backend="aot_eager")
    w = torch.randn(8, 8)
    for n, m in ((3, 5), (2, 7), (9, 4)):
        x = torch.randn(n, m, 8)
        torch.testing.assert_close(compiled(x, w), net(x, w))
    # Once in the trace and at most once more when it is recorded, where the thread's state is another.
    assert 1 <= ran["aten.native_layer_norm.default"] <= 2 and 1 <= ran["aten.cat.default"] <= 2


@pytest.mark.parametrize("operator", [
    lambda x: x.transpose(0, 1), lambda x: x[:, 1:], lambda x: x.view(-1), lambda x: x.unsqueeze(1).expand(-1, 3, -1),
    lambda x: x + 1, lambda x: x.sum(0), lambda x: F.softmax(x, 0), lambda x: x @ x.t(), lambda x: torch.cat([x, x]),
    lambda x: x.sort(0), lambda x: F.layer_norm(x, (x.shape[1],)), lambda x: x.split(1, 1), lambda x: x.clone(),
    lambda x: x.permute(1, 0)[1:].contiguous(), lambda x: x.new_zeros(x.shape[1] // 2), lambda x: x.to(torch.int64),
])
def test_what_is_remembered_is_what_was_given(operator):
    mode = TraceFakeMode()
    env = mode.symbols()
    s, t = env.new("s", 6, 2), env.new("t", 4, 2)
    size = symbolic_int(env, s), symbolic_int(env, t)
    with mode:
        x = torch.empty(size)
        first = operator(x)
        decided = list(env.decisions)
        again = operator(x)
    assert env.decisions == decided
    a, b = (list(v) if isinstance(v, tuple) else [v] for v in (first, again))
    assert len(a) == len(b)
    for p, q in zip(a, b):
        assert list(map(expression_of, (*p.shape, *p.stride(), p.storage_offset()))) == list(
            map(expression_of, (*q.shape, *q.stride(), q.storage_offset())))
        assert (p.dtype, p.device, p.requires_grad) == (q.dtype, q.device, q.requires_grad)
        shared = [v.untyped_storage()._cdata == x.untyped_storage()._cdata for v in (p, q)]
        assert shared[0] == shared[1] and (shared[0] or p.untyped_storage()._cdata != q.untyped_storage()._cdata)


def test_calls_that_differ_are_kept_apart():
    mode = TraceFakeMode()
    env = mode.symbols()
    n = symbolic_int(env, env.new("s", 6, 2))
    aten = torch.ops.aten
    with mode:
        x, wide = torch.empty(n, 4), torch.empty(n, 5)
        keys = [symbolic_cache.key_of(mode, func, args, {}) for func, args in (
            (aten.add.Tensor, (x, 1)), (aten.add.Tensor, (x, 1.0)), (aten.add.Tensor, (x, True)),
            (aten.add.Tensor, (wide, 1)), (aten.sub.Tensor, (x, 1)), (aten.add.Tensor, (x[:, :3], 1)),
            (aten.mul.Tensor, (x, 0.0)), (aten.mul.Tensor, (x, -0.0)), (aten.slice.Tensor, (x, 0, 0, n)),
            (aten.slice.Tensor, (x, 0, 0, n - 1)), (aten.slice.Tensor, (x[1:], 0, 0, n)))]
    assert None not in keys and len(set(keys)) == len(keys)
    assert symbolic_cache.key_of(mode, aten.add_.Tensor, (x, 1), {}) is None
    assert symbolic_cache.key_of(mode, aten.bernoulli.default, (x,), {}) is None
