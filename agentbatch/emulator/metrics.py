"""Prometheus text of one worker, under the names that SGLang 0.5.23 uses."""

from __future__ import annotations

from agentbatch.sim import WorkerStatistics


def prometheus(stats: WorkerStatistics, *, model: str, hybrid: bool) -> str:
    """Return the exposition text.

    Args:
        stats: one worker's statistics.
        model: value of the `model_name` label.
        hybrid: whether to tell of the recurrent-state pool; `mamba_*_tokens` count slots, as in SGLang.
    """
    used = stats.kv_total - stats.kv_free - stats.kv_evictable
    reuse = stats.hit_tokens / stats.input_tokens if stats.input_tokens else 0.0
    gauges = {
        "num_running_reqs": stats.running,
        "num_queue_reqs": stats.waiting,
        "num_used_tokens": used,
        "max_total_num_tokens": stats.kv_total,
        "token_usage": used / stats.kv_total,
        "full_token_usage": used / stats.kv_total,
        "cache_hit_rate": reuse,
    }
    if hybrid:
        gauges |= {
            "mamba_usage": (stats.states_held + stats.states_cached) / stats.states_total,
            "mamba_available_tokens": stats.states_total - stats.states_held - stats.states_cached,
            "mamba_evictable_tokens": stats.states_evictable,
            "mamba_used_tokens": stats.states_total - stats.states_evictable - (
                stats.states_total - stats.states_held - stats.states_cached),
        }
    counters = {
        "prompt_tokens_total": stats.input_tokens,
        "generation_tokens_total": stats.output_tokens,
        "cached_tokens_total": stats.hit_tokens,
        "num_requests_total": stats.finished,
        "num_aborted_requests_total": stats.aborted,
        "evicted_tokens_total": stats.evicted_tokens,
        "num_retracted_requests_total": stats.retractions,
    }
    lines = []
    for kind, values in (("gauge", gauges), ("counter", counters)):
        for name, value in values.items():
            lines.append(f"# TYPE sglang:{name} {kind}")
            lines.append(f'sglang:{name}{{model_name="{model}"}} {float(value)}')
    return "\n".join(lines) + "\n"
