"""What a generated workload is made from, and where each of its figures comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["published", "derived", "measured", "assumed"]
"""By the paper (spec §9); worked out from that; on real traces of such tasks; our own, others' shapes included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where one figure comes from: `kind`, and a sentence."""

    kind: Kind
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """How log-normal quantities differ.

    Args:
        between: sigma of what the turns of one trajectory share, >= 0.
        within: sigma of each turn, >= 0.
    """

    between: float = 0.0
    within: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
    """Environment stages: one after every turn but the last.

    Args:
        median_s: seconds, > 0.
        spread: around the median.
        cap_s: longest stage, seconds.
    """

    median_s: float
    spread: Spread
    cap_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadSpec:
    """One workload: totals that are met exactly, and how they spread over trajectories and turns.

    Args:
        name: what a command line says.
        title: for people.
        trajectories: how many the totals are for.
        requests: inference turns of all.
        output_tokens: of all turns.
        r_bal: the balanced cache ratio; decides the mean context of last turns (`footprint.balanced_context`).
        reference_capacity: C_ref per TP4 worker as published; None where it is not.
        turns_sigma: log-normal sigma of turns per trajectory.
        outputs: spread of output tokens per turn.
        system_tokens, tool_tokens: beginning of every prompt, shared by all trajectories.
        task_tokens: what the first prompt holds after that, mean over trajectories.
        task_sigma: log-normal sigma of it.
        answers: spread of the tokens that the environment adds between two turns.
        stages: environment seconds; None leaves them out.
        sources: by field, where it comes from.
    """

    name: str
    title: str
    trajectories: int
    requests: int
    output_tokens: int
    r_bal: float
    reference_capacity: int | None
    turns_sigma: float
    outputs: Spread
    system_tokens: int
    tool_tokens: int
    task_tokens: int
    task_sigma: float
    answers: Spread
    stages: Stages | None
    sources: Mapping[str, Source]
