"""What README.md and docs/ show is what happens: their snippets run, their links lead somewhere.

A comment on the line before a fenced block says how it is tested:

- `<!-- run -->`: a `python` block is run as a program, a `bash` block as a script. In a `console` block each line after
  `$ ` is a command (a backslash continues it); what it prints must be what follows it, where `…` stands for anything.
- `<!-- run: FILE -->`: the block stands in that file word for word, and other tests run the file.
- none: it is not run (it needs a server, or takes long), but its Python must compile and its `agentbatch` commands must
  be ones that the command line takes.

The blocks of one document run in order, in one empty folder in which `examples` and `docs` are those of the checkout.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import typer.main

from agentbatch.cli.app import app
from agentbatch.events import EVENT_TYPES, Event
from agentbatch.trace import TraceTrajectory, TraceTurn

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"(?:<!-- (run(?:: (\S+))?) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)[^)]*\)")


@dataclass(frozen=True)
class Snippet:
    """One fenced block: where it is, how it is tested, what it holds."""

    where: str
    run: bool
    file: str | None
    language: str
    text: str


def snippets(document: Path) -> list[Snippet]:
    """Find every fenced block of a document."""
    source = document.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(source):
        mark, file, language, text = match.groups()
        line = source.count("\n", 0, match.start(3)) + 1
        found.append(Snippet(f"{document.name}:{line}", mark is not None, file, language, text))
    return found


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block and what it is said to print."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command = re.match(r"(?:.*\\\n)*.*\n?", part)
        assert command is not None
        yield command[0], part[command.end() :]


def run(command: list[str], folder: Path, where: str) -> str:
    """Run a command that must succeed without a warning; returns its stdout."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "COLUMNS": "100", "PYTHONWARNINGS": "error"}
    done = subprocess.run(command, check=False, cwd=folder, env=env, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, f"{where}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def matches(expected: str, printed: str) -> bool:
    """Compare line by line but for blanks at line ends; `…` stands for anything, several lines included."""
    lines = [re.escape(line.rstrip()).replace("…", ".*") for line in expected.strip().splitlines()]
    have = [line.rstrip() for line in printed.strip().splitlines()]
    return re.fullmatch("\n".join(lines), "\n".join(have), re.DOTALL) is not None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_marked_snippets_run(document: Path, tmp_path: Path) -> None:
    for name in ("examples", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    for snippet in snippets(document):
        if snippet.file is not None:
            assert snippet.text in (ROOT / snippet.file).read_text(encoding="utf-8"), f"{snippet.where} differs"
        elif snippet.run and snippet.language == "python":
            run([sys.executable, "-c", snippet.text], tmp_path, snippet.where)
        elif snippet.run and snippet.language == "bash":
            run(["bash", "-euo", "pipefail", "-c", snippet.text], tmp_path, snippet.where)
        elif snippet.run:
            assert snippet.language == "console", f"{snippet.where}: cannot run {snippet.language!r}"
            for command, expected in commands(snippet.text):
                printed = run(["bash", "-euo", "pipefail", "-c", command], tmp_path, snippet.where)
                assert matches(expected, printed), f"{snippet.where}: {command}printed\n{printed}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_other_snippets_are_well_formed(document: Path) -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for snippet in snippets(document):
        if snippet.language == "python":
            compile(snippet.text, snippet.where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        elif snippet.language in ("bash", "console"):
            for line in re.findall(r"^(?:\$ )?agentbatch ((?:.*\\\n)*.*)$", snippet.text, re.MULTILINE):
                words = shlex.split(re.split(r" (?:2?>|[|&])", line.replace("\\\n", ""))[0], comments=True)
                known[words[0]].make_context(words[0], words[1:])  # raises where an option does not exist


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_to_files(document: Path) -> None:
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_the_readme_shows_the_quickstart_and_runs_commands() -> None:
    found = snippets(ROOT / "README.md")
    assert any(snippet.file == "examples/quickstart.py" for snippet in found)
    assert any(snippet.run and snippet.language == "console" for snippet in found)


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.event)
def test_traces_md_names_every_field_of_an_event(kind: type[Event]) -> None:
    source = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
    section = source.partition(f"\n**{kind.event}** ")[2].partition("\n**")[0]
    assert [field.name for field in fields(kind) if f"`{field.name}`" not in section] == []


@pytest.mark.parametrize("model", [TraceTrajectory, TraceTurn])
def test_traces_md_names_every_key_of_a_trace(model: type[TraceTrajectory | TraceTurn]) -> None:
    section = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8").partition("\n## A run file")[0]
    assert [name for name in model.model_fields if f"`{name}`" not in section] == []


def test_output_is_compared_up_to_the_ellipsis() -> None:
    assert list(commands("$ a \\\n  b\nx … z\n\n$ c\n")) == [("a \\\n  b\n", "x … z\n\n"), ("c\n", "")]
    assert matches("x … z\n", "x y  \nz z\n\n")
    assert not matches("x … z", "x y")
    assert not matches("", "surprise")
