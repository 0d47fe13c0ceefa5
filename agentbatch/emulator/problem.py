"""Refusals in the shape of OpenAI's error body, so that every SDK raises its own typed error from them."""

from __future__ import annotations

import json

_TYPES = {401: "authentication_error", 404: "not_found_error", 500: "server_error", 503: "server_error"}


class HttpProblem(Exception):
    """A request that is answered with an error.

    Args:
        status: HTTP status, 400 to 599.
        message: what is wrong and how to mend it.
        param: the offending field of the body, if one is.
    """

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param

    def body(self) -> bytes:
        """Return the JSON body."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.status}
        return json.dumps({"object": "error", "error": error, **error}).encode()
