"""c_kv and c_state of each kind of model, against what SGLang 0.5.23's own classes give for the same `config.json`.

The expected figures were read from an installed SGLang 0.5.23: `mamba2_cache_params.mamba_cache_per_req` of its
configuration classes with `attn_tp_size` set to each width, and `ModelConfig.get_num_kv_heads`, `head_dim`,
`v_head_dim`, `kv_lora_rank` and `qk_rope_head_dim` for the cell size of `DefaultPoolConfigurator`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from plan_configs import (
    DEEPSEEK_V3,
    FALCON_H1,
    KIMI,
    LING_3,
    LING_25,
    LLAMA,
    NEMOTRON_H,
    QWEN3_5,
    QWEN3_MOE,
    QWEN3_NEXT,
)

from agentbatch.errors import UsageError
from agentbatch.plan.config import parse_config, read_config
from agentbatch.plan.models import FAMILIES, REFUSED, model_sizes
from agentbatch.plan.sizes import Deployment, ModelSizes


def sizes(config: dict[str, Any], tp: int = 1, **deployment: Any) -> ModelSizes:
    return model_sizes(parse_config(config), Deployment(tp=tp, **deployment))


def refusal(config: dict[str, Any], tp: int = 1) -> str:
    with pytest.raises(UsageError) as refused:
        sizes(config, tp)
    return str(refused.value)


HYBRID = [
    (KIMI, {1: (8064, 43_417_600), 2: (8064, 21_708_800), 4: (8064, 10_854_400), 8: (8064, 5_427_200)}),
    (LING_3, {1: (8064, 75_980_800), 2: (8064, 37_990_400), 4: (8064, 18_995_200), 8: (8064, 9_497_600)}),
    (LING_25, {1: (11520, 293_601_280), 2: (11520, 146_800_640), 4: (11520, 73_400_320), 8: (11520, 36_700_160)}),
    (QWEN3_NEXT, {1: (24576, 77_266_944), 2: (12288, 38_633_472), 4: (12288, 19_316_736), 8: (12288, 9_658_368)}),
    (FALCON_H1, {1: (147_456, 759_840_768), 2: (73_728, 379_920_384)}),
    (NEMOTRON_H, {1: (6144, 49_082_368), 2: (3072, 24_541_184), 4: (3072, 12_270_592), 8: (3072, 6_135_296)}),
]


@pytest.mark.parametrize(
    ("config", "tp", "expected"), [(config, tp, pair) for config, table in HYBRID for tp, pair in table.items()]
)
def test_hybrid_models_as_sglang_sizes_them(config: dict[str, Any], tp: int, expected: tuple[int, int]) -> None:
    found = sizes(config, tp)
    assert (found.kv_bytes, found.state_bytes) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA, {1: 327_680, 2: 163_840, 4: 81_920, 8: 40_960, 16: 40_960}),
        (QWEN3_MOE, {1: 192_512, 2: 96_256, 4: 48_128, 8: 48_128}),
        (DEEPSEEK_V3, {1: 70_272, 2: 70_272, 4: 70_272, 8: 70_272}),
    ],
)
def test_pure_attention_has_no_state(config: dict[str, Any], expected: dict[int, int]) -> None:
    for tp, kv_bytes in expected.items():
        found = sizes(config, tp)
        assert (found.kv_bytes, found.state_bytes, found.linear, found.linear_layers) == (kv_bytes, None, None, 0)


def test_layers_and_kinds() -> None:
    kinds = {name: (one.attention, one.linear, one.attention_layers, one.linear_layers) for name, one in (
        ("kimi", sizes(KIMI)), ("ling 3", sizes(LING_3)), ("ling 2.5", sizes(LING_25)), ("qwen", sizes(QWEN3_NEXT)),
        ("nemotron", sizes(NEMOTRON_H)),
    )}  # fmt: skip
    assert kinds == {
        "kimi": ("MLA", "KDA", 7, 20),
        "ling 3": ("MLA", "KDA", 7, 35),
        "ling 2.5": ("MLA", "lightning", 10, 70),
        "qwen": ("MHA", "GDN", 12, 36),
        "nemotron": ("MHA", "Mamba-2", 6, 23),
    }


def test_fields_nested_in_text_config() -> None:
    found = sizes(QWEN3_5, 4)
    assert (found.kv_bytes, found.attention_layers) == (16384, 16)
    assert found.state_bytes == 48 * (10240 // 4 * 3 * 2 + 12 * 128 * 128 * 4)


def test_state_type_of_the_option_and_of_the_configuration() -> None:
    half = {**QWEN3_5, "text_config": {**QWEN3_5["text_config"], "mamba_ssm_dtype": "bfloat16"}}
    assert sizes(half, 4).state_bytes == 19_611_648  # SGLang 0.5.23 for this configuration
    assert sizes(QWEN3_5, 4, state_dtype="bfloat16").state_bytes == 19_611_648
    assert sizes(half, 4, state_dtype="float32").state_bytes == sizes(QWEN3_5, 4).state_bytes
    # SGLang's Kimi and Bailing classes do not read the field: their state stays float32 without the option
    assert sizes({**KIMI, "mamba_ssm_dtype": "bfloat16"}).state_bytes == 43_417_600
    assert sizes(KIMI, state_dtype="bfloat16").state_bytes == 20 * (3 * 3 * 4096 * 2 + 32 * 128 * 128 * 2)


def test_kv_type() -> None:
    assert sizes(KIMI, kv_dtype="fp8_e4m3").kv_bytes == 4032
    assert sizes(LLAMA, 4, kv_dtype="fp8_e4m3").kv_bytes == 40_960


def test_ling_without_rotated_keys_keeps_less() -> None:
    assert sizes({**LING_3, "use_mla_nope": True}).kv_bytes == 7168  # SGLang 0.5.23 for this configuration


def test_layers_given_as_lists() -> None:
    marks = [0 if (layer + 1) % 6 == 0 else 1 for layer in range(42)]
    assert sizes({**LING_3, "layer_group_size": marks}) == sizes(LING_3)
    types = ["full_attention" if (layer + 1) % 4 == 0 else "linear_attention" for layer in range(48)]
    listed = {**QWEN3_NEXT, "layer_types": types}
    del listed["full_attention_interval"]
    assert sizes(listed) == sizes(QWEN3_NEXT)
    kinds = {"M": "mamba", "*": "attention", "E": "moe"}
    named = [kinds[letter] for letter in NEMOTRON_H["hybrid_override_pattern"]]
    assert sizes({**NEMOTRON_H, "layers_block_type": named}) == sizes(NEMOTRON_H)


def test_falcon_with_its_width_left_to_the_defaults() -> None:
    left = {**FALCON_H1, "mamba_d_ssm": None, "mamba_d_head": "auto"}
    assert sizes(left) == sizes(FALCON_H1)
    assert "do not make up a width" in refusal({**FALCON_H1, "mamba_d_head": 300})


def test_a_single_mamba_group_is_copied_to_every_rank() -> None:
    one = sizes({**NEMOTRON_H, "n_groups": 1}, 4)
    assert one.state_bytes == 23 * ((16 * 64 + 2 * 128) * 3 * 2 + 16 * 64 * 128 * 4)


def test_a_checkpoint_with_a_kv_type_of_its_own_is_noticed() -> None:
    assert not sizes(KIMI).kv_quantised
    assert sizes({**KIMI, "quantization_config": {"kv_cache_quant_algo": "FP8"}}).kv_quantised
    assert not sizes({**KIMI, "quantization_config": {"kv_cache_scheme": None}}).kv_quantised


@pytest.mark.parametrize(
    ("config", "tp", "said"),
    [
        (KIMI, 3, "32 heads of linear attention do not divide over --tp 3: use --tp 1, 2, 4, 8, 16 or 32"),
        (LLAMA, 3, "64 attention heads do not divide over --tp 3"),
        (QWEN3_NEXT, 32, "16 key heads of linear attention do not divide over --tp 32"),
        ({**LLAMA, "num_key_value_heads": 6}, 4, "6 KV heads do not divide over --tp 4: use --tp 1 or 2"),
        ({**LLAMA, "num_attention_heads": 2**31 - 1, "hidden_size": 2**31 - 1}, 2, "use --tp 1"),  # at once
        (FALCON_H1, 4, "2 Mamba groups do not divide over --tp 4"),
        ({**LING_25, "group_norm_size": 2}, 4, "2 norm groups of linear attention (group_norm_size) do not divide"),
    ],
)
def test_heads_that_do_not_divide(config: dict[str, Any], tp: int, said: str) -> None:
    assert said in refusal(config, tp)


def without(config: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != name}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (without(KIMI, "kv_lora_rank"), "config.json has no kv_lora_rank, which KimiLinearForCausalLM needs"),
        (without(KIMI, "linear_attn_config"), "linear_attn_config must be an object"),
        (without(LING_3, "layer_group_size"), "no layer_group_size"),
        (without(QWEN3_NEXT, "head_dim"), "no head_dim"),
        (without(QWEN3_NEXT, "full_attention_interval"), "no full_attention_interval"),
        (without(NEMOTRON_H, "hybrid_override_pattern"), "neither layers_block_type nor hybrid_override_pattern"),
        ({**KIMI, "kv_lora_rank": "512"}, "kv_lora_rank must be a whole number of at least 1, not '512'"),
        ({**KIMI, "kv_lora_rank": True}, "not True"),
        ({**KIMI, "num_hidden_layers": 0}, "num_hidden_layers must be a whole number of at least 1, not 0"),
        ({**LING_3, "layer_group_size": [1, 0]}, "layer_group_size lists 2 layers of 42"),
        ({**LING_3, "layer_group_size": 1}, "42 attention and 0 linear layers: a hybrid model has both"),
        ({**LING_3, "layer_group_size": 100}, "0 attention and 42 linear layers"),
        ({**without(QWEN3_NEXT, "full_attention_interval"), "layer_types": ["sliding"]}, "layer_types must name 48"),
        ({**DEEPSEEK_V3, "index_topk": 2048}, "sparse attention keeps an index"),
        ({**LLAMA, "is_hybrid_swa": True}, "sliding-window layers"),
        ({**LLAMA, "hidden_size": 63}, "a hidden_size below 64 attention heads leaves no room for a head"),
        ({**LLAMA, "num_hidden_layers": 10**400}, "num_hidden_layers must be at most 2,147,483,647, not 1000000"),
    ],
)
def test_fields_that_are_missing_or_wrong(config: dict[str, Any], said: str) -> None:
    assert said in refusal(config)


def test_an_unknown_architecture_says_which_are_known_and_how_to_go_on() -> None:
    said = refusal({"architectures": ["MysteryForCausalLM"]})
    assert "unknown architecture MysteryForCausalLM; known are BailingMoeV2_5ForCausalLM, " in said
    assert "--kv-bytes and --state-bytes" in said


@pytest.mark.parametrize("name", REFUSED)
def test_architectures_that_are_not_modelled_say_why(name: str) -> None:
    assert name not in FAMILIES
    assert f"{name} is not modelled, because " in refusal({"architectures": [name]})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "must hold one JSON object"),
        ("{", "is not valid JSON"),
        ("\xff", "is not valid JSON"),
        ("{}", "names no architecture"),
        ('{"architectures": []}', "names no architecture"),
        ('{"architectures": [1]}', "names no architecture"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(UsageError, match=said):
        read_config(path)


def test_files_that_do_not_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist: give the"):
        read_config(tmp_path / "none.json")
    with pytest.raises(UsageError, match="is a folder"):
        read_config(tmp_path)


def test_a_file_that_reads(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(KIMI))
    assert model_sizes(read_config(path), Deployment(tp=1)) == sizes(KIMI)
