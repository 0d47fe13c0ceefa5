"""The child of `spawn`.

Takes settings as one JSON line on stdin, which then is its lifeline; says its URLs as one JSON line on
stdout.
"""

from __future__ import annotations

import json
import os
import sys

from agentbatch.emulator.command import run_until_stopped
from agentbatch.emulator.server import Emulator
from agentbatch.emulator.settings import Settings
from agentbatch.errors import AgentBatchError


def main() -> int:
    """Serve until stdin ends."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 65_536)
        if not part:
            return 1
        line += part
    try:
        run_until_stopped(Settings(**json.loads(line)), _ready, lifeline=0)
    except AgentBatchError as error:
        _say({"error": str(error), "kind": type(error).__name__})
        return 2
    return 0


def _ready(emulator: Emulator) -> None:
    _say({"urls": emulator.urls})


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
