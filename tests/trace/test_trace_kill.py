"""Recorders in processes of their own: killed in mid-write, or stopped by the system."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from agentbatch.events import RunStarted
from agentbatch.trace import read_run

ROOT = Path(__file__).parents[2]


def run_script(folder: Path, text: str) -> str:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, script, folder]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_file_size_limit_of_the_system_leaves_a_record_that_reads(tmp_path: Path) -> None:
    run_script(
        tmp_path,
        """
        import resource, sys
        from pathlib import Path
        from trace_events import run_started, turn
        from agentbatch.trace import Recorder

        failures = []
        recorder = Recorder(Path(sys.argv[1]) / "run.jsonl", on_error=failures.append)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        recorder.write(run_started())
        for number in range(100):
            recorder.write(turn("a", number, float(number), number + 1.0))
        recorder.close()
        assert len(failures) == 1, failures
        assert recorder.statistics().events + recorder.statistics().dropped == 101
        """,
    )
    run = read_run(tmp_path / "run.jsonl")
    assert run.torn is None
    assert 10 < len(run.events) < 30


KILLED_WRITER = """
    import mmap, os, signal, struct, sys
    from pathlib import Path
    from trace_events import run_started, turn
    from agentbatch.trace import Recorder

    progress = mmap.mmap(-1, 16)  # events begun, events done
    for kill in range(50):
        progress[:] = bytes(16)
        pid = os.fork()
        if pid == 0:
            recorder = Recorder(Path(sys.argv[1]) / f"{kill}.jsonl")
            recorder.write(run_started())
            number = 0
            while True:
                number += 1
                progress[:8] = struct.pack("Q", number)
                recorder.write(turn("a", number, float(number), number + 1.0, error="x" * 100 * (kill * number % 997)))
                progress[8:] = struct.pack("Q", number)
        while struct.unpack("Q", progress[8:])[0] < 1 + kill * 7 % 60:
            pass
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        print(*struct.unpack("QQ", progress[:]))
"""


def test_kill_9_in_mid_write_loses_one_event_at_most_and_doubles_none(tmp_path: Path) -> None:
    """Case 29, NousResearch/hermes-agent#112575: a torn last line broke the resumption of a run."""
    counts = run_script(tmp_path, KILLED_WRITER).split("\n")[:-1]
    assert len(counts) == 50
    for kill, line in enumerate(counts):
        begun, done = map(int, line.split())
        run = read_run(tmp_path / f"{kill}.jsonl")
        first, *turns = run.events
        assert isinstance(first, RunStarted)
        assert [event.turn for event in turns] == list(range(1, len(turns) + 1))
        assert done <= len(turns) <= begun <= done + 1
        assert run.duplicates == ()
