"""One batch on virtual time: who runs, who waits, and what happens next.

Lives here: the event loop, and the records of what happened. Must not live here: who is next (`policy.slots`, with
keys by `policy.caas` and `policy.admission`), which worker takes a turn (`fleet`), what a worker does (`sim`), what a
trajectory does (`script`), wall time, randomness.

As in the runtime: a slot is handed on in the very instant it is given back; keys are fixed when a job asks; an
environment job asks in the instant its turn ended; progress counts completed turns, from launch to last token. What is
due at one instant happens in the order in which it was put down, and before the workers decide their next step.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

from agentbatch.errors import UsageError
from agentbatch.events import Admitted, AttemptFailed, Event, JobEnded, TrajectoryEnded, TurnEnded
from agentbatch.policy.admission import AdmissionOrder
from agentbatch.policy.caas import EnvironmentOrder, Progress
from agentbatch.policy.slots import SlotTable
from agentbatch.sim.records import FirstToken, Request
from agentbatch.simulate.fleet import Fleet
from agentbatch.simulate.recorded import RecordedServer
from agentbatch.simulate.script import Infer, Pause, Stage, Step

ENDPOINT = "/chat/completions"


class Life:
    """One trajectory on its way: what is left of it, and its chain."""

    __slots__ = ("admitted_s", "error", "key", "label", "progress", "steps", "turns")

    def __init__(self, key: str, label: str, steps: Iterator[Step]) -> None:
        self.key = key
        self.label = label
        self.steps = steps
        self.progress = Progress()
        self.turns = 0
        self.admitted_s = 0.0
        self.error: str | None = None


class Flight:
    """One turn between launch and last token."""

    __slots__ = ("first_s", "life", "started_s", "turn", "worker")

    def __init__(self, life: Life, worker: str, started_s: float) -> None:
        self.life = life
        self.worker = worker
        self.started_s = started_s
        self.turn = life.turns
        self.first_s: float | None = None


class Job:
    """One environment stage from asking for a slot to giving it back."""

    __slots__ = ("asked_s", "granted_s", "life", "stage", "turns")

    def __init__(self, life: Life, stage: Stage, asked_s: float) -> None:
        self.life = life
        self.stage = stage
        self.asked_s = asked_s
        self.granted_s = asked_s
        self.turns = life.progress.turns


class Batch:
    """Runs lives under the limits; use each object once.

    Args:
        cs: admission slots. ce: environment slots per resource.
        order: of waiting environment jobs. admission: of waiting lives.
        fleet: the workers, or what stands for them.
        context_tokens: longest prompt and output together; None where nobody knows.
        emit: called with every event, in order of time.
    """

    def __init__(
        self,
        *,
        cs: int,
        ce: dict[str, int],
        order: EnvironmentOrder,
        admission: AdmissionOrder,
        fleet: Fleet | RecordedServer,
        context_tokens: int | None,
        emit: Callable[[Event], None],
    ) -> None:
        self.now_s = 0.0
        self._admission: SlotTable[Life] = SlotTable(cs)
        self._environment: dict[str, SlotTable[Job]] = {name: SlotTable(limit) for name, limit in ce.items()}
        self._keys = {name: order.keys() for name in ce}
        self._admission_order = admission
        self._fleet = fleet
        self._context_tokens = context_tokens
        self._emit = emit
        self._timers: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._entries = self._puts = self._rids = 0
        self._flights: dict[Hashable, Flight] = {}

    def run(self, lives: Sequence[Life]) -> None:
        """Submit all `lives` at time 0, in this order, and run until all have ended."""
        keyed = [(self._admission_order.key(life.key, entry), life) for entry, life in enumerate(lives, 1)]
        keyed.sort(key=lambda pair: pair[0])  # free slots go to whoever asks first, so the first in order ask first
        for key, life in keyed:
            if self._admission.request(life, key):
                self._admit(life)
        timers, fleet = self._timers, self._fleet
        while timers or self._flights:
            event_s = fleet.next_event_s()
            if timers and timers[0][0] <= event_s:
                self.now_s, _, act, subject = heappop(timers)
                act(subject)
                continue
            self.now_s = event_s
            for event in fleet.advance(event_s):
                flight = self._flights[event.rid]
                if isinstance(event, FirstToken):
                    if flight.first_s is None:  # a retracted request is prefilled again
                        flight.first_s = event.at_s
                else:
                    del self._flights[event.rid]
                    self._turn_ended(flight, event.prompt_tokens, event.cached_tokens, event.output_tokens)

    def _at(self, at_s: float, act: Callable[[Any], None], subject: Any) -> None:
        self._puts += 1
        heappush(self._timers, (at_s, self._puts, act, subject))

    # -- admission ------------------------------------------------------------------------------------------------

    def _admit(self, life: Life) -> None:
        life.admitted_s = self.now_s
        self._emit(Admitted(at_s=self.now_s, submitted_s=0.0, key=life.key, label=life.label))
        self._at(self.now_s, self._go_on, life)

    def _go_on(self, life: Life) -> None:
        step = None if life.error else next(life.steps, None)
        match step:
            case Infer():
                self._launch(life, step)
            case Stage():
                self._ask(life, step)
            case Pause():
                self._at(self.now_s + step.seconds, self._go_on, life)
            case None:
                self._end(life)

    def _end(self, life: Life) -> None:
        self._emit(
            TrajectoryEnded(
                at_s=self.now_s,
                key=life.key,
                label=life.label,
                admitted_s=life.admitted_s,
                outcome="failed" if life.error else "ok",
                turns=life.progress.turns,
                error=life.error,
            )
        )
        for granted in self._admission.leave(life):
            self._admit(granted)

    # -- turns ----------------------------------------------------------------------------------------------------

    def _launch(self, life: Life, step: Infer) -> None:
        life.turns += 1
        self._rids += 1
        worker = self._fleet.choose(life.label, step.prompt, step.prompt.tokens)
        flight = Flight(life, worker, self.now_s)
        request = Request(
            rid=self._rids,
            prompt_tokens=step.prompt.tokens,
            output_tokens=step.reply[1],
            prompt=step.prompt,
            reply=(step.reply,),
            label=life.label,
        )
        try:
            self._check_context(request)
            self._fleet.submit(worker, request, self.now_s, step.infer_s)
        except UsageError as error:  # a real server answers 400, which is never tried again
            self._turn_failed(flight, str(error))
        else:
            self._flights[self._rids] = flight

    def _check_context(self, request: Request) -> None:
        tokens = request.prompt_tokens + request.output_tokens
        if self._context_tokens is not None and tokens > self._context_tokens:
            raise UsageError(f"the request needs {tokens} tokens and the model's context holds {self._context_tokens}")

    def _turn_ended(self, flight: Flight, prompt_tokens: int, cached_tokens: int | None, output_tokens: int) -> None:
        life = flight.life
        self._fleet.give_back(flight.worker)
        life.progress = life.progress.completed(self.now_s - flight.started_s)
        self._emit(
            TurnEnded(
                label=life.label,
                turn=flight.turn,
                started_s=flight.started_s,
                first_byte_s=flight.first_s,
                ended_s=self.now_s,
                outcome="ok",
                endpoint=ENDPOINT,
                streamed=flight.first_s is not None,
                attempts=1,
                worker=flight.worker,
                prompt_tokens=prompt_tokens,
                cached_tokens=cached_tokens,
                output_tokens=output_tokens,
            )
        )
        self._go_on(life)

    def _turn_failed(self, flight: Flight, error: str) -> None:
        life = flight.life
        life.error = error
        attempt = AttemptFailed(
            at_s=self.now_s, label=life.label, turn=flight.turn, attempt=1, error=error, worker=flight.worker,
            status=400,
        )  # fmt: skip
        self._emit(attempt)
        self._emit(
            TurnEnded(
                label=life.label,
                turn=flight.turn,
                started_s=flight.started_s,
                first_byte_s=None,
                ended_s=self.now_s,
                outcome="failed",
                endpoint=ENDPOINT,
                streamed=True,
                attempts=1,
                worker=flight.worker,
                error=error,
            )
        )
        self._at(self.now_s, self._go_on, life)  # not at once: a thousand that fail would be as many calls deep

    # -- environment ----------------------------------------------------------------------------------------------

    def _ask(self, life: Life, stage: Stage) -> None:
        self._entries += 1
        job = Job(life, stage, self.now_s)
        key = self._keys[stage.resource].key(life.progress, self.now_s, self._entries)
        if self._environment[stage.resource].request(job, key):
            self._grant(job)

    def _grant(self, job: Job) -> None:
        job.granted_s = self.now_s
        self._keys[job.stage.resource].granted(self.now_s - job.asked_s)
        self._at(self.now_s + job.stage.seconds, self._job_ended, job)

    def _job_ended(self, job: Job) -> None:
        job.life.progress = job.life.progress.acted(self.now_s - job.granted_s)
        for granted in self._environment[job.stage.resource].leave(job):
            self._grant(granted)
        self._emit(
            JobEnded(
                label=job.life.label,
                resource=job.stage.resource,
                turns=job.turns,
                asked_s=job.asked_s,
                granted_s=job.granted_s,
                ended_s=self.now_s,
                outcome="ok",
            )
        )
        self._go_on(job.life)
