"""Models as their published `config.json` have them (only the fields that sizes depend on), and short traces."""

from typing import Any

from agentbatch.trace import TraceTrajectory, TraceTurn

_MLA = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
_KIMI_FULL = [4, 8, 12, 16, 20, 24, 27]
_QWEN_LINEAR = {
    "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_num_key_heads": 16, "head_dim": 256,
}  # fmt: skip

KIMI: dict[str, Any] = {
    "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "hidden_size": 2304,
    "num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 72, **_MLA,
    "mla_use_nope": True, "max_position_embeddings": 1_048_576,
    "linear_attn_config": {
        "full_attn_layers": _KIMI_FULL, "kda_layers": [n for n in range(1, 28) if n not in _KIMI_FULL],
        "num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
    },
}  # fmt: skip
"""Kimi-Linear-48B-A3B."""

LING_3: dict[str, Any] = {
    "architectures": ["BailingMoeV3ForCausalLM"], "model_type": "bailing_hybrid", "hidden_size": 2560,
    "num_hidden_layers": 42, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, **_MLA,
    "q_lora_rank": None, "layer_group_size": 6, "short_conv_kernel_size": 4, "use_mla_nope": False,
    "group_norm_size": 1, "max_position_embeddings": 262_144,
}  # fmt: skip
"""Ling-3.0-Flash."""

LING_25: dict[str, Any] = {
    "architectures": ["BailingMoeV2_5ForCausalLM"], "model_type": "bailing_hybrid", "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 128, **_MLA, "layer_group_size": 8,
    "group_norm_size": 8,
}  # fmt: skip
"""The 2.5 series: lightning attention, 1 : 7."""

QWEN3_NEXT: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": 2048,
    "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "linear_num_value_heads": 32,
    **_QWEN_LINEAR, "max_position_embeddings": 262_144,
}  # fmt: skip
"""Qwen3-Next-80B-A3B."""

QWEN3_5: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text", "num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 24,
        "num_key_value_heads": 4, "linear_num_value_heads": 48, **_QWEN_LINEAR, "mamba_ssm_dtype": "float32",
    },
}  # fmt: skip
"""A dense Qwen3.5 of 64 layers, its fields nested in `text_config`."""

FALCON_H1: dict[str, Any] = {
    "architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "hidden_size": 5120,
    "num_hidden_layers": 72, "num_attention_heads": 20, "num_key_value_heads": 4, "head_dim": 128,
    "mamba_d_ssm": 10240, "mamba_n_heads": 32, "mamba_d_head": 320, "mamba_n_groups": 2, "mamba_d_state": 256,
    "mamba_d_conv": 4, "mamba_expand": 2,
}  # fmt: skip

NEMOTRON_H: dict[str, Any] = {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 2688,
    "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "mamba_num_heads": 64,
    "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4,
}  # fmt: skip

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 131_072,
}  # fmt: skip
"""Llama 3 70B, which has no `head_dim`."""

QWEN3_MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 4096,
    "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128,
}  # fmt: skip

DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, **_MLA,
}  # fmt: skip


def turn(prompt: int, output: int, **fields: Any) -> TraceTurn:
    return TraceTurn(prompt_tokens=prompt, output_tokens=output, **fields)


def trajectory(name: str, *turns: TraceTurn, **fields: Any) -> TraceTrajectory:
    return TraceTrajectory(id=name, turns=turns, **{"domain": "d", **fields})
