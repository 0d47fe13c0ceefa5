"""docs/traces.md tells the source of every field of every generated workload, as the code has it."""

from pathlib import Path

import pytest

from agentbatch.workloads import WORKLOADS, aggregate, generate
from agentbatch.workloads.footprint import INFERRED

DOCUMENT = (Path(__file__).parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_table_of_a_workload_is_its_catalogue_entry(name: str) -> None:
    spec = WORKLOADS[name]
    section = DOCUMENT.partition(f"\n### `{name}`: {spec.title}\n")[2].partition("\n#")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert rows == [f"| {field} | {source.kind} | {source.text} |" for field, source in spec.sources.items()]


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_row_of_a_workload_is_what_is_generated(name: str) -> None:
    spec, made = WORKLOADS[name], aggregate(generate(name))
    published = spec.reference_capacity or "–"
    context = f"{made.last_context_tokens.mean:,.0f}"
    assert f"| `{name}` | {context} | {spec.r_bal:.2f} | {made.capacity_per_worker} | {published} |" in DOCUMENT


def test_the_inferred_footprint_is_said() -> None:
    assert INFERRED in " ".join(DOCUMENT.split())
