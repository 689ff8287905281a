"""Metadata rules run on aliases give what torch's own mode gives: for every operator of op_db that is dispatched."""
import functools
import itertools

import pytest
import thorough
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from dynamo_lite.fake import meta_kernels, torch_entry
from dynamo_lite.fake.mode import TraceFakeMode

OPERATORS = [op for op in op_db if torch.float32 in op.dtypes and not op.name.startswith(("jiterator", "sparse"))]
PARTS = 8


def described(value, operands):
    """What can be seen of results, and of which operands they share memory with."""
    memory = {x.untyped_storage()._cdata: at for at, x in enumerate(operands)}
    return [
        (type(x), x.shape, x.stride(), x.storage_offset(), x.dtype, x.device, memory.get(x.untyped_storage()._cdata),
         next((at for at, y in enumerate(operands) if x is y), None))
        if isinstance(x, torch.Tensor) else x
        for x in pytree.tree_leaves(value)
    ]


@pytest.fixture
def both(monkeypatch):
    """Has each operator that runs on aliases run in torch's way, too; the operators, those apart that differ."""
    seen, different = [], []
    of_aliases = meta_kernels.run

    def run(mode, func, args, kwargs):
        made = of_aliases(mode, func, args, kwargs)
        if made is not NotImplemented:
            operands = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, FakeTensor)]
            wanted = FakeTensorMode.dispatch(mode, func, (), args, kwargs)
            same = described(made, operands) == described(wanted, operands)
            (seen if same else different).append(func)
        return made

    monkeypatch.setattr(meta_kernels, "run", run)
    return seen, different


@pytest.mark.parametrize("part", range(PARTS))
def test_operators_of_op_db(both, part):
    for op in thorough.share(OPERATORS[part::PARTS], part, 5):
        for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), 2):
            mode = TraceFakeMode()
            make = functools.partial(mode.fake_tensor_converter.from_real_tensor, mode)
            x, args, kwargs = pytree.tree_map_only(torch.Tensor, make, (sample.input, sample.args, sample.kwargs))
            with mode, torch_entry.scope():
                try:
                    op.op(x, *args, **kwargs)
                except (RuntimeError, NotImplementedError, AssertionError, TypeError, ValueError):
                    pass  # without data, or at all: what was dispatched before is compared
    assert len(both[0]) > 20 and not both[1]


def test_views_share_memory(both):
    mode = TraceFakeMode()
    with mode:
        x = torch.empty(4, 6)
        y = x.t()[1:].unsqueeze(0)
        y.add_(1)
    assert y.untyped_storage()._cdata == x.untyped_storage()._cdata and y.storage_offset() == 1
    assert torch.ops.aten.add_.Tensor in both[0] and not both[1]


def test_what_changes_sizes_of_operands_is_left_to_torch():
    mode = TraceFakeMode()
    with mode:
        x, out = torch.empty(4, 6), torch.empty(0)
        torch.add(x, x, out=out)
        y = torch.empty(2, 3)
        y.resize_(5, 5).t_()
    assert out.shape == (4, 6) and y.shape == (5, 5) and y.stride() == (1, 5)


def test_tensors_on_other_devices_are_refused_as_ever():
    mode = TraceFakeMode()
    with mode:
        x, y = torch.empty(3), torch.empty(3, device="meta")
        with pytest.raises(RuntimeError, match="device"):
            torch.atan2(x, y)
        assert torch.empty(3, device="meta").copy_(x).device.type == "meta"
