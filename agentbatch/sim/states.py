"""The pool of recurrent states of a hybrid model: slots that requests hold and slots cached along prefixes.

Lives here: slot accounting, last use, which cached state may go. Must not: where states are left (`cache`).
A cached state lets a prompt resume at its depth; SGLang keeps them on a 64-token grid (sglang.md).
"""

from __future__ import annotations

from collections.abc import Callable

from agentbatch.sim.lru import OldestFirst
from agentbatch.sim.radix import Node

GRID_TOKENS = 64
"""Cached states lie at multiples of this depth (SGLang's chunk of the linear-attention kernels)."""


def on_grid(tokens: int) -> int:
    """Return the deepest grid position at or before `tokens`."""
    return tokens - tokens % GRID_TOKENS


class State:
    """One cached state, `depth` tokens from the root, on `node`; None once it is gone."""

    __slots__ = ("depth", "locks", "node", "queued", "stamp")

    def __init__(self, node: Node, depth: int, stamp: int) -> None:
        self.node: Node | None = node
        self.depth = depth
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

    def deepest(self, node: Node, limit_tokens: int) -> State | None:
        """Return the deepest cached state at or above `node` and no deeper than `limit_tokens`."""
        walk: Node | None = node
        while walk is not None:
            for state in reversed(walk.states):
                if state.depth <= limit_tokens:
                    return state
            walk = walk.parent
        return None

    def keep(self, node: Node, depth: int, stamp: int) -> State:
        """Cache a state at `depth`, inside `node`, in a free slot."""
        if self.free < 1 or not node.start < depth <= node.end:
            raise AssertionError(f"no free slot, or depth {depth} outside {node!r}")
        state = State(node, depth, stamp)
        place = len(node.states)
        while place and node.states[place - 1].depth > depth:
            place -= 1
        node.states.insert(place, state)
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
        state.node = None
        self.cached -= 1

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
