"""Where each turn goes when there are several worker URLs (spec §4), and which of them serve.

A worker is dead when it cannot be connected to, broke a connection, or it (or the proxy before it) answered 502 or 503.
Slow is not dead, and any other answer is an answer.

Decisions are in `policy/lbch`; random placement is here, since policies hold no randomness. This file keeps the counts;
it does no I/O and knows no clock. Asking a worker that is out whether it is back is the affair of `health`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit

import openai

from agentbatch.errors import UsageError
from agentbatch.policy.lbch import ALPHA, Ring, Routing, place
from agentbatch.runtime.failure import broken_connection, describe

Changed = Callable[[str, bool, str], None]
"""Told of each change: worker URL, whether it is live now, reason."""

DEAD_STATUS = frozenset({502, 503})

# By name: httpx's classes are not ours to import (see transport). Its aiohttp transport reports a refused connection,
# and one that broke before the answer, as a connect time-out.
_BROKEN = frozenset({"NetworkError", "RemoteProtocolError", "ConnectTimeout"})


def why_out(error: BaseException) -> str | None:
    """Return in words why `error` takes its worker out; None where it does not.

    Args:
        error: what an attempt, or the reading of a streamed reply, raised; as the SDK wraps it or as it came.
    """
    if isinstance(error, openai.APIStatusError):
        return f"answered {error.status_code}" if error.status_code in DEAD_STATUS else None
    cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
    if cause is None:
        return None
    if isinstance(cause, ConnectionError) or any(kind.__name__ in _BROKEN for kind in type(cause).__mro__):
        return describe(broken_connection(cause) or cause)
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerStatistics:
    """What one worker does and did; `live` is False while it is out, which a batch's only worker never is."""

    live: bool
    in_flight: int
    turns_completed: int
    attempts_failed: int
    outages: int
    """How often it was taken out."""


class Workers:
    """The worker URLs of a batch, which of them are live, and the requests in flight on each.

    A worker that an attempt finds dead is out until `bring_back`: nothing is placed on it while another is live. With
    all of them out, turns are placed on all, so that each fails, or not, for its own true reason.

    Args:
        urls: OpenAI-compatible base URLs, each ending in `/v1` as a rule; at least one, all different.
        routing: "lbch"; "consistent-hash", a label's home whatever its load; "random", whatever the label.
        alpha: load bound of Eq. 9, >= 1; for "lbch" only.
        random: where "random" draws from; seeded by whoever gives it.
        changed: called after a worker went out or came back.

    Raises:
        UsageError: no URL, a URL twice, or one that is none or not http(s).
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        routing: Routing = "lbch",
        alpha: float = ALPHA,
        random: Random | None = None,
        changed: Changed = lambda url, live, reason: None,
    ) -> None:
        cleaned = [_checked(url).rstrip("/") for url in urls]
        if not cleaned:
            raise UsageError("base_url is empty: give the server's OpenAI-compatible URL, such as http://host:30000/v1")
        if len(set(cleaned)) != len(cleaned):
            raise UsageError(f"a worker URL is given twice: {', '.join(cleaned)}")
        self.urls = tuple(cleaned)
        self._alpha = alpha
        self._random = Random(0) if random is None else random  # noqa: S311 - spreads load, guards nothing
        self._changed = changed
        self._in_flight = dict.fromkeys(self.urls, 0)
        self._completed, self._failed, self._out = Counter[str](), Counter[str](), Counter[str]()
        self._ring = Ring(self.urls)
        self._live = self._field = frozenset(self.urls)
        self._total = 0
        """Requests in flight on `_field`, the workers that turns are placed on: L_tot of Eq. 9."""
        ways = {"lbch": self._by_lbch, "consistent-hash": self._by_hash, "random": self._at_random}
        self._choose = ways[routing] if len(self.urls) > 1 else lambda label: self.urls[0]

    def take(self, label: str) -> str:
        """Choose a worker for one more request of trajectory `label` and count it as in flight there."""
        url = self._choose(label)
        self._in_flight[url] += 1
        self._total += 1
        return url

    def give_back(self, url: str) -> None:
        """Count one request on `url` as ended."""
        self._in_flight[url] -= 1
        if url in self._field:
            self._total -= 1

    def turn_completed(self, url: str) -> None:
        """Count a turn that `url` answered in full."""
        self._completed[url] += 1

    def attempt_failed(self, url: str) -> None:
        """Count a failed attempt on `url`."""
        self._failed[url] += 1

    def blame(self, url: str, error: BaseException) -> bool:
        """Take `url` out if `error` shows that it serves nobody; tell whether another live one could serve instead."""
        reason = why_out(error)
        if reason is None or len(self.urls) == 1:
            return False
        if url in self._live:
            self._out[url] += 1
            self._set_live(self._live - {url})
            self._changed(url, False, reason)
        return bool(self._live)

    def bring_back(self, url: str, reason: str) -> None:
        """Place turns on `url` again; `reason` says what it answered."""
        if url not in self._live:
            self._set_live(self._live | {url})
            self._changed(url, True, reason)

    def _set_live(self, live: frozenset[str]) -> None:
        self._live = live
        self._field = live or frozenset(self.urls)
        self._total = sum(self._in_flight[url] for url in self._field)

    def _by_lbch(self, label: str) -> str:
        return place(self._ring, label, self._in_flight, self._alpha, self._field, total=self._total)

    def _by_hash(self, label: str) -> str:
        return self._ring.home(label, self._field)

    def _at_random(self, label: str) -> str:
        return self._random.choice([url for url in self.urls if url in self._field])

    @property
    def live(self) -> frozenset[str]:
        """URLs of the workers that are not out."""
        return self._live

    def statistics(self) -> dict[str, WorkerStatistics]:
        """Return what each worker does and did, by URL."""
        return {
            url: WorkerStatistics(
                live=url in self._live,
                in_flight=self._in_flight[url],
                turns_completed=self._completed[url],
                attempts_failed=self._failed[url],
                outages=self._out[url],
            )
            for url in self.urls
        }

    def __repr__(self) -> str:
        out = sorted(set(self.urls) - self._live)
        return f"<Workers {self._in_flight}{f' out={out}' if out else ''}>"


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
