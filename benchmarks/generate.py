"""Text generation as transformers' users call it: tokens against eager's, graphs, and time to the last token.

Tiny models with random weights; greedy; prompts of five lengths, for batches of one and of four. Each system runs in
a process of its own that starts with empty caches, as a cache from another run has graphs and sizes that this one would
have to find; one that takes longer than `--limit` is left out. The last lines are ratios of dynamo_lite to the others,
in geometric mean over the models; `--tokens` and `--models` make a run shorter.

    python benchmarks/generate.py --systems eager dynamo_lite torch.compile torch.compile-dynamic
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from systems import SYSTEMS as COMPILERS

LENGTHS = (8, 13, 5, 21, 34)
BATCHES = (1, 4)
SYSTEMS = ("eager", "dynamo_lite", "torch.compile", "torch.compile-dynamic")
_SMALL: dict[str, Any] = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                           "num_attention_heads": 4}
# Without an end of text, so that all runs give as many tokens.
_NO_END: dict[str, Any] = {"eos_token_id": None, "pad_token_id": 0, "bos_token_id": 1}


def _model(name: str) -> Any:
    """A tiny model with random weights."""
    import transformers as t

    torch.manual_seed(0)
    makers: dict[str, Callable[[], Any]] = {
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**_SMALL, num_key_value_heads=2, **_NO_END)),
        "gpt-neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**_SMALL, **_NO_END)),
        "falcon": lambda: t.FalconForCausalLM(t.FalconConfig(
            vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, **_NO_END)),
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(vocab_size=128, n_embd=64, n_layer=2, n_head=4, **_NO_END)),
        "t5": lambda: t.T5ForConditionalGeneration(t.T5Config(
            vocab_size=128, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
            **{**_NO_END, "decoder_start_token_id": 0})),
        "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(
            **_SMALL, num_key_value_heads=2, sliding_window=16, **_NO_END)),
    }
    return makers[name]().eval()


MODELS = ("llama", "gpt-neox", "falcon", "gpt2", "t5", "mistral")


def _compiled(system: str, model: Any) -> Callable[[], int]:
    """Compiles a model's forward; gives the number of graphs when called."""
    if system == "dynamo_lite":
        import dynamo_lite

        model.forward = dynamo_lite.compile(model.forward)
        return lambda: int(dynamo_lite.metrics().get("graphs", 0))
    if system.startswith("torch.compile"):
        from torch._dynamo.utils import counters

        model.forward = torch.compile(model.forward, dynamic=True if system.endswith("dynamic") else None)
        return lambda: int(counters["stats"]["unique_graphs"])
    return lambda: 0


def measure(system: str, name: str, tokens: int) -> dict[str, Any]:
    """The tokens that a model generates under a system, and what that takes."""
    model = _model(name)
    graphs = _compiled(system, model)
    prompts = [torch.randint(2, 128, (batch, length)) for batch in BATCHES for length in LENGTHS]
    made, after = [], []

    def generate(prompt: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens, do_sample=False)
        return found

    begin = time.perf_counter()
    for prompt in prompts:
        made.append(generate(prompt))
        after.append((time.perf_counter() - begin, graphs()))
    begin = time.perf_counter()
    again = [generate(prompt) for prompt in prompts]
    seconds = time.perf_counter() - begin
    assert all(torch.equal(a, b) for a, b in zip(made, again))
    return {
        "model": name, "system": system, "first_prompt_s": after[0][0], "all_prompts_s": after[-1][0],
        "tokens_per_s": sum(p.shape[0] for p in prompts) * tokens / seconds, "graphs": [n for _, n in after],
        "tokens": [m.tolist() for m in made],
    }


def child(system: str, name: str, tokens: int, limit: float) -> dict[str, Any] | None:
    """`measure` in a process of its own, with caches of its own; None if that takes longer than `limit` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {variable for compiler in COMPILERS.values() for variable in compiler.environment}
        env = {**os.environ, **{variable: str(Path(folder) / variable) for variable in caches}}
        command = [sys.executable, "-W", "ignore", __file__, "--tokens", str(tokens), "--one", system, name]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env, timeout=limit)
        except subprocess.TimeoutExpired:
            return None
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def ratios(rows: list[dict[str, Any]], ours: str = "dynamo_lite") -> dict[str, dict[str, float]]:
    """Ours against each other system, in geometric mean over models: of speeds ours / theirs, of times too."""
    by_place = {(row["system"], row["model"]): row for row in rows}
    found = {}
    for system in dict.fromkeys(row["system"] for row in rows if row["system"] != ours):
        pairs = [(by_place[ours, name], row) for (s, name), row in by_place.items()
                 if s == system and (ours, name) in by_place]
        if pairs:
            found[system] = {key: statistics.geometric_mean(mine[key] / theirs[key] for mine, theirs in pairs)
                             for key in ("tokens_per_s", "first_prompt_s", "all_prompts_s")}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--tokens", type=int, default=64, help="new tokens for each prompt")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for a model under a system")
    parser.add_argument("--json", type=Path, help="a file for the rows")
    parser.add_argument("--one", nargs=2, metavar=("SYSTEM", "MODEL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        system, name = options.one
        print(json.dumps(measure(system, name, options.tokens)))
        return 0
    rows, wrong = [], 0
    for name in options.models:
        expected = None
        for system in dict.fromkeys(["eager", *options.systems]):
            row = child(system, name, options.tokens, options.limit)
            if row is None:
                print(f"{name:10} {system:22} took longer than {options.limit:.0f} s", flush=True)
                continue
            tokens = row.pop("tokens")
            expected = tokens if expected is None else expected
            row["equal"] = tokens == expected
            wrong += not row["equal"]
            rows.append(row)
            print(f"{name:10} {system:22} {'as eager' if row['equal'] else 'DIFFERS':9} first prompt "
                  f"{row['first_prompt_s']:7.2f} s, all {row['all_prompts_s']:7.2f} s, {row['tokens_per_s']:7.0f} "
                  f"tokens/s, graphs {row['graphs']}", flush=True)
    against = ratios(rows)
    for system, ratio in against.items():
        print(f"dynamo_lite / {system}: tokens per second {ratio['tokens_per_s']:.2f}, seconds of the first prompt "
              f"{ratio['first_prompt_s']:.3f}, of all prompts {ratio['all_prompts_s']:.3f}")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "ratios": against}, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
