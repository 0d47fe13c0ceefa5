"""A bare OpenAI-shaped server in a process of its own: a fixed reply after a fixed delay, and the peak in flight.

Raw protocol, no framework, so that what is measured is the client. `python -m benchmarks.echo DELAY_S` prints its port.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.request import urlopen

REPLY = json.dumps(
    {
        "id": "echo",
        "object": "chat.completion",
        "created": 1,
        "model": "echo",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "done"}}],
        "usage": {
            "prompt_tokens": 64,
            "completion_tokens": 8,
            "total_tokens": 72,
            "prompt_tokens_details": {"cached_tokens": 32},
        },
    }
).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
ANSWER = HEAD % len(REPLY) + REPLY


class Gauge:
    """Requests in flight, and the most there ever were."""

    now = peak = total = 0


class Echo(asyncio.Protocol):
    """One connection; requests on it come one after the other."""

    def __init__(self, delay_s: float, gauge: Gauge) -> None:
        self.delay_s = delay_s
        self.gauge = gauge
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to answer on."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer once a whole request is in."""
        self.buffer += data
        head, blank, rest = self.buffer.partition(b"\r\n\r\n")
        if not blank:
            return
        lower = head.lower()
        at = lower.find(b"content-length:")
        length = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(rest) < length:
            return
        self.buffer = rest[length:]
        if head.startswith(b"GET"):
            gauge = self.gauge
            body = json.dumps({"peak": gauge.peak, "total": gauge.total, "data": []}).encode()
            self.transport.write(HEAD % len(body) + body)
            return
        self.gauge.now += 1
        self.gauge.total += 1
        self.gauge.peak = max(self.gauge.peak, self.gauge.now)
        if self.delay_s:
            asyncio.get_running_loop().call_later(self.delay_s, self.answer)
        else:
            self.answer()

    def answer(self) -> None:
        """Send the reply."""
        self.gauge.now -= 1
        self.transport.write(ANSWER)


async def serve(delay_s: float) -> None:
    gauge = Gauge()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Echo(delay_s, gauge), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until the parent closes the pipe, or dies


@contextmanager
def echo_server(delay_s: float) -> Iterator[str]:
    """Run the server in a child process; yields its base URL."""
    command = [sys.executable, "-m", "benchmarks.echo", str(delay_s)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{child.stdout.readline().strip()}/v1"
    finally:
        child.stdin.close()
        child.wait(10)
        child.stdout.close()


def peak_in_flight(base_url: str) -> int:
    """Return the most requests that the server saw at once."""
    with urlopen(f"{base_url}/models") as reply:
        return json.load(reply)["peak"]


if __name__ == "__main__":
    with suppress(ImportError):
        import uvloop

        uvloop.install()
    asyncio.run(serve(float(sys.argv[1])))
