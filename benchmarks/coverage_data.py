"""What the survey's builder can't find by rules: fields of configs and inputs of single model types, as data."""
from collections.abc import Callable
from typing import Any

import torch

# Keyword arguments of a whole config, which is then not shrunk.
CONFIGS: dict[str, dict[str, Any]] = {}

_MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
_MROPE_OF_HALF = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
_DEFAULT_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_FULL_AND_SLIDING = {"full_attention": _DEFAULT_ROPE, "sliding_attention": _DEFAULT_ROPE}
_SERIES = {"prediction_length": 8, "context_length": 16, "num_time_features": 2, "lags_sequence": [1, 2, 3]}
_JAMBA = {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1}
_MAMBA_HEADS = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_expand": 2, "hidden_size": 64}

# Fields of a config and of those inside it, by dotted name.
FIELDS: dict[str, dict[str, Any]] = {
    **{t: {"rope_parameters": _MROPE} for t in ("glm4v_text", "glm_image_text", "glm_ocr_text")},
    **{t: {"text_config.rope_parameters": _MROPE} for t in ("glm4v", "glm46v", "glmga", "glm_image", "glm_ocr")},
    "glm4v_moe_text": {"rope_parameters": _MROPE_OF_HALF},
    "glm4v_moe": {"text_config.rope_parameters": _MROPE_OF_HALF},
    **dict.fromkeys(("autoformer", "informer", "time_series_transformer"), _SERIES),
    "jamba": _JAMBA,
    "bamba": {**_MAMBA_HEADS, "attn_layer_indices": [1]},
    "granitemoehybrid": {**_MAMBA_HEADS, "layer_types": ["mamba", "attention"], "num_hidden_layers": 2},
    "bailing_hybrid": {"layer_group_size": 2, "num_expert_group": 1, "topk_group": 1},
    "esm": {"vocab_size": 128, "pad_token_id": 0, "mask_token_id": 3, "rope_parameters": None},
    "esmc": {"vocab_size": 128},
    **{t: {"num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid"] * 2} for t in ("zamba", "zamba2")},
    "xmod": {"languages": ["en_XX", "de_DE"], "default_language": "en_XX"},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "cohere_compass_text": {"rope_parameters": _FULL_AND_SLIDING},
    "cohere_compass": {"text_config.rope_parameters": _FULL_AND_SLIDING},
    "blip-2": {"image_token_index": 127},
    "instructblip": {"image_token_index": 127},
    "instructblipvideo": {"video_token_index": 127},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv", "full_attention"], "num_hidden_layers": 4},
    "diffusion_gemma": {"text_config.num_experts": 4, "text_config.top_k_experts": 2,
                        "text_config.moe_intermediate_size": 64},
    "chameleon": {"vocabulary_map": {"<image>": 99, "IMGIMGA": 100}, "vq_config.base_channels": 32,
                  "vq_config.resolution": 64},
    "mistral4": {"num_key_value_heads": 4},
    "emu3": {"vocabulary_map": {"<image>": 99, **{f"<|visual token {i:06d}|>": 100 + i for i in range(8)}}},
    "kimi_linear": {"layer_types": ["linear_attention", "full_attention"], "num_hidden_layers": 2},
    "axk1": {"n_group": 1, "topk_group": 1},
    "blip_2_qformer": {"vocab_size": 128},
    "blt": {"num_hidden_layers": 2},
    "moonshine_streaming": {"num_key_value_heads": 4, "num_hidden_layers": 2},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "dbrx": {"attn_config.rope_theta": 10000.0, "attn_config.clip_qkv": 8.0},
    "fastspeech2_conformer": {"vocab_size": 128},
    "fastspeech2_conformer_with_hifigan": {"model_config.vocab_size": 128},
    "perceiver": {"num_latents": 16, "d_latents": 64, "d_model": 64, "num_self_attends_per_block": 2},
    "nemotron_h": {"mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2},
    "janus": {"vq_config.base_channels": 32},
    "efficientnet": {"image_size": 64, "width_coefficient": 0.5, "depth_coefficient": 1.0, "hidden_dim": 640},
    "deepseek_ocr2": {"vision_config.sam_config.downsample_channels": [64, 64]},
}


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(5, 90, shape)


def _series(config: Any) -> dict[str, Any]:
    past, future = config.context_length + max(config.lags_sequence), config.prediction_length
    time = config.num_time_features + config.num_dynamic_real_features
    return {"past_values": torch.rand(2, past), "past_time_features": torch.rand(2, past, time),
            "past_observed_mask": torch.ones(2, past), "future_values": torch.rand(2, future),
            "future_time_features": torch.rand(2, future, time)}


def _patches(config: Any) -> dict[str, Any]:
    return {"past_values": torch.rand(2, config.context_length, config.num_input_channels)}


def _decisions(config: Any) -> dict[str, Any]:
    return {"states": torch.rand(2, 6, config.state_dim), "actions": torch.rand(2, 6, config.act_dim),
            "rewards": torch.rand(2, 6, 1), "returns_to_go": torch.rand(2, 6, 1),
            "timesteps": torch.arange(6).repeat(2, 1), "attention_mask": torch.ones(2, 6)}


def _lxmert(config: Any) -> dict[str, Any]:
    return {"input_ids": ids(2, 12), "visual_feats": torch.rand(2, 5, config.visual_feat_dim),
            "visual_pos": torch.rand(2, 5, config.visual_pos_dim)}


def _image(size: int, *more: int) -> torch.Tensor:
    return torch.randn(*(more or (2,)), 3, size, size)


def _qformer(config: Any) -> dict[str, Any]:
    count = config.num_query_tokens
    token = 127
    frames = 4 if type(config).__name__ == "InstructBlipVideoConfig" else None
    size = config.vision_config.image_size
    row = torch.cat([torch.full((1, count * (frames or 1)), token), ids(1, 6)], 1)
    return {"pixel_values": _image(size, 1, frames) if frames else _image(size, 1), "qformer_input_ids": ids(1, 6),
            "input_ids": row, "attention_mask": torch.ones_like(row)}


def _oneformer(config: Any) -> dict[str, Any]:
    return {"pixel_values": _image(64, 1), "task_inputs": torch.randint(0, 90, (1, config.task_seq_len)).float()}


def _timesfm(config: Any) -> dict[str, Any]:
    return {"past_values": torch.rand(2, 64), "past_values_padding": torch.zeros(2, 64, dtype=torch.long),
            "freq": torch.tensor([[0], [1]])}


def _idefics(config: Any) -> dict[str, Any]:
    return {"input_ids": ids(1, 8), "attention_mask": torch.ones(1, 8, dtype=torch.long),
            "pixel_values": _image(config.vision_config.image_size, 1, 1), "image_attention_mask": torch.ones(1, 8, 1)}


def _tapas(config: Any) -> dict[str, Any]:
    return {"input_ids": ids(2, 16), "token_type_ids": torch.zeros(2, 16, 7, dtype=torch.long)}


def _blip2(config: Any) -> dict[str, Any]:
    count, token = config.num_query_tokens, 127
    row = torch.cat([torch.full((1, count), token), ids(1, 6)], 1)
    return {"pixel_values": _image(config.vision_config.image_size, 1), "input_ids": row,
            "attention_mask": torch.ones_like(row)}


# Inputs, given the config.
INPUTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    **dict.fromkeys(("autoformer", "informer", "time_series_transformer"), _series),
    "patchtst": _patches,
    "patchtsmixer": _patches,
    "decision_transformer": _decisions,
    "lxmert": _lxmert,
    "instructblip": _qformer,
    "instructblipvideo": _qformer,
    "blip-2": _blip2,
    "blip_2_qformer": lambda c: {"query_embeds": torch.randn(2, 8, c.hidden_size), "input_ids": None,
                                 "encoder_hidden_states": torch.randn(2, 5, c.encoder_hidden_size)},
    "oneformer": _oneformer,
    "timesfm": _timesfm,
    "timesfm2_5": lambda c: {"past_values": torch.rand(2, 64),
                             "past_values_padding": torch.zeros(2, 64, dtype=torch.long)},
    "pe_audio": lambda c: {"input_ids": ids(1, 8), "attention_mask": torch.ones(1, 8, dtype=torch.long),
                           "input_values": torch.randn(1, 1, 8000)},
    "perceiver": lambda c: {"inputs": torch.randn(2, 16, c.d_model)},
    "idefics": _idefics,
    "tapas": _tapas,
    "dia": lambda c: {"input_ids": ids(2, 16), "decoder_input_ids": ids(2, 8, c.decoder_config.num_channels)},
    "kyutai_speech_to_text": lambda c: {"input_ids": torch.randint(5, 90, (1, 12, c.num_codebooks + 1))},
    "fun_asr_nano_encoder": lambda c: {"input_features": torch.randn(2, 30, 560),
                                       "input_features_mask": torch.ones(2, 30, dtype=torch.long)},
    "granite_speech5_ctc": lambda c: {"input_features": torch.randn(2, 40, 320)},
    "granite_speech5_encoder": lambda c: {"input_features": torch.randn(2, 40, 320)},
    "gemma4_audio": lambda c: {"input_features": torch.randn(2, 64, 128),
                               "attention_mask": torch.ones(2, 64, dtype=torch.bool)},
    "gemma3n_audio": lambda c: {"audio_mel": torch.randn(2, 64, 128),
                                "audio_mel_mask": torch.zeros(2, 64, dtype=torch.bool)},
    "nemotron3_5_transcribe_audio": lambda c: {"input_features": torch.randn(2, 128, 128)},
    "muse_spark_audio": lambda c: {"input_values": torch.randn(1, 3840)},
    "muse_spark_vision": lambda c: {"pixel_values": torch.randn(16, 1176), "grid_thw": torch.tensor([[1, 4, 4]])},
    "muse_glimmer_vision": lambda c: {"pixel_values": torch.randn(16, 1176), "grid_thw": torch.tensor([[1, 4, 4]])},
    "neucodec": lambda c: {"input_values": torch.randn(1, 1, 6400), "input_features": torch.randn(1, 20, 160)},
    "univnet": lambda c: {"input_features": torch.randn(1, 12, c.num_mel_bins),
                          "noise_sequence": torch.randn(1, 12, c.model_in_channels)},
    "clap": lambda c: {"input_ids": ids(2, 12), "input_features": torch.randn(2, 1, 100, 64),
                       "is_longer": torch.zeros(2, 1, dtype=torch.bool)},
    "clvp": lambda c: {"input_ids": ids(2, 12), "input_features": torch.randn(2, 80, 30)},
    "align": lambda c: {"input_ids": ids(2, 12), "pixel_values": _image(64)},
    "markuplm": lambda c: {"input_ids": ids(2, 12)},
    "minicpmv4_7_vision": lambda c: {"pixel_values": _image(64, 1), "target_sizes": torch.tensor([[4, 4]])},
    "minicpm_ocr_vision": lambda c: {"pixel_values": _image(64, 1), "target_sizes": torch.tensor([[4, 4]])},
    "pi0": lambda c: {"input_ids": ids(1, 8), "pixel_values": _image(64, 1, 1), "action_embeds": torch.randn(1, 4, 64)},
}
