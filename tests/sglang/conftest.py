"""One live server at a time, for all tests that want it launched alike."""

from collections.abc import Iterator

import pytest
from sglang_server import Launch, Server, SglangMissing, serving


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[tuple[Launch, Server]]:
    """A server launched as the parameter says."""
    launch: Launch = request.param
    try:
        with serving(launch) as live:
            yield launch, live
    except SglangMissing as missing:
        pytest.exit(str(missing), returncode=pytest.ExitCode.USAGE_ERROR)
