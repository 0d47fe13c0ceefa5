"""The model of a worker beside the real SGLang: the same scripts through both.

    python tests/sglang/fidelity.py [--out docs/fidelity.md]

runs everything and prints the tables, or writes the document. Needs SGLang's environment (`make sglang`); about five
minutes, two cores at most.
"""

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from drive import Outcome, modelled, real
from request_script import Script, burst, crowd, kv_bound, light, places, state_bound
from sglang_server import Launch, Server, end_on_sigterm, serving

PLACES, BURST = "places", "burst"
"""Scripts in which timing decides nothing: what is cached, who is admitted next."""
SCRIPTS = {script.name: script for script in (places(), light(), kv_bound(), state_bound(), crowd(), burst())}
RUNS: dict[Launch, tuple[str, ...]] = {
    **{Launch(policy=policy): tuple(SCRIPTS) for policy in ("fcfs", "lpm", "dfs-weight")},
    Launch(strategy="no_buffer"): (PLACES, "light", "KV-bound", "state-bound"),
    Launch(strategy="extra_buffer_lazy", max_states_per_path=-1): (PLACES, "light", "state-bound"),
}
"""Which scripts go to a server launched like that."""
ATTEMPTS, LATE_S = 3, 0.03
"""How often a script is run while the machine falls behind by more than three steps."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One script, through both."""

    launch: Launch
    script: Script
    real: Outcome
    model: Outcome

    @property
    def real_cached(self) -> int:
        """Cached prompt tokens that the server reported, in all."""
        return sum(self.real.cached_tokens.values())

    @property
    def model_cached(self) -> int:
        """Those of the model."""
        return sum(self.model.cached_tokens.values())

    @property
    def difference(self) -> float:
        """Model / real − 1, of cached tokens."""
        return self.model_cached / self.real_cached - 1

    @property
    def same_requests(self) -> int:
        """Requests for which both cached exactly the same number of tokens."""
        return sum(self.model.cached_tokens[rid] == tokens for rid, tokens in self.real.cached_tokens.items())

    @property
    def same_order(self) -> bool:
        """Whether both admitted the requests in the same order."""
        return self.model.order == self.real.order

    def differing(self) -> Iterator[str]:
        """Yield a line for each request whose cached tokens differ, in the real order of admission."""
        for rid in self.real.order:
            got, modelled_as = self.real.cached_tokens[rid], self.model.cached_tokens[rid]
            if got != modelled_as:
                yield f"{self.launch.policy} {self.launch.strategy} {self.script.name} {rid}: {got} real, {modelled_as}"


def compare(server: Server, launch: Launch, script: Script) -> Comparison:
    """Run `script` on the server, then through the model of it.

    Where the machine fell behind (other work on the same cores), what the server did says little; it is asked again,
    up to three times in all, and the run in which it kept up best counts. What the run said is not looked at.
    """
    attempts: list[Outcome] = []
    while not attempts or (len(attempts) < ATTEMPTS and min(one.late_s for one in attempts) > LATE_S):
        attempts.append(real(server, script))
    kept = min(attempts, key=lambda one: one.late_s)
    return Comparison(launch=launch, script=script, real=kept, model=modelled(launch, script))


def table(comparisons: Iterable[Comparison]) -> Iterator[str]:
    """Yield the Markdown table."""
    yield (
        "| mode | policy | script | requests | prompt tokens | cached: real | model | difference | same requests "
        "| evicted tokens: real | model | evicted states: real | model | order |"
    )
    yield "|" + "---|" * 14
    for one in comparisons:
        order = ("same" if one.same_order else "differs") if one.script.name == BURST else "by timing"
        figures = (
            one.launch.strategy, one.launch.policy, one.script.name, len(one.real.cached_tokens),
            f"{one.real.prompt_tokens:,}", f"{one.real_cached:,}", f"{one.model_cached:,}", f"{one.difference:+.1%}",
            one.same_requests, f"{one.real.evicted_tokens:,}", f"{one.model.evicted_tokens:,}",
            one.real.evicted_states, one.model.evicted_states, order,
        )
        yield "| " + " | ".join(map(str, figures)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description="The model of a worker beside the real SGLang.")
    parser.add_argument("--out", type=Path, help="write the table between the marks of this document")
    asked = parser.parse_args()
    end_on_sigterm()
    comparisons = []
    for launch, names in RUNS.items():
        with serving(launch) as server:
            for name in names:
                comparisons.append(compare(server, launch, SCRIPTS[name]))
                print(*comparisons[-1].differing(), *list(table(comparisons[-1:]))[2:], sep="\n", flush=True)
    if asked.out is not None:
        flags = [f"- `{' '.join(launch.flags())}`" for launch in RUNS]
        before, _, rest = asked.out.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        body = "\n".join([BEGIN, "", *table(comparisons), "", "Launched with", "", *flags, "", END])
        asked.out.write_text(before + body + after)


BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

if __name__ == "__main__":
    main()
