"""Figures against examples worked by hand and against slow models that follow spec §8 word by word."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_events import admitted, ended, job, run_started, turn

from agentbatch.events import ChildStarted, Event, LimitsChanged, TurnEnded, WorkloadKnown
from agentbatch.trace import CompletionCurve, completion_curve
from agentbatch.trace.bound import covered_s, lower_bound_s
from agentbatch.trace.imbalance import Placement, imbalance, output_imbalance, request_imbalance
from agentbatch.trace.ledger import Ledger
from agentbatch.trace.metrics import Tokens, mean_in_flight

WORKERS = ("w0", "w1", "w2", "w3")
HORIZON = 12
SPANS = st.tuples(st.integers(0, HORIZON), st.integers(0, HORIZON)).map(lambda pair: (min(pair), max(pair)))
TURNS = st.lists(st.tuples(SPANS, st.sampled_from(WORKERS), st.integers(0, 50)), max_size=12).map(
    lambda rows: [
        turn("a", number, float(start), float(end), worker, output_tokens=tokens)
        for number, ((start, end), worker, tokens) in enumerate(rows)
    ]
)


def in_flight(turns: list[TurnEnded], cell: int) -> list[TurnEnded]:
    """The turns in flight during second `cell`: all starts and ends are whole seconds."""
    return [one for one in turns if one.started_s <= cell and cell + 1 <= one.ended_s]


def d(loads: list[int]) -> Fraction:
    """Spec §8's formula, as it stands."""
    workers, total = len(loads), sum(loads)
    mean = Fraction(total, workers)
    return sum((abs(load - mean) for load in loads), Fraction(0)) / (2 * (1 - Fraction(1, workers)) * total)


@given(TURNS, st.integers(2, 6))
def test_request_imbalance_is_the_average_over_sampled_seconds(turns: list[TurnEnded], spare: int) -> None:
    names = [*WORKERS, *(f"idle{number}" for number in range(spare))]
    sampled = [in_flight(turns, cell) for cell in range(HORIZON)]
    values = [d([sum(one.worker == name for one in now) for name in names]) for now in sampled if len(now) > 1]
    expected = float(sum(values) / len(values)) if values else None
    assert request_imbalance(turns, len(names)) == (None if expected is None else pytest.approx(expected, abs=1e-12))


@given(TURNS)
def test_output_imbalance_follows_the_formula(turns: list[TurnEnded]) -> None:
    loads = [sum(one.output_tokens or 0 for one in turns if one.worker == name) for name in WORKERS]
    expected = float(d(loads)) if sum(loads) else None
    assert output_imbalance(turns, len(WORKERS)) == (None if expected is None else pytest.approx(expected, abs=1e-12))


@given(st.lists(st.integers(0, 9), min_size=2, max_size=2).filter(any))
def test_two_workers_give_the_papers_own_figure(loads: list[int]) -> None:
    assert imbalance(loads, 2) == pytest.approx(abs(loads[0] - loads[1]) / sum(loads))


@given(st.integers(1, 9), st.integers(2, 9))
def test_imbalance_ends_at_one_for_all_on_one_and_zero_for_even(load: int, workers: int) -> None:
    assert imbalance([load], workers) == pytest.approx(1)
    assert imbalance([load] * workers, workers) == 0
    assert imbalance([], workers) == 0


@given(TURNS)
def test_mean_in_flight_is_the_average_over_sampled_seconds(turns: list[TurnEnded]) -> None:
    start, end = 2, 10
    ledger = Ledger.of([admitted("a", float(start)), ended("a", float(end)), *turns])
    expected = sum(len(in_flight(turns, cell)) for cell in range(start, end)) / (end - start)
    ledger.ended["r-a"] = ended("a", float(end), admitted_s=float(start))
    assert mean_in_flight(ledger) == pytest.approx(expected)


@given(st.lists(SPANS, max_size=10))
def test_covered_seconds_count_once(spans: list[tuple[int, int]]) -> None:
    cells = {cell for start, end in spans for cell in range(start, end)}
    assert covered_s([(float(start), float(end)) for start, end in spans]) == len(cells)


@given(st.lists(st.integers(0, 20), max_size=40), st.integers(0, 3), st.integers(0, 1000).map(lambda n: n / 10))
def test_t_q_is_the_first_time_at_which_the_share_is_reached(times: list[int], unfinished: int, q: float) -> None:
    curve = CompletionCurve(len(times) + unfinished, tuple(float(at) for at in sorted(times)))
    total, needed = len(times) + unfinished, Fraction(str(q)) / 100
    reached = [at for at in range(21) if total and Fraction(sum(one <= at for one in times), total) >= needed]
    assert curve.t(q) == (reached[0] if reached else None)


def test_tails_by_hand() -> None:
    curve = CompletionCurve(20, tuple(float(at) for at in range(1, 21)))
    assert (curve.t(100), curve.t(95), curve.t(94.9), curve.t(90), curve.t(50)) == (20, 19, 19, 18, 10)
    assert (curve.tail(5), curve.tail(10), curve.tail(100)) == (1, 2, 20)
    assert CompletionCurve(1000, tuple(map(float, range(1, 1001)))).t(99.9) == 999
    assert CompletionCurve(3, (1.0, 2.0)).tail(5) is None
    assert CompletionCurve(0, ()).tail(5) is None


def test_the_curve_starts_at_the_first_admission_and_counts_every_outcome() -> None:
    events = [
        admitted("a", 2.0), admitted("b", 3.0), admitted("c", 3.0),
        ended("a", 5.0, "failed", admitted_s=2.0), ended("b", 12.0, admitted_s=3.0),
        ended("c", 9.0, "cancelled", admitted_s=3.0),
        ended("d", 99.0, "cancelled", admitted_s=None),  # withdrawn from the queue: never ran
    ]  # fmt: skip
    assert completion_curve(events) == CompletionCurve(3, (3.0, 7.0, 10.0))


def known(**fields: Any) -> WorkloadKnown:
    defaults = {"source": "s", "trajectories": 2, "engine_s": None, "longest_chain_s": 0.0, "workers": 2}
    return WorkloadKnown(**{**defaults, "environment_s": {}, **fields})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"environment_s": {"default": 100.0, "slack": 60.0}, "longest_chain_s": 50.0, "engine_s": 110.0}, 60.0),
        ({"environment_s": {"default": 130.0, "slack": 1.0}, "longest_chain_s": 50.0, "engine_s": 110.0}, 65.0),
        ({"environment_s": {"default": 100.0}, "longest_chain_s": 50.0, "engine_s": 140.0}, 70.0),
        ({"environment_s": {"default": 100.0, "other": 999.0}, "longest_chain_s": 80.0}, 80.0),
    ],
)
def test_lower_bound_takes_the_largest_part(fields: dict[str, Any], expected: float) -> None:
    events: list[Event] = [run_started(ce={"default": 2, "slack": 1}), known(**fields), job("a", 0.0, 0.0, 9999.0)]
    assert lower_bound_s(Ledger.of(events)) == expected


def test_lower_bound_from_what_was_measured() -> None:
    events: list[Event] = [
        run_started(ce={"default": 2, "slack": 1}),
        admitted("a"), admitted("b"),
        turn("a", 1, 0.0, 10.0), job("a", 10.0, 12.0, 15.0), turn("a", 2, 15.0, 20.0),  # 18 s in all
        job("b", 0.0, 0.0, 4.0, resource="slack"), job("b", 0.0, 1.0, 5.0), job("b", 0.0, None, 50.0),  # 5 s
    ]  # fmt: skip
    assert lower_bound_s(Ledger.of(events)) == 18.0
    child: list[Event] = [
        ChildStarted(at_s=0.0, label=f"r-{name}", parent=f"r-{parent}")
        for name, parent in (("a/judge", "a"), ("a/judge/deep", "a/judge"))
    ]
    child += [turn("a/judge", 1, 20.0, 23.0), turn("a/judge/deep", 1, 22.0, 24.0), turn("c/x", 1, 0.0, 19.0)]
    assert lower_bound_s(Ledger.of([*events, *child])) == 22.0, "a child's seconds belong to its parent's chain"
    many = [job("b", 0.0, 0.0, 19.0, resource="slack"), job("a", 0.0, 0.0, 60.0)]
    assert lower_bound_s(Ledger.of([*events, *many])) == max(60.0, (3 + 4 + 60) / 2, 4 + 19)
    assert lower_bound_s(Ledger.of([])) is None


def test_workers_are_those_given_or_else_those_seen() -> None:
    turns = [turn("a", 1, 0, 1, "w0"), turn("a", 2, 0, 1, "w1"), turn("a", 3, 0, 1, "", outcome="failed")]

    def placement(*given: str, extra: tuple[TurnEnded, ...] = ()) -> tuple[int, int, int]:
        found = Placement.of(Ledger.of([run_started(workers=given), *turns, *extra]))
        return found.workers, len(found.turns), found.unknown

    assert placement("w0", "w1", "w2") == (3, 2, 0), "an idle worker counts"
    assert placement() == (2, 2, 0)
    assert placement("gateway") == (2, 2, 0), "behind a gateway, the workers that the turns name"
    assert placement("w0", extra=(turn("a", 4, 0, 1, ""),)) == (1, 1, 2)
    assert Placement.of(Ledger.of([run_started(workers=WORKERS)])).workers == 4


def test_tokens_with_and_without_what_a_server_tells() -> None:
    def tokens(*rows: tuple[int | None, int | None, int | None]) -> Tokens:
        turns = [
            turn("a", n, 0, 1, prompt_tokens=p, cached_tokens=c, output_tokens=o) for n, (p, c, o) in enumerate(rows)
        ]
        return Tokens.of(Ledger.of(turns))

    some = tokens((100, 40, 5), (100, None, 7), (None, None, None))
    assert (some.input, some.cached, some.output, some.unreported) == (200, 40, 12, 1)
    assert (some.new_prefill, some.cache_reuse) == (160, 0.2)
    untold = tokens((100, None, 5))
    assert (untold.input, untold.cached, untold.new_prefill, untold.cache_reuse) == (100, None, None, None)
    assert tokens((0, 0, 0)).cache_reuse is None
    nothing = tokens((None, None, None))
    assert (nothing.input, nothing.output, nothing.unreported) == (None, None, 1)
    empty = tokens()
    assert (empty.input, empty.cached, empty.output) == (0, None, 0)


def test_the_lower_bound_takes_the_most_slots_that_there_ever_were() -> None:
    events: list[Event] = [run_started(ce={"default": 1}), job("a", 0.0, 0.0, 30.0), job("b", 0.0, 0.0, 30.0)]
    assert lower_bound_s(Ledger.of(events)) == 60.0
    events += [LimitsChanged(at_s=1.0, cs=4, ce={"default": 3}), LimitsChanged(at_s=2.0, cs=4, ce={"default": 2})]
    assert lower_bound_s(Ledger.of(events)) == 30.0, "two slots are enough for both at once; the chain is 30 s"
