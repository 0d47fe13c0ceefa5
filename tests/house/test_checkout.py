"""Rules for the checkout itself: sizes, versions, the lock, and nothing of the machine it was written on."""

import re
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import agentbatch

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()
# Written in pieces, so that this file passes its own test.
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pypi", "python", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("deb", "debian", "org"),
        ("download", "pytorch", "org"),
    )
]
MACHINE_PATHS = "|".join(("ho" + "me", "Us" + "ers", "ro" + "ot", "wo" + "rk", "op" + "t/(?:pypi|wheels)"))
FOREIGN = re.compile("|".join(map(re.escape, HOSTS)) + rf"|(?<![\w.~)}}/-])/(?:{MACHINE_PATHS})[\w-]*/")


def tracked_texts() -> list[tuple[str, str]]:
    """Name and text of every tracked file that is text."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    texts = []
    for name in filter(None, done.stdout.split("\0")):
        path = ROOT / name
        content = path.read_bytes() if path.is_file() else b""
        if b"\0" not in content:
            texts.append((name, content.decode()))
    return texts


def foreign_names(texts: list[tuple[str, str]]) -> list[str]:
    """`file:line: match` for each registry host or machine path."""
    return [
        f"{name}:{number}: {match[0]}"
        for name, text in texts
        for number, line in enumerate(text.splitlines(), 1)
        if (match := FOREIGN.search(line))
    ]


def test_tracked_text_names_no_registry_host_and_no_machine_path() -> None:
    assert foreign_names(tracked_texts()) == []


def test_lock_names_no_registry_host_and_no_machine_path() -> None:
    assert foreign_names([("requirements.lock", LOCK)]) == []
    assert not re.search(r"://|^-|file:", LOCK, re.MULTILINE)


@pytest.mark.parametrize("host", HOSTS)
def test_a_registry_host_would_be_found(host: str) -> None:
    assert foreign_names([("a", f"\nsee https://{host}/simple")]) == [f"a:2: {host}"]


@pytest.mark.parametrize("folder", ["ho" + "me", "ro" + "ot", "wo" + "rk"])
def test_a_machine_path_would_be_found(folder: str) -> None:
    assert foreign_names([("a", f"in `/{folder}/main/x.py`")]) == [f"a:1: /{folder}/"]
    assert foreign_names([("a", f"in docs/{folder}/x.py, https://host/{folder}/x")]) == []


def test_lock_pins_what_pyproject_asks_for() -> None:
    pinned = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK, re.MULTILINE))
    extras = PROJECT["optional-dependencies"].values()
    for requirement in map(Requirement, chain(PROJECT["dependencies"], *extras)):
        name = canonicalize_name(requirement.name)
        if name != "agentbatch":
            fits = requirement.specifier.contains(pinned[name], prereleases=True)
            assert fits, f"{requirement} is pinned to {pinned[name]}: run make lock"


def test_lock_has_hashes_and_not_the_project_itself() -> None:
    entries = re.split(r"^(?=[a-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)
    assert not any(entry.startswith(("agentbatch", "torch")) for entry in entries)


def test_no_source_file_is_over_300_lines() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines())
        for package in ("agentbatch", "adapters", "server_ext")
        for path in (ROOT / package).rglob("*.py")
    }
    assert {name: lines for name, lines in lengths.items() if lines > 300} == {}


def test_one_version_everywhere() -> None:
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert PROJECT["version"] == newest[1] == agentbatch.__version__
