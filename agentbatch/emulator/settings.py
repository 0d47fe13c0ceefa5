"""What an emulator is asked to be, checked once before anything starts."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass, field

from agentbatch.errors import UsageError
from agentbatch.sim import DEFAULT_PRESET, WorkerConfig, preset

MAX_WORKERS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """A group of like workers.

    Args:
        workers: 1 to 64; each has its own port, caches and queue.
        base_port: the first one's TCP port, the others follow; 0 lets the system choose each.
        speedup: trace seconds per wall second, > 0.
        preset: name of an engine in `agentbatch.sim.PRESETS`.
        schedule_policy: order of the waiting queue.
        kv_tokens: KV pool of each worker in tokens, >= 4; None for the preset's.
        state_slots: recurrent-state pool of each in slots; None for the preset's.
        host: address to listen on; anything but loopback needs `token`.
        token: bearer token asked of every endpoint but /health; None for none.
        script: path of a file of scripted replies; None for none.

    Raises:
        UsageError: a value out of range, with the range.
    """

    workers: int = 2
    base_port: int = 0
    speedup: float = 60.0
    preset: str = DEFAULT_PRESET
    schedule_policy: str = "fcfs"
    kv_tokens: int | None = None
    state_slots: int | None = None
    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)
    script: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= MAX_WORKERS:
            raise UsageError(f"workers must be 1 to {MAX_WORKERS}; got {self.workers}")
        if not (self.speedup > 0 and math.isfinite(self.speedup)):
            raise UsageError(f"speedup must be a finite number above 0; got {self.speedup}")
        if self.base_port != 0 and not 1 <= self.base_port <= 65_536 - self.workers:
            raise UsageError(f"base port {self.base_port}: with {self.workers} workers it must be 0 or 1 to "
                             f"{65_536 - self.workers}")
        if self.token == "":
            raise UsageError("an empty token protects nothing; leave it out or give one")
        if self.token is None and not is_loopback(self.host):
            raise UsageError(f"other machines can reach {self.host}: give a token, or listen on 127.0.0.1")
        self.config()

    def config(self) -> WorkerConfig:
        """Return the configuration of each worker."""
        return preset(self.preset).config(
            kv_tokens=self.kv_tokens, state_slots=self.state_slots, schedule_policy=self.schedule_policy
        )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
