"""Sizes of hybrid models: attention layers with a KV cache among linear layers with a recurrent state."""

from __future__ import annotations

from agentbatch.errors import UsageError
from agentbatch.plan.config import SIZES, ModelConfig
from agentbatch.plan.kv import mha_bytes, mla_bytes
from agentbatch.plan.sizes import Deployment, Layers, ModelSizes, sizes_of, state_dtype_bytes
from agentbatch.plan.states import gdn_bytes, kda_bytes, lightning_bytes, mamba2_bytes


def kimi_linear(config: ModelConfig, deployment: Deployment) -> ModelSizes:
    """Return the sizes of Kimi-Linear: MLA and KDA layers, listed in `linear_attn_config`."""
    linear = config.inner("linear_attn_config")
    total = config.integer("num_hidden_layers")
    kda = sum(1 <= layer <= total for layer in set(linear.integers("kda_layers")))  # they count from 1
    layers = Layers(total - kda, kda)
    state = kda_bytes(
        layers=kda, heads=linear.integer("num_heads"), head_dim=linear.integer("head_dim"),
        kernel=linear.integer("short_conv_kernel_size"), tp=deployment.tp,
        state_bytes=state_dtype_bytes(config, deployment, follows_config=False),
    )  # fmt: skip
    return sizes_of(config, layers, attention="MLA", kv=_mla(config, deployment, layers), linear="KDA", state=state)


def bailing(config: ModelConfig, deployment: Deployment) -> ModelSizes:
    """Return the sizes of Ling and Ring: MLA with KDA layers (3.0) or with lightning layers (the 2.5 series)."""
    layers = _bailing_layers(config)
    number_bytes = state_dtype_bytes(config, deployment, follows_config=False)
    kv = _mla(config, deployment, layers)
    if not config.has("short_conv_kernel_size"):  # what sets Ling 3 apart (SGLang's use_kda)
        state = lightning_bytes(config, layers=layers.linear, tp=deployment.tp, state_bytes=number_bytes)
        return sizes_of(config, layers, attention="MLA", kv=kv, linear="lightning", state=state)
    state = kda_bytes(
        layers=layers.linear, heads=config.integer("num_attention_heads"), head_dim=config.integer("head_dim"),
        kernel=config.integer("short_conv_kernel_size"), tp=deployment.tp, state_bytes=number_bytes,
    )  # fmt: skip
    return sizes_of(config, layers, attention="MLA", kv=kv, linear="KDA", state=state)


def _bailing_layers(config: ModelConfig) -> Layers:
    """Every `layer_group_size`-th layer is attention; a list of that name marks each linear layer with 1."""
    total = config.integer("num_hidden_layers")
    if isinstance(config.fields.get("layer_group_size"), list):
        marks = config.integers("layer_group_size")
        if len(marks) != total:
            raise UsageError(f"{config.source}: layer_group_size lists {len(marks)} layers of {total}")
        return Layers(sum(mark != 1 for mark in marks), sum(mark == 1 for mark in marks))
    attention = total // config.integer("layer_group_size")
    return Layers(attention, total - attention)


def gated_delta_net(config: ModelConfig, deployment: Deployment) -> ModelSizes:
    """Return the sizes of Qwen3-Next and Qwen3.5: MHA with gated delta nets."""
    layers = _gdn_layers(config)
    number_bytes = state_dtype_bytes(config, deployment, follows_config=True)
    state = gdn_bytes(config, layers=layers.linear, tp=deployment.tp, state_bytes=number_bytes)
    return sizes_of(config, layers, attention="MHA", kv=_mha(config, deployment, layers), linear="GDN", state=state)


def _gdn_layers(config: ModelConfig) -> Layers:
    """Every `full_attention_interval`-th layer is attention; without that field, those that `layer_types` names."""
    total = config.integer("num_hidden_layers")
    types = config.fields.get("layer_types")
    if config.has("full_attention_interval") or not isinstance(types, list):
        attention = total // config.integer("full_attention_interval")
        return Layers(attention, total - attention)
    linear = types.count("linear_attention")
    if len(types) != total or linear + types.count("full_attention") != total:
        raise UsageError(f"{config.source}: layer_types must name {total} layers, full_attention or linear_attention")
    return Layers(total - linear, linear)


def falcon_h1(config: ModelConfig, deployment: Deployment) -> ModelSizes:
    """Return the sizes of Falcon-H1: every layer has MHA and Mamba-2 side by side."""
    layers = Layers(config.integer("num_hidden_layers"), config.integer("num_hidden_layers"))
    heads = config.integer("mamba_n_heads")
    if config.has("mamba_d_ssm"):
        width = config.integer("mamba_d_ssm")
    else:
        width = config.integer("mamba_expand") * config.integer("hidden_size")
    head_dim = width // heads if config.fields.get("mamba_d_head") == "auto" else config.integer("mamba_d_head")
    if head_dim * heads != width:
        raise UsageError(f"{config.source}: {heads} Mamba heads of {head_dim} do not make up a width of {width}")
    state = mamba2_bytes(
        layers=layers.linear, heads=heads, head_dim=head_dim, groups=config.integer("mamba_n_groups"),
        state_size=config.integer("mamba_d_state"), kernel=config.integer("mamba_d_conv"), tp=deployment.tp,
        state_bytes=state_dtype_bytes(config, deployment, follows_config=True),
    )  # fmt: skip
    kv = _mha(config, deployment, layers)
    return sizes_of(config, layers, attention="MHA", kv=kv, linear="Mamba-2", state=state)


def nemotron_h(config: ModelConfig, deployment: Deployment) -> ModelSizes:
    """Return the sizes of Nemotron-H: MHA and Mamba-2 layers as its pattern has them."""
    layers = _nemotron_layers(config)
    state = mamba2_bytes(
        layers=layers.linear, heads=config.integer("mamba_num_heads"), head_dim=config.integer("mamba_head_dim"),
        groups=config.integer("n_groups"), state_size=config.integer("ssm_state_size"),
        kernel=config.integer("conv_kernel"), tp=deployment.tp,
        state_bytes=state_dtype_bytes(config, deployment, follows_config=True),
    )  # fmt: skip
    kv = _mha(config, deployment, layers)
    return sizes_of(config, layers, attention="MHA", kv=kv, linear="Mamba-2", state=state)


def _nemotron_layers(config: ModelConfig) -> Layers:
    kinds, pattern = config.fields.get("layers_block_type"), config.fields.get("hybrid_override_pattern")
    if isinstance(kinds, list):
        return Layers(kinds.count("attention"), kinds.count("mamba"))
    if isinstance(pattern, str):
        return Layers(pattern.count("*"), pattern.count("M"))
    raise UsageError(f"{config.source} has neither layers_block_type nor hybrid_override_pattern: {SIZES}")


def _mla(config: ModelConfig, deployment: Deployment, layers: Layers) -> int:
    return mla_bytes(config, layers=layers.attention, dtype_bytes=deployment.kv_dtype_bytes)


def _mha(config: ModelConfig, deployment: Deployment, layers: Layers) -> int:
    return mha_bytes(
        config, layers=layers.attention, tp=deployment.tp, dtype_bytes=deployment.kv_dtype_bytes, head_dim_required=True
    )
