"""What goes over the wire: trajectory labels and the headers that carry them (spec §3).

A label is at most 128 printable ASCII bytes, because SGLang's gateway silently ignores longer ones and then
routes at random. Anything else is hashed here, the same way on every side.
"""

from __future__ import annotations

import hashlib

ROUTING_KEY_HEADER = "X-SMG-Routing-Key"
"""The header SGLang reads into `Req.routing_key` and its gateway hashes."""

MAX_LABEL_BYTES = 128


def is_plain_label(text: str) -> bool:
    """Tell whether `text` can travel as it is: 1 to 128 printable ASCII bytes, no blank at either end."""
    return (
        0 < len(text) <= MAX_LABEL_BYTES
        and text.isascii()
        and text.isprintable()
        and text == text.strip()
    )


def encode_label(text: str) -> str:
    """Return `text` if it is a plain label, else `sha256-` and 64 hex digits of its UTF-8 bytes.

    Equal texts give equal labels and different texts different ones; nothing is truncated.
    """
    if is_plain_label(text):
        return text
    return "sha256-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def trajectory_label(run: str, key: str, attempt: int = 1) -> str:
    """Build the label of one trajectory: `{run}-{key}`, with `~2` and so on when a task runs again.

    Args:
        run: name of the run, unique among the runs that share a server.
        key: the task's key, unique within its run.
        attempt: 1 for the first time this key runs.
    """
    text = f"{run}-{key}" if attempt == 1 else f"{run}-{key}~{attempt}"
    return encode_label(text)
