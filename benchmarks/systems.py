"""The systems that are compared: how each compiles a callable, where its cache lies, what it says about the compile."""
import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class System:
    """`compile` is timed with its import, as a user's program pays for both. `environment` names cache variables."""

    name: str
    compile: Callable[[Callable[..., Any]], Callable[..., Any]]
    environment: tuple[str, ...] = ()
    report: Callable[[], dict[str, Any]] = dict
    disable: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda fn: fn


def _torch_compile(fn: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    return torch.compile(fn)


def _torch_report() -> dict[str, Any]:
    from torch._dynamo import utils

    return {
        "graphs": utils.counters["stats"].get("unique_graphs", 0),
        "graph_breaks": sum(utils.counters["graph_break"].values()),
        # torch's phases contain one another: they do not add up.
        "phases": {name: sum(times) for name, times in utils.compilation_time_metrics.items() if sum(times) > 0.05},
    }


def _torch_disable(fn: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    return torch.compiler.disable(fn)


def _ours(fn: Callable[..., Any]) -> Callable[..., Any]:
    import dynamo_lite

    return dynamo_lite.compile(fn)


def _our_report() -> dict[str, Any]:
    from dynamo_lite import log

    return {**log.counters(), "phases": log.phase_times()}


def _our_disable(fn: Callable[..., Any]) -> Callable[..., Any]:
    import dynamo_lite

    return dynamo_lite.disable(fn)


class _OnnxRuntime:
    """A module exported at its first call and run by ONNX Runtime on torch's number of threads."""

    def __init__(self, model: Callable[..., Any]) -> None:
        self._model = model
        self._session: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        inputs = [*args, *kwargs.values()]
        if self._session is None:
            self._session = self._export(inputs, kwargs)
        names = [i.name for i in self._session.get_inputs()]
        (result, *_) = self._session.run(None, {n: x.numpy() for n, x in zip(names, inputs)})
        return torch.from_numpy(result)

    def _export(self, inputs: list[Any], kwargs: dict[str, Any]) -> Any:
        import io

        import onnxruntime
        import torch

        if not isinstance(self._model, torch.nn.Module):
            raise TypeError("only modules are exported")
        buffer = io.BytesIO()
        positional = inputs[:len(inputs) - len(kwargs)]
        torch.onnx.export(self._model, (*positional, kwargs), buffer, dynamo=False,  # type: ignore[arg-type]
                          opset_version=17)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        return onnxruntime.InferenceSession(buffer.getvalue(), options, providers=["CPUExecutionProvider"])


SYSTEMS = {
    "eager": System("eager", lambda fn: fn),
    "torch.compile": System("torch.compile", _torch_compile, ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
                            _torch_report, _torch_disable),
    "dynamo_lite": System("dynamo_lite", _ours, ("DYNAMO_LITE_CACHE_DIR",), _our_report, _our_disable),
    # Not a part of a plain run: for the convolution networks, where onnx and onnxruntime are installed.
    "onnxruntime": System("onnxruntime", _OnnxRuntime),
}
DEFAULT = ("eager", "torch.compile", "dynamo_lite")
