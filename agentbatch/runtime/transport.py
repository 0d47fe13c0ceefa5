"""The HTTP client under every trajectory, and the checks that it can carry the load.

Both stock transports stop silently at 1,000 requests in flight, and aiohttp's own default is 100: here neither
caps, because the admission limit does (inspect_ai#847, openai-python#2539). HTTP classes come from openai, which moved
from httpx to httpx2 in 3.x; neither is named here.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import openai

from agentbatch.errors import StartUpError

KEEPALIVE_EXPIRY_S = 4.0
"""Below uvicorn's 5 s, so that the client drops an idle connection before the server resets it under a request."""

RESERVED_DESCRIPTORS = 64
"""Left for logs, pipes, subprocesses and the event loop when CS is checked against RLIMIT_NOFILE."""


def runs_on_asyncio() -> bool:
    """Tell whether the running event loop is asyncio's (aiohttp does not run on trio)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def check_descriptors(cs: int) -> None:
    """Refuse a CS that the process's file-descriptor limit cannot carry (daiv#1368).

    Raises:
        StartUpError: RLIMIT_NOFILE is below CS plus a reserve of 64.
    """
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = cs + RESERVED_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        raise StartUpError(
            f"cs={cs} may need {needed} file descriptors but RLIMIT_NOFILE is {soft} (hard limit {hard}): "
            f"run `ulimit -n {needed}` first, or lower cs to at most {max(1, soft - RESERVED_DESCRIPTORS)}"
        )


def build_http_client(cs: int, timeout_s: float) -> Any:
    """Build the one HTTP client that all trajectories share: aiohttp under asyncio, the SDK's own under trio.

    Args:
        cs: admission limit, sizes the pool of idle connections; requests in flight are not capped.
        timeout_s: seconds without a byte before a request fails; waiting for a pool slot never happens.
    """
    timeout = openai.Timeout(timeout_s, connect=min(timeout_s, 30.0))
    if runs_on_asyncio():
        # aiohttp reads 0 as "no limit", and an absent limit as 100
        kind = type(openai.DEFAULT_CONNECTION_LIMITS)
        limits = kind(max_connections=0, max_keepalive_connections=None, keepalive_expiry=KEEPALIVE_EXPIRY_S)
        return openai.DefaultAioHttpClient(limits=limits, timeout=timeout)
    return openai.DefaultAsyncHttpxClient(limits=_uncapped(cs), timeout=timeout)


def build_sync_http_client(cs: int, timeout_s: float) -> Any:
    """Build the one HTTP client that the threads of a batch share, see `build_http_client`."""
    timeout = openai.Timeout(timeout_s, connect=min(timeout_s, 30.0))
    return openai.DefaultHttpxClient(limits=_uncapped(cs), timeout=timeout)


def _uncapped(cs: int) -> Any:
    """Limits of the SDK's own transports, which read None as no limit."""
    return type(openai.DEFAULT_CONNECTION_LIMITS)(
        max_connections=None, max_keepalive_connections=max(cs, 20), keepalive_expiry=KEEPALIVE_EXPIRY_S
    )


def share_platform(source: Any, target: Any) -> None:
    """Hand on what `source` has learnt of this machine for its headers.

    Every new client of the SDK asks for it in a worker thread before its first request: a hop per trajectory, and a
    queue behind anyio's 40 threads when thousands start at once. Without the attribute the SDK simply asks again.
    """
    platform = getattr(source, "_platform", None)
    if platform is not None:
        target._platform = platform
