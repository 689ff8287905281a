"""How many of transformers' models are one graph, and equal eager.

    python benchmarks/coverage.py [--every N] [--only TYPE ...] [--systems dynamo_lite torch.compile] [--json FILE]

Every model class of transformers' AutoModel table is built from its default config shrunk by the names of its fields
(sizes, layers, heads, vocabularies), with random weights, and called once in eager. Those that run are tried compiled
with the eager backend: with ``fullgraph=True``, and where that is refused, without. The report counts both and ranks
the reasons. Models are tried in worker processes, many in each, with a time limit for each model.
"""
import argparse
import collections
import json
import multiprocessing as mp
import pathlib
import re
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from measure import largest_difference, tensors

TOLERANCE = 1e-4
SECONDS_PER_MODEL = 90
MODELS_PER_PROCESS = 20
MOST_PARAMETERS = 30_000_000

# Field names (whole, by regular expression) and what they shrink to. The first that fits decides.
_SHRINK: list[tuple[str, int]] = [
    (r".*(num_key_value_heads|num_kv_heads|n_kv_heads)", 4),
    (r".*(num_heads|attention_heads|n_heads?|num_attention_heads)", 4),
    (r"(num_hidden_layers|num_layers|n_layers?|.*_layers|num_hidden_.*blocks|depth)", 2),
    (r".*(head_dim|d_kv)", 16),
    (r".*(intermediate|ffn|d_ff|feed_forward|mlp_dim|inner_dim).*(size|dim|hidden_size|ff)?", 64),
    (r"(hidden_size|d_model|n_embd|embed_dim|dim|hidden_dim|embedding_size|.*_hidden_size|projection_dim"
     r"|word_embed_proj_dim)", 64),
    (r".*vocab_size", 128),
    (r"(max_position_embeddings|n_positions|n_ctx|max_source_positions|max_target_positions)", 128),
    (r"image_size", 64),
    (r"(num_experts|n_routed_experts|num_local_experts)", 4),
    (r"(num_experts_per_tok|num_experts_per_token|moe_topk)", 2),
]


def shrink(config: Any, seen: set[int] | None = None) -> None:
    """Makes a config small in place, the configs inside it too."""
    seen = seen if seen is not None else set()
    if id(config) in seen:
        return
    seen.add(id(config))
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict"):
            shrink(value, seen)
        elif isinstance(value, int) and not isinstance(value, bool):
            for pattern, small in _SHRINK:
                if re.fullmatch(pattern, name) and value > small:
                    setattr(config, name, small)
                    break
    for special in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        value = getattr(config, special, None)
        if isinstance(value, int) and value >= 128:
            setattr(config, special, 1)


def inputs_for(model: Any) -> dict[str, torch.Tensor]:
    """Small random inputs by the name of the model's main input."""
    name = model.main_input_name
    config = model.config
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", 64) or 64
    size = size if isinstance(size, int) else size[0]
    channels = getattr(vision, "num_channels", 3) or 3
    made: dict[str, torch.Tensor] = {}
    if name == "pixel_values":
        made[name] = torch.randn(2, channels, size, size)
    elif name == "input_values":
        made[name] = torch.randn(2, 4000)
    elif name == "input_features":
        made[name] = torch.randn(2, getattr(config, "num_mel_bins", 80), 100)
    else:
        made[name] = torch.randint(3, 100, (2, 16))
    if getattr(config, "is_encoder_decoder", False):
        made["decoder_input_ids"] = torch.randint(3, 100, (2, 8))
    return made


def build(model_type: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """The model of a type, small, in eval mode, and its inputs."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    name = MODEL_MAPPING_NAMES[model_type]
    cls = getattr(transformers, name if isinstance(name, str) else name[0])
    config = CONFIG_MAPPING[model_type]()
    shrink(config)
    torch.manual_seed(0)
    with torch.device("meta"):
        parameters = sum(p.numel() for p in cls(config).parameters())
    if parameters > MOST_PARAMETERS:
        raise ValueError(f"{parameters} parameters")
    return cls(config).eval(), inputs_for(cls(config))


class _TimedOut(Exception):
    pass


def _alarm(*_: Any) -> None:
    raise _TimedOut


def try_model(model_type: str, system: str) -> dict[str, Any]:
    """One row: whether the model was built, is one graph, equals eager, and why not."""
    import transformers

    transformers.logging.set_verbosity_error()
    row: dict[str, Any] = {"type": model_type, "system": system, "built": False}
    signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(SECONDS_PER_MODEL)
    try:
        try:
            model, inputs = build(model_type)
            with torch.no_grad():
                torch.manual_seed(1)
                want = tensors(model(**inputs))
            row["built"] = bool(want)
        except _TimedOut:
            raise
        except Exception as error:
            row["why_not_built"] = f"{type(error).__name__}: {str(error)[:150]}"
            return row
        started = time.perf_counter()
        for whole in (True, False):
            try:
                with torch.no_grad():
                    torch.manual_seed(1)
                    got = tensors(_compile(system, model, whole)(**inputs))
                row["one_graph"] = whole
                row["difference"] = largest_difference(want, got)
                row["equal"] = row["difference"] <= TOLERANCE
                break
            except _TimedOut:
                raise
            except Exception as error:
                key = "why_not_one_graph" if whole else "why_not_run"
                row[key] = _reason(error)
        row["seconds"] = time.perf_counter() - started
    except _TimedOut:
        row["why_not_run"] = f"more than {SECONDS_PER_MODEL} s"
    finally:
        signal.alarm(0)
    return row


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{type(error).__name__}: " + " | ".join(line.strip() for line in lines[:3])[:400]


def _compile(system: str, model: Any, fullgraph: bool) -> Any:
    if system == "dynamo_lite":
        import dynamo_lite

        dynamo_lite.reset()
        return dynamo_lite.compile(model, backend="eager", fullgraph=fullgraph)
    torch.compiler.reset()
    return torch.compile(model, backend="eager", fullgraph=fullgraph)


def _work(tasks: list[tuple[str, str]], out: Any) -> None:
    torch.set_num_threads(1)
    for model_type, system in tasks:
        out.put(("start", model_type, system))
        out.put(("row", try_model(model_type, system)))
    out.put(("end",))


def run_all(tasks: list[tuple[str, str]], workers: int) -> Iterator[dict[str, Any]]:
    """Rows as they come. A process that dies costs the model that it was at, and no other."""
    context = mp.get_context("spawn")
    pending = [tasks[i : i + MODELS_PER_PROCESS] for i in range(0, len(tasks), MODELS_PER_PROCESS)]
    running: list[tuple[Any, Any, list[tuple[str, str]]]] = []
    while pending or running:
        while pending and len(running) < workers:
            chunk = pending.pop(0)
            queue = context.Queue()
            process = context.Process(target=_work, args=(chunk, queue))
            process.start()
            running.append((process, queue, list(chunk)))
        for entry in list(running):
            process, queue, left = entry
            while not queue.empty():
                message = queue.get()
                if message[0] == "row":
                    left.pop(0)
                    yield message[1]
            if not process.is_alive() and queue.empty():
                running.remove(entry)
                if left:
                    model_type, system = left.pop(0)
                    yield {"type": model_type, "system": system, "built": True, "why_not_run": "the process died"}
                    if left:
                        pending.insert(0, left)
        time.sleep(0.2)


def report(rows: list[dict[str, Any]], system: str) -> str:
    """The counts and the ranked reasons of one system."""
    mine = [r for r in rows if r["system"] == system]
    built = [r for r in mine if r["built"]]
    whole = [r for r in built if r.get("one_graph")]
    equal = [r for r in built if r.get("equal")]
    lines = [
        f"{system}: {len(built)} of {len(mine)} model types built; {len(whole)} of {len(built)} in one graph; "
        f"{len(equal)} of {len(built)} equal to eager",
    ]
    reasons = collections.Counter(
        re.sub(r"'[^']*'|\d+", "…", r.get("why_not_run") or r.get("why_not_one_graph") or "different values")
        for r in built if not (r.get("one_graph") and r.get("equal"))
    )
    lines += [f"  {count:4}  {reason}" for reason, count in reasons.most_common()]
    wrong = [r for r in built if "equal" in r and not r["equal"]]
    lines += [f"  not equal: {r['type']} ({r['difference']:.2g})" for r in wrong]
    return "\n".join(lines)


def main() -> None:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="take every N-th model type")
    parser.add_argument("--offset", type=int, default=0, help="start at this one")
    parser.add_argument("--only", nargs="*", help="these model types")
    parser.add_argument("--systems", nargs="*", default=["dynamo_lite"], choices=["dynamo_lite", "torch.compile"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    types = options.only or list(MODEL_MAPPING_NAMES)[options.offset :: options.every]
    rows = []
    for row in run_all([(t, s) for s in options.systems for t in types], options.workers):
        rows.append(row)
        if row["built"] and not (row.get("one_graph") and row.get("equal")):
            why = row.get("why_not_run") or row.get("why_not_one_graph") or row.get("difference")
            print(f"{row['type']}: {why}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    for system in options.systems:
        print(report(rows, system))


if __name__ == "__main__":
    main()
