"""The synchronous client: every call is a turn like the async one's, whatever the form and the end of its reply."""

from typing import Any

import openai
import pytest
from runtime_helpers import ASK, attempts, in_order, turns
from sync_helpers import Served, served

from agentbatch import SyncAgentBatch
from agentbatch.events import Event
from agentbatch.runtime.sync_trajectory import SyncTrajectory
from agentbatch.testing import Answer


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Retries do not really wait; gives what they would have waited."""
    asked: list[float] = []
    monkeypatch.setattr(SyncTrajectory, "pause", lambda self, seconds: asked.append(seconds))
    return asked


def plain(client: Any) -> None:
    assert client.chat.completions.create(**ASK).choices[0].message.content == "a b c d"


def legacy(client: Any) -> None:
    assert client.completions.create(model="m", prompt="hello").choices[0].text == "a b c d"


def responses(client: Any) -> None:
    assert client.responses.create(model="m", input="hello").output_text == "a b c d"


def raw(client: Any) -> None:
    assert client.chat.completions.with_raw_response.create(**ASK).parse().choices[0].message.content == "a b c d"


def streaming_response(client: Any) -> None:
    with client.chat.completions.with_streaming_response.create(**ASK) as response:
        assert response.parse().choices[0].message.content == "a b c d"


@pytest.mark.parametrize("call", [plain, legacy, responses, raw, streaming_response])
def test_a_call_in_any_form_is_one_turn(four_words: Served, call: Any) -> None:
    events: list[Event] = []
    with SyncAgentBatch(cs=1, ce=1, base_url=four_words.url, run="r", on_event=events.append) as batch:
        with batch.trajectory("k") as trajectory:
            call(trajectory.client)
            usage = trajectory.usage
        [turn] = turns(events)
    assert (turn.label, turn.outcome, turn.attempts, turn.turn, turn.worker) == ("r-k", "ok", 1, 1, four_words.url)
    assert (turn.prompt_tokens, turn.cached_tokens, turn.output_tokens) == (8, 6, 4)
    assert 0 <= turn.started_s <= turn.ended_s
    assert (usage.turns, usage.prompt_tokens, usage.turns_without_usage) == (1, 8, 0)
    assert four_words.labels == ["r-k"]


def test_a_refused_call_is_tried_again_under_the_same_label(pauses: list[float]) -> None:
    events: list[Event] = []
    script = in_order(Answer(status=429, headers={"retry-after": "7"}), Answer(status=500), Answer())
    with (
        served(script) as server,
        SyncAgentBatch(cs=1, ce=1, base_url=server.url, run="r", on_event=events.append) as batch,
    ):
        with batch.trajectory("k") as trajectory:
            assert trajectory.client.chat.completions.create(**ASK).choices[0].message.content == "done"
            assert trajectory.usage.attempts_failed == 2
        assert [(event.attempt, event.status, event.turn) for event in attempts(events)] == [(1, 429, 1), (2, 500, 1)]
        assert [event.retry_in_s for event in attempts(events)] == pauses
        assert 7 <= pauses[0] <= 8.75
        assert [(turn.outcome, turn.attempts) for turn in turns(events)] == [("ok", 3)]
        assert server.labels == ["r-k"] * 3
        assert batch.statistics().turns_in_flight == 0


@pytest.mark.parametrize(("status", "retries", "tried"), [(400, 2, 1), (503, 2, 3), (503, 0, 1)])
def test_a_call_that_fails_for_good_raises_what_the_sdk_raises(
    pauses: list[float], status: int, retries: int, tried: int
) -> None:
    events: list[Event] = []
    with (
        served(lambda received: Answer(status=status, text="no")) as server,
        SyncAgentBatch(cs=1, ce=1, base_url=server.url, retries=retries, on_event=events.append) as batch,
    ):
        with batch.trajectory("k") as trajectory, pytest.raises(openai.APIStatusError):
            trajectory.client.chat.completions.create(**ASK)
        assert len(attempts(events)) == len(server.labels) == tried
        assert attempts(events)[-1].retry_in_s is None
        [turn] = turns(events)
        assert (turn.outcome, turn.attempts) == ("failed", tried)


def test_closing_the_client_is_harmless_and_copies_keep_the_label(four_words: Served) -> None:
    with SyncAgentBatch(cs=1, ce=1, base_url=four_words.url, run="r") as batch, batch.trajectory("k") as trajectory:
        with trajectory.client as client:
            client.chat.completions.create(**ASK)
        trajectory.client.close()
        copy = trajectory.client.with_options(timeout=30.0, default_headers={"X-SMG-Routing-Key": "mine"})
        copy.close()
        copy.chat.completions.create(**ASK, extra_headers={"x-smg-routing-key": "mine"})
        trajectory.client.models.list()
        assert trajectory.usage.turns == 2
    assert four_words.labels == ["r-k", "r-k"]
    assert four_words.server.gets[-1].headers["x-smg-routing-key"] == "r-k"


def test_turns_go_to_the_worker_that_the_loop_chose() -> None:
    events: list[Event] = []
    with (
        served() as one,
        served() as two,
        SyncAgentBatch(cs=4, ce=1, base_url=[one.url, two.url], on_event=events.append) as batch,
    ):

        def solve(trajectory: SyncTrajectory, task: int) -> None:
            for _ in range(3):
                trajectory.client.chat.completions.create(**ASK)

        batch.map(solve, range(8))
        seen = {url: sum(turn.worker == url for turn in turns(events)) for url in (one.url, two.url)}
        assert seen == {one.url: len(one.labels), two.url: len(two.labels)}
        assert sum(seen.values()) == 24
        assert batch.statistics().turns_in_flight == 0


def test_n_and_mean_are_up_to_date_before_the_next_job(four_words: Served) -> None:
    asked: list[int] = []

    def solve(trajectory: SyncTrajectory, task: int) -> None:
        for turns_so_far in range(1, 6):
            trajectory.client.chat.completions.create(**ASK)
            with trajectory.environment() as job:
                asked.append(job._turns - turns_so_far)

    with SyncAgentBatch(cs=8, ce=2, base_url=four_words.url) as batch:
        batch.map(solve, range(8))
    assert asked == [0] * 40


def test_no_key_in_any_repr(four_words: Served) -> None:
    with SyncAgentBatch(cs=1, ce=1, base_url=four_words.url, api_key="sk-secret") as batch:  # noqa: SIM117
        with batch.trajectory("k") as trajectory:
            trajectory.client.chat.completions.create(**ASK)
            shown = [repr(thing) for thing in (batch, trajectory, trajectory.client, trajectory.environment())]
            assert not any("secret" in text for text in shown)
    assert "Bearer sk-secret" in four_words.server.received[0].headers["authorization"]


def test_a_batch_without_a_server_has_no_client() -> None:
    with (
        SyncAgentBatch(cs=1, ce=1) as batch,
        batch.trajectory("k") as trajectory,
        pytest.raises(ValueError, match="no server"),
    ):
        _ = trajectory.client
