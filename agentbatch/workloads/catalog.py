"""The workloads of spec §9, each figure with its source.

Totals are the paper's where it publishes them. Shapes (how turns, output and answers spread) were measured on published
agent traces, the three that `examples/traces/ATTRIBUTION.md` names, whole and uncut: standard deviations of natural
logarithms, that between trajectories apart from that within one. "Measured" are those of the same kind of task; a shape
borrowed from another kind is an assumption. Left out, since small: the correlation of neighbouring turns (0.1 to 0.2 at
most), and that answers are longer at the beginning. Nothing here was chosen by looking at a makespan.
"""

from __future__ import annotations

from types import MappingProxyType

from agentbatch.workloads.spec import Source, Spread, Stages, WorkloadSpec

_SWE_AGENT = "90 SWE-agent trajectories (ThunderAgent)"
_CLAUDE_CODE = "355 Claude Code sessions (kv-cache-tester)"
_TAU2 = "the agents of 29 τ²-bench runs (activegraph-tau2-bench)"
_ONLY_INFERENCE = "none: the paper replays this workload without its environment"


def _published(text: str) -> Source:
    return Source(kind="published", text=text)


def _measured(text: str) -> Source:
    return Source(kind="measured", text=text)


def _assumed(text: str) -> Source:
    return Source(kind="assumed", text=text)


def _context(r_bal: str) -> Source:
    return Source(
        kind="derived", text=f"mean such that r_bal is the published {r_bal}, by Eq. 6 and the inferred footprint"
    )


_ANSWERS_TOTAL = "; their total is what the contexts leave"

SWE = WorkloadSpec(
    name="swe", title="SWE-bench Multilingual", trajectories=289, requests=25_416, output_tokens=6_000_784,
    r_bal=0.09, reference_capacity=98,
    turns_sigma=0.38, outputs=Spread(within=1.06),
    system_tokens=338, tool_tokens=0, task_tokens=336, task_sigma=0.90,
    answers=Spread(between=0.12, within=1.09),
    stages=None,
    sources={
        "trajectories": _published("289"),
        "requests": _published("25,416 for 289 trajectories"),
        "output tokens": _published("6,000,784 for 289 trajectories"),
        "last context": _context("0.09"),
        "spread of turns": _measured(f"log-normal, sigma 0.38, as in {_SWE_AGENT}"),
        "spread of output": _measured(f"log-normal, sigma 1.06 within a trajectory and 0 between, as in {_SWE_AGENT}"),
        "shared prefix": _measured(f"338 tokens, the shortest first prompt of {_SWE_AGENT}"),
        "task": _measured(f"336 tokens on average, sigma 0.90: mean and spread of the first prompts of {_SWE_AGENT}"),
        "answers": _measured(f"log-normal, sigma 1.09 within and 0.12 between, as in {_SWE_AGENT}{_ANSWERS_TOTAL}"),
        "environment": Source(kind="published", text=_ONLY_INFERENCE),
    },
)  # fmt: skip

BFCL = WorkloadSpec(
    name="bfcl", title="BFCL-v4", trajectories=5106, requests=17_029, output_tokens=1_441_547,
    r_bal=2.26, reference_capacity=859,
    turns_sigma=0.78, outputs=Spread(between=0.41, within=0.67),
    system_tokens=433, tool_tokens=0, task_tokens=1414, task_sigma=0.92,
    answers=Spread(within=1.26),
    stages=None,
    sources={
        "trajectories": _published("5,106"),
        "requests": _published("17,029 for 5,106 trajectories"),
        "output tokens": _published("1,441,547 for 5,106 trajectories"),
        "last context": _context("2.26"),
        "spread of turns": _assumed(f"log-normal, sigma 0.78, of what exceeds one turn, as measured on {_TAU2}"),
        "spread of output": _assumed(
            f"log-normal, sigma 0.67 within a trajectory and 0.41 between, as measured on {_TAU2}"
        ),
        "shared prefix": _assumed("433 tokens, the shortest first prompt of the τ²-bench agents: BFCL gives each task "
                                  "functions of its own, which are no shared prefix"),
        "task": _assumed(f"1,414 tokens on average, functions included, sigma 0.92: mean and spread of the first "
                         f"prompts of {_TAU2}"),
        "answers": _assumed(f"log-normal, sigma 1.26 within and 0 between, as measured on {_TAU2}{_ANSWERS_TOTAL}"),
        "environment": Source(kind="published", text=_ONLY_INFERENCE),
    },
)  # fmt: skip

WIDESEARCH = WorkloadSpec(
    name="widesearch", title="WideSearch", trajectories=200, requests=5672, output_tokens=4_736_147,
    r_bal=0.10, reference_capacity=98,
    turns_sigma=0.38, outputs=Spread(between=0.31, within=0.83),
    system_tokens=1500, tool_tokens=1500, task_tokens=200, task_sigma=0.44,
    answers=Spread(between=0.63, within=1.67),
    stages=None,
    sources={
        "trajectories": _published("200"),
        "requests": _published("5,672 for 200 trajectories"),
        "output tokens": _published("4,736,147 for 200 trajectories"),
        "last context": _context("0.10"),
        "spread of turns": _assumed(f"log-normal, sigma 0.38, as measured on {_SWE_AGENT}, another kind of task"),
        "spread of output": _assumed(
            f"log-normal, sigma 0.83 within a trajectory and 0.31 between, as measured on {_CLAUDE_CODE}"
        ),
        "shared prefix": _assumed("3,000 tokens: instructions, and the definitions of a few search tools"),
        "task": _assumed("200 tokens on average, sigma 0.44"),
        "answers": _assumed(
            f"log-normal, sigma 1.67 within and 0.63 between, as measured on {_CLAUDE_CODE}{_ANSWERS_TOTAL}"
        ),
        "environment": Source(kind="published", text=_ONLY_INFERENCE),
    },
)  # fmt: skip

MCP_ATLAS = WorkloadSpec(
    name="mcp-atlas", title="MCP-Atlas", trajectories=495, requests=4950, output_tokens=1_168_200,
    r_bal=0.14, reference_capacity=None,
    turns_sigma=0.34, outputs=Spread(between=0.31, within=0.83),
    system_tokens=2789, tool_tokens=11_616, task_tokens=200, task_sigma=0.44,
    answers=Spread(between=0.63, within=1.67),
    stages=Stages(median_s=2.0, spread=Spread(between=0.35, within=1.22), cap_s=60.0),
    sources={
        "trajectories": _published("495"),
        "requests": _assumed("10 a trajectory: the benchmark asks for 3-6 calls, the longer τ²-bench runs took 9.5"),
        "output tokens": _assumed("236 a turn, the published mean of SWE-bench Multilingual"),
        "last context": _context("0.14"),
        "spread of turns": _assumed("log-normal, sigma 0.34, as measured on the 13 τ²-bench runs that are not of its "
                                    "mock domain (activegraph-tau2-bench)"),
        "spread of output": _assumed(
            f"log-normal, sigma 0.83 within a trajectory and 0.31 between, as measured on {_CLAUDE_CODE}"
        ),
        "shared prefix": _assumed(f"14,405 tokens, the mean measured on {_CLAUDE_CODE}; in truth the tools differ by "
                                  "task"),
        "task": _assumed("200 tokens on average, sigma 0.44"),
        "answers": _assumed(
            f"log-normal, sigma 1.67 within and 0.63 between, as measured on {_CLAUDE_CODE}{_ANSWERS_TOTAL}"
        ),
        "environment": _assumed("a stage after every turn but the last, median 2 s (a guess), sigma 1.22 within and "
                                f"0.35 between, as measured on {_CLAUDE_CODE}; cut at 60 s, after which the "
                                "benchmark's harness gives a call up"),
    },
)  # fmt: skip

WORKLOADS = MappingProxyType({spec.name: spec for spec in (SWE, BFCL, WIDESEARCH, MCP_ATLAS)})
"""By name."""
