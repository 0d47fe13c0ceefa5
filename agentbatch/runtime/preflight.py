"""Is the server there? Asked once, before any task runs."""

from __future__ import annotations

from collections.abc import Sequence
from json import JSONDecodeError

import anyio
import openai

from agentbatch.errors import StartUpError
from agentbatch.runtime.failure import broken_connection, describe
from agentbatch.runtime.hub import Hub

ANSWER_WITHIN_S = 10.0


async def check_reachable(client: openai.AsyncOpenAI, base_urls: Sequence[str], hub: Hub) -> None:
    """Ask every server for its models; any HTTP answer will do.

    Raises:
        StartUpError: a server cannot be connected to.
    """
    errors: list[StartUpError] = []

    async def check(url: str) -> None:
        try:
            models = f"{url.rstrip('/')}/models"
            await client.get(models, cast_to=object, options={"timeout": ANSWER_WITHIN_S, "max_retries": 0})
        except openai.APIConnectionError as error:
            # by name: the SDK's aiohttp transport reports a refused connection as a connect time-out, and httpx's
            # classes are not ours to import
            if type(error.__cause__).__name__ != "ReadTimeout":
                errors.append(_unreachable(url, error))
                return
            hub.notice("slow-server", f"{url} did not answer within {ANSWER_WITHIN_S:.0f} s; the batch goes on")
        except openai.APIStatusError as error:
            if error.status_code in (401, 403):
                hub.notice("unauthorised", f"{url} answered {error.status_code}: model calls may fail alike")
        except (openai.OpenAIError, JSONDecodeError, UnicodeDecodeError) as error:
            hub.notice("odd-server", f"{url} answered its list of models strangely: {describe(error)}")
        except UnicodeError as error:  # from the look-up of a host name that cannot be one
            errors.append(_unreachable(url, error))

    async with anyio.create_task_group() as group:
        for url in base_urls:
            group.start_soon(check, url)
    if errors:
        raise errors[0]


def _unreachable(url: str, error: Exception) -> StartUpError:
    cause = describe(broken_connection(error) or error.__cause__ or error)
    reason = StartUpError(
        f"cannot reach {url}: {cause}; is the server running, and is the URL right (it usually ends in /v1)?"
    )
    reason.__cause__ = error
    return reason
