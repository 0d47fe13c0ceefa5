"""The command line: `agentbatch`. A table for people or JSON on stdout; progress, notes and errors on stderr."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

USER_ERROR = 2
INTERRUPTED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Status 0, 2 for what the user can mend (one line on stderr says how), 130 after Ctrl-C, 143 after SIGTERM.

    Args:
        arguments: of the command line, without the program's name; by default this process's own.
    """
    with _terminated_like_interrupted() as terminated:
        try:
            status = _run(arguments)
        except KeyboardInterrupt:
            status = INTERRUPTED
    sys.exit(128 + signal.SIGTERM if terminated and status == INTERRUPTED else status)


def _run(arguments: Sequence[str] | None) -> int:
    from agentbatch.cli.app import app  # noqa: PLC0415 - typer and rich load only when a command runs
    from agentbatch.errors import AgentBatchError  # noqa: PLC0415 - likewise
    from agentbatch.report.console import complain  # noqa: PLC0415 - likewise

    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # replaced by something that is no text file
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # suppressed above
    try:
        status = app(None if arguments is None else list(arguments), prog_name="agentbatch", standalone_mode=False)
    except AgentBatchError as error:
        complain(str(error))
        return USER_ERROR
    except Exception as error:
        # typer's own complaints are click's, which it has vendored since 0.2x: no one name imports them everywhere
        if not hasattr(error, "format_message"):
            if type(error).__name__ == "Abort":
                return INTERRUPTED
            raise
        if advice := _advice(error, sys.argv[1:] if arguments is None else arguments):
            complain(advice)
        return USER_ERROR
    return status if isinstance(status, int) else 0


def _advice(error: Exception, arguments: Sequence[str]) -> str:
    from agentbatch.cli.app import app  # noqa: PLC0415 - see _run

    message = str(error.format_message()).rstrip(".")  # type: ignore[attr-defined]  # click's, checked by the caller
    command = getattr(getattr(error, "ctx", None), "command_path", None)
    if command is None:  # an option without its value knows of no command
        names = {one.callback.__name__ for one in app.registered_commands if one.callback}
        command = " ".join(["agentbatch", *(name for name in arguments[:1] if name in names)])
    return f"{message}; see {command} --help" if message else ""  # the help was shown instead


@contextmanager
def _terminated_like_interrupted() -> Iterator[list[int]]:
    """Let SIGTERM end a command as Ctrl-C does, in order; the list yielded tells whether one came."""
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield received  # Ctrl-C does nothing here, as under nohup: then SIGTERM must go on to kill
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)
