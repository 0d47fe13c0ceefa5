"""Records: what one GPU rank keeps of a context, and the deployment that it depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentbatch.errors import UsageError
from agentbatch.plan.config import ModelConfig
from agentbatch.plan.kv import KV_DTYPE_BYTES, KvDtype
from agentbatch.plan.states import STATE_DTYPE_BYTES, StateDtype

Attention = Literal["MHA", "MLA"]
Linear = Literal["KDA", "lightning", "GDN", "Mamba-2"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSizes:
    """What one GPU rank keeps of a context."""

    architecture: str
    attention: Attention | None
    """None where sizes were given by hand; likewise the layers."""
    linear: Linear | None
    """None for a model without recurrent states."""
    attention_layers: int
    linear_layers: int
    kv_bytes: int
    """c_kv, bytes per token."""
    state_bytes: int | None
    """c_state, bytes per state; None for a model without recurrent states."""
    context_tokens: int | None
    """Longest context the model was made for (`max_position_embeddings`); None where not given."""
    kv_quantised: bool = False
    """The checkpoint names a type of its own for the KV cache, which SGLang may follow under "auto"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployment:
    """How a model is served, as far as sizes depend on it."""

    tp: int
    kv_dtype: KvDtype = "auto"
    state_dtype: StateDtype | None = None
    """`--mamba-ssm-dtype`; None for what the model's configuration says, else float32."""

    @property
    def kv_dtype_bytes(self) -> int:
        """Bytes per number of the KV cache."""
        return KV_DTYPE_BYTES[self.kv_dtype]


@dataclass(frozen=True, slots=True)
class Layers:
    """How many layers of a model keep a KV cache, and how many a recurrent state."""

    attention: int
    linear: int


def sizes_of(
    config: ModelConfig, layers: Layers, *, attention: Attention, kv: int, linear: Linear | None, state: int | None
) -> ModelSizes:
    """Put one model's sizes together.

    Args:
        config: the model. layers: as counted from it.
        attention, kv: kind of attention and c_kv. linear, state: kind of linear attention and c_state; None without.

    Raises:
        UsageError: a hybrid model in which one kind of layer is missing.
    """
    if linear is not None and (layers.linear < 1 or layers.attention < 1):
        raise UsageError(
            f"{config.source}: {layers.attention} attention and {layers.linear} linear layers: a hybrid model has both"
        )
    return ModelSizes(
        architecture=config.architecture, attention=attention, linear=linear, attention_layers=layers.attention,
        linear_layers=layers.linear, kv_bytes=kv, state_bytes=state,
        context_tokens=config.integer("max_position_embeddings") if config.has("max_position_embeddings") else None,
        kv_quantised=_names_kv_type(config),
    )  # fmt: skip


def state_dtype_bytes(config: ModelConfig, deployment: Deployment, *, follows_config: bool) -> int:
    """Return bytes per number of the state: of `--mamba-ssm-dtype`, else of the configuration, else of float32.

    Args:
        config: the model. deployment: how it is served.
        follows_config: SGLang reads `mamba_ssm_dtype` of this family's configuration (`mamba2_state_dtype(self)`).
    """
    named = deployment.state_dtype
    if named is None and follows_config:
        named = config.fields.get("mamba_ssm_dtype")  # a name SGLang does not know is float32 to it
    return STATE_DTYPE_BYTES.get(named or "float32", 4) if isinstance(named, str | None) else 4


def _names_kv_type(config: ModelConfig) -> bool:
    quantisation = config.fields.get("quantization_config")
    names = ("kv_cache_quant_algo", "kv_cache_scheme")
    return isinstance(quantisation, dict) and any(quantisation.get(name) is not None for name in names)
