"""CUDA graphs without a GPU: what a run calls is written down, with its tensors, and called again.

As on a GPU, recording computes nothing: tensors that were there before hold what they held, others hold nonsense. A
replay reads and writes the same memory.
"""
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map


class RecorderOnCpu:
    """Attributes:
        order: what stands for the caller's stream; None: it records a graph itself.
        recorded, replays: how often that was done.
        fails: whether the device can't record.
    """

    def __init__(self):
        self.order, self.recorded, self.replays, self.fails = 7, 0, 0, False
        self.steps, self.before = None, {}

    def stream(self):
        return self.order

    def record(self, run):
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.steps, self.before = [], {}
        steps = self.steps
        try:
            with _Calls(self):
                results = run()
        finally:
            before, self.steps = self.before, None
        made = {}
        for step in steps:
            for tensor in step[3]:
                made[tensor.untyped_storage()._cdata] = tensor
        for place, (tensor, content) in before.items():
            made.pop(place, None)
            tensor.untyped_storage().copy_(content)
        for tensor in made.values():
            tensor.untyped_storage().fill_(127)
        self.recorded += 1
        # It knows addresses, and holds no tensor; what it alone has made lives in its pool.
        own = made.keys() - {t.untyped_storage()._cdata for t in _tensors(results)}
        steps[:] = [(f, *tree_map(lambda value: _looked_at(value, own), rest)) for f, *rest in steps]

        def replay():
            self.replays += 1
            for function, args, kwargs, outs in steps:
                for out, value in zip(outs, _tensors(function(*args, **kwargs))):
                    if out is not value and not _share(out, value):
                        out.copy_(value)

        return replay, results

    def note_write(self, tensor):
        """A tensor is about to be written."""
        place = tensor.untyped_storage()._cdata
        if place not in self.before and not any(
                place == t.untyped_storage()._cdata for step in self.steps for t in step[3]):
            self.before[place] = tensor, tensor.untyped_storage().clone()

    def launch(self, kernel, tensors):
        """A kernel as a step of the run, if one is recorded.

        Args:
            kernel: launches it.
            tensors: that it may write.
        """
        with _disable_current_modes():
            if self.steps is not None:
                for tensor in tensors:
                    self.note_write(tensor)
                self.steps.append((lambda *_: kernel(), tuple(tensors), {}, []))
            kernel()


def _tensors(value):
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _looked_at(value, own):
    """A tensor as another in the same memory that does not hold it, unless it is in one of the storages `own`."""
    if not isinstance(value, torch.Tensor) or value.untyped_storage()._cdata in own:
        return value
    storage = value.untyped_storage()
    alias = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), value.device, storage.nbytes())
    return torch.empty(0, dtype=value.dtype).set_(alias, value.storage_offset(), value.shape, value.stride())


def _share(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


class _Calls(TorchDispatchMode):
    def __init__(self, recorder):
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for argument, value in zip(func._schema.arguments, args):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in _tensors(value):
                    self.recorder.note_write(tensor)
        result = func(*args, **kwargs)
        self.recorder.steps.append((func, args, kwargs, _tensors(result)))
        return result
