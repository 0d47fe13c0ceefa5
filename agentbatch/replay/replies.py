"""Fingerprints of what the model said, to show that nothing but time changed between two replays."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(slots=True)
class Replies:
    """Takes every reply of a run in and gives one digest of them all, whatever order trajectories ran in."""

    _hashes: dict[str, hashlib.blake2b] = field(default_factory=dict)

    def add(self, trajectory_id: str, content: str) -> None:
        """Add the next reply of a trajectory."""
        data = content.encode("utf-8", "surrogatepass")
        digest = self._hashes.setdefault(trajectory_id, hashlib.blake2b(digest_size=16))
        digest.update(b"%d:" % len(data))
        digest.update(data)

    def digest(self) -> str:
        """Return 32 hex digits over ids and replies, in the order of the ids; failed ones count as far as they came."""
        whole = hashlib.blake2b(digest_size=16)
        for trajectory_id in sorted(self._hashes):
            name = trajectory_id.encode("utf-8", "surrogatepass")
            whole.update(b"%d:" % len(name) + name + self._hashes[trajectory_id].digest())
        return whole.hexdigest()
