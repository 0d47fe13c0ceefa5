"""Cancels a coroutine at one chosen suspension, so that a test can go through all of them."""

from collections.abc import Awaitable, Callable, Generator
from typing import Any


class Interrupting:
    """Awaits `work`, and calls `cancel` when it suspends for the `at`-th time; counts its suspensions."""

    def __init__(self, work: Awaitable[Any], cancel: Callable[[], object], at: int) -> None:
        self._work = work
        self._cancel = cancel
        self._at = at
        self.suspensions = 0

    @property
    def reached(self) -> bool:
        """Whether there were as many suspensions."""
        return self.suspensions >= self._at

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Any = self._work.__await__()
        advance: Callable[[], Any] = lambda: steps.send(None)  # noqa: E731
        while True:
            try:
                asked = advance()
            except StopIteration as end:
                return end.value
            self.suspensions += 1
            if self.suspensions == self._at:
                self._cancel()
            try:
                value = yield asked
            except BaseException as error:
                advance = lambda error=error: steps.throw(error)  # noqa: E731
            else:
                advance = lambda value=value: steps.send(value)  # noqa: E731
