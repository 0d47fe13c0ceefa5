"""What both the real server and the model are asked: sessions of turns, exact to the token.

A session's next prompt is its previous prompt, the reply and new text. Text is
named segments; a segment's tokens follow from its name and length alone, and the stubbed model's replies from their
position alone, so that every prompt is known beforehand.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

Segment = tuple[str, int]
"""Name and length in tokens, > 0. Two segments that may follow the same prefix must have different names."""

FIRST_TOKEN, VOCABULARY = 5, 512


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Text added to the conversation, the length of the reply to it, and when it is sent.

    That is `think_s` after the last reply, but not before `not_before_s` from the script's start. A first turn may add
    nothing to the session's opening.
    """

    new_tokens: int
    output_tokens: int
    think_s: float = 0.0
    not_before_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Session:
    """One trajectory: begins at `start_s` with the segments of `opening` before its first turn's text."""

    name: str
    start_s: float
    turns: tuple[Turn, ...]
    opening: tuple[Segment, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request of a session."""

    rid: str
    session: str
    prompt: tuple[Segment, ...]
    reply: Segment
    turn: Turn

    def due_s(self, free_s: float) -> float:
        """Return when it is sent, the session being free since `free_s`."""
        return max(free_s + self.turn.think_s, self.turn.not_before_s)

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return sum(tokens for _, tokens in self.prompt)

    @property
    def output_tokens(self) -> int:
        """Length of the reply."""
        return self.reply[1]


@dataclass(frozen=True, kw_only=True)
class Script:
    """Sessions, in order of their start."""

    name: str
    sessions: tuple[Session, ...]

    @property
    def requests(self) -> int:
        """Number of requests in all."""
        return sum(len(session.turns) for session in self.sessions)


def calls(session: Session) -> Iterator[Call]:
    """Yield a session's requests in order."""
    prompt = session.opening
    for number, turn in enumerate(session.turns):
        if turn.new_tokens:
            prompt += ((f"{session.name}.{number}", turn.new_tokens),)
        rid = f"{session.name}#{number}"
        reply = (f"reply {rid}", turn.output_tokens)
        yield Call(rid=rid, session=session.name, prompt=prompt, reply=reply, turn=turn)
        prompt += (reply,)


def token_ids(call: Call, numbers: dict[str, int]) -> list[int]:
    """Return the prompt's tokens.

    Args:
        call: whose prompt.
        numbers: gives each segment a first token of its own, so that two never share their beginning; filled here,
            one for all calls of a script.
    """
    ids: list[int] = []
    for name, tokens in call.prompt:
        if name.startswith("reply "):
            ids += reply_ids(len(ids), tokens)
        else:
            number = numbers.setdefault(name, len(numbers))
            rng = random.Random(name)
            ids.append(FIRST_TOKEN + number % (VOCABULARY - FIRST_TOKEN))
            ids += [rng.randrange(FIRST_TOKEN, VOCABULARY) for _ in range(tokens - 1)]
    return ids


def reply_ids(prompt_tokens: int, output_tokens: int) -> list[int]:
    """Return what the stubbed model answers to a prompt of that length."""
    return [40 + ((prompt_tokens + step) * 7919 + 13) % 50 for step in range(output_tokens)]


def places() -> Script:
    """One request at a time, each a question about where states are left and who can resume from them."""
    conversations: list[tuple[str, tuple[Segment, ...], list[tuple[int, int]]]] = [
        ("plain", (), [(1000, 10), (60, 5), (50, 5)]),  # goes on from the prefill's end or the reply's
        ("same", (("same", 700),), [(0, 5)]),
        ("again", (("same", 700),), [(0, 5)]),  # the same prompt a second time
        ("long reply", (), [(1000, 300), (80, 5)]),  # the reply crosses multiples of 256
        ("short steps", (), [(500, 1), (30, 1), (40, 1), (20, 1)]),  # extensions below 64 tokens
        ("parting a", (("parting", 500),), [(500, 1), (70, 1)]),
        ("parting b", (("parting", 500),), [(500, 1), (70, 1)]),
        ("parting c", (("parting", 500),), [(500, 1), (70, 1)]),
        ("chunks", (("chunked", 3000),), [(2500, 4), (100, 4)]),  # more than two chunks
        ("of chunks", (("chunked", 3000),), [(300, 4), (100, 4)]),  # parts from it in the second
    ]
    sessions, start_s = [], 0.0
    for name, opening, sizes in conversations:
        turns = tuple(Turn(new_tokens=new, output_tokens=output, think_s=0.05) for new, output in sizes)
        sessions.append(Session(name=name, start_s=start_s, turns=turns, opening=opening))
        start_s += 0.2 * len(turns) + 0.013 * sum(output for _, output in sizes)
    return Script(name="places", sessions=tuple(sessions))


def light() -> Script:
    """Few sessions, pools that hold everything: reuse by prefix alone, across sessions too."""
    sizes = [(300, 40), (200, 50), (400, 300), (150, 30), (90, 20)]
    return _in_turn("light", 6, sizes, 0.2, opening=(("system", 500),))


def kv_bound() -> Script:
    """Long sessions, more tokens than the KV pool holds."""
    return _in_turn("KV-bound", 26, [(350, 16), (150, 20), (150, 16), (200, 16), (150, 12)], 0.065)


def state_bound() -> Script:
    """Many short sessions, more states than the pool has slots."""
    return _in_turn("state-bound", 46, [(200, 12), (100, 16), (90, 12)], 0.055)


def crowd() -> Script:
    """More than 128 requests wait at once: SGLang's lpm gives up sorting. Each goes on when it has its reply."""
    openings = [(("system a", 192),), (("system b", 192),), ()]
    sessions = []
    for n in range(165):
        pause_s = random.Random(f"crowd {n}").uniform(0.0, 0.3)
        turns = Turn(**_varied(f"crowd {n} 0", 60, 8)), Turn(**_varied(f"crowd {n} 1", 50, 8), think_s=pause_s)
        sessions.append(Session(name=f"crowd {n}", start_s=0.008 * n, turns=turns, opening=openings[n % 3]))
    return Script(name="> 128 waiting", sessions=tuple(sessions))


def burst() -> Script:
    """A burst that arrives while long requests hold all eight places, so that the policy alone decides who is next.

    First come conversations of different length and two requests of a family with a shared prefix, one after the other;
    then the blockers; then, in an order that no policy but fcfs would choose, the conversations' second turns, the
    rest of the family, twins with a prefix that nothing holds yet, and requests that share nothing.
    """
    burst_s = 3.5
    family, twins = (("family", 320),), (("twins", 200),)
    warm = [
        Session(name=f"warm{n}", start_s=0.25 * n, turns=(
            Turn(new_tokens=150 + 130 * n, output_tokens=4),
            Turn(new_tokens=70, output_tokens=9, not_before_s=burst_s + 0.03 * n),
        )) for n in range(6)
    ]
    kin = [_single(f"kin{n}", 1.6 + 0.3 * n, 100 + 10 * n, 4, family) for n in range(2)]
    blockers = [_single(f"block{n}", 2.4 + 0.05 * n, 80, 150 + 20 * n) for n in range(8)]
    late = [_single(f"late{n}", burst_s + 0.2 + 0.03 * n, 120, 9, family if n % 2 else ()) for n in range(8)]
    alike = [_single(f"twin{n}", burst_s + 0.5 + 0.03 * n, 90, 9, twins) for n in range(3)]
    return Script(name="burst", sessions=(*warm, *kin, *blockers, *late, *alike))


def _single(
    name: str, start_s: float, new_tokens: int, output_tokens: int, opening: tuple[Segment, ...] = ()
) -> Session:
    turn = Turn(new_tokens=new_tokens, output_tokens=output_tokens)
    return Session(name=name, start_s=start_s, turns=(turn,), opening=opening)


def _in_turn(name: str, count: int, sizes: list[tuple[int, int]], apart_s: float, **session) -> Script:
    """Build `count` sessions that send their turns round robin, `apart_s` apart.

    In that order even where they overlap, so that what is cached does not hang on a millisecond.
    """
    sessions = []
    for n in range(count):
        turns = tuple(
            Turn(**_varied(f"{name} {n} {number}", *size), not_before_s=apart_s * (n + number * count))
            for number, size in enumerate(sizes)
        )
        sessions.append(Session(name=f"{name} {n}", start_s=apart_s * n, turns=turns, **session))
    return Script(name=name, sessions=tuple(sessions))


def _varied(seed: str, new_tokens: int, output_tokens: int) -> dict[str, int]:
    """Vary both by up to a fifth."""
    rng = random.Random(seed)
    return {
        "new_tokens": round(new_tokens * rng.uniform(0.8, 1.2)),
        "output_tokens": round(output_tokens * rng.uniform(0.8, 1.2)),
    }
