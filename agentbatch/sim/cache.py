"""What a worker remembers between requests: KV prefixes and recurrent states in two pools.

Rules, after SGLang 0.5.23's unified radix cache (components/mamba.py, unified_tree_core.py, PrefillAdder):
- A running request locks the path down to the state that it resumed from and holds KV for all it computed beyond
  (also where other text behind that state is resident: a second copy until its prefill is committed). KV is taken
  chunk by chunk and step by step, never reserved.
- States. no_buffer: one is copied at the end of each chunk and of the prefill, one stays at the end of a finished
  request; nothing is left where prompts part, so a shared system prompt never hits by itself. extra_buffer: at the
  last 64-token point of each extension of 64 tokens or more, or, instead, at the point where resident text went on
  beyond the deepest state (a branch); while decoding at multiples of 256, of which the last one stays at the end.
- Text becomes resident as deep as the state left with it, rounded up to a whole piece (at a chunk's end down: the state
  then lies at the end of the last whole piece). What is deeper is freed.
- A request holds `HELD_SLOTS` slots; besides, the cached state on its path is locked: first the one that it resumed
  from, after the prefill the one left there. Slots are not looked at for admission, they bound `max_running` alone.
- Eviction is by last use: whole unlocked leaves for KV; for states, a leaf goes with its KV, elsewhere only the state.
- `max_states_per_path`: when a state is left, the shallowest ones of its path go until so many remain; forks and
  locked ones stay. So an idle conversation keeps two at a cap of 1, that of its prefill and that of its end.
Left out: pages above 1 token, host memory tiers, sessions, speculative decoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentbatch.sim.match import Match, Matcher, Sought
from agentbatch.sim.radix import Node, Piece, RadixTree, is_evictable
from agentbatch.sim.states import GRID_TOKENS, HELD_SLOTS, TRACK_TOKENS, State, StateMode, StatePool, on_grid


class Lease:
    """What one running request holds: a locked prefix, KV beyond it, state slots.

    `node` ends after the first `index` of its pieces.
    """

    __slots__ = ("branch_tokens", "cached_tokens", "index", "node", "private_tokens", "slots", "state")

    def __init__(self, node: Node, index: int, cached_tokens: int, state: State | None) -> None:
        self.node = node
        self.index = index
        self.cached_tokens = cached_tokens
        self.state = state
        self.private_tokens = 0
        self.branch_tokens = 0
        self.slots = 0


class PrefixCache:
    """KV tokens and state slots of one worker, shared by running requests and cached prefixes.

    Args:
        kv_tokens: size of the KV pool, >= 1.
        state_slots: size of the state pool; None for a pure attention model, whose hit is the resident
            prefix.
        state_mode: where states are left.
        max_states_per_path: soft cap as `--mamba-max-states-per-path`; None for no cap.
    """

    def __init__(
        self, *, kv_tokens: int, state_slots: int | None, state_mode: StateMode = "no_buffer",
        max_states_per_path: int | None,
    ) -> None:  # fmt: skip
        self.kv_tokens = kv_tokens
        self.max_states_per_path = max_states_per_path
        self._tracks = state_mode != "no_buffer"
        self._held_slots = HELD_SLOTS[state_mode]
        self.private_tokens = 0
        self.leases = 0
        self.evicted_tokens = 0
        self.evicted_states = 0
        self.states = None if state_slots is None else StatePool(state_slots)
        self._forget_all()

    def _forget_all(self) -> None:
        self.tree = RadixTree()
        if self.states is not None:
            self.states = StatePool(self.states.slots)
        self.matcher = Matcher(self.tree, self.states)

    @property
    def free_tokens(self) -> int:
        """KV tokens that hold nothing."""
        return self.kv_tokens - self.private_tokens - self.tree.tokens

    @property
    def evictable_tokens(self) -> int:
        """Resident tokens on no running request's path."""
        return self.tree.tokens - self.tree.locked_tokens

    @property
    def room_tokens(self) -> int:
        """KV tokens free or freed by evicting cached text."""
        return self.kv_tokens - self.private_tokens - self.tree.locked_tokens

    def acquire(self, sought: Sought, tokens: int, beside_tokens: int) -> Lease | None:
        """Match a prompt and lock what it can use; None when KV is short. Nothing is taken yet: see `settle`.

        Args:
            sought: its pieces; together at most `tokens` (a tail that is no piece is never reused).
            tokens: length of the prompt, what a retracted request generated included, >= 1.
            beside_tokens: KV that must remain besides the prompt's: for the output, for others; room must exceed
                the sum.
        """
        match = self.matcher.find(sought)
        lease = self._resume(match, tokens)
        self.matcher.touch(match)
        self.tree.lock(lease.node)
        states = self.states
        if states is not None and lease.state is not None:
            states.lock(lease.state)
            if states.available:
                states.make_room(1, self._evict_state)  # SGLang copies the state as it matches, admitted or not
        if tokens - lease.node.end + beside_tokens >= self.room_tokens or (states is not None and not states.available):
            self._unlock(lease)
            return None
        if states is not None and lease.state is not None:
            lease.slots = 1
            states.held += 1
        self.leases += 1
        return lease

    def settle(self, lease: Lease, tokens: int) -> None:
        """Take KV for the first `tokens` of the prompt, and the slots that a running request holds."""
        states = self.states
        if states is not None and lease.slots < self._held_slots:
            slots = min(self._held_slots - lease.slots, states.available)
            states.make_room(slots, self._evict_state)
            states.held += slots
            lease.slots += slots
        more = tokens - lease.node.end - lease.private_tokens
        if more > 0:
            self.take(more)
            lease.private_tokens += more

    def take(self, tokens: int) -> None:
        """Take KV for tokens that are no longer in the tree's hands; whose they are is the caller's business."""
        self.make_free(tokens)
        if self.free_tokens < tokens:
            raise AssertionError(f"{tokens} KV tokens were promised, {self.free_tokens} are free")
        self.private_tokens += tokens

    def make_free(self, tokens: int) -> None:
        """Evict cached text, oldest use first, until `tokens` are free or nothing can go."""
        while self.free_tokens < tokens:
            leaf = self.tree.oldest_leaf()
            if leaf is None:
                return
            self._drop(leaf)

    def commit(self, lease: Lease, sought: Sought, start: int, end: int, *, last: bool) -> None:
        """Keep what a prefill step computed, tokens `start` to `end` of the prompt; `last` when it is whole."""
        depth = end
        if self._tracks and self.states is not None:
            if end - start < GRID_TOKENS:
                return
            depth = start + on_grid(end - start)
            branch = lease.branch_tokens
            if start < branch < end and (branch - start) % GRID_TOKENS == 0:
                depth = branch
        self._insert(lease, sought.pieces[lease.index:sought.count], depth, whole=not last)
        self.matcher.remember(sought, lease.node, lease.index)
        if self.states is not None:
            self._leave(self.states, lease, depth)

    def finish(self, lease: Lease, sought: Sought, reply: Sequence[Piece], since: int, stored: int) -> None:
        """Keep prompt and output as far as the mode does, give everything else back.

        Args:
            lease: ended by this call.
            sought: the prompt.
            reply: pieces of the output.
            since: tokens when decoding began.
            stored: tokens with KV now: all but the last of the output.
        """
        depth = stored
        if self._tracks and self.states is not None:
            depth = on_grid(stored, TRACK_TOKENS)
        self._give_back(lease)
        if not self._tracks or self.states is None or depth > since:
            self._insert(lease, [*sought.pieces[lease.index:sought.count], *reply], depth, whole=False)
            if self.states is not None:
                self._leave(self.states, lease, depth, own=True)
        self._unlock(lease)
        self.make_free(0)  # the last piece may hold the one token that has no KV

    def release(self, lease: Lease) -> None:
        """Give everything back and keep only what was committed before: aborted or retracted."""
        self._give_back(lease)
        self._unlock(lease)

    def flush(self) -> None:
        """Forget every prefix and state; only when nothing runs."""
        if self.leases:
            raise AssertionError("flush with requests running")
        self._forget_all()

    def hit_tokens(self, sought: Sought, tokens: int) -> int:
        """Return the cached prefix of a waiting request and mark its use, as SGLang's policies do."""
        match = self.matcher.keep(sought)
        self.matcher.touch(match)
        if self.states is None:
            return min(match.node.end, tokens - 1)
        return 0 if match.best is None else min(match.best.depth, tokens - 1)

    def _resume(self, match: Match, tokens: int) -> Lease:
        if self.states is None:
            return Lease(match.node, match.index, min(match.node.end, tokens - 1), None)
        state, index = match.best, match.resume_index
        while state is not None and state.true_depth >= tokens:  # the last token is always computed
            state, index = self.states.above(state, index)
        if state is None or state.node is None:
            lease = Lease(self.tree.root, 0, 0, None)
        else:
            lease = Lease(state.node, index, state.depth, state)
        branch = on_grid(min(match.node.end, tokens - 1))
        if self._tracks and branch > lease.cached_tokens:
            lease.branch_tokens = branch
        return lease

    def _insert(self, lease: Lease, pieces: Sequence[Piece], depth: int, *, whole: bool) -> None:
        """Make the pieces after the lease's node resident to `depth`, the piece across it only if not `whole`."""
        before, end, count = lease.node, lease.node.end, 0
        for piece in pieces:
            if end >= depth or (whole and end + piece[1] > depth):
                break
            end += piece[1]
            count += 1
        if not count:
            return
        node, found = self.tree.descend(pieces, before, 0, count)
        if found < count:
            node = self.tree.extend(node, pieces[found:count])
        self.tree.touch(node)
        self.tree.lock(node)
        self.tree.unlock(before)
        lease.node = node
        lease.index += count
        grown = min(lease.private_tokens, node.end - before.end)
        lease.private_tokens -= grown
        self.private_tokens -= grown

    def _give_back(self, lease: Lease) -> None:
        self.private_tokens -= lease.private_tokens
        lease.private_tokens = 0
        self.leases -= 1
        if self.states is not None:
            self.states.held -= lease.slots
            lease.slots = 0

    def _unlock(self, lease: Lease) -> None:
        if self.states is not None and lease.state is not None:
            self.states.unlock(lease.state)
            lease.state = None
        self.tree.unlock(lease.node)

    def _leave(self, states: StatePool, lease: Lease, true_depth: int, *, own: bool = False) -> None:
        """Cache a state on the lease's path, no deeper than its node, and lock that one; in its `own` slot or a new."""
        depth = min(true_depth, lease.node.end)
        if depth <= (lease.state.depth if lease.state is not None else 0):
            return
        if not own and states.available:
            states.make_room(1, self._evict_state)
        node = lease.node
        while depth <= node.start and node.parent is not None:
            node = node.parent
        stamp = self.tree.tick()
        state = next((state for state in node.states if state.depth == depth), None)
        if state is not None:
            state.stamp = stamp
        elif states.free < 1:
            return
        else:
            state = states.keep(node, depth, stamp, true_depth)
            if self.max_states_per_path is not None:
                states.prune(state, self.max_states_per_path)
        states.lock(state)
        if lease.state is not None:
            states.unlock(lease.state)
        lease.state = state

    def _drop(self, leaf: Node) -> None:
        for state in tuple(leaf.states):
            if self.states is not None:
                self.states.forget(state)
                self.evicted_states += 1
        self.evicted_tokens += self.tree.drop(leaf)

    def _evict_state(self, state: State) -> None:
        node = state.node
        if node is not None and is_evictable(node) and node.states[-1] is state:
            self._drop(node)
        elif self.states is not None:
            self.states.forget(state)
            self.evicted_states += 1
