"""Which models are captured as one graph and equal eager; writes docs/coverage.md.

    python benchmarks/coverage_models.py [--only NAME ...] [--backend NAME]

A model is a row of `CASES`: class and config of transformers, the config's values (small, random weights), and the
inputs. Each runs in a process of its own, first with fullgraph=True; where that is refused, the table names the
construct, and a second run without it counts graphs and breaks.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
import traceback
from typing import Any

import torch
from measure import largest_difference, tensors

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Case:
    """`inputs` says how each keyword argument is made: ("ids", shape...), ("ones", shape...) or ("image", shape...)."""

    name: str
    model: str
    config: str
    values: dict[str, Any]
    inputs: dict[str, tuple[Any, ...]]
    # What the tests expect.
    one_graph: bool = True


TEXT = {"input_ids": ("ids", 2, 16)}
MASKED = {"input_ids": ("ids", 2, 16), "attention_mask": ("ones", 2, 16)}
LAYERS = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
ENCODER = {**LAYERS, "vocab_size": 100}
VIT = {**LAYERS, "image_size": 32, "patch_size": 8}
RESNET = {"embedding_size": 16, "hidden_sizes": [16, 32, 64, 64], "depths": [1, 1, 2, 1]}
PIXELS = {"pixel_values": ("image", 2, 3, 32, 32)}
T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 100}

CASES = [
    Case("BERT", "BertModel", "BertConfig", ENCODER, TEXT),
    Case("BERT, attention mask", "BertModel", "BertConfig", ENCODER, MASKED),
    Case("RoBERTa", "RobertaModel", "RobertaConfig", ENCODER, TEXT),
    Case("GPT-2", "GPT2LMHeadModel", "GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100}, TEXT),
    Case("Llama", "LlamaForCausalLM", "LlamaConfig", {**ENCODER, "num_key_value_heads": 2}, TEXT),
    Case("GPT-NeoX", "GPTNeoXForCausalLM", "GPTNeoXConfig", ENCODER, TEXT),
    Case("Falcon", "FalconForCausalLM", "FalconConfig",
         {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}, TEXT),
    Case("T5 encoder", "T5EncoderModel", "T5Config", T5, TEXT),
    Case("ViT", "ViTModel", "ViTConfig", VIT, PIXELS),
    Case("ResNet, basic blocks", "ResNetForImageClassification", "ResNetConfig",
         {**RESNET, "layer_type": "basic"}, PIXELS),
    Case("ResNet, bottleneck blocks", "ResNetForImageClassification", "ResNetConfig", RESNET, PIXELS),
    Case("MobileNetV2", "MobileNetV2ForImageClassification", "MobileNetV2Config", {"image_size": 32}, PIXELS),
    Case("DistilBERT", "DistilBertModel", "DistilBertConfig",
         {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "vocab_size": 100}, TEXT),
    Case("OPT", "OPTForCausalLM", "OPTConfig",
         {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 128, "vocab_size": 100,
          "word_embed_proj_dim": 64}, TEXT),
    Case("Mistral", "MistralForCausalLM", "MistralConfig", {**ENCODER, "num_key_value_heads": 2}, TEXT),
    Case("Qwen2", "Qwen2ForCausalLM", "Qwen2Config", {**ENCODER, "num_key_value_heads": 2}, TEXT),
    Case("Gemma", "GemmaForCausalLM", "GemmaConfig", {**ENCODER, "num_key_value_heads": 2, "head_dim": 16}, TEXT),
    Case("Phi", "PhiForCausalLM", "PhiConfig", ENCODER, TEXT),
    Case("Mixtral", "MixtralForCausalLM", "MixtralConfig",
         {**ENCODER, "num_key_value_heads": 2, "num_local_experts": 4}, TEXT),
    Case("BLOOM", "BloomForCausalLM", "BloomConfig",
         {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100}, TEXT, one_graph=False),
    Case("ALBERT", "AlbertModel", "AlbertConfig", {**ENCODER, "embedding_size": 32}, TEXT),
    Case("ELECTRA", "ElectraModel", "ElectraConfig", {**ENCODER, "embedding_size": 32}, TEXT),
    Case("DeBERTa v2", "DebertaV2Model", "DebertaV2Config", ENCODER, TEXT),
    Case("BART", "BartModel", "BartConfig",
         {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
          "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 100},
         TEXT),
    Case("ConvNeXt", "ConvNextForImageClassification", "ConvNextConfig",
         {"hidden_sizes": [16, 32, 64, 64], "depths": [1, 1, 2, 1], "image_size": 32}, PIXELS),
    Case("Swin", "SwinModel", "SwinConfig",
         {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4},
         PIXELS),
    Case("RegNet", "RegNetForImageClassification", "RegNetConfig",
         {"embedding_size": 16, "hidden_sizes": [16, 32, 64, 64], "depths": [1, 1, 2, 1], "groups_width": 8}, PIXELS),
]


def _make(kind: str, *shape: int) -> torch.Tensor:
    if kind == "ids":
        return torch.randint(5, 100, shape)
    if kind == "ones":
        return torch.ones(shape, dtype=torch.long)
    return torch.randn(shape)


def build(case: Case) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    model = getattr(transformers, case.model)(getattr(transformers, case.config)(**case.values)).eval()
    return model, {name: _make(*spec) for name, spec in case.inputs.items()}


def layouts(value: Any) -> list[tuple[Any, ...]]:
    return [(t.dtype, tuple(t.shape), t.stride()) for t in tensors(value)]


def try_case(case: Case, backend: str) -> dict[str, Any]:
    """Capture one model and compare it with eager; what happened, as plain data."""
    import dynamo_lite

    model, inputs = build(case)
    result: dict[str, Any] = {"one_graph": True}
    with torch.no_grad():
        want = model(**inputs)
        start = time.perf_counter()
        try:
            got = dynamo_lite.compile(model, fullgraph=True, backend=backend)(**inputs)
        except dynamo_lite.exc.Unsupported as e:
            result = {"one_graph": False, "kind": e.kind, "reason": e.reason, "where": e.where}
            dynamo_lite.reset()
            dynamo_lite.log.reset()
            got = dynamo_lite.compile(model, backend=backend)(**inputs)
        result["first_call"] = time.perf_counter() - start
        counters = dynamo_lite.log.counters()
        result["graphs"], result["breaks"] = counters.get("graphs", 0), counters.get("graph_breaks", 0)
        result["type"] = type(got) is type(want)
        result["difference"] = largest_difference(got, want)
        result["layout"] = layouts(got) == layouts(want)
    return result


def child(case: Case, backend: str) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "coverage_models.py"), "--child", case.name, "--backend", backend]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=dict(os.environ))
    except subprocess.TimeoutExpired:
        return {"failed": "took longer than 600 s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:300]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def row(case: Case, result: dict[str, Any]) -> str:
    cells = [case.name, f"`{case.model}`"]
    if "failed" in result:
        cells += ["no", "", "", "", result["failed"].replace("|", "\\|")]
    else:
        equal = result["type"] and result["difference"] <= TOLERANCE
        notes = []
        if not result["one_graph"]:
            notes.append(f"{result['reason']} (`{result['kind']}`), {_short(result['where'])}")
        notes += [] if result["type"] else ["the result is of another type"]
        notes += [] if result["layout"] else ["strides differ"]
        cells += ["yes" if result["one_graph"] else "no", "yes" if equal else "no",
                  f"{result['graphs']} / {result['breaks']}", f"{result['difference']:.0e}",
                  "; ".join(notes).replace("|", "\\|")]
    return "| " + " | ".join(cells) + " |"


def _short(where: str) -> str:
    """A place without the folder that packages, or Python itself, are installed in."""
    return where.split("site-packages/")[-1].split(f"/python{sys.version_info.major}.{sys.version_info.minor}/")[-1]


def page(results: list[tuple[Case, dict[str, Any]]], backend: str) -> str:
    import transformers

    lines = [
        "# Models that were tried",
        "",
        f"Written by `python benchmarks/coverage_models.py` with transformers {transformers.__version__}, "
        f"torch {torch.__version__}, backend `{backend}`.",
        "Small configurations with random weights, inference, inputs as in `CASES` there; \"one graph\" is "
        f"`fullgraph=True`, \"equal\" a largest difference of at most {TOLERANCE:g} from eager, "
        "over all outputs, caches included.",
        "",
        "| model | class | one graph | equal | graphs / breaks | largest difference | what stands in the way |",
        "|---|---|---|---|---:|---:|---|",
        *[row(case, result) for case, result in results],
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Try models with fullgraph=True and write docs/coverage.md.")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[c.name for c in CASES])
    parser.add_argument("--backend", default="inductor_lite")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        case = next(c for c in CASES if c.name == options.child)
        try:
            print(json.dumps(try_case(case, options.backend)))
        except Exception as e:
            traceback.print_exc()
            print(f"{type(e).__name__}: {' '.join(str(e).split())}", file=sys.stderr)
            sys.exit(1)
        return
    results = []
    for case in CASES:
        if not options.only or case.name in options.only:
            results.append((case, child(case, options.backend)))
            print(row(*results[-1]), flush=True)
    if not options.only:
        target = HERE.parent / "docs" / "coverage.md"
        _, mark, survey = target.read_text().partition("<!-- survey -->")  # which coverage.py has put there
        target.write_text(page(results, options.backend) + (f"\n{mark}{survey}" if mark else ""))


if __name__ == "__main__":
    main()
