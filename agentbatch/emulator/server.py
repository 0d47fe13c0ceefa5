"""Emulated workers in the running event loop, for as long as a `with` block lasts."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import anyio
import uvicorn

from agentbatch.emulator.app import WorkerApp
from agentbatch.emulator.engine import Engine
from agentbatch.emulator.script import Script, load_script
from agentbatch.emulator.settings import Settings
from agentbatch.errors import StartUpError, UsageError
from agentbatch.sim import DEFAULT_PRESET, Worker, WorkerStatistics

_BACKLOG = 4096
_KEEP_ALIVE_S = 3600  # a pooled connection must not be closed under a client between two turns
_STOP_S = 2


class Emulator:
    """Running workers; `urls` are their base URLs for an OpenAI client, in order of worker."""

    def __init__(self, settings: Settings, urls: list[str], apps: list[WorkerApp]) -> None:
        self.settings = settings
        self.urls = urls
        self._apps = apps

    @property
    def speedup(self) -> float:
        """Trace seconds per wall second."""
        return self.settings.speedup

    def statistics(self) -> tuple[WorkerStatistics, ...]:
        """Return each worker's statistics."""
        return tuple(app.engine.worker.statistics() for app in self._apps)

    def peak_in_flight(self) -> tuple[int, ...]:
        """Return the most requests that each worker had inside at once."""
        return tuple(app.ledger.peak_in_flight for app in self._apps)

    def __repr__(self) -> str:
        return f"<Emulator {' '.join(self.urls)} speedup={self.speedup:g}>"


@contextlib.asynccontextmanager
async def serve(
    *,
    workers: int = 2,
    base_port: int = 0,
    speedup: float = 60.0,
    preset: str = DEFAULT_PRESET,
    schedule_policy: str = "fcfs",
    kv_tokens: int | None = None,
    state_slots: int | None = None,
    script: Script | None = None,
    host: str = "127.0.0.1",
    token: str | None = None,
) -> AsyncIterator[Emulator]:
    """Host emulated workers in this asyncio loop; yields once every one of them accepts connections.

    Args:
        script: asked for the reply to each chat completion first; see `Script`. It runs in the event loop.
        workers, base_port, speedup, preset, schedule_policy, kv_tokens, state_slots, host, token: see
            `Settings`.

    Raises:
        UsageError: a value out of range, or no asyncio loop runs (on trio use `spawn`).
        StartUpError: a port is in use or the host is none of this machine's.
    """
    settings = Settings(
        workers=workers, base_port=base_port, speedup=speedup, preset=preset, schedule_policy=schedule_policy,
        kv_tokens=kv_tokens, state_slots=state_slots, host=host, token=token,
    )
    async with serve_settings(settings, script) as emulator:
        yield emulator


@contextlib.asynccontextmanager
async def serve_settings(settings: Settings, script: Script | None = None) -> AsyncIterator[Emulator]:
    """Do as `serve`, from settings; a script file named there is used when no callable is given."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError("serve() runs inside asyncio; on trio or in plain code use spawn()") from None
    if script is None and settings.script is not None:
        script = load_script(settings.script)
    sockets = _bind(settings.host, settings.base_port, settings.workers)
    apps, servers = [], []
    for index in range(settings.workers):
        app = WorkerApp(settings, index, Engine(Worker(settings.config()), settings.speedup), script)
        apps.append(app)
        servers.append(_Server(uvicorn.Config(
            app, lifespan="off", ws="none", log_config=None, log_level="critical", access_log=False,
            server_header=False, date_header=False, proxy_headers=False, backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S, timeout_graceful_shutdown=_STOP_S,
        )))
    urls = [f"http://{_literal(sock)}/v1" for sock in sockets]
    tasks = [asyncio.create_task(server.serve([sock])) for server, sock in zip(servers, sockets, strict=True)]
    try:
        for server, task in zip(servers, tasks, strict=True):
            await server.ready.wait()
            if not server.started:
                await task  # tells why
        yield Emulator(settings, urls, apps)
    finally:
        for app, server in zip(apps, servers, strict=True):
            app.engine.close()
            server.should_exit = True
        with anyio.CancelScope(shield=True):
            await asyncio.wait(tasks)  # unlike gather, leaves them to their shut-down if cancelled again


class _Server(uvicorn.Server):
    """uvicorn that leaves the process's signals alone and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.ready.set()


def _bind(host: str, base_port: int, workers: int) -> list[socket.socket]:
    """Listen on every port before anything runs, so that a conflict costs nothing."""
    sockets: list[socket.socket] = []
    port = base_port
    try:
        for index in range(workers):
            port = base_port + index if base_port else 0
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            # asyncio sets TCP_NODELAY only where the protocol is named; without it streams stall by 40 ms
            sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(_BACKLOG)
            sock.setblocking(False)
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise StartUpError(
            f"cannot listen on {host}:{port}: {error.strerror or error}. Stop what uses the port, choose "
            f"another base port, or use base port 0 to let the system choose"
        ) from error
    return sockets


def _literal(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
