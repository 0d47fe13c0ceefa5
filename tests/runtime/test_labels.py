"""Labels: printable, bounded, and never shared."""

import random

from hypothesis import given
from hypothesis import strategies as st

from agentbatch.wire import MAX_LABEL_BYTES, encode_label, is_plain_label, trajectory_label


def test_prefix_alike_keys_have_labels_of_their_own() -> None:
    """vLLM router#219: session-1 matched session-12; here 10,000 random ids and their prefixes never meet."""
    source = random.Random(0)
    keys = {f"session-{n}" for n in range(2000)}
    keys |= {"".join(source.choices("ab1-/é\n ", k=source.randrange(1, 200))) for _ in range(10_000)}
    labels = {trajectory_label("run", key) for key in keys}
    assert len(labels) == len(keys)
    assert all(is_plain_label(label) for label in labels)


@given(st.text(max_size=300))
def test_whatever_the_key_the_label_travels(text: str) -> None:
    label = encode_label(text)
    assert is_plain_label(label)
    assert len(label.encode()) <= MAX_LABEL_BYTES
    assert encode_label(label) == label


def test_plain_labels_are_left_as_they_are() -> None:
    assert trajectory_label("run", "task 7") == "run-task 7"
    assert trajectory_label("run", "k", 2) == "run-k~2"
    assert trajectory_label("run", "x" * 124) == "run-" + "x" * 124
    assert trajectory_label("run", "x" * 125).startswith("sha256-")
