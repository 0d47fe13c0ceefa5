"""SGLang plugin of these tests: the real server on CPU with a stubbed forward pass, and a log of what it decided.

Everything else (HTTP, tokenizer, scheduler, caches, pools, sampler, detokenizer) is SGLang's own code.
STUB_LOG names the file to log to, one JSON object a line, written by the scheduler process:
    {"at": "admit", "s": ..., "rids": [[rid, cached, new], ...], "waiting": n, ...}   a prefill step, levels after it
    {"at": "evict", "s": ..., "tokens": n, "states": n}                               one eviction from the tree
    {"at": "retract", "s": ..., "rids": [rid, ...]}                                   running requests sent back
"""

import json
import os
import time

from agentbatch_stub_models.pace import PACE


def activate():
    """Register the hooks; SGLang applies them before it starts."""
    import torch
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    # CPU is not on SGLang's list for extra_buffer (mamba_hook.py:101); the stub model has no state to lose.
    HookRegistry.register(
        "sglang.srt.arg_groups.mamba_hook._platform_supports_mamba_cache_extra_buffer", lambda: True, HookType.REPLACE
    )
    # There are no linear-attention kernels here: leave the full-attention backend bare.
    HookRegistry.register(
        "sglang.srt.layers.attention.attention_registry.attn_backend_wrapper",
        lambda runner, full_attn_backend: full_attn_backend,
        HookType.REPLACE,
    )
    if not torch.cuda.is_available():  # pinning raises without an accelerator
        torch.Tensor.pin_memory = lambda self, *args, **kwargs: self

    HookRegistry.register("sglang.srt.managers.scheduler.Scheduler.on_idle", idle, HookType.AFTER)
    path = os.environ.get("STUB_LOG")
    if path:
        log = Log(path)
        for target, hook in (
            ("managers.scheduler.Scheduler.get_new_batch_prefill", log.admitted),
            ("managers.schedule_batch.ScheduleBatch.retract_decode", log.retracted),
            ("mem_cache.unified_radix_cache.UnifiedRadixCache._evict", log.evicted),
        ):
            HookRegistry.register(f"sglang.srt.{target}", hook, HookType.AFTER)


def idle(result, *args, **kwargs):
    """The scheduler found nothing to do."""
    PACE.idle()


class Log:
    """Appends what the scheduler did; every hook returns None, which leaves SGLang's own result as it is."""

    def __init__(self, path):
        self.path = path
        self.file = None

    def write(self, at, **fields):
        """Write one line; opened here, so that only the process that schedules holds the file."""
        if self.file is None:
            self.file = open(self.path, "a", buffering=1)  # noqa: SIM115 - as long as the process
        self.file.write(json.dumps({"at": at, "s": time.monotonic(), **fields}) + "\n")

    def admitted(self, plan, scheduler, *args, **kwargs):
        """A prefill step was put together."""
        batch = getattr(plan, "batch_to_run", plan)
        if batch is not None:
            rids = [[req.rid, req.prefix_len, req.extend_end - req.prefix_len] for req in batch.reqs]
            self.write(
                "admit", rids=rids, waiting=len(scheduler.waiting_queue), running=len(plan.running_batch.reqs),
                free_states=scheduler.req_to_token_pool.mamba_allocator.available_size(),
                cached_states=scheduler.tree_cache.mamba_evictable_size(),
                locked_states=scheduler.tree_cache.mamba_protected_size(), late_s=PACE.late_s,
            )
            PACE.late_s = 0.0

    def retracted(self, result, batch, *args, **kwargs):
        """Running requests were sent back."""
        self.write("retract", rids=[req.rid for req in result[0]])

    def evicted(self, result, *args, **kwargs):
        """The tree gave back KV tokens or states."""
        if result.num_tokens_evicted or result.mamba_num_evicted:
            self.write("evict", tokens=result.num_tokens_evicted, states=result.mamba_num_evicted)
