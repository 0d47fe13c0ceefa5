"""The wheel holds what the checkout holds: three packages with their data, type markers, the licence."""

import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = [ROOT / "agentbatch", ROOT / "adapters/agentbatch_adapters", ROOT / "server_ext/agentbatch_sglang"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Contents by name, of a wheel built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def dist_info() -> str:
    return f"agentbatch-{PROJECT['version']}.dist-info"


@pytest.fixture
def metadata(wheel: dict[str, bytes], dist_info: str) -> Message:
    return Parser().parsestr(wheel[f"{dist_info}/METADATA"].decode())


def test_holds_every_file_of_the_three_packages_and_nothing_else(
    wheel: dict[str, bytes], dist_info: str
) -> None:
    sources = {
        path.relative_to(package.parent).as_posix()
        for package in PACKAGES
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    sample = {"agentbatch/examples/sample.jsonl"}  # for `agentbatch demo` without a checkout
    assert {name for name in wheel if not name.startswith(dist_info)} == sources | sample


@pytest.mark.parametrize("package", [package.name for package in PACKAGES])
def test_packages_are_typed(wheel: dict[str, bytes], package: str) -> None:
    assert f"{package}/__init__.py" in wheel
    assert f"{package}/py.typed" in wheel


def test_holds_the_licences(wheel: dict[str, bytes], dist_info: str, metadata: Message) -> None:
    for name in PROJECT["license-files"]:
        assert wheel[f"{dist_info}/licenses/{name}"] == (ROOT / name).read_bytes()
    assert metadata["License-Expression"] == "Apache-2.0"


def test_metadata(wheel: dict[str, bytes], dist_info: str, metadata: Message) -> None:
    assert metadata["Name"] == "agentbatch"
    assert metadata["Requires-Python"] == ">=3.11"
    assert b"agentbatch = agentbatch.cli:main" in wheel[f"{dist_info}/entry_points.txt"]
