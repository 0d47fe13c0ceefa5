"""`agentbatch replay` with options that go beyond the paper: admission by a profile, other environment policies."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentbatch.events import Admitted, Notice, RunStarted
from agentbatch.trace import read_run

LONGEST_FIRST = ("--cs", 1, "--admission", "longest-first")


def admitted(path: Path) -> list[str]:
    return [event.key for event in read_run(path).events if isinstance(event, Admitted)]


def started(path: Path) -> RunStarted:
    [event] = [event for event in read_run(path).events if isinstance(event, RunStarted)]
    return event


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    """Four trajectories with stages of 1, 100, 10 and 25 s: capped at 20 s the second and the last are as long."""
    path = tmp_path / "uneven.jsonl"
    turns = [{"prompt_tokens": 200, "output_tokens": 5, "infer_s": 1.0}]
    lines = [
        {"id": f"t{number}", "domain": "d", "turns": [{**turns[0], "env_s": seconds}, *turns]}
        for number, seconds in enumerate([1.0, 100.0, 10.0, 25.0])
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_longest_first_by_the_trace_itself_capped_as_the_replay_is(run: Any, uneven: Path, against: list[str]) -> None:
    record = uneven.with_name("run.jsonl")
    common = (*against, *LONGEST_FIRST, "--profile", uneven, "--record")
    assert run("replay", uneven, *common, record, "--env-policy", "depth", "--band-s", "auto").err == ""
    assert admitted(record) == ["t1", "t3", "t2", "t0"]
    asked = started(record)
    assert (asked.admission, asked.env_policy, asked.band_s) == ("longest-first", "depth", "auto")
    banded = uneven.with_name("banded.jsonl")
    assert run("replay", uneven, *common, banded, "--env-policy", "depth", "--band-s", 1e9).err == ""
    assert started(banded).band_s == 1e9
    capped = uneven.with_name("capped.jsonl")
    assert run("replay", uneven, *common, capped, "--env-policy", "slow-step", "--env-cap-s", 20).err == ""
    assert admitted(capped) == ["t1", "t3", "t2", "t0"]  # equals as submitted
    assert started(capped).band_s is None
    level = uneven.with_name("level.jsonl")
    assert run("replay", uneven, *common, level, "--env-cap-s", 1).err == ""
    assert admitted(level) == ["t0", "t1", "t2", "t3"]


def test_a_record_is_the_profile_of_the_next_replay(run: Any, uneven: Path, against: list[str]) -> None:
    first, second = uneven.with_name("first.jsonl"), uneven.with_name("second.jsonl")
    assert run("replay", uneven, *against, "--cs", 4, "--ce", 4, "--record", first).status == 0
    assert run("replay", uneven, *against, *LONGEST_FIRST, "--profile", first, "--record", second).err == ""
    assert admitted(second) == ["t1", "t3", "t2", "t0"]
    assert started(first).admission == "fifo"


def test_noise_is_drawn_anew_for_each_order_and_the_same_again(run: Any, uneven: Path, against: list[str]) -> None:
    def played(name: str) -> list[list[str]]:
        record = uneven.with_name(f"{name}.jsonl")
        noise = ("--profile", uneven, "--profile-noise", 3, "--orders", 3, "--seed", 5)
        assert run("replay", uneven, *against, *LONGEST_FIRST, *noise, "--record", record).status == 0
        return [admitted(uneven.with_name(f"{name}{end}.jsonl")) for end in ("", ".1", ".2")]

    orders = played("run")
    assert orders == played("again")
    assert len({tuple(order) for order in orders}) > 1
    plain = uneven.with_name("plain.jsonl")
    exact = ("--profile", uneven, "--orders", 2, "--record", plain)
    assert run("replay", uneven, *against, *LONGEST_FIRST, *exact).status == 0
    for end in ("", ".1"):  # whatever the order of submission
        assert admitted(plain.with_name(f"plain{end}.jsonl")) == ["t1", "t3", "t2", "t0"]


def test_a_profile_of_other_tasks_is_announced(run: Any, uneven: Path, trace: Path, against: list[str]) -> None:
    """The four of one trace and the five of the other share t0 to t3."""
    done = run("replay", trace, *against, *LONGEST_FIRST, "--profile", uneven)
    assert "1 of the 5 task keys is not in the profile: expected to take its median, 19.5 s" in done.err
    record = trace.with_name("run.jsonl")
    done = run("replay", uneven, *against, *LONGEST_FIRST, "--profile", "sample", "--record", record)
    assert "none of the 4 task keys is in the profile" in done.err
    [said] = [event for event in read_run(record).events if isinstance(event, Notice)]
    assert (said.kind, said.details) == ("profile-unknown", {"unknown": 4, "tasks": 4})
    assert admitted(record) == ["t0", "t1", "t2", "t3"]


def test_inference_only_is_profiled_without_stages(run: Any, tmp_path: Path, against: list[str]) -> None:
    path, record = tmp_path / "t.jsonl", tmp_path / "run.jsonl"
    lines = [
        {"id": name, "domain": "d", "turns": [{"prompt_tokens": 99, "output_tokens": 3, "infer_s": s, "env_s": 10 / s}]}
        for name, s in (("short", 1.0), ("long", 2.0))
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = (*LONGEST_FIRST, "--profile", path, "--inference-only", "--record", record)
    assert run("replay", path, *against, *options).status == 0
    assert admitted(record) == ["long", "short"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--admission", "longest-first"), "longest-first needs a profile"),
        (("--profile", "sample"), "a profile is of no use to 'fifo'"),
        (("--profile-noise", 1), "profile_noise blurs a profile: give one"),
        ((*LONGEST_FIRST, "--profile", "sample", "--profile-noise", -1), "the noise of a profile must be 0 to 5"),
        ((*LONGEST_FIRST, "--profile", "sample", "--profile-noise", "nan"), "the noise of a profile must be 0 to 5"),
        ((*LONGEST_FIRST, "--profile", "none.jsonl"), "none.jsonl does not exist"),
        (("--admission", "shortest"), "'fifo', 'longest-first'"),
        (("--env-policy", "deepest"), "'caas', 'fcfs', 'depth', 'slow-step'"),
        (("--band-s", "wide"), "--band-s takes seconds above 0, or auto, not 'wide'"),
        (("--band-s", "nan"), "band_s must be a positive number"),
    ],
)
def test_what_is_refused(run: Any, trace: Path, arguments: tuple[object, ...], said: str) -> None:
    assert said in run("replay", trace, "--emulate", 1, *arguments, "--json").complaint


def test_the_sample_goes_by_its_name(run: Any, tmp_path: Path, monkeypatch: Any, against: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("replay", "sample", *against, "--limit", 1, "--inference-only", "--json")
    assert (done.status, done.figures["completed"]) == (0, 1)
    (tmp_path / "sample").write_text("")  # a file of that name goes first
    assert "sample holds no trajectory" in run("replay", "sample", *against).complaint
