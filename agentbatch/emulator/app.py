"""The HTTP face of one worker: SGLang's endpoints, answered from the model."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from agentbatch import __version__
from agentbatch.emulator.endpoint import ModelEndpoint
from agentbatch.emulator.engine import Engine
from agentbatch.emulator.ledger import Ledger
from agentbatch.emulator.metrics import prometheus
from agentbatch.emulator.problem import HttpProblem
from agentbatch.emulator.script import Script
from agentbatch.emulator.settings import Settings
from agentbatch.emulator.template import MESSAGE_TOKENS, REPLY_HEADER_TOKENS
from agentbatch.sim import preset
from agentbatch.sim.states import GRID_TOKENS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Message, Receive, Scope, Send

_log = structlog.get_logger(__name__)
_MODEL_PATHS = ("/v1/chat/completions", "/v1/completions")


class WorkerApp:
    """ASGI application of one worker."""

    def __init__(self, settings: Settings, index: int, engine: Engine, script: Script | None) -> None:
        self.engine = engine
        self.ledger = Ledger()
        self._settings = settings
        self._index = index
        self._preset = preset(settings.preset)
        self._context_tokens = min(self._preset.context_tokens, engine.worker.config.longest_request)
        self._model = ModelEndpoint(engine, self.ledger, context_tokens=self._context_tokens, script=script)
        self._expected = None if settings.token is None else f"Bearer {settings.token}".encode()
        self._others = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/health_generate", self._health),
                Route("/v1/models", self._models),
                Route("/server_info", self._server_info),
                Route("/get_server_info", self._server_info),
                Route("/model_info", self._model_info),
                Route("/get_model_info", self._model_info),
                Route("/metrics", self._metrics),
                Route("/flush_cache", self._flush, methods=["GET", "POST"]),
                Route("/debug/requests", self._debug),
            ],
            exception_handlers={HTTPException: _starlette_refusal},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; never lets an exception out."""
        if scope["type"] != "http":
            return
        started = False

        async def tell(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            self._authorise(scope)
            if scope["path"] not in _MODEL_PATHS:
                await self._others(scope, receive, tell)
            elif scope["method"] != "POST":
                raise HttpProblem(405, f"{scope['path']} takes POST")
            else:
                await self._model(scope, receive, tell)
        except HttpProblem as problem:
            if not started:  # else the connection is cut, which the client sees as a broken stream
                await _refuse(send, problem)
        except Exception as error:
            _log.exception("a request failed inside the emulator", path=scope["path"])
            if not started:
                await _refuse(send, HttpProblem(500, f"the emulator failed: {type(error).__name__}"))

    def _authorise(self, scope: Scope) -> None:
        if self._expected is None or scope["path"] == "/health":
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if not hmac.compare_digest(given, self._expected):
            raise HttpProblem(401, "this emulator asks for its token: send Authorization: Bearer TOKEN")

    async def _health(self, request: Request) -> Response:
        return PlainTextResponse("", 503 if self.engine.broken else 200)

    async def _models(self, request: Request) -> Response:
        entry = {
            "id": self._preset.name, "object": "model", "created": 0, "owned_by": "agentbatch",
            "root": self._preset.name, "max_model_len": self._context_tokens,
        }
        return JSONResponse({"object": "list", "data": [entry]})

    async def _model_info(self, request: Request) -> Response:
        return JSONResponse({"model_path": self._preset.name, "tokenizer_path": self._preset.name,
                             "is_generation": True})

    async def _server_info(self, request: Request) -> Response:
        config = self.engine.worker.config
        ratio = self._preset.cache_ratio
        state: dict[str, Any] = {
            "max_mamba_cache_size": config.state_slots,
            "memory_usage": {"token_capacity": config.kv_tokens},
            "effective_max_running_requests_per_dp": config.max_running,
            "mamba_radix_cache_strategy": config.state_mode,
            "mamba_full_memory_ratio": ratio,
            "page_size": GRID_TOKENS,
        }
        return JSONResponse({
            "model_path": self._preset.name,
            "served_model_name": self._preset.name,
            "version": f"agentbatch-emulator {__version__}",
            "schedule_policy": config.schedule_policy,
            "max_total_num_tokens": config.kv_tokens,
            "max_running_requests": config.max_running_requests,
            "chunked_prefill_size": config.chunked_prefill_tokens,
            "context_length": self._context_tokens,
            "mamba_full_memory_ratio": ratio,
            "mamba_max_states_per_path": config.max_states_per_path or -1,
            "page_size": GRID_TOKENS,
            "internal_states": [state],
            "agentbatch_emulator": {
                "version": __version__, "speedup": self._settings.speedup, "preset": self._preset.name,
                "provenance": self._preset.provenance,
                "workers": self._settings.workers, "worker": self._index,
                "kv_tokens": config.kv_tokens, "state_slots": config.state_slots,
                "slots_per_request": config.slots_per_request, "max_running": config.max_running,
                "label_capacity": config.labels,
                "tokenizer": "utf-8 bytes", "message_tokens": MESSAGE_TOKENS,
                "reply_header_tokens": REPLY_HEADER_TOKENS,
            },
        })

    async def _metrics(self, request: Request) -> Response:
        hybrid = self.engine.worker.config.state_slots is not None
        text = prometheus(self.engine.worker.statistics(), model=self._preset.name, hybrid=hybrid)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def _flush(self, request: Request) -> Response:
        if self.engine.flush():
            return PlainTextResponse("Cache flushed.\n")
        stats = self.engine.worker.statistics()
        return PlainTextResponse(f"Not flushed: {stats.running} requests run, {stats.waiting} wait.\n", 400)

    async def _debug(self, request: Request) -> Response:
        return JSONResponse(self.ledger.view())


async def _refuse(send: Send, problem: HttpProblem) -> None:
    body = problem.body()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _starlette_refusal(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = f"{request.method} {request.url.path}: {getattr(error, 'detail', 'failed')}"
    return Response(HttpProblem(status, message).body(), status, media_type="application/json")
