"""The pool of recurrent states of a hybrid model: slots that requests hold and slots cached along prefixes.

Lives here: slot accounting, last use, which cached state may go, how SGLang's three modes keep states. Must not: when
states are left (`lease`, `cache`). A cached state lets a prompt resume at its depth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from agentbatch.sim.lru import OldestFirst
from agentbatch.sim.radix import Node, outdate

GRID_TOKENS = 64
"""Depths of the states that extra_buffer leaves after a prefill: multiples of the linear-attention kernels' chunk."""
TRACK_TOKENS = 256
"""Depths of those it leaves while decoding (SGLang's `--mamba-track-interval`)."""

StateMode = Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"]
"""SGLang's `--mamba-radix-cache-strategy`: where states are left, and how many slots a running request holds."""
HELD_SLOTS: dict[StateMode, int] = {"no_buffer": 1, "extra_buffer": 3, "extra_buffer_lazy": 2}
"""Slots of its own that a running request holds; the cached state on its path is locked besides."""


def on_grid(tokens: int, grid: int = GRID_TOKENS) -> int:
    """Return the deepest grid position at or before `tokens`."""
    return tokens - tokens % grid


class State:
    """One cached state, `depth` tokens from the root, on `node`; None once it is gone.

    `true_depth` is where SGLang has it: deeper where text that is no piece follows, and then only for longer prompts.
    """

    __slots__ = ("depth", "locks", "node", "queued", "stamp", "true_depth")

    def __init__(self, node: Node, depth: int, stamp: int, true_depth: int) -> None:
        self.node: Node | None = node
        self.depth = depth
        self.true_depth = true_depth
        self.stamp = stamp
        self.locks = 0
        self.queued = False

    def __repr__(self) -> str:
        return f"<State depth={self.depth} locks={self.locks}>"


class StatePool:
    """`slots` states: `held` by requests, `cached` on the tree (`locked` of them in use), the rest free."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.held = 0
        self.cached = 0
        self.locked = 0
        self._oldest: OldestFirst[State] = OldestFirst(_is_evictable)

    @property
    def free(self) -> int:
        """Slots that hold nothing."""
        return self.slots - self.held - self.cached

    @property
    def available(self) -> int:
        """Slots free or freed by evicting cached states."""
        return self.free + self.cached - self.locked

    def above(self, state: State, index: int) -> tuple[State | None, int]:
        """Return the next cached state above `state`, whose node ends after `index` pieces, and where its node ends."""
        walk = state.node
        for other in reversed(walk.states if walk is not None else ()):
            if other.depth < state.depth:
                return other, index
        while walk is not None and walk.parent is not None:
            index -= len(walk.pieces)
            walk = walk.parent
            if walk.states:
                return walk.states[-1], index
        return None, 0

    def keep(self, node: Node, depth: int, stamp: int, true_depth: int) -> State:
        """Cache a state at `depth`, inside `node`, in a free slot."""
        if self.free < 1 or not node.start < depth <= node.end:
            raise AssertionError(f"no free slot, or depth {depth} outside {node!r}")
        state = State(node, depth, stamp, true_depth)
        place = len(node.states)
        while place and node.states[place - 1].depth > depth:
            place -= 1
        node.states.insert(place, state)
        outdate(node)
        self.cached += 1
        self._oldest.offer(state)
        return state

    def lock(self, state: State) -> None:
        """Protect a cached state while a request that started from it runs."""
        state.locks += 1
        if state.locks == 1:
            self.locked += 1

    def unlock(self, state: State) -> None:
        """Take back one `lock`."""
        state.locks -= 1
        if state.locks == 0:
            self.locked -= 1
            self._oldest.offer(state)

    def forget(self, state: State) -> None:
        """Drop a cached state that nothing locks; its slot is free."""
        if state.node is None or state.locks:
            raise AssertionError(f"{state!r} is locked or gone")
        state.node.states.remove(state)
        outdate(state.node)
        state.node = None
        self.cached -= 1

    def prune(self, tail: State, cap: int) -> None:
        """Drop the shallowest states on the path of `tail` until `cap` remain; forks, locked ones and it stay."""
        path: list[State] = []
        walk = tail.node
        while walk is not None:
            if walk.states:
                path.extend(reversed(walk.states))
            walk = walk.parent
        if tail.node is not None and tail.node.states[-1] is not tail:
            path = path[path.index(tail):]
        excess = len(path) - cap
        for state in reversed(path):
            if excess <= 0 or state is tail:
                return
            if not state.locks and not _at_fork(state):
                self.forget(state)
                excess -= 1

    def make_room(self, slots: int, evict: Callable[[State], None]) -> None:
        """Evict cached states, oldest use first, until `slots` are free; `evict` must forget what it is given."""
        while self.free < slots:
            state = self._oldest.take()
            if state is None:
                raise AssertionError(f"{slots} state slots were promised, {self.free} are free: {self!r}")
            evict(state)

    def __repr__(self) -> str:
        return f"<StatePool slots={self.slots} held={self.held} cached={self.cached} locked={self.locked}>"


def _is_evictable(state: State) -> bool:
    return state.node is not None and not state.locks


def _at_fork(state: State) -> bool:
    """Tell whether several continuations resume from this state: its node branches right behind it."""
    node = state.node
    return node is not None and len(node.children) > 1 and node.end - state.depth < TRACK_TOKENS
