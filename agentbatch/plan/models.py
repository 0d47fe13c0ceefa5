"""What a model needs per token and per state, from its `config.json`: which layers keep what, by architecture.

Only architectures whose sizes were compared with SGLang 0.5.23's own classes are known (tests/plan); any other is
refused, because a wrong size would be a wrong plan without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agentbatch.errors import UsageError
from agentbatch.plan.config import SIZES, ModelConfig
from agentbatch.plan.hybrid import bailing, falcon_h1, gated_delta_net, kimi_linear, nemotron_h
from agentbatch.plan.kv import mha_bytes, mla_bytes
from agentbatch.plan.sizes import Deployment, Layers, ModelSizes, sizes_of

Family = Callable[[ModelConfig, Deployment], ModelSizes]

_INDEX = "sparse attention keeps an index beside its KV cache"
_WINDOW = "sliding-window layers have a pool of their own"


def model_sizes(config: ModelConfig, deployment: Deployment) -> ModelSizes:
    """Return c_kv and c_state of a model under a deployment.

    Raises:
        UsageError: the architecture is not known, a field is missing or out of range, or heads do not divide.
    """
    family = FAMILIES.get(config.architecture)
    if family is not None and config.fields.get("is_hybrid_swa"):
        raise UsageError(f"{config.source}: {_WINDOW} (is_hybrid_swa), which is not modelled: {SIZES}")
    if family is not None:
        return family(config, deployment)
    if reason := REFUSED.get(config.architecture):
        raise UsageError(f"{config.source}: {config.architecture} is not modelled, because {reason}: {SIZES}")
    known = ", ".join(sorted(FAMILIES))
    raise UsageError(f"{config.source}: unknown architecture {config.architecture}; known are {known}; {SIZES}")


def _mha(config: ModelConfig, deployment: Deployment, *, head_dim_required: bool) -> ModelSizes:
    layers = Layers(config.integer("num_hidden_layers"), 0)
    kv = mha_bytes(
        config, layers=layers.attention, tp=deployment.tp, dtype_bytes=deployment.kv_dtype_bytes,
        head_dim_required=head_dim_required,
    )  # fmt: skip
    return sizes_of(config, layers, attention="MHA", kv=kv, linear=None, state=None)


def mha(config: ModelConfig, deployment: Deployment) -> ModelSizes:
    """Return the sizes of a model whose heads have a width of their own, `head_dim`."""
    return _mha(config, deployment, head_dim_required=True)


def mha_of_hidden_size(config: ModelConfig, deployment: Deployment) -> ModelSizes:
    """Return the sizes of a model whose heads share `hidden_size` where `head_dim` is not given."""
    return _mha(config, deployment, head_dim_required=False)


def mla(config: ModelConfig, deployment: Deployment) -> ModelSizes:
    """Return the sizes of a model with nothing but MLA layers."""
    if config.has("index_topk"):
        raise UsageError(f"{config.source}: {_INDEX} (index_topk), which is not modelled: {SIZES}")
    layers = Layers(config.integer("num_hidden_layers"), 0)
    kv = mla_bytes(config, layers=layers.attention, dtype_bytes=deployment.kv_dtype_bytes)
    return sizes_of(config, layers, attention="MLA", kv=kv, linear=None, state=None)


FAMILIES: Mapping[str, Family] = {
    "KimiLinearForCausalLM": kimi_linear,
    "BailingMoeV2_5ForCausalLM": bailing,
    "BailingMoeV3ForCausalLM": bailing,
    "BailingMoeV3VLForConditionalGeneration": bailing,
    "Qwen3NextForCausalLM": gated_delta_net,
    "Qwen3_5ForCausalLM": gated_delta_net,
    "Qwen3_5MoeForCausalLM": gated_delta_net,
    "Qwen3_5ForConditionalGeneration": gated_delta_net,
    "Qwen3_5MoeForConditionalGeneration": gated_delta_net,
    "FalconH1ForCausalLM": falcon_h1,
    "NemotronHForCausalLM": nemotron_h,
    "LlamaForCausalLM": mha_of_hidden_size,
    "MistralForCausalLM": mha_of_hidden_size,
    "MixtralForCausalLM": mha_of_hidden_size,
    "Qwen2ForCausalLM": mha_of_hidden_size,
    "Qwen2MoeForCausalLM": mha_of_hidden_size,
    "Qwen3ForCausalLM": mha,
    "Qwen3MoeForCausalLM": mha,
    "Glm4MoeForCausalLM": mha,
    "MiniMaxM2ForCausalLM": mha,
    "DeepseekV2ForCausalLM": mla,
    "DeepseekV3ForCausalLM": mla,
    "KimiK25ForConditionalGeneration": mla,
}
"""How to size each architecture that is known."""

REFUSED: Mapping[str, str] = {
    "DeepseekV32ForCausalLM": _INDEX,
    "GlmMoeDsaForCausalLM": _INDEX,
    "Glm5NextForConditionalGeneration": _INDEX,
    "GptOssForCausalLM": _WINDOW,
    "Gemma3ForCausalLM": _WINDOW,
    "Gemma4ForCausalLM": _WINDOW,
    "Llama4ForConditionalGeneration": _WINDOW,
    "BailingMoeLinearV2ForCausalLM": "SGLang 0.5.23 serves the 2.5 series (BailingMoeV2_5ForCausalLM) and not this one",
}
"""Architectures that users will try, and why they are not known."""
