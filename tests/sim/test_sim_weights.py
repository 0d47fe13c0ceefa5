"""dfs-weight's shortcut against SGLang's walk through the whole tree, written down as it stands."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from sim_cache_helpers import cache, turn

from agentbatch.sim import Request
from agentbatch.sim.batch import Entry
from agentbatch.sim.radix import Node, Piece
from agentbatch.sim.weights import sort_by_weight

PIECES: list[Piece] = [("a", 64), ("b", 64), ("c", 64)]
PROMPTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5)


def walk(root: Node, at: list[Node]) -> list[int]:
    """`_dfs_weight_order` of base_prefix_cache.py."""
    own = Counter(at)

    def weight(node: Node) -> int:
        return own[node] + sum(weight(child) for child in node.children.values())

    def visit(node: Node) -> list[int]:
        order = []
        for child in sorted(node.children.values(), key=lambda child: -weight(child)):
            order += visit(child)
        return order + [number for number, other in enumerate(at) if other is node]

    return visit(root)


@given(st.lists(PROMPTS, max_size=8), st.lists(PROMPTS, max_size=3), st.lists(PROMPTS, max_size=8), st.booleans())
def test_the_order_is_that_of_the_whole_walk(
    before: list[list[Piece]], between: list[list[Piece]], waiting: list[list[Piece]], hybrid: bool
) -> None:
    store = cache(state_slots=40 if hybrid else None, mode="extra_buffer", kv_tokens=3000, cap=None)
    for prompt in before:
        turn(store, prompt)
    queue = [
        Entry(Request(rid=n, prompt_tokens=400, output_tokens=1, prompt=prompt), n, 1)
        for n, prompt in enumerate(waiting)
    ]  # fmt: skip
    for later in (between, []):  # kept matches and branches must follow what changes
        for prompt in later:
            turn(store, prompt)
        for entry in queue:
            store.hit_tokens(entry.sought, 400)
        expected = walk(store.tree.root, [entry.sought.match.resume for entry in queue if entry.sought.match])
        had = list(queue)
        sort_by_weight(queue, store.tree)
        assert queue == [had[number] for number in expected]
