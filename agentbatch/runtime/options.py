"""What a batch was asked for, checked before anything runs."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast, get_args

import agentbatch
from agentbatch.errors import UsageError
from agentbatch.events import RunStarted
from agentbatch.policy.admission import Admission, AdmissionOrder
from agentbatch.policy.caas import Band, EnvironmentOrder, EnvironmentPolicy, environment_policies
from agentbatch.policy.lbch import Routing
from agentbatch.runtime.checks import check_seconds, is_number
from agentbatch.runtime.retry import RetryPolicy

DEFAULT_RESOURCE = "default"

Profile = str | os.PathLike[str] | Mapping[str, float] | None
"""Seconds by task key, or the file that tells them: a run's record or a trace."""


def check_limit(name: str, value: object) -> int:
    """Return `value` if it is a whole number of at least 1.

    Raises:
        UsageError: it is not; the message names the limit.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name} must be a whole number of at least 1, not {value!r}")
    if value < 1:
        raise UsageError(f"{name} must be at least 1, not {value}: with no slot nothing could ever run")
    return value


def check_resources(ce: int | Mapping[str, int]) -> dict[str, int]:
    """Return the environment limits by resource name; a plain number is the limit of `default`."""
    if not isinstance(ce, Mapping):
        return {DEFAULT_RESOURCE: check_limit("ce", ce)}
    if not ce:
        raise UsageError('ce names no resource: give a number, or a mapping such as {"default": 8, "slack": 1}')
    for name in ce:
        if not isinstance(name, str) or not name:
            raise UsageError(f"a resource name must be a non-empty string, not {name!r}")
    return {name: check_limit(f"ce[{name!r}]", limit) for name, limit in ce.items()}


def check_timeouts(value: float | Mapping[str, float] | None, resources: Mapping[str, int]) -> dict[str, float]:
    """Return the environment time-outs by resource name; a plain number holds for all of them."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return dict.fromkeys(resources, check_seconds("environment_timeout_s", value))
    for name in value:
        if name not in resources:
            raise UsageError(f"environment_timeout_s names {name!r}, which is no resource of ce: {sorted(resources)}")
    return {name: check_seconds(f"environment_timeout_s[{name!r}]", limit) for name, limit in value.items()}


def check_headers(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of further headers that carry the label."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise UsageError(f"label_headers takes a list of names, such as ['X-Session-ID'], not {names!r}")
    for name in names:
        if not isinstance(name, str) or not _HEADER.fullmatch(name) or name.lower() in _NOT_FOR_LABELS:
            raise UsageError(f"label_headers: {name!r} cannot carry a label; such as 'X-Session-ID' can")
    return tuple(names)


def check_order(env_policy: str, band_s: Band | None, bucket_s: float) -> EnvironmentOrder:
    """Return the order of environment jobs."""
    if env_policy not in get_args(EnvironmentPolicy):
        raise UsageError(f"env_policy must be {environment_policies()}, not {env_policy!r}")
    if isinstance(band_s, str):
        if band_s != "auto":
            raise UsageError(f"band_s must be a positive number of seconds or 'auto', not {band_s!r}")
    elif band_s is not None:
        check_seconds("band_s", band_s)
    check_seconds("bucket_s", bucket_s)
    try:
        return EnvironmentOrder(policy=cast(EnvironmentPolicy, env_policy), band_s=band_s, bucket_s=bucket_s)
    except ValueError as error:
        raise UsageError(str(error)) from error


def check_admission(admission: str, profile: Profile) -> AdmissionOrder:
    """Return the order of admission; reads the profile where it is a file.

    Raises:
        UsageError: an unknown order, longest first without a profile, or a profile that cannot be.
        TraceError: the file is no profile.
    """
    seconds: dict[str, float] | None = None
    if isinstance(profile, str | os.PathLike):
        if admission == "longest-first":  # else it is refused below, whatever it holds
            from agentbatch.trace.profile import read_profile  # noqa: PLC0415 - few batches have a profile

            seconds = read_profile(profile)
        else:
            seconds = {}
    elif isinstance(profile, Mapping):
        seconds = {str(key): value for key, value in profile.items()}
        if len(seconds) < len(profile):
            raise UsageError("two keys of the profile read the same as text: give each task its own")
    elif profile is not None:
        raise UsageError(f"profile must be a path or a mapping from task key to seconds, not {profile!r}")
    try:
        return AdmissionOrder(cast(Admission, admission), seconds)
    except ValueError as error:
        raise UsageError(str(error)) from error


_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_NOT_FOR_LABELS = frozenset(
    {"authorization", "host", "content-type", "content-length", "transfer-encoding", "connection", "cookie", "accept"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchOptions:
    """The checked options of one batch; see `AgentBatch` for their meaning."""

    run: str
    cs: int
    ce: Mapping[str, int]
    unified: bool
    order: EnvironmentOrder
    admission: AdmissionOrder
    base_urls: tuple[str, ...]
    api_key: str = field(repr=False)
    retries: RetryPolicy
    timeout_s: float
    turn_timeout_s: float | None
    environment_timeout_s: Mapping[str, float]
    trajectory_timeout_s: float | None
    label_headers: tuple[str, ...]
    routing: Routing
    alpha: float

    def check_resize(self, cs: int | None, ce: int | Mapping[str, int] | None) -> dict[str, int]:
        """Return the new environment limits by resource name.

        Raises:
            UsageError: nothing to change, a limit below 1, a resource that the batch does not have, or a unified batch.
        """
        if cs is None and ce is None:
            raise UsageError("resize() changes nothing: give cs=, ce= or both")
        if self.unified:
            raise UsageError("a unified batch has one limit for both, CS = CE: make one without unified=True to resize")
        if cs is not None:
            check_limit("cs", cs)
        limits = {} if ce is None else check_resources(ce)
        for name in limits.keys() - self.ce.keys():
            raise UsageError(f"no environment resource {name!r}: resize() changes limits, it has {', '.join(self.ce)}")
        return limits

    def started(self, *, speedup: float, started_unix_s: float) -> RunStarted:
        """Build the first event of a run that was asked for like this."""
        return RunStarted(
            run=self.run,
            version=agentbatch.__version__,
            started_unix_s=started_unix_s,
            cs=self.cs,
            ce=dict(self.ce),
            unified=self.unified,
            env_policy=self.order.policy,
            band_s=self.order.band_in_force,
            bucket_s=self.order.bucket_s,
            speedup=speedup,
            workers=self.base_urls,
            routing=self.routing,
            alpha=float(self.alpha),
            admission=self.admission.admission,
        )


def check_options(
    *,
    run: str | None,
    cs: int,
    ce: int | Mapping[str, int],
    unified: bool,
    env_policy: str,
    band_s: Band | None,
    bucket_s: float,
    admission: str,
    profile: Profile,
    base_url: str | Sequence[str] | None,
    api_key: str | None,
    retries: int | RetryPolicy,
    timeout_s: float,
    turn_timeout_s: float | None,
    environment_timeout_s: float | Mapping[str, float] | None,
    trajectory_timeout_s: float | None,
    label_headers: Sequence[str],
    routing: str,
    alpha: float,
) -> BatchOptions:
    """Check every option that can be checked without running anything.

    Raises:
        UsageError: an option is out of range; the message says what would do.
    """
    limits = check_resources(ce)
    slots = check_limit("cs", cs)
    order = check_order(env_policy, band_s, bucket_s)
    if not isinstance(retries, RetryPolicy):
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise UsageError(f"retries must be a whole number of at least 0 or a RetryPolicy, not {retries!r}")
        retries = RetryPolicy(attempts=1 + retries)
    if routing not in get_args(Routing):
        raise UsageError(f"routing must be {', '.join(map(repr, get_args(Routing)))}, not {routing!r}")
    if not is_number(alpha) or not 1 <= alpha < float("inf"):
        raise UsageError(f"alpha must be a number of at least 1, not {alpha!r}: below it no worker may be eligible")
    urls: Sequence[str]
    if base_url is None:
        from_env = os.environ.get("OPENAI_BASE_URL")
        urls = [from_env] if from_env else []
    else:
        urls = [base_url] if isinstance(base_url, str) else list(base_url)
        if not urls:
            raise UsageError("base_url is empty: give the server's OpenAI-compatible URL, or leave it out")
    return BatchOptions(
        run=secrets.token_hex(4) if run is None else run,
        cs=min(slots, *limits.values()) if unified else slots,
        ce=limits,
        unified=unified,
        order=order,
        admission=check_admission(admission, profile),
        base_urls=tuple(urls),
        api_key=api_key or os.environ.get("OPENAI_API_KEY") or "EMPTY",
        retries=retries,
        timeout_s=check_seconds("timeout_s", timeout_s),
        turn_timeout_s=None if turn_timeout_s is None else check_seconds("turn_timeout_s", turn_timeout_s),
        environment_timeout_s=check_timeouts(environment_timeout_s, limits),
        trajectory_timeout_s=(
            None if trajectory_timeout_s is None else check_seconds("trajectory_timeout_s", trajectory_timeout_s)
        ),
        label_headers=check_headers(label_headers),
        routing=cast(Routing, routing),
        alpha=alpha,
    )
