"""Settings that every test shares."""

import os

import pytest
from hypothesis import settings

# No deadline: the machines that run these tests are slow and shared. CI sees the same examples every time.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", settings.get_profile("ci"), max_examples=200)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run each test marked `anyio` on both event loops."""
    return request.param
