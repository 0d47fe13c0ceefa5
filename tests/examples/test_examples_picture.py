"""`docs/make_picture.py` draws recorded runs; the picture in the README is one of its own."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import anyio
import anyio.lowlevel
import pytest

from agentbatch import AgentBatch, Trajectory

DOCS = Path(__file__).parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def draw(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", DOCS / "make_picture.py", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)


@pytest.fixture
def records(tmp_path: Path) -> list[Path]:
    """Two tiny runs, of three and of five trajectories."""

    async def solve(trajectory: Trajectory, _: int) -> None:
        async with trajectory.environment():
            await anyio.lowlevel.checkpoint()

    async def record(path: Path, count: int) -> None:
        async with AgentBatch(cs=2, ce=1, record=path) as batch:
            await batch.map(solve, range(count))

    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, count in zip(paths, (3, 5), strict=True):
        anyio.run(record, path, count)
    return paths


def test_it_draws_one_curve_a_run_with_a_step_an_end(records: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    done = draw(f"CS 2, CE 1={records[0]}", f"a <b> & c={records[1]}", "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    picture = ElementTree.parse(out).getroot()
    curves = [path.get("d", "") for path in picture.iter(f"{SVG}path") if path.get("class") == "curve"]
    assert [curve.count("V") for curve in curves if "V" in curve] == [3, 5]
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert {"CS 2, CE 1", "a <b> & c", "0 %", "100 %"} <= set(texts)


def test_it_refuses_a_run_that_did_not_end(records: list[Path], tmp_path: Path) -> None:
    torn = tmp_path / "torn.jsonl"
    torn.write_text("".join(line + "\n" for line in records[0].read_text().splitlines() if '"ended"' not in line))
    done = draw(f"torn={torn}", "--out", tmp_path / "out.svg")
    assert done.returncode == 2
    assert "0 of 3 trajectories ended" in done.stderr


def test_the_picture_of_the_readme_is_up_to_date_with_its_script() -> None:
    source = (DOCS / "demo.svg").read_text(encoding="utf-8")
    style = re.search(r'STYLE = """(.*?)"""', (DOCS / "make_picture.py").read_text(encoding="utf-8"), re.DOTALL)
    assert style is not None
    assert style[1] in source
    assert len(source) < 20_000
    assert ElementTree.fromstring(source).find(f"{SVG}title") is not None
