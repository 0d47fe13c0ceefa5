"""Is the server there? Asked once, before any task runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from agentbatch.errors import StartUpError
from agentbatch.runtime.hub import Hub
from agentbatch.runtime.turn import describe

ANSWER_WITHIN_S = 10.0


async def check_reachable(http_client: Any, base_urls: Sequence[str], api_key: str, hub: Hub) -> None:
    """Ask every server for its models; any HTTP answer will do.

    Raises:
        StartUpError: a server cannot be connected to.
    """
    async with anyio.create_task_group() as group:
        errors: list[StartUpError] = []
        for url in base_urls:
            group.start_soon(_check_one, http_client, url, api_key, hub, errors)
    if errors:
        raise errors[0]


async def _check_one(http_client: Any, url: str, api_key: str, hub: Hub, errors: list[StartUpError]) -> None:
    try:
        with anyio.fail_after(ANSWER_WITHIN_S):
            headers = {"Authorization": f"Bearer {api_key}"}
            response = await http_client.get(f"{url.rstrip('/')}/models", headers=headers)
    except TimeoutError:
        hub.notice("slow-server", f"{url} accepted no request within {ANSWER_WITHIN_S:.0f} s; the batch goes on and may wait")
    except Exception as error:  # whatever the transport raises: httpx's and aiohttp's trees are not ours to name
        reason = StartUpError(
            f"cannot reach {url}: {describe(error)}; is the server running, and is the URL right (it usually ends in /v1)?"
        )
        reason.__cause__ = error
        errors.append(reason)
    else:
        if response.status_code in (401, 403):
            hub.notice("unauthorised", f"{url} answered {response.status_code} to the API key; model calls may fail alike")
