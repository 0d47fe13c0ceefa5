"""The quickstart works as a script and as a notebook, and both are the same program."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"
SCORE = re.compile(r"^score 12/12, at most [1-8] model calls at once$", re.MULTILINE)
FIGURES = re.compile(r"^makespan (\d+\.\d\d) s, mean wait for a tool slot \d+\.\d\d s$", re.MULTILINE)


def run_script(folder: Path, source: Path = EXAMPLES / "quickstart.py") -> subprocess.CompletedProcess[str]:
    """Run it from an empty folder, with a folder for temporary files of its own."""
    (folder / "elsewhere").mkdir()
    (folder / "tmp").mkdir()
    command = [sys.executable, "-W", "error", str(source)]
    env = {**os.environ, "TMPDIR": str(folder / "tmp")}
    return subprocess.run(
        command, check=False, cwd=folder / "elsewhere", env=env, capture_output=True, text=True, timeout=40
    )


def test_the_script_scores_full_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = run_script(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(" 5 turns, True\n") == 12  # write, test, mend, test, answer
    assert SCORE.search(done.stdout)
    assert FIGURES.search(done.stdout)
    assert [*(tmp_path / "elsewhere").iterdir(), *(tmp_path / "tmp").iterdir()] == []


def test_the_script_fails_when_the_score_is_not_full(tmp_path: Path) -> None:
    spoilt = tmp_path / "spoilt.py"
    source = (EXAMPLES / "quickstart.py").read_text()
    spoilt.write_text(source.replace("assert not is_leap(1900)", "assert is_leap(1900) is None"))  # no solution can
    done = run_script(tmp_path, spoilt)
    assert done.returncode == 1
    assert "score 11/12" in done.stdout
    assert re.search(r"^is_leap\(y\) +8 turns, False$", done.stdout, re.MULTILINE)
    assert [*(tmp_path / "tmp").iterdir()] == []


@pytest.fixture
def quiet_jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep Jupyter's and IPython's files out of the user's home."""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


@pytest.mark.usefixtures("quiet_jupyter")
def test_the_notebook_runs_from_top_to_bottom() -> None:
    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    client = NotebookClient(notebook, timeout=40, kernel_name="python3", resources={"metadata": {"path": EXAMPLES}})
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert {(output.output_type, output.get("name")) for output in outputs} == {("stream", "stdout")}
    text = "".join(output.text for output in outputs)
    assert text.count(" 5 turns, True\n") == 12
    assert SCORE.search(text)
    assert FIGURES.search(text)


def test_the_notebook_is_kept_without_outputs() -> None:
    for cell in json.loads((EXAMPLES / "quickstart.ipynb").read_text())["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


def test_notebook_and_script_are_the_same_program() -> None:
    notebook = json.loads((EXAMPLES / "quickstart.ipynb").read_text())
    cells = "\n\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    source = (EXAMPLES / "quickstart.py").read_text()
    definition = ast.AsyncFunctionDef | ast.FunctionDef
    parts = [node for node in ast.parse(source).body if isinstance(node, definition | ast.Assign | ast.AnnAssign)]
    names = {node.name for node in parts if isinstance(node, definition)}
    assert names == {"solve", "main", "run_tool", "model"}
    for node in parts:
        if getattr(node, "name", None) != "main":  # a notebook awaits at top level
            assert ast.get_source_segment(source, node) in cells
