"""What is measured: one row per workload, as a function that builds a callable and its arguments.

Everything is built from fixed seeds, so that each process of each system computes the same thing; a workload that is
added here appears in the table, the JSON and the plot.
"""
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Program = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Workload:
    """`build()` gives the callable, its arguments and its keyword arguments."""

    name: str
    title: str
    build: Callable[[], Program]
    # Part of a plain `make bench`.
    default: bool = True
    # Part of `--quick`.
    quick: bool = False
    # For a training step: the optimizer of the model's parameters. The callable is a model that returns its loss.
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None


WORKLOADS: dict[str, Workload] = {}


def _add(name: str, title: str, build: Callable[[], Program], **flags: Any) -> None:
    WORKLOADS[name] = Workload(name, title, build, **flags)


# ---------------------------------------------------------------- chains of elementwise operations
def _eight_a(x, y):
    z = x * y
    z = z + 0.5
    z = torch.relu(z)
    z = z - y
    z = torch.sigmoid(z)
    z = z * x
    z = torch.abs(z)
    return torch.sqrt(z)


def _eight_b(x, y):
    z = torch.tanh(x)
    z = z / (y * y + 1.0)
    z = torch.maximum(z, y)
    z = z * 0.25
    z = torch.sin(z)
    z = torch.where(z > 0, z, y)
    return z - x


def _eight_c(x, y):
    z = torch.exp(-x)
    z = torch.clamp(z, -2.0, 2.0)
    z = z + y
    z = F.silu(z)
    z = z * z
    z = torch.minimum(z, x)
    return torch.neg(z)


def _eight_d(x, y):
    z = torch.cos(x)
    z = z * y
    z = F.gelu(z)
    z = z + x
    z = torch.log1p(torch.abs(z))
    z = z - 0.125
    return z * y


def _chain8(x, y):
    return _eight_a(x, y)


def _chain16(x, y):
    return _eight_b(_eight_a(x, y), y)


def _chain32(x, y):
    return _eight_d(_eight_c(_eight_b(_eight_a(x, y), y), y), y)


def _chain(fn: Callable[..., Any], side: int) -> Callable[[], Program]:
    return lambda: (fn, (torch.randn(side, side), torch.randn(side, side)), {})


for _count, _fn in ((8, _chain8), (16, _chain16), (32, _chain32)):
    for _side in (100, 1000):
        _add(f"chain{_count}_{_side}", f"{_count} elementwise operations, {_side} x {_side}", _chain(_fn, _side),
             quick=(_count, _side) in ((8, 100), (32, 1000)))


# ---------------------------------------------------------------- reductions
def _norm_gelu_softmax(x, w, b):
    return torch.softmax(F.gelu(F.layer_norm(x, (x.shape[-1],), w, b)), -1)


_add("norm_gelu_softmax", "layer norm + GELU + softmax, 1024 x 1024",
     lambda: (_norm_gelu_softmax, (torch.randn(1024, 1024), torch.randn(1024), torch.randn(1024)), {}), quick=True)


# ---------------------------------------------------------------- models, built by transformers with random weights
def _model(class_name: str, config_name: str, inputs: Callable[[], dict[str, Any]],
           **config: Any) -> Callable[[], Program]:
    def build() -> Program:
        import transformers  # several seconds, which only the models' processes pay

        transformers.logging.set_verbosity_error()
        model = getattr(transformers, class_name)(getattr(transformers, config_name)(**config)).eval()
        return model, (), inputs()

    return build


def _tokens(batch: int, length: int) -> Callable[[], dict[str, Any]]:
    return lambda: {"input_ids": torch.randint(0, 1000, (batch, length))}


def _image(batch: int) -> Callable[[], dict[str, Any]]:
    return lambda: {"pixel_values": torch.randn(batch, 3, 224, 224)}


_add("bert_base", "BERT-base, 128 tokens", _model("BertModel", "BertConfig", _tokens(1, 128)), quick=True)
_add("gpt2", "GPT-2, 128 tokens", _model("GPT2Model", "GPT2Config", _tokens(1, 128)))
_add("llama_small", "Llama, 8 layers of 512, 128 tokens",
     _model("LlamaForCausalLM", "LlamaConfig", _tokens(1, 128), hidden_size=512, intermediate_size=1376,
            num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4, vocab_size=32000))
_add("resnet18", "ResNet-18, 224 x 224",
     _model("ResNetForImageClassification", "ResNetConfig", _image(1), layer_type="basic", depths=[2, 2, 2, 2],
            hidden_sizes=[64, 128, 256, 512]))
_add("resnet50", "ResNet-50, 224 x 224", _model("ResNetForImageClassification", "ResNetConfig", _image(1)))


def _last(build: Callable[[], Program]) -> Callable[[], Program]:
    """The same with filters and images whose channels lie innermost in memory."""

    def moved(value: Any) -> Any:
        image = isinstance(value, torch.Tensor) and value.dim() == 4
        return value.to(memory_format=torch.channels_last) if image else value

    def laid_out() -> Program:
        fn, args, kwargs = build()
        model: Any = fn
        moved_model = model.to(memory_format=torch.channels_last)
        return moved_model, tuple(map(moved, args)), {name: moved(value) for name, value in kwargs.items()}

    return laid_out


for _name in ("resnet18", "resnet50"):
    _add(f"{_name}_last", f"{WORKLOADS[_name].title}, channels last", _last(WORKLOADS[_name].build), default=False)


def _network(name: str) -> Callable[[], Program]:
    def build() -> Program:
        import convnets

        return getattr(convnets, name)().eval(), (torch.randn(1, 3, 224, 224),), {}

    return build


_add("resnext50", "ResNeXt-50 32x4d, 224 x 224", _network("ResNeXt50"))
_add("mobilenet_v3", "MobileNetV3-large, 224 x 224", _network("MobileNetV3"))


# ---------------------------------------------------------------- training steps
class _Loss(torch.nn.Module):
    """A model with its loss."""

    def __init__(self, model: torch.nn.Module, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, inputs, target):
        return self.loss(self.model(inputs), target)


class _Trained:
    """Builds one of transformers' models, whose labels are part of its inputs, for training."""

    def __init__(
        self, build: Callable[[], Program], picks: Callable[[Any], torch.Tensor], labels: Callable[[], torch.Tensor]
    ) -> None:
        self._build, self._picks, self._labels = build, picks, labels

    def __call__(self) -> Program:
        model, _, inputs = self._build()
        (name, value), = inputs.items()
        return _Loss(_Logits(model, name, self._picks), F.cross_entropy).train(), (value, self._labels()), {}


class _Logits(torch.nn.Module):
    def __init__(self, model: Any, name: str, picks: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        self.model, self.name, self.picks = model, name, picks

    def forward(self, value):
        return self.picks(self.model(**{self.name: value}))


def _flat_logits(output: Any) -> torch.Tensor:
    return output.logits.flatten(0, -2)


def _mlp() -> Program:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(256, 1024), nn.LayerNorm(1024), nn.GELU(), nn.Dropout(0.1),
                          nn.Linear(1024, 1024), nn.LayerNorm(1024), nn.GELU(), nn.Linear(1024, 10))
    return _Loss(model, F.cross_entropy).train(), (torch.randn(64, 256), torch.randint(0, 10, (64,))), {}


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-4)


_add("train_resnet18", "training step: ResNet-18, 4 x 3 x 64 x 64",
     _Trained(_model("ResNetForImageClassification", "ResNetConfig",
                     lambda: {"pixel_values": torch.randn(4, 3, 64, 64)}, layer_type="basic", depths=[2, 2, 2, 2],
                     hidden_sizes=[64, 128, 256, 512], num_labels=10), _flat_logits,
              lambda: torch.randint(0, 10, (4,))), optimizer=_sgd)
_add("train_resnet18_last", f"{WORKLOADS['train_resnet18'].title}, channels last",
     _last(WORKLOADS["train_resnet18"].build), default=False, optimizer=_sgd)
_add("train_roberta", "training step: RoBERTa, 4 layers of 256, 4 x 128 tokens",
     _Trained(_model("RobertaForMaskedLM", "RobertaConfig", _tokens(4, 128), hidden_size=256, num_hidden_layers=4,
                     num_attention_heads=4, intermediate_size=1024, vocab_size=8000), _flat_logits,
              lambda: torch.randint(0, 8000, (512,))), optimizer=_sgd)
_add("train_mlp", "training step: MLP of 1024, AdamW", _mlp,
     optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-4))


# ---------------------------------------------------------------- the cost of a call and of a break
def _add_two(x, y):
    return x + y


_add("add_4", "x + y on 4 elements", lambda: (_add_two, (torch.randn(4), torch.randn(4)), {}), quick=True)


def _step(z, y):
    z = torch.sin(z * y) + 0.5
    if z.sum() > 0:
        return z - 0.25
    return z + 0.25


def _branchy(x, y):
    z = x
    for _ in range(8):
        z = _step(z, y)
    return z


_add("branchy_1000", "8 steps that branch on data, 1000 x 1000",
     lambda: (_branchy, (torch.randn(1000, 1000), torch.randn(1000, 1000)), {}))


def _nothing(x):
    return x


def _one_break(x):
    x = x + 1
    _opaque(x)
    return x * 2


_opaque: Callable[[Any], Any] = _nothing


def _break_program() -> Program:
    # Each system is asked to leave this call alone in its own way; see systems.py.
    return _one_break, (torch.randn(4),), {}


_add("break_4", "a break between two one-operation graphs", _break_program)


def opaque_by(disable: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Make the call in `break_4` one that the system under test does not capture."""
    global _opaque
    _opaque = disable(_nothing)
