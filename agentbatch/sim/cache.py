"""What a worker remembers between requests: KV prefixes and recurrent states in two pools.

Rules, after SGLang 0.5.23's unified radix cache (sglang.md):
- A running request locks the resident prefix of its prompt and holds KV for the rest of it and for its
  whole output, reserved at admission, so that KV cannot run out while it decodes. (SGLang reserves an
  estimate and retracts; and where no state lets it resume, it holds a second copy of resident tokens until its
  prefill ends.)
- After prefill the prompt is resident, after the end prompt and output are; a twin's duplicate tokens are
  freed then.
- With a state pool, a prompt resumes at the deepest cached state on its resident path, before its last
  token. It occupies `slots_per_request` slots, the cached state it resumed from being one of them.
- States are left in two places: at the end of a finished request, and, by a prefill whose prompt was
  resident further than any state, at that point (a branch). So a repeated prompt misses and an extended one
  hits. SGLang's chunk ends are not modelled.
- Eviction is by last use: whole unlocked leaves for KV; for states, a leaf goes with its KV, elsewhere only
  the state.
- `max_states_per_path` drops the shallowest states of a path when a new one is left; forks and states in
  use stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentbatch.sim.radix import Node, Piece, RadixTree, is_evictable
from agentbatch.sim.states import GRID_TOKENS, State, StatePool, on_grid


class Lease:
    """What one running request holds: a locked prefix, KV beyond it, state slots."""

    __slots__ = ("branch_tokens", "cached_tokens", "index", "node", "private_tokens", "slots", "state")

    def __init__(self, node: Node, index: int, total_tokens: int) -> None:
        self.node = node
        self.index = index
        self.private_tokens = total_tokens - node.end
        self.cached_tokens = 0
        self.branch_tokens = 0
        self.state: State | None = None
        self.slots = 0


class PrefixCache:
    """KV tokens and state slots of one worker, shared by running requests and cached prefixes.

    Args:
        kv_tokens: size of the KV pool, >= 1.
        state_slots: size of the state pool; None for a pure attention model, whose hit is the resident
            prefix.
        slots_per_request: S_state of spec §6, >= 1; needs `state_slots` >= it.
        max_states_per_path: soft cap as `--mamba-max-states-per-path`; None for no cap.
    """

    def __init__(
        self, *, kv_tokens: int, state_slots: int | None, slots_per_request: int,
        max_states_per_path: int | None,
    ) -> None:
        self.kv_tokens = kv_tokens
        self.slots_per_request = slots_per_request
        self.max_states_per_path = max_states_per_path
        self.private_tokens = 0
        self.leases = 0
        self.evicted_tokens = 0
        self.evicted_states = 0
        self.tree = RadixTree()
        self.states = None if state_slots is None else StatePool(state_slots)

    @property
    def free_tokens(self) -> int:
        """KV tokens that hold nothing."""
        return self.kv_tokens - self.private_tokens - self.tree.tokens

    @property
    def evictable_tokens(self) -> int:
        """Resident tokens on no running request's path."""
        return self.tree.tokens - self.tree.locked_tokens

    def acquire(self, prompt: Sequence[Piece], prompt_tokens: int, output_tokens: int) -> Lease | None:
        """Match `prompt`, lock what is resident and reserve the rest; None when a pool cannot serve it now.

        Args:
            prompt: the prompt's pieces; together at most `prompt_tokens` (a tail that is no piece is never
                reused).
            prompt_tokens: >= 1.
            output_tokens: the known length of the output, >= 1.
        """
        node, index = self.tree.descend(prompt)
        lease = Lease(node, index, prompt_tokens + output_tokens)
        self.tree.lock(node)
        reach = min(node.end, prompt_tokens - 1)
        if self.states is None:
            lease.cached_tokens = reach
        else:
            self._resume(self.states, lease, reach)
        if lease.private_tokens > self.free_tokens + self.evictable_tokens or (
            self.states is not None and lease.slots > self.states.available
        ):
            self._unlock(lease)
            return None
        while self.free_tokens < lease.private_tokens:
            leaf = self.tree.oldest_leaf()
            if leaf is None:
                raise AssertionError("evictable tokens were counted but no leaf is evictable")
            self._drop(leaf)
        self.private_tokens += lease.private_tokens
        if self.states is not None:
            self.states.make_room(lease.slots, self._evict_state)
            self.states.held += lease.slots
            if lease.state is not None:
                lease.state.stamp = self.tree.tick()
        self.leases += 1
        return lease

    def commit(self, lease: Lease, prompt: Sequence[Piece]) -> None:
        """Make the prompt resident once its prefill is done, and leave a state at the branch it revealed."""
        self._insert(lease, prompt)
        if self.states is not None and lease.branch_tokens:
            self._leave(self.states, lease.node, lease.branch_tokens)

    def finish(self, lease: Lease, pieces: Sequence[Piece]) -> None:
        """Keep prompt and output, leave a state at their end, give everything else back.

        Args:
            lease: ended by this call.
            pieces: those of the prompt, then those of the output.
        """
        self._insert(lease, pieces)
        self._give_back(lease)
        if self.states is not None:
            depth = on_grid(lease.node.end)
            if depth:
                self._leave(self.states, lease.node, depth)
        self.tree.unlock(lease.node)

    def release(self, lease: Lease) -> None:
        """Give everything back and keep only what was made resident before: an aborted request."""
        self._give_back(lease)
        self.tree.unlock(lease.node)

    def flush(self) -> None:
        """Forget every prefix and state; only when nothing runs."""
        if self.leases:
            raise AssertionError("flush with requests running")
        self.tree = RadixTree()
        if self.states is not None:
            self.states = StatePool(self.states.slots)

    def _resume(self, states: StatePool, lease: Lease, reach: int) -> None:
        state = states.deepest(lease.node, reach)
        if state is not None:
            states.lock(state)
            lease.state = state
            lease.cached_tokens = state.depth
        if on_grid(reach) > lease.cached_tokens:
            lease.branch_tokens = on_grid(reach)
        lease.slots = max(1, self.slots_per_request - (1 if state is not None else 0))

    def _insert(self, lease: Lease, pieces: Sequence[Piece]) -> None:
        before = lease.node
        node, index = self.tree.descend(pieces, before, lease.index)
        if index < len(pieces):
            node = self.tree.extend(node, pieces[index:])
        self.tree.lock(node)
        self.tree.unlock(before)
        grown = node.end - before.end
        lease.node, lease.index = node, len(pieces)
        lease.private_tokens -= grown
        self.private_tokens -= grown

    def _give_back(self, lease: Lease) -> None:
        self.private_tokens -= lease.private_tokens
        lease.private_tokens = 0
        self.leases -= 1
        if self.states is not None:
            self.states.held -= lease.slots
            lease.slots = 0
            if lease.state is not None:
                self.states.unlock(lease.state)
                lease.state = None

    def _unlock(self, lease: Lease) -> None:
        if self.states is not None and lease.state is not None:
            self.states.unlock(lease.state)
        self.tree.unlock(lease.node)

    def _leave(self, states: StatePool, node: Node, depth: int) -> None:
        """Cache a state at `depth` on the locked path of `node`, if a slot can be had."""
        while depth <= node.start and node.parent is not None:
            node = node.parent
        stamp = self.tree.tick()
        for state in node.states:
            if state.depth == depth:
                state.stamp = stamp
                return
        if states.available < 1:
            return
        states.make_room(1, self._evict_state)
        tail = states.keep(node, depth, stamp)
        if self.max_states_per_path is not None:
            self._prune(states, tail, self.max_states_per_path)

    def _prune(self, states: StatePool, tail: State, cap: int) -> None:
        path = [state for state in tail.node.states if state.depth <= tail.depth] if tail.node else []
        walk = tail.node.parent if tail.node else None
        while walk is not None:
            path = walk.states + path if walk.states else path
            walk = walk.parent
        excess = len(path) - cap
        for state in path:
            if excess <= 0:
                return
            if state is not tail and not state.locks and not _at_fork(state):
                states.forget(state)
                excess -= 1

    def _drop(self, leaf: Node) -> None:
        for state in tuple(leaf.states):
            if self.states is not None:
                self.states.forget(state)
                self.evicted_states += 1
        self.evicted_tokens += self.tree.drop(leaf)

    def _evict_state(self, state: State) -> None:
        if state.node is not None and is_evictable(state.node):
            self._drop(state.node)
        elif self.states is not None:
            self.states.forget(state)
            self.evicted_states += 1


def _at_fork(state: State) -> bool:
    """Tell whether the path parts right after this state, so that several continuations resume from it."""
    node = state.node
    return node is not None and len(node.children) > 1 and node.end - state.depth < GRID_TOKENS
