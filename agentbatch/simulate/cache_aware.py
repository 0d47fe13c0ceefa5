"""The rival of LBCH: placing a turn where the text of its prompt was sent before, unless loads differ too much.

A model of the gateway's `cache_aware` policy for HTTP workers (smg, model_gateway/src/policies/cache_aware.rs):
- Loads (requests in flight, queued and running) are imbalanced when max - min > `balance_abs` and
  max > `balance_rel` · min; then the least loaded worker takes the turn, the first of several.
- Otherwise a tree of all prompts sent so far tells the longest prefix that the prompt shares with one of them. Where
  that is more than `threshold` of the prompt, the worker that had it last takes the turn, else the least loaded.
- Either way the prompt is entered in the tree under the worker that took it.

Modelled in tokens and whole pieces where the gateway compares characters. Left out: the tree's eviction (every 120 s,
above 67 million characters a worker, more than a batch of the paper's size holds), and the choice of any tenant
instead of the last where a node has several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentbatch.sim.radix import Piece

BALANCE_ABS = 0
BALANCE_REL = 1.6666667
"""As the paper ran it (sglang.md)."""
THRESHOLD = 0.3
"""The gateway's default."""


class _Node:
    __slots__ = ("children", "worker")

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.children: dict[Piece, _Node] = {}


class CacheAware:
    """Chooses workers by prompt; deterministic in the sequence of calls.

    Args:
        balance_abs, balance_rel, threshold: as in the module's rules.
    """

    def __init__(
        self, *, balance_abs: int = BALANCE_ABS, balance_rel: float = BALANCE_REL, threshold: float = THRESHOLD
    ) -> None:
        self._balance_abs = balance_abs
        self._balance_rel = balance_rel
        self._threshold = threshold
        self._children: dict[Piece, _Node] = {}

    def choose(self, load: Mapping[str, int], prompt: Sequence[Piece], prompt_tokens: int) -> str:
        """Choose a worker for a prompt, and remember it.

        Args:
            load: requests in flight on each worker, at least one worker.
            prompt: its pieces. prompt_tokens: its length, >= 1.
        """
        prompt = prompt[:]  # a list, which a slice of a transcript is not
        least, most = min(load.values()), max(load.values())
        worker = min(load, key=load.__getitem__)
        if not (most - least > self._balance_abs and most > self._balance_rel * least):
            known, matched_tokens = self._longest(prompt)
            if known is not None and matched_tokens > self._threshold * prompt_tokens:
                worker = known
        self._enter(prompt, worker)
        return worker

    def _longest(self, prompt: Sequence[Piece]) -> tuple[str | None, int]:
        """Return who had the longest known prefix of `prompt` last, and how long it is, tokens."""
        children, worker, tokens = self._children, None, 0
        for piece in prompt:
            node = children.get(piece)
            if node is None:
                break
            worker, children = node.worker, node.children
            tokens += piece[1]
        return worker, tokens

    def _enter(self, prompt: Sequence[Piece], worker: str) -> None:
        children = self._children
        for piece in prompt:
            node = children.get(piece)
            if node is None:
                node = children[piece] = _Node(worker)
            else:
                node.worker = worker
            children = node.children
