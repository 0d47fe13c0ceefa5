"""Where each turn goes when there are several worker URLs: LBCH on the in-flight counts kept here (spec §4).

The decision is `policy/lbch`; this file keeps the counts it needs and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from urllib.parse import urlsplit

from agentbatch.errors import UsageError
from agentbatch.policy.lbch import Ring, place


class Workers:
    """The worker URLs of a batch and the requests in flight on each.

    Args:
        urls: OpenAI-compatible base URLs, each ending in `/v1` as a rule; at least one, all different.
        alpha: load bound of Eq. 9, >= 1.

    Raises:
        UsageError: no URL, a URL twice, one that is none or not http(s), or alpha below 1.
    """

    def __init__(self, urls: Sequence[str], alpha: float = 1.25) -> None:
        cleaned = [_checked(url).rstrip("/") for url in urls]
        if not cleaned:
            raise UsageError("base_url is empty: give the server's OpenAI-compatible URL, such as http://host:30000/v1")
        if len(set(cleaned)) != len(cleaned):
            raise UsageError(f"a worker URL is given twice: {', '.join(cleaned)}")
        if not alpha >= 1:
            raise UsageError(f"alpha must be at least 1, not {alpha!r}")
        self.urls = tuple(cleaned)
        self._alpha = alpha
        self._in_flight = dict.fromkeys(self.urls, 0)
        self._ring = Ring(self.urls) if len(self.urls) > 1 else None

    def take(self, label: str) -> str:
        """Choose a worker for one more request of trajectory `label` and count it as in flight there."""
        url = self.urls[0] if self._ring is None else place(self._ring, label, self._in_flight, self._alpha)
        self._in_flight[url] += 1
        return url

    def give_back(self, url: str) -> None:
        """Count one request on `url` as ended."""
        self._in_flight[url] -= 1

    @property
    def in_flight(self) -> Mapping[str, int]:
        """Requests in flight per worker URL."""
        return MappingProxyType(self._in_flight)

    def __repr__(self) -> str:
        return f"<Workers {dict(self._in_flight)}>"


def _checked(url: object) -> str:
    if not isinstance(url, str) or not url.lower().startswith(("http://", "https://")):
        raise UsageError(f"base_url {url!r} does not start with http:// or https://")
    try:
        parts = urlsplit(url)
        whole = parts.hostname and (parts.port is None or parts.port)
    except ValueError as error:
        raise UsageError(f"base_url {url!r} is not a URL: {error}") from error
    if not whole or not url.isprintable() or " " in url:
        raise UsageError(f"base_url {url!r} is not a URL: give one such as http://host:30000/v1")
    return url
