"""Builds `sample.jsonl`, the workload of `make demo`, from three published sets of agent traces.

    python examples/traces/make_sample.py FOLDER [--out sample.jsonl]

FOLDER holds `claude_code.jsonl`, `swe_agent.jsonl` and `tau2.jsonl` (numbers only; see ATTRIBUTION.md). The same input
gives the same bytes: choice and order come from SHA-256 of the trajectories' ids, not from a random generator.

What is done to them:

- a trajectory ends after 40 turns, or before its first turn whose prompt and output exceed 32,000 tokens together;
- Claude Code sessions left with fewer than three turns are dropped: most of the others start beyond that length;
- all other Claude Code sessions, 40 of the SWE-agent trajectories and all τ²-bench ones are kept, in a shuffled order;
- figures that describe the uncut run (duration, reward) are dropped; `source` is added.

`env_s` and `user_s` stay as recorded. Claude Code's include a person's approval, so a replay should cap them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentbatch.trace import read_workload

MAX_TURNS = 40
MAX_TOKENS = 32_000
MIN_CLAUDE_CODE_TURNS = 3
SWE_AGENT_TRAJECTORIES = 40
SEED = "agentbatch sample 1"

SOURCES = {
    "claude_code": "callanjfox/kv-cache-tester, Apache-2.0",
    "swe_agent": "ThunderAgent-org/ThunderAgent, MIT",
    "tau2": "yoheinakajima/activegraph-tau2-bench, Apache-2.0",
}
KEPT_KEYS = ("id", "domain", "model", "system_tokens", "tool_tokens", "env_prepare_s")


def rank(trajectory: dict[str, Any]) -> str:
    """Return a key that orders trajectories arbitrarily but always alike."""
    return hashlib.sha256(f"{SEED}/{trajectory['id']}".encode()).hexdigest()


def cut(trajectory: dict[str, Any], source: str) -> dict[str, Any]:
    """Return `trajectory` with the turns that fit the limits, possibly none."""
    turns = []
    for turn in trajectory["turns"][:MAX_TURNS]:
        if turn["prompt_tokens"] + turn["output_tokens"] > MAX_TOKENS:
            break
        turns.append(turn)
    kept = {key: trajectory[key] for key in KEPT_KEYS if key in trajectory}
    return kept | {"source": source, "turns": turns}


def read(folder: Path, source: str) -> Iterator[dict[str, Any]]:
    """Yield one source's trajectories, cut; those that are left too short are passed over."""
    path = folder / f"{source}.jsonl"
    read_workload(path)  # refuses a malformed file with its line and field
    shortest = MIN_CLAUDE_CODE_TURNS if source == "claude_code" else 1
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and "turns" in (record := json.loads(line)):
            trajectory = cut(record, source)
            if len(trajectory["turns"]) >= shortest:
                yield trajectory


def build(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the sample, the leading one about it included."""
    chosen = {source: list(read(folder, source)) for source in SOURCES}
    chosen["swe_agent"] = sorted(chosen["swe_agent"], key=rank)[:SWE_AGENT_TRAJECTORIES]
    trajectories = sorted((one for group in chosen.values() for one in group), key=rank)
    counts = ", ".join(f"{len(chosen[source])} from {origin}" for source, origin in SOURCES.items())
    about = (
        f"{len(trajectories)} real agent trajectories, numbers only: {counts}. Cut by make_sample.py: each ends after "
        f"{MAX_TURNS} turns or before the first turn of more than {MAX_TOKENS} tokens (prompt and output), so neither "
        "their number nor their length is that of the originals. env_s and user_s are as recorded; cap them. "
        "Licences and notices: ATTRIBUTION.md."
    )
    return [{"about": about}, *trajectories]


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the sample workload from the three sources of traces.")
    parser.add_argument("folder", type=Path, help="folder with claude_code.jsonl, swe_agent.jsonl and tau2.jsonl")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("sample.jsonl"))
    arguments = parser.parse_args()
    lines = [json.dumps(record, separators=(",", ":"), ensure_ascii=False) for record in build(arguments.folder)]
    arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{arguments.out}: {len(read_workload(arguments.out))} trajectories, {arguments.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
