"""One live server at a time, for all tests that want it launched alike."""

from collections.abc import Iterator

import pytest
from fidelity import RUNS
from sglang_server import Launch, Server, SglangMissing, end_on_sigterm, serving


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[tuple[Launch, Server]]:
    """A server launched as the parameter says."""
    launch: Launch = request.param
    end_on_sigterm()
    try:
        with serving(launch) as live:
            yield launch, live
    except SglangMissing as missing:
        pytest.exit(str(missing), returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of one server together: each start takes 20 s or more."""
    launches = list(RUNS)

    def server_of(item: pytest.Item) -> int:
        launch = getattr(item, "callspec", None) and item.callspec.params.get("server")
        return launches.index(launch) if launch in RUNS else -1

    items.sort(key=server_of)
