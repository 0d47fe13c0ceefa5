"""Runs a script against the real server and through the model, and says what each did in the same terms."""

import asyncio
import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import aiohttp
from request_script import Call, Script, Segment, calls, reply_ids, token_ids
from sglang_server import Launch, Server

from agentbatch.sim import Finished, FirstToken, Request, StepCost, Worker, WorkerConfig
from agentbatch.sim.radix import Piece


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one engine did with a script.

    Args:
        cached_tokens: by request.
        prompt_tokens: of all requests.
        order: requests in order of admission.
        evicted_tokens: KV tokens that were evicted from the cache.
        evicted_states: recurrent states likewise.
        retracted: how often a running request was sent back.
        peak_waiting: most requests that waited after a prefill step was put together; None where that is not seen.
        took_s: first request sent until the last answer, on the engine's clock.
        late_s: by how much the machine fell behind at worst: a step's end, or a request that was due.
    """

    cached_tokens: dict[str, int]
    prompt_tokens: int
    order: tuple[str, ...]
    evicted_tokens: int
    evicted_states: int
    retracted: int
    peak_waiting: int | None
    took_s: float
    late_s: float = 0.0


def real(server: Server, script: Script) -> Outcome:
    """Run `script` on the empty cache of a live server.

    Raises:
        RuntimeError: a reply is not the one the stubbed model gives, so the prompts after it would be others.
    """
    server.flush()
    offset = server.log_size()
    cached, took_s, late_s = asyncio.run(_ask(server.url, script))
    lines = server.logged(offset)
    admitted = [line for line in lines if line["at"] == "admit"]
    evicted = [line for line in lines if line["at"] == "evict"]
    return Outcome(
        cached_tokens=cached,
        prompt_tokens=sum(call.prompt_tokens for session in script.sessions for call in calls(session)),
        order=tuple(dict.fromkeys(rid for line in admitted for rid, _, _ in line["rids"])),
        evicted_tokens=sum(line["tokens"] for line in evicted),
        evicted_states=sum(line["states"] for line in evicted),
        retracted=sum(len(line["rids"]) for line in lines if line["at"] == "retract"),
        peak_waiting=max(line["waiting"] for line in admitted),
        took_s=took_s, late_s=max(late_s, *(line["late_s"] for line in admitted)),
    )


async def _ask(url: str, script: Script) -> tuple[dict[str, int], float, float]:
    cached: dict[str, int] = {}
    late_s = 0.0
    numbers: dict[str, int] = {}
    # Everything is written out beforehand: while the server runs, this process does next to nothing.
    plans = {
        session.name: [(call, token_ids(call, numbers)) for call in calls(session)] for session in script.sessions
    }
    loop = asyncio.get_running_loop()
    began_s = loop.time()

    async def converse(client: aiohttp.ClientSession, name: str, start_s: float) -> None:
        nonlocal late_s
        free_s = start_s
        for call, ids in plans[name]:
            due_s = began_s + call.due_s(free_s)
            await asyncio.sleep(due_s - loop.time())
            late_s = max(late_s, loop.time() - due_s)
            body = {
                "rid": call.rid, "input_ids": ids,
                "sampling_params": {"max_new_tokens": call.output_tokens, "ignore_eos": True, "temperature": 0},
            }
            async with client.post("/generate", json=body) as answer:
                told = await answer.json()
            if told.get("output_ids") != reply_ids(call.prompt_tokens, call.output_tokens):
                raise RuntimeError(f"{call.rid}: not the stubbed model's reply: {str(told)[:300]}")
            cached[call.rid] = told["meta_info"]["cached_tokens"]
            free_s = loop.time() - began_s

    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=120)
    async with (
        aiohttp.ClientSession(url, connector=connector, timeout=timeout, raise_for_status=True) as client,
        asyncio.TaskGroup() as group,
    ):
        for session in script.sessions:
            group.create_task(converse(client, session.name, session.start_s))
    return cached, loop.time() - began_s, late_s


def modelled(launch: Launch, script: Script) -> Outcome:
    """Run `script` through the model of a worker that was launched like the server."""
    worker = Worker(configure(launch))
    plans = {session.name: calls(session) for session in script.sessions}
    tie = itertools.count()
    due: list[tuple[float, int, Call]] = []
    live: dict[object, Call] = {}

    def send_next(name: str, free_s: float) -> None:
        call = next(plans[name], None)
        if call is not None:
            heapq.heappush(due, (call.due_s(free_s), next(tie), call))

    for session in script.sessions:
        send_next(session.name, session.start_s)
    cached: dict[str, int] = {}
    order: list[str] = []
    prompt_tokens, now_s = 0, 0.0
    while due or live:
        now_s = min(worker.next_event_s(), due[0][0] if due else float("inf"))
        while due and due[0][0] <= now_s:
            call = heapq.heappop(due)[2]
            live[call.rid] = call
            prompt_tokens += call.prompt_tokens
            worker.submit(_request(call), now_s)
        for event in worker.advance(now_s):
            if isinstance(event, FirstToken):
                order.append(str(event.rid))
            elif isinstance(event, Finished):
                cached[str(event.rid)] = event.cached_tokens
                send_next(live.pop(event.rid).session, event.at_s)
    statistics = worker.statistics()
    return Outcome(
        cached_tokens=cached, prompt_tokens=prompt_tokens, order=tuple(order),
        evicted_tokens=statistics.evicted_tokens, evicted_states=statistics.evicted_states,
        retracted=getattr(statistics, "retracted", 0), peak_waiting=None, took_s=now_s,
    )


def configure(launch: Launch) -> WorkerConfig:
    """Return the model's configuration of a server launched like that; step times are the stubbed model's."""
    step_s = launch.step_ms * 1e-3
    row_s = launch.decode_row_us * 1e-6
    return WorkerConfig(
        cost=StepCost(
            decode_base=((1, step_s + row_s), (2, step_s + 2 * row_s)), context_s=0.0, prefill_step_s=step_s,
            prefill_token_s=launch.prefill_token_us * 1e-6, attention_s=0.0,
        ),
        kv_tokens=launch.kv_tokens, state_slots=launch.state_slots, slots_per_request=launch.slots_per_request,
        state_mode=launch.strategy, overlap=launch.strategy != "no_buffer",
        max_states_per_path=launch.max_states_per_path if launch.max_states_per_path > 0 else None,
        max_running_requests=launch.max_running_requests,
        chunked_prefill_tokens=launch.chunked_prefill_tokens, schedule_policy=launch.policy,
    )


def _request(call: Call) -> Request:
    return Request(
        rid=call.rid, prompt_tokens=call.prompt_tokens, output_tokens=call.output_tokens,
        prompt=_pieces(call.prompt), reply=_pieces((call.reply,)), label=call.session,
    )


def _pieces(segments: Iterable[Segment]) -> list[Piece]:
    """Cut text into tokens: the model's tree parts between pieces only, SGLang's between any two tokens."""
    return [((name, place), 1) for name, tokens in segments for place in range(tokens)]
