"""Labels of one batch: no two trajectories, and no two children, ever share one (spec §3)."""

from __future__ import annotations

from agentbatch.wire import encode_label, trajectory_label


class Labels:
    """Gives out labels, each once.

    Args:
        run: name of the run, part of every label.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._reruns: dict[str, int] = {}
        # Hashes and not the labels, half the memory: all that a batch keeps of a trajectory that has ended. Should two
        # labels ever share one, the second gets a suffix that it did not need.
        self._taken: set[int] = set()

    def of(self, key: str) -> str:
        """Return a label for one more run of task `key`: `{run}-{key}`, then `{run}-{key}~2` and so on.

        A task may itself be called `a~2` where `a` runs again, or `a/b` where `a` has a child `b`: the next free one
        is taken then.
        """
        label = trajectory_label(self._run, key)
        if self._take(label):  # nearly always, and then nothing else is remembered
            return label
        while True:
            self._reruns[key] = attempt = self._reruns.get(key, 1) + 1
            label = trajectory_label(self._run, key, attempt)
            if self._take(label):
                return label

    def child(self, parent: str, name: str) -> str:
        """Return a label for the child `name` of the trajectory labelled `parent`: `{parent}/{name}`."""
        label, attempt = encode_label(f"{parent}/{name}"), 1
        while not self._take(label):
            attempt += 1
            label = encode_label(f"{parent}/{name}~{attempt}")
        return label

    def _take(self, label: str) -> bool:
        number = hash(label)
        if number in self._taken:
            return False
        self._taken.add(number)
        return True
