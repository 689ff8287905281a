"""transformers' ``generate``: tokens as in plain Python, and how many graphs they take."""
from __future__ import annotations

import pytest
import torch

import dynamo_lite
from dynamo_lite import config, log

transformers = pytest.importorskip("transformers")

SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
         "eos_token_id": None, "pad_token_id": 0, "bos_token_id": 1}


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))


def mistral():
    return transformers.MistralForCausalLM(transformers.MistralConfig(**SMALL, num_key_value_heads=1, sliding_window=8))


def t5():
    return transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=16, d_ff=32, num_layers=1, num_heads=2, eos_token_id=None, pad_token_id=0,
        decoder_start_token_id=0))


# Of Mistral's, a prompt and a token each have graphs for a window that is not full, and for one that is, for which the
# model makes another mask, and a token has one for the border.
@pytest.mark.parametrize("make, first, all_of_them", [(llama, 2, 3), (mistral, 4, 5), (t5, 2, 3)])
def test_graphs_do_not_grow_with_tokens_or_prompts(make, first, all_of_them):
    torch.manual_seed(0)
    dynamo_lite.reset()
    model, graphs = make().eval(), []
    plain = model.forward
    compiled = dynamo_lite.compile(plain, backend="eager")
    with config.patch(cache_sizes=False):
        for length in (4, 6, 3, 11, 12):
            prompt = torch.randint(2, 64, (1, length))
            made = {}
            for model.forward in (plain, compiled):
                made[model.forward] = model.generate(
                    prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=8, do_sample=False)
            assert torch.equal(made[plain], made[compiled])
            graphs.append(log.counters().get("graphs", 0))
    assert graphs[0] <= first and graphs[-1] <= all_of_them, graphs
    assert log.counters().get("recompile_limit", 0) == 0
    del model.forward
    dynamo_lite.reset()


def test_batches_of_one_and_of_more_stay_below_the_limit():
    torch.manual_seed(0)
    dynamo_lite.reset()
    model = mistral().eval()
    plain = model.forward
    compiled = dynamo_lite.compile(plain, backend="eager")
    with config.patch(cache_sizes=False):
        for batch in (1, 3):
            for length in (4, 6, 11):
                prompt = torch.randint(2, 64, (batch, length))
                made = {}
                for model.forward in (plain, compiled):
                    made[model.forward] = model.generate(
                        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=8, do_sample=False)
                assert torch.equal(made[plain], made[compiled])
    assert log.counters()["graphs"] <= 10 and log.counters().get("recompile_limit", 0) == 0
    del model.forward
    dynamo_lite.reset()


# With as many rows as the first prompt has tokens, too: one grows and the other does not.
@pytest.mark.parametrize("make, rows, options", [
    (llama, 1, {"num_beams": 3}), (llama, 2, {"num_beams": 2}), (t5, 1, {"num_beams": 3}), (llama, 4, {})])
def test_searches_by_beams_take_no_more_graphs(make, rows, options):
    torch.manual_seed(0)
    dynamo_lite.reset()
    model = make().eval()
    plain = model.forward
    compiled = dynamo_lite.compile(plain, backend="eager")
    with config.patch(cache_sizes=False):
        for length in (4, 6, 3, 11):
            prompt = torch.randint(2, 64, (rows, length))
            made = {}
            for model.forward in (plain, compiled):
                made[model.forward] = model.generate(
                    prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=6, do_sample=False, **options)
            assert torch.equal(made[plain], made[compiled])
    assert log.counters()["graphs"] <= 3 and log.counters().get("recompile_limit", 0) == 0
    del model.forward
    dynamo_lite.reset()
