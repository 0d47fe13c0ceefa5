"""`make_sample.py` is deterministic and cuts as it says."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "traces" / "make_sample.py"


def turns(*tokens: int) -> list[dict[str, Any]]:
    return [{"prompt_tokens": count - 1, "output_tokens": 1, "env_s": 300.0, "user_s": 200.0} for count in tokens]


def build(folder: Path, name: str) -> list[dict[str, Any]]:
    out = folder / name
    command = [sys.executable, str(SCRIPT), str(folder), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_cuts_chooses_and_shuffles_the_same_way_every_time(tmp_path: Path) -> None:
    def write(name: str, records: list[dict[str, Any]]) -> None:
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps({"domain": "d", **record}) for record in records))

    write(
        "claude_code",
        [
            {"id": "kept", "model": "m", "tool_tokens": 5, "turns": turns(100, 200, 32_000, 32_001, 300)},
            {"id": "too-short", "turns": turns(100, 200, 32_001, 300)},
        ],
    )
    write("swe_agent", [{"id": f"s{number}", "env_prepare_s": 8.0, "turns": turns(*[9] * 50)} for number in range(60)])
    write("tau2", [{"id": "t", "reward": 1.0, "duration_s": 3.0, "src": "x", "turns": turns(9)}])

    about, *records = build(tmp_path, "one.jsonl")
    build(tmp_path, "two.jsonl")
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert about["about"].startswith("42 real agent trajectories, numbers only: 1 from callanjfox/")
    by_id = {record["id"]: record for record in records}
    kept = {"id": "kept", "domain": "d", "model": "m", "tool_tokens": 5, "source": "claude_code"}
    assert by_id["kept"] == {**kept, "turns": turns(100, 200, 32_000)}
    assert by_id["t"] == {"id": "t", "domain": "d", "source": "tau2", "turns": turns(9)}
    sampled = [record for record in records if record["source"] == "swe_agent"]
    assert len(sampled) == 40
    assert all(record["turns"] == turns(*[9] * 40) and record["env_prepare_s"] == 8.0 for record in sampled)
    assert [record["id"] for record in sampled] != sorted(record["id"] for record in sampled)
