"""Tokens, template and generated text: counted by hand, and prefixes that hold from turn to turn."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbatch.emulator import MESSAGE_TOKENS, REPLY_HEADER_TOKENS
from agentbatch.emulator.answer import Chunks, whole
from agentbatch.emulator.ask import Ask, read_ask
from agentbatch.emulator.problem import HttpProblem
from agentbatch.emulator.script import Reply, Script, ToolCall
from agentbatch.emulator.template import render_prompt
from agentbatch.emulator.text import blocks, generate, reply_tokens, seed_of, whole_characters
from agentbatch.sim import Finished

TEXTS = st.text(max_size=80)


def ask(script: Script | None = None, context_tokens: int = 10_000, **body: Any) -> Ask:
    body.setdefault("messages", [{"role": "user", "content": "hello"}])
    return read_ask(json.dumps(body).encode(), chat=True, context_tokens=context_tokens, script=script)


def say(text: str = "", *calls: ToolCall) -> Script:
    return lambda messages: Reply(text, calls)


def finished(asked: Ask) -> Finished:
    return Finished(rid=0, at_s=0.0, prompt_tokens=len(asked.prompt), cached_tokens=0,
                    output_tokens=len(asked.answer.tokens))


def test_the_template_costs_what_it_says() -> None:
    messages = [{"role": "system", "content": "abc"}, {"role": "user", "content": "größe"}]
    prompt = render_prompt(messages, None)
    assert prompt == "<|s>abc<|/><|u>größe<|/><|a>".encode()
    assert len(prompt) == 2 * MESSAGE_TOKENS + 3 + 7 + REPLY_HEADER_TOKENS


def test_tools_calls_and_parts_count() -> None:
    messages = [
        {"role": "user", "content": [
            {"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": '{ "path": "." }'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "README.md"},
    ]
    assert render_prompt(messages, [{"type": "function"}]).decode() == (
        '<|T>[{"type":"function"}]<|/>'
        '<|u>look{"type":"image_url","image_url":{"url":"x"}}<|/>'
        '<|a><|c>ls {"path":"."}<|/>'
        "<|t>README.md<|/><|a>"
    )


@given(TEXTS, TEXTS, st.integers(1, 300))
def test_the_next_prompt_starts_with_this_prompt_and_reply(system: str, answer: str, tokens: int) -> None:
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
    first = ask(messages=messages, max_tokens=tokens, ignore_eos=True)
    message = json.loads(whole(first, "id", finished(first)))["choices"][0]["message"]
    second = ask(messages=[*messages, message, {"role": "user", "content": answer}])
    assert second.prompt.startswith(first.prompt + first.answer.tokens)
    grown = len(first.prompt) + tokens + 4 + MESSAGE_TOKENS + len(answer.encode("utf-8", "surrogatepass"))
    assert len(second.prompt) == grown + REPLY_HEADER_TOKENS


def test_scripted_tool_calls_come_back_as_a_prefix_too() -> None:
    call = ToolCall("grep", {"pattern": "été", "n": 3})
    first = ask(say("Let me look.", call))
    message = json.loads(whole(first, "id", finished(first)))["choices"][0]["message"]
    second = ask(messages=[{"role": "user", "content": "hello"}, message, {"role": "tool", "content": "-"}])
    assert second.prompt.startswith(first.prompt + first.answer.tokens)


@given(st.binary(min_size=1, max_size=200), st.integers(1, 2000))
def test_generated_text_is_exact_ascii_without_outer_blanks(prompt: bytes, tokens: int) -> None:
    text = generate(seed_of(prompt), tokens)
    assert len(text) == tokens
    assert text.decode("ascii").strip() == text.decode("ascii")
    assert text == generate(seed_of(prompt), tokens)


@given(st.binary(max_size=500))
def test_blocks_cover_all_but_an_incomplete_tail(text: bytes) -> None:
    pieces = blocks(text)
    assert b"".join(block for block, _ in pieces) == text[:len(text) // 64 * 64]  # type: ignore[misc]
    assert all(tokens == 64 for _, tokens in pieces)


@given(TEXTS, st.integers(0, 400))
def test_a_cut_splits_no_character(text: str, end: int) -> None:
    data = text.encode("utf-8", "surrogatepass")
    cut = whole_characters(data, min(end, len(data)))
    assert data[:cut].decode("utf-8", "surrogatepass") + data[cut:].decode("utf-8", "surrogatepass") == text


def test_the_length_is_seeded_by_the_prompt_alone() -> None:
    first, again = ask(), ask(temperature=1.0, model="other", stream=True)
    assert first.answer == again.answer
    assert len(first.answer.tokens) == reply_tokens(first.seed)
    assert first.answer.finish_reason == "stop"
    short = ask(max_tokens=5)
    assert (len(short.answer.tokens), short.answer.finish_reason) == (5, "length")
    assert first.answer.tokens.startswith(short.answer.tokens[:-1])  # the last byte is never a blank


def test_lengths_on_demand() -> None:
    assert len(ask(max_tokens=700, ignore_eos=True).answer.tokens) == 700
    assert len(ask(max_completion_tokens=700, max_tokens=3, ignore_eos=True).answer.tokens) == 700
    assert len(ask(max_tokens=900, min_tokens=800).answer.tokens) == 800


def test_a_scripted_reply_is_cut_at_the_limit() -> None:
    cut = ask(say("naïve", ToolCall("f", {})), max_tokens=3)
    assert (cut.answer.finish_reason, cut.answer.calls, len(cut.answer.tokens)) == ("length", (), 3)
    assert json.loads(whole(cut, "id", finished(cut)))["choices"][0]["message"]["content"] == "na"


@pytest.mark.parametrize("steps", [[], [1], [1, 2, 3, 4, 5, 6, 7, 8], [3, 3, 9]])
def test_chunks_add_up_to_the_whole_reply(steps: list[int]) -> None:
    asked = ask(say("né 日本", ToolCall("f", {"a": "é"}), ToolCall("g", "not json")), stream=True,
                stream_options={"include_usage": True})
    chunks = Chunks(asked, "id")
    sent = b"".join(chunks.text(step) for step in steps) + chunks.end(finished(asked))
    frames = sent.decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    bodies = [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]
    deltas = [choice["delta"] for body in bodies for choice in body["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "né 日本"
    assert sum("role" in delta for delta in deltas) == 1
    arguments = {0: "", 1: ""}
    for delta in deltas:
        for call in delta.get("tool_calls", []):
            arguments[call["index"]] += call["function"]["arguments"]
    assert arguments == {0: '{"a":"é"}', 1: "not json"}
    assert [body["choices"][0]["finish_reason"] for body in bodies if body["choices"]][-1] == "tool_calls"
    assert [body["usage"] is None for body in bodies] == [True] * (len(bodies) - 1) + [False]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"messages": None}, "messages"), ({"messages": []}, "messages"), ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, r"messages\[0\] must be an object"),
        ({"messages": [{"content": "x"}]}, r"messages\[0\]\.role"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "must be one of system"),
        ({"messages": [{"role": "user", "content": 5}]}, "content must be text"),
        ({"messages": [{"role": "user", "content": [5]}]}, "no object"),
        ({"messages": [{"role": "assistant", "tool_calls": 1}]}, "tool_calls must be a list"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, r"tool_calls\[0\]\.function"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}, r"function\.name"),
        ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"), ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"), ({"max_tokens": 10**30}, "context is 10000"),
        ({"max_tokens": 9_984}, r"needs 10001 \(17 in the prompt, 9984 for the reply\)"),
        ({"messages": [{"role": "user", "content": "x" * 10_000}]}, "shorten the prompt"),
        ({"n": 2}, "n must be 1"), ({"stream": "yes"}, "stream must be true or false"),
        ({"stream_options": []}, "stream_options must be an object"), ({"tools": {}}, "tools must be a list"),
        ({"model": 7}, "model must be a string"), ({"ignore_eos": 1, "max_tokens": 5}, "ignore_eos"),
    ],
)
def test_bad_bodies_are_refused_with_the_field(body: dict[str, Any], said: str) -> None:
    with pytest.raises(HttpProblem, match=said) as caught:
        ask(**body)
    assert caught.value.status == 400


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b'"x"', b"[" * 100_000, b"1" * 100_000, b"{}"])
def test_bodies_that_are_no_object_are_refused(raw: bytes) -> None:
    with pytest.raises(HttpProblem) as caught:
        read_ask(raw, chat=True, context_tokens=1000, script=None)
    assert caught.value.status == 400


@pytest.mark.parametrize("prompt", [None, "", [], ["a", "b"], [1, 2, 3], 5])
def test_completions_take_one_text(prompt: Any) -> None:
    with pytest.raises(HttpProblem, match="one string"):
        read_ask(json.dumps({"prompt": prompt}).encode(), chat=False, context_tokens=1000, script=None)


def test_lone_surrogates_are_only_text() -> None:
    raw = b'{"model": "\\ud800", "messages": [{"role": "user", "content": "\\udc00"}]}'
    asked = read_ask(raw, chat=True, context_tokens=1000, script=None)
    assert len(asked.prompt) == MESSAGE_TOKENS + 3 + REPLY_HEADER_TOKENS
    assert json.loads(whole(asked, "id", finished(asked)))["model"] == "\ud800"
