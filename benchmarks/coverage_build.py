"""Builds a small model of a transformers type, with random weights, and inputs it runs with.

Nothing is downloaded: the default config is shrunk, first by the names of its fields (`RULES`), then, where the model
does not run so, with every width divided by one number, then with fewer layers only. Inputs are made from the names in
`forward`'s signature; images and sounds are followed by as many placeholder tokens as the model makes features of them.
The first pair that runs in eager is taken. What can't be found by rules stands in `coverage_data` as data.
"""
import copy
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from coverage_data import CONFIGS, FIELDS, INPUTS

MOST_PARAMETERS = 60_000_000
VOCABULARY = 128
# Ids of ordinary text; special tokens are given others.
TEXT_IDS = (5, 90)
HEADS = 4

# Field names (whole) and what they become, if they are larger; the first that fits decides.
RULES: list[tuple[str, int | str]] = [
    (r".*(key_value_heads|kv_heads|num_query_groups|num_key_value_attention_heads)", 2),
    (r".*(num_heads|attention_heads|n_heads?|n_mamba_heads|cross_attention_heads|num_(key|value)_heads)", HEADS),
    (r"(.*num_hidden_layers|.*num_layers|n_layers?|.*_layers|.*layers_num|num_blocks|depth|layers|.*_depth)", 2),
    (r".*(qk_head_dim|v_head_dim|head_dim|d_kv|kv_channels|d_head|dim_head|attention_head_size|mamba_d_head"
     r"|mamba_headdim|attention_head_dim)", "head"),
    (r".*(qk_nope_head_dim|qk_rope_head_dim|rotary_dim|index_head_dim)", 8),
    (r".*(lora_rank|_rank)", 16),
    (r".*(intermediate|ffn|d_ff|dff|dim_ff|d_inner|feed_?forward|mlp|inner|linear_units).*", "wider"),
    (r".*vocab_size.*|.*vocab|codebook_size|num_embeddings|vocab_offset", VOCABULARY),
    (r"(.*hidden_size.*|.*d_model|n_embd|(.*_)?embed_dim|dim|.*hidden_dim|.*embedding_size|.*projection_(dim|size)|project_dim"
     r"|word_embed_proj_dim|emb_dim|embedding_dim|.*output_dim|.*_width|pooler_output_size|mask_feature_size|classifier_proj_size"
     r"|fpn_feature_size|mask_dim|.*_out_channels|codebook_dim|vector_quantization_hidden_dimension|conv_channels"
     r"|subsampling_conv_channels|.*_embedding_dim|.*fusion_hidden_size|true_hidden_size|lru_width)", "width"),
    (r"(max_position_embeddings|n_positions|n_ctx|max_seq_len|max_source_positions|max_target_positions)", 128),
    (r"(num_experts|n_routed_experts|num_local_experts|moe_num_experts)", 4),
    (r"(num_experts_per_tok|num_experts_per_token|moe_topk|moe_k|n_group|topk_group|index_topk)", 2),
    (r"num_queries", 10),
    (r"(.*_)?chunk_size", 16),
    (r"upsample_groups", "width"),
]
# What fields that have to be given, and are None by default, are given.
FILL = {
    "num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts": 4, "top_k_experts": 2,
    "vocab_size": 128, "moe_intermediate_size": 64, "prediction_length": 8, "context_length": 16, "head_dim": 16,
    "n_group": 1, "topk_group": 1,
}
_TOKEN = re.compile(r"(.*_)?token_(id|index|ids)$|.*_id$")
_LAYER_INDEX = re.compile(
    r".*(indices|indexes|_idxs?|_layers_ids|hook_ids|extract_layers|attention_blocks|attention_layers)$")
_WIDTHS = re.compile(r".*(dim|size|width|channels|d_model|n_embd|d_ff|d_kv|dims|sizes|units|hidden|d_inner|dff)s?$")
_NOT_WIDTHS = re.compile(r".*(vocab|patch|image|kernel|window|block|chunk|crop|grid|stride|num_channels|in_channels"
                         r"|codebook_size|position|spec_size|pool|query_dim|bbox|state_dim|act_dim|n_dim|type_vocab).*")


@dataclasses.dataclass
class Small:
    """How a config is made small; `tokens` gives each special token of the whole model an id of its own."""

    way: str
    layers: int
    divisor: int = 1
    width: int = 64
    head: int = 16
    small_images: bool = True
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    tokens: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def by_rules(self) -> bool:
        return self.way in ("rules", "filled", "wide")

    def token(self, name: str, value: int) -> int:
        if name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
            return {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}.get(name, 1)
        return self.tokens.setdefault(name.replace("_index", "_id"), VOCABULARY - 1 - len(self.tokens))

    def value(self, name: str, value: Any, layers: int | None) -> Any:
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int):
            if _TOKEN.fullmatch(name):
                return self.token(name, value) if value >= VOCABULARY else value
            return self.number(name, value)
        if isinstance(value, (list, tuple)) and value:
            return type(value)(self.items(name, list(value), layers))
        if isinstance(value, dict):
            return {k: self.section(v) if k == "mrope_section" and self.way != "wide" else self.value(str(k), v, layers)
                    for k, v in value.items()}
        return value

    def number(self, name: str, value: int) -> int:
        for pattern, small in RULES:
            if re.fullmatch(pattern, name):
                if isinstance(small, str):
                    small = {"width": self.width, "wider": 2 * self.width, "head": self.head}[small]
                if small == 2 and re.search("layer|block|depth", name):
                    small = self.layers
                if self.by_rules or "layers" in name or "depth" in name or "vocab" in name or "expert" in name:
                    return min(value, small)
                break
        if self.way == "divide" and _WIDTHS.fullmatch(name) and not _NOT_WIDTHS.fullmatch(name):
            return value // self.divisor if value % self.divisor == 0 and value > self.divisor else value
        return value

    def items(self, name: str, values: list[Any], layers: int | None) -> list[Any]:
        if _TOKEN.fullmatch(name):
            return [self.token(f"{name}{i}", v) if v >= VOCABULARY else v for i, v in enumerate(values)]
        numbers = all(isinstance(v, int) for v in values)
        if _LAYER_INDEX.fullmatch(name) and layers and numbers and max(values) >= self.layers:
            return sorted({min(v, self.layers - 1) for v in values[-self.layers:]})
        widths = all(isinstance(v, int) and v > 8 for v in values[:2]) and len(set(values)) > 1
        if layers and len(values) == layers > self.layers and not widths:
            kinds: list[Any] = []
            for v in values:
                if v not in kinds:
                    kinds.append(v)
            return (kinds + [values[-1]] * self.layers)[: self.layers]
        if re.search("depths|num_block|blocks_per_stage|n_attn_blocks", name):
            return [min(v, 2) if isinstance(v, int) else v for v in values]
        if all(isinstance(v, int) and not isinstance(v, bool) for v in values) and self.way == "divide":
            if _WIDTHS.fullmatch(name) and not _NOT_WIDTHS.fullmatch(name):
                return [v // self.divisor if v % self.divisor == 0 and v > self.divisor else v for v in values]
        return values

    def section(self, values: list[int]) -> list[int]:
        """The parts of a rotary embedding, scaled so that they fill the smaller head."""
        half = self.head // 2
        first = [max(1, v * half // sum(values)) for v in values]
        first[0] += half - sum(first)
        return first

    def config(self, config: Any, path: str = "") -> Any:
        """A new config of the same class, made small, with those inside it."""
        from transformers import PreTrainedConfig

        defaults = {f.name: f.default for f in dataclasses.fields(config)} if dataclasses.is_dataclass(config) else {}
        layers = next((v for n in ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "depth", "encoder_layers")
                       if isinstance(v := getattr(config, n, None), int)), None)
        made: dict[str, Any] = {}
        for name, value in vars(config).items():
            if path + name in self.fields:
                made[name] = copy.deepcopy(self.fields[path + name])
            elif isinstance(value, PreTrainedConfig):
                made[name] = self.config(value, f"{path}{name}.")
            elif name not in defaults or name in ("id2label", "label2id", "dtype", "transformers_version"):
                continue
            elif defaults[name] is None and self.derived(name, value):
                continue
            else:
                made[name] = self.value(name, value, layers)
            if self.way == "filled" and value is None and name in FILL:
                made[name] = FILL[name]
        for field, value in self.fields.items():  # those that the default config lacks
            if field.startswith(path) and "." not in field[len(path):]:
                made.setdefault(field[len(path):], copy.deepcopy(value))
        if self.by_rules or self.small_images:
            self.image(made)
        new = type(config)(**made)
        for name, value in vars(config).items():
            if not hasattr(new, name) and isinstance(value, (int, float, str)):
                setattr(new, name, value)
        return new

    @staticmethod
    def derived(name: str, value: Any) -> bool:
        """Whether a field that was None by default was filled in from other fields, and will be again."""
        return isinstance(value, (int, list, tuple)) and not isinstance(value, bool) and not _TOKEN.fullmatch(name)

    @staticmethod
    def image(made: dict[str, Any]) -> None:
        """An image of four patches each way, or of 64 pixels where patches are small."""
        size, patch = made.get("image_size"), made.get("patch_size")
        one = patch[0] if isinstance(patch, (list, tuple)) and patch else patch
        pixels = one * 4 if isinstance(one, int) and one > 4 else 64
        if isinstance(size, int) and size > pixels:
            made["image_size"] = pixels
        elif isinstance(size, (list, tuple)) and size and isinstance(size[0], int) and size[0] > pixels:
            made["image_size"] = type(size)([pixels] * len(size))


def ways(model_type: str) -> Iterator[Small]:
    for small in (
        Small("rules", 2), Small("rules", 4), Small("filled", 2), Small("wide", 2, width=512, head=128),
        Small("divide", 2, 8), Small("divide", 4, 4), Small("divide", 2, 2), Small("layers", 2), Small("layers", 4),
        Small("divide", 2, 8, small_images=False), Small("layers", 2, small_images=False), Small("as it is", 10**6),
    ):
        small.fields = FIELDS.get(model_type, {})
        yield small


def configs(model_type: str) -> Iterator[tuple[str, Any]]:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    cls = CONFIG_MAPPING[model_type]
    if model_type in CONFIGS:
        yield "by hand", cls(**copy.deepcopy(CONFIGS[model_type]))
        return
    for small in ways(model_type):
        try:
            config = cls() if small.way == "as it is" else small.config(cls())
        except Exception as error:
            yield f"{small.way}: {type(error).__name__}: {str(error)[:100]}", None
            continue
        yield small.way, config


def model_class(model_type: str) -> Any:
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    name = MODEL_MAPPING_NAMES[model_type]
    return getattr(transformers, name if isinstance(name, str) else name[0])


# ---- inputs ----------------------------------------------------------------------------------------------------------


def find(config: Any, *names: str, default: Any = None) -> Any:
    """The first of these fields that the config has, or one inside it."""
    from transformers import PreTrainedConfig

    for name in names:
        if getattr(config, name, None) is not None:
            return getattr(config, name)
    for value in vars(config).values():
        if isinstance(value, PreTrainedConfig):
            found = find(value, *names)
            if found is not None:
                return found
    return default


def one(value: Any) -> int:
    return value if isinstance(value, int) else value[0]


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(*TEXT_IDS, shape)


def images(config: Any) -> Iterator[dict[str, torch.Tensor]]:
    """Guesses at what the images of a model look like."""
    inner = ("vision_config", "vision_tower_config", "vit_config", "vq_config", "backbone_config",
             "vision_encoder_config", "image_config")
    vision = next((v for n in inner if (v := getattr(config, n, None)) is not None), config)
    channels = one(find(vision, "num_channels", "in_channels", "in_chans", default=3))
    channels = channels if channels in (1, 3, 4) else 3
    patch = one(find(vision, "patch_size", default=16))
    temporal = find(vision, "temporal_patch_size", default=1)
    size = find(vision, "image_size", "img_size", "input_size", default=64)
    size = [size, size] if isinstance(size, int) else list(size)[-2:]
    frames = find(vision, "num_frames", "frames_per_clip", default=2)
    merge = one(find(vision, "spatial_merge_size", "merge_kernel_size", "downsample_factor", default=2) or 2)
    for height, width in [size, [64, 64], [224, 224]]:
        yield {"pixel_values": torch.randn(2, channels, height, width)}
        yield {"pixel_values": torch.randn(1, frames, channels, height, width)}
        sizes = torch.tensor([[height, width]])
        yield {"pixel_values": torch.randn(1, 1, channels, height, width), "image_sizes": sizes}
        yield {"pixel_values": torch.randn(1, channels, height, width), "image_sizes": sizes}
        yield {"pixel_values": torch.randn(1, 3, channels, height, width), "image_sizes": sizes}
    side = 2 * merge
    grid = torch.tensor([[1, side, side]])
    flat = channels * one(temporal) * patch * patch
    for grids in ("image_grid_thw", "grid_thw", "grid_thws"):
        for name in ("pixel_values", "hidden_states"):
            yield {name: torch.randn(side * side, flat), grids: grid}
            yield {name: torch.randn(side * side, channels * patch * patch), grids: grid}
            yield {name: torch.randn(side * side, channels, patch, patch), grids: grid}
    patches = torch.randn(1, 16, channels * patch * patch)
    places = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="xy"), -1).view(1, 16, 2)
    yield {"pixel_values": patches, "pixel_attention_mask": torch.ones(1, 16, dtype=torch.long),
           "spatial_shapes": torch.tensor([[4, 4]])}
    yield {"pixel_values": patches, "pixel_position_ids": places}
    yield {"pixel_values": patches, "image_position_ids": places}


def sounds(config: Any) -> Iterator[dict[str, torch.Tensor]]:
    mels = find(config, "num_mel_bins", "feature_size", "n_mel_bins", "input_feat_size", "input_feat_per_channel",
                "input_dim", "num_mel_features", default=80)
    longest = find(config, "max_source_positions", default=50) * 2
    for name, mask in (("input_features", "attention_mask"), ("input_features", "input_features_mask"),
                       ("input_features", "feature_attention_mask"), ("input_features", None)):
        for shape in ((1, mels, longest), (2, 100, mels), (2, mels, 100)):
            made: dict[str, torch.Tensor] = {name: torch.randn(*shape)}
            if mask:
                made[mask] = torch.ones(shape[0], shape[1] if shape[2] == mels else shape[2], dtype=torch.long)
            yield made
    yield {"input_values": torch.randn(2, 4000)}
    yield {"input_values": torch.randn(1, 1, 8000)}
    yield {"input_values": torch.randn(2, one(find(config, "max_length", default=100)), mels)}
    yield {"input_values": torch.randn(2, 50, mels)}
    yield {"audio_values": torch.randn(1, 8000)}
    yield {"input_values": torch.randn(1, 1, 8000), "padding_mask": torch.ones(1, 8000, dtype=torch.bool)}


def fit(made: dict[str, torch.Tensor], call: Callable[..., Any]) -> dict[str, torch.Tensor] | None:
    """Those of the inputs that a callable names, or None if it misses a first one."""
    names = inspect.signature(call).parameters
    if next(iter(made)) not in names:
        return None
    return {k: v for k, v in made.items() if k in names}


def features(
    model: Any, getter: str, guesses: Iterator[dict[str, torch.Tensor]]
) -> Iterator[tuple[dict[str, Any], int]]:
    """Inputs of images or sounds that the model makes features of, and how many tokens these stand for."""
    get = getattr(model, getter, None)
    if get is None:
        return
    for guess in guesses:
        made = fit(guess, get)
        if made is None or not fit(guess, model.forward):
            continue
        try:
            with torch.no_grad():
                found = get(**made)
        except Exception:  # a guess that does not fit is the usual case
            continue
        found = getattr(found, "pooler_output", None) if hasattr(found, "pooler_output") else found
        parts = [t for t in (found if isinstance(found, (list, tuple)) else [found]) if isinstance(t, torch.Tensor)]
        if parts:
            yield fit(guess, model.forward) or made, sum(t.numel() // t.shape[-1] for t in parts)


def inputs_for(model: Any, model_type: str) -> Iterator[dict[str, Any]]:
    """Sets of keyword arguments to try, the ones that exercise most of the model first."""
    config, names = model.config, inspect.signature(model.forward).parameters
    if model_type in INPUTS:
        yield INPUTS[model_type](config)
        return
    for getter, token, guesses in (("get_image_features", ("image_token_id", "image_token_index"), images),
                                   ("get_audio_features", ("audio_token_id", "audio_token_index"), sounds)):
        placeholder = find(config, *token)
        if placeholder is None or "input_ids" not in names:
            continue
        for made, count in features(model, getter, guesses(config)):
            row = torch.cat([ids(4), torch.full((count,), placeholder), ids(4)])[None]
            yield {"input_ids": row, **made}
            yield {"input_ids": row, "attention_mask": torch.ones_like(row), **made}
            yield {"input_ids": row, "attention_mask": torch.ones_like(row),
                   "mm_token_type_ids": (row == placeholder).long(), **made}
            yield {"input_ids": row, "attention_mask": torch.ones_like(row),
                   "token_type_ids": (row == placeholder).long(), **made}
    text: dict[str, torch.Tensor] = {}
    for name in ("input_ids", "inputs"):
        if name in names:
            text[name] = ids(2, 16)
            break
    if "bbox" in names:
        text["bbox"] = torch.randint(0, 50, (2, 16, 4)).sort(-1).values
    decoder = {"decoder_input_ids": ids(2, 8)} if "decoder_input_ids" in names and "input_ids" in names else {}
    late = {"decoder_input_ids": ids(2, 8)} if "decoder_input_ids" in names else {}
    if text and "pixel_values" in names:
        for guess in images(config):
            if (given := fit(guess, model.forward)) is not None:
                batch = given["pixel_values"].shape[0] if "pixel_values" in given else 1
                if batch <= 2:
                    yield {**{k: v[:batch] for k, v in text.items()}, **given}
    if text and "attention_mask" in names and "pixel_values" not in names:
        yield {**text, "attention_mask": torch.ones(2, 16, dtype=torch.long), **decoder}
    if text:
        yield {**text, **decoder}
        yield {k: v[:1] for k, v in {**text, **decoder}.items()}
    for guess in (*images(config), *sounds(config)):
        if (given := fit(guess, model.forward)) is not None:
            batch = next(iter(given.values())).shape[0]
            yield {**given, **({"decoder_input_ids": ids(batch, 8)} if late else {})}


def build(model_type: str) -> tuple[Any, dict[str, Any], str]:
    """The model of a type, small, in eval mode; inputs; which way led there."""
    errors: list[str] = []
    try:
        cls = model_class(model_type)
    except AttributeError as error:
        raise NotBuilt([str(error)]) from error
    for way, config in configs(model_type):
        if config is None:
            errors.append(way)
            continue
        try:
            torch.manual_seed(0)
            with torch.device("meta"):
                parameters = sum(p.numel() for p in cls(copy.deepcopy(config)).parameters())
            if parameters > MOST_PARAMETERS:
                raise ValueError(f"{parameters} parameters")
            model = cls(config).eval()
        except Exception as error:
            errors.append(f"{way}: {type(error).__name__}: {str(error)[:120]}")
            continue
        torch.manual_seed(0)
        for made in inputs_for(model, model_type):
            try:
                with torch.no_grad():
                    torch.manual_seed(1)
                    if model(**copy.deepcopy(made)) is not None:
                        return model, made, way
            except Exception as error:
                errors.append(f"{way}, {list(made)}: {type(error).__name__}: {str(error)[:120]}")
    raise NotBuilt(errors)


class NotBuilt(Exception):
    def __init__(self, errors: list[str]) -> None:
        super().__init__(errors[0] if errors else "no inputs known")
        self.errors = errors
