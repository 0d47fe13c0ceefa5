"""Text, calibration and conversations: prompts exactly as long as recorded, restarts, shared beginnings (spec §7)."""

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_support import odd_server

from agentbatch.emulator import MESSAGE_TOKENS, REPLY_HEADER_TOKENS, serve
from agentbatch.emulator.template import render_prompt
from agentbatch.errors import StartUpError
from agentbatch.replay.calibrate import calibrate, model_name, takes_ignore_eos
from agentbatch.replay.chunk import ReplyChunk
from agentbatch.replay.conversation import Conversation
from agentbatch.replay.replies import Replies
from agentbatch.replay.text import Calibration, text

BYTES = Calibration(1.0, float(MESSAGE_TOKENS), float(REPLY_HEADER_TOKENS))
"""How the emulator counts."""

ROOM = 2 * MESSAGE_TOKENS + 1
"""The least step that can be exact: the reply and the answer are a message each, and no answer is empty."""


def sent(conversation: Conversation) -> int:
    return len(render_prompt(conversation.messages, None))


def talk(calibration: Calibration = BYTES, *, shared: int = 0, name: str = "a", seed: int = 0) -> Conversation:
    return Conversation(name, "domain", shared, calibration, seed)


def replied(conversation: Conversation, prompt: int | None, output: int) -> None:
    conversation.add_reply("r" * output, prompt, output, output)


@given(st.text(max_size=8), st.integers(0, 3000), st.integers(0, 500))
def test_text_is_a_function_of_its_seed_and_a_longer_one_extends_a_shorter_one(
    seed: str, length: int, more: int
) -> None:
    whole = text(seed, length + more)
    assert len(whole) == length + more
    assert text(seed, length) == whole[:length]
    assert whole.isascii()


def test_texts_of_different_seeds_differ_from_their_first_words_on() -> None:
    assert len({text(f"seed {number}", 64) for number in range(5000)}) == 5000


STEPS = st.lists(st.tuples(st.integers(-2000, 400), st.integers(0, 300)), max_size=12)


@given(st.integers(0, 3000), st.integers(0, 300), STEPS, st.integers(0, 900), st.booleans())
def test_prompts_are_as_long_as_recorded_wherever_a_step_has_room(
    first: int, output: int, steps: list[tuple[int, int]], shared: int, usage: bool
) -> None:
    """Also where the server reports no usage, since a byte is a token; what a small step adds too much is not kept."""
    conversation = talk(shared=shared)
    recorded = first
    step = first - REPLY_HEADER_TOKENS + MESSAGE_TOKENS  # the first prompt is one message: room for one fewer
    for change, next_output in [*steps, (0, 0)]:
        conversation.grow_to(recorded)
        off = sent(conversation) - recorded
        if step >= ROOM:
            assert off == 0
        elif len(conversation.messages) == 1:
            assert 0 <= off <= ROOM
        else:
            assert off >= 0
        output = max(1, output)
        replied(conversation, sent(conversation) if usage else None, output)
        stood, over = recorded + output, off
        recorded = max(0, stood + change)
        restarts = recorded < stood
        step = recorded - REPLY_HEADER_TOKENS + MESSAGE_TOKENS if restarts else recorded - stood - over
        output = next_output


def test_prompt_lengths_do_not_drift_over_many_turns() -> None:
    conversation, prompt = talk(), 500
    for _ in range(200):
        conversation.grow_to(prompt)
        assert sent(conversation) == prompt
        replied(conversation, None, 30)
        prompt += 30 + ROOM


def test_a_step_too_small_for_its_messages_is_made_up_for_by_the_next_one() -> None:
    conversation = talk()
    conversation.grow_to(100)
    replied(conversation, 100, 10)
    conversation.grow_to(112)
    assert sent(conversation) == 110 + ROOM
    replied(conversation, 110 + ROOM, 10)
    conversation.grow_to(200)
    assert sent(conversation) == 200


def test_a_shorter_prompt_restarts_the_context_with_its_shared_beginning_and_fresh_text() -> None:
    conversation = talk(shared=256)
    before = [dict(message) for message in conversation.grow_to(1000)]
    replied(conversation, 1000, 20)
    after = conversation.grow_to(1019)
    assert conversation.restarts == 1
    assert sent(conversation) == 1019
    assert [message["role"] for message in after] == ["system", "user"]
    assert after[0] == before[0]
    assert after[1]["content"][:64] != before[1]["content"][:64]


def test_a_prompt_of_just_what_stood_is_no_restart() -> None:
    conversation = talk()
    conversation.grow_to(100)
    replied(conversation, 100, 20)
    conversation.grow_to(120)
    assert conversation.restarts == 0
    assert len(conversation.messages) == 3


def test_a_domain_shares_its_beginning_and_nothing_else_is_shared() -> None:
    one, other, elsewhere = (
        Conversation(name, domain, shared, BYTES, 0) for name, domain, shared in
        (("a", "d", 300), ("b", "d", 200), ("a", "e", 300))
    )  # fmt: skip
    system, user = one.grow_to(900)
    assert render_prompt([system], None)[: 300 - 4] == render_prompt(one.messages, None)[: 300 - 4]
    assert len(system["content"]) == 300 - REPLY_HEADER_TOKENS - MESSAGE_TOKENS
    assert system["content"].startswith(other.grow_to(900)[0]["content"])  # a shorter beginning is part of a longer one
    assert user["content"][:64] != other.messages[1]["content"][:64]
    assert elsewhere.grow_to(900)[0]["content"] != system["content"]


def test_a_beginning_longer_than_the_prompt_leaves_room_for_a_message() -> None:
    conversation = talk(shared=5000)
    conversation.grow_to(100)
    assert sent(conversation) == 100
    assert [message["role"] for message in conversation.messages] == ["system", "user"]


def test_another_seed_makes_other_text_of_the_same_lengths() -> None:
    one, other = talk(shared=64, seed=1), talk(shared=64, seed=2)
    lengths = [[len(message["content"]) for message in conversation.grow_to(400)] for conversation in (one, other)]
    assert lengths[0] == lengths[1]
    assert all(a["content"] != b["content"] for a, b in zip(one.messages, other.messages, strict=True))


def test_a_tokenizer_of_four_characters_a_token_is_corrected_by_what_it_reports() -> None:
    conversation = talk(Calibration(0.25, 5.0, 3.0))
    conversation.grow_to(1000)
    assert len(conversation.messages[0]["content"]) == (1000 - 8) * 4
    replied(conversation, 1010, 20)  # ten more than we thought
    conversation.grow_to(1200)
    assert len(conversation.messages[2]["content"]) == (1200 - 1010 - 20 - 2 * 5) * 4


def test_a_chunk_reads_text_thoughts_and_usage_and_forgives_odd_ones() -> None:
    choices = [{"delta": {"reasoning_content": "hm ", "content": None}}, {"delta": {"content": "a"}}, {"delta": None}]
    whole = ReplyChunk.build(response=None, data={"choices": choices, "usage": {"prompt_tokens": 3}})
    assert (whole.text, whole.usage) == ("hm a", {"prompt_tokens": 3})
    for odd in (None, [], {}, {"choices": None}):
        chunk = ReplyChunk.build(response=None, data=odd)
        assert (chunk.text, chunk.usage) == ("", None)


def test_the_digest_depends_on_ids_and_replies_and_not_on_the_order_they_came_in() -> None:
    def digest(*replies: tuple[str, str]) -> str:
        all_of_them = Replies()
        for name, content in replies:
            all_of_them.add(name, content)
        return all_of_them.digest()

    base = digest(("a", "x"), ("b", "y"), ("a", "z"))
    assert base == digest(("b", "y"), ("a", "x"), ("a", "z"))
    others = [
        digest(("a", "z"), ("b", "y"), ("a", "x")), digest(("a", "xz"), ("b", "y")), digest(("a", "x"), ("a", "z")),
        digest(("a", "x"), ("c", "y"), ("a", "z")), digest(("a", "x"), ("b", "y"), ("a", "\udcff")), digest(),
    ]  # fmt: skip
    assert len({base, *others}) == 1 + len(others)


@pytest.mark.asyncio
async def test_calibration_finds_exactly_how_the_emulator_counts() -> None:
    async with (
        serve(workers=1, speedup=5000) as emulator,
        openai.AsyncOpenAI(api_key="EMPTY", base_url=emulator.urls[0]) as client,
    ):
        model = await model_name(client)
        assert await takes_ignore_eos(client, model)
        assert await calibrate(client, model) == BYTES


@pytest.mark.asyncio
async def test_calibration_finds_another_tokenizers_ways() -> None:
    async with odd_server() as server, openai.AsyncOpenAI(api_key="EMPTY", base_url=server.url) as client:
        assert await calibrate(client, "odd") == Calibration(0.25, 5.0, 3.0)
    async with odd_server(usage=False) as server, openai.AsyncOpenAI(api_key="EMPTY", base_url=server.url) as client:
        assert await calibrate(client, "odd") is None
    async with odd_server(blind=True) as server, openai.AsyncOpenAI(api_key="EMPTY", base_url=server.url) as client:
        with pytest.raises(StartUpError, match="does it truncate"):
            await calibrate(client, "odd")
    async with odd_server(models=()) as server, openai.AsyncOpenAI(api_key="EMPTY", base_url=server.url) as client:
        with pytest.raises(StartUpError, match="--model"):
            await model_name(client)
