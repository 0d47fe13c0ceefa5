"""Options and limits that cannot be: refused before anything runs, with what to do."""

import subprocess
import sys

import anyio
import pytest

from agentbatch import AgentBatch, StartUpError, UsageError


def test_bad_options_are_refused_before_anything_runs() -> None:
    for options, match in [
        ({"cs": 0}, "cs must be at least 1"),
        ({"cs": True}, "cs must be a whole number"),
        ({"cs": 2.5}, "cs must be a whole number"),
        ({"ce": -1}, "ce must be at least 1"),
        ({"ce": {}}, "names no resource"),
        ({"ce": {"slack": 0}}, r"ce\['slack'\] must be at least 1"),
        ({"env_policy": "lifo"}, "env_policy must be 'caas', 'fcfs', 'depth' or 'slow-step', not 'lifo'"),
        ({"band_s": "wide"}, "band_s must be a positive number of seconds or 'auto', not 'wide'"),
        ({"bucket_s": "auto"}, "bucket_s must be a positive number"),
        ({"admission": "lifo"}, "choose 'fifo' or 'longest-first'"),
        ({"admission": "longest-first"}, "longest-first needs a profile"),
        ({"profile": {"a": 1.0}}, "a profile is of no use to 'fifo'"),
        ({"profile": "no-such-file.jsonl"}, "a profile is of no use to 'fifo'"),
        ({"admission": "longest-first", "profile": {}}, "the profile is empty"),
        ({"admission": "longest-first", "profile": {"a": -1}}, "finite and 0 or more, not -1 for 'a'"),
        ({"admission": "longest-first", "profile": {1: 1.0, "1": 2.0}}, "two keys of the profile read the same"),
        ({"admission": "longest-first", "profile": ["a"]}, "profile must be a path or a mapping"),
        ({"band_s": 0.0}, "band_s"),
        ({"band_s": 10**400}, "band_s"),  # an int that is no float
        ({"speedup": 0.0}, "speedup"),
        ({"retries": -1}, "retries"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"base_url": []}, "base_url is empty"),
        ({"base_url": "localhost:1"}, "http://"),
        ({"base_url": ["http://a/v1", "http://a/v1/"]}, "twice"),
        ({"base_url": ["http://a/v1", "http://b/v1"], "alpha": 0.5}, "alpha"),
        ({"base_url": ["http://a/v1", "http://b/v1"], "alpha": float("inf")}, "alpha"),
        ({"alpha": "1.25"}, "alpha"),
        ({"speedup": "2"}, "speedup"),
        ({"bucket_s": None}, "bucket_s"),
        ({"label_headers": None}, "label_headers"),
        ({"routing": "round-robin"}, "routing must be 'lbch', 'consistent-hash', 'random', not 'round-robin'"),
    ]:
        with pytest.raises(UsageError, match=match):
            AgentBatch(**{"cs": 1, "ce": 1, **options})  # type: ignore[arg-type]


def test_too_few_file_descriptors_for_cs_is_a_start_up_error() -> None:
    """daiv#1368: file descriptors ran out in mid-batch."""
    code = (
        "import resource, anyio, agentbatch\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
        "async def main():\n"
        "    async with agentbatch.AgentBatch(cs=400, ce=3, base_url='http://127.0.0.1:9/v1'):\n"
        "        print('ran')\n"
        "try:\n    anyio.run(main)\nexcept agentbatch.StartUpError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    assert "RLIMIT_NOFILE is 256" in done.stdout
    assert "ulimit -n 464" in done.stdout
    assert "ran" not in done.stdout


def test_an_unreachable_server_is_a_start_up_error() -> None:
    async def main() -> None:
        async with AgentBatch(cs=1, ce=1, base_url="http://127.0.0.1:9/v1"):
            raise AssertionError("must not start")

    with pytest.raises(StartUpError, match=r"cannot reach http://127.0.0.1:9/v1.*is the server running"):
        anyio.run(main)
