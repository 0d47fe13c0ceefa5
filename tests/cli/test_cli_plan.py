"""`agentbatch plan`: a table for people, JSON for programs, one line for what cannot be."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, trajectory

LING: dict[str, Any] = {
    "architectures": ["BailingMoeV3ForCausalLM"], "num_hidden_layers": 42, "num_attention_heads": 32, "head_dim": 128,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "layer_group_size": 6, "short_conv_kernel_size": 4,
}  # fmt: skip
SAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "sample.jsonl"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration of a hybrid model."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LING))
    return path


@pytest.fixture
def model(config: Path) -> tuple[object, ...]:
    """Options that name that model and a deployment of it."""
    return "--model-config", config, "--tp", 4, "--cache-memory-gb", 70, "--workers", 2


def test_json_has_the_plan_and_nothing_else_is_printed(run: Run, trace: Path, model: tuple[object, ...]) -> None:
    ran = run("plan", trace, *model, "--mode", "no_buffer", "--json")
    assert (ran.status, ran.err) == (0, "")
    figures = ran.figures
    assert (figures["c_kv_bytes"], figures["c_state_bytes"], figures["s_state"]) == (8064, 18_995_200, 3)
    assert figures["l_kv_tokens"] == 425  # 400 + 10 number + 5, five of them
    assert figures["r_bal"] == figures["r_hat"] == pytest.approx(3 * 18_995_200 / (425 * 8064))
    assert figures["cs"] == 2 * figures["capacity_per_worker"]
    assert figures["ce"] == 5  # 25 s of stages in chains of 5 s, all five at once
    assert figures["calibration"] is None


def test_the_table_fits_80_columns_and_the_commands_can_be_copied(
    run: Run, trace: Path, model: tuple[object, ...]
) -> None:
    ran = run("plan", trace, *model)
    table, _, rest = ran.out.partition("each worker:\n")
    assert max(map(len, table.splitlines())) <= 80
    assert "BailingMoeV3ForCausalLM (MLA + KDA)" in table
    assert "CS: trajectories active at once" in table
    worker, _, rest = rest.partition("\nthe gateway:\n")
    figures = run("plan", trace, *model, "--json").figures
    words = shlex.split(worker.replace("\\\n", ""))
    assert words == ["python", "-m", "sglang.launch_server", "--model-path", "MODEL", *figures["sglang_args"]]
    gateway, notes = rest.split("note: ", 1)
    assert shlex.split(gateway.replace("\\\n", "")) == ["smg", *figures["gateway_args"]]
    assert notes.count("note: ") == len(figures["warnings"]) - 1


def test_one_worker_needs_no_gateway(run: Run, trace: Path, config: Path) -> None:
    ran = run("plan", trace, "--model-config", config, "--tp", 4, "--cache-memory-gb", 70)
    assert "the gateway" not in ran.out


def test_sizes_by_hand(run: Run, trace: Path, model: tuple[object, ...]) -> None:
    by_hand = ("--kv-bytes", 8064, "--state-bytes", 18_995_200, "--tp", 4, "--cache-memory-gb", 70, "--workers", 2)
    figures, same = run("plan", trace, *by_hand, "--json").figures, run("plan", trace, *model, "--json").figures
    assert figures["sglang_args"] == same["sglang_args"]
    assert figures["architecture"] == "sizes given by hand"
    without = run("plan", trace, "--kv-bytes", 8064, "--state-bytes", 0, "--cache-memory-gb", 70, "--json").figures
    assert (without["r_hat"], without["c_state_bytes"]) == (None, None)


def test_the_default_mode_is_what_sglang_does_by_itself(run: Run, trace: Path, model: tuple[object, ...]) -> None:
    figures = run("plan", trace, *model, "--json").figures
    assert (figures["mode"], figures["s_state"]) == ("extra_buffer", 5)
    assert run("plan", trace, *model, "--no-overlap", "--json").figures["s_state"] == 4


def test_a_users_own_ce(run: Run, trace: Path, model: tuple[object, ...]) -> None:
    assert run("plan", trace, *model, "--ce", 7, "--json").figures["ce"] == 7


def test_a_run_file_is_a_trace_too(run: Run, trace: Path, against: list[str], tmp_path: Path, config: Path) -> None:
    record = tmp_path / "run.jsonl"
    assert run("replay", trace, *against, "--record", record, "--json").status == 0
    model = ("--model-config", config, "--tp", 4, "--cache-memory-gb", 70, "--json")
    of_run, of_trace = run("plan", record, *model).figures, run("plan", trace, *model).figures
    for key in ("l_kv_tokens", "r_bal", "cs", "sglang_args", "trajectories"):
        assert of_run[key] == of_trace[key]


def test_calibration_simulates_each_ratio_and_shows_it(run: Run, tmp_path: Path, config: Path) -> None:
    path = tmp_path / "trace.jsonl"
    turns = [{"prompt_tokens": 4000 * n, "output_tokens": 50, "env_s": 1.0, "infer_s": 2.0} for n in range(1, 6)]
    path.write_text("".join(json.dumps(trajectory(f"t{n}", turns)) + "\n" for n in range(40)))
    asked = ("plan", path, "--model-config", config, "--tp", 4, "--cache-memory-gb", 2, "--workers", 2, "--calibrate")
    ran = run(*asked, "--json")
    assert ran.status == 0, ran
    found = ran.figures["calibration"]
    assert len({ratio for ratio, _ in found["tried"]}) == len(found["tried"]) > 3
    assert ran.figures["r_hat"] == found["ratio"]
    assert found["makespan_s"] <= found["balanced_makespan_s"]
    assert run(*asked, "--json").figures == ran.figures  # the same figures every time
    assert "makespan simulated at ratio" in run(*asked).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tp", 0), "--tp takes a whole number of at least 1, not 0"),
        (("--tp", 3), "32 heads of linear attention do not divide over --tp 3"),
        (("--tp", 10**9), "do not divide over --tp 1000000000: use --tp 1, 2, 4, 8, 16 or 32"),
        (("--workers", 10**9), "workers must be at most 10,000, not 1,000,000,000"),
        (("--workers", 0), "workers must be at least 1, not 0"),
        (("--cache-memory-gb", -5), "cache memory must be a positive number of GB, not -5"),
        (("--cache-memory-gb", 0), "cache memory must be a positive number of GB, not 0"),
        (("--cache-memory-gb", "nan"), "cache memory must be a positive number of GB, not nan"),
        (("--cache-memory-gb", 0.01), "0.01 GB of cache memory per GPU hold 0.10 of one trajectory"),
        (("--ce", 0), "ce must be at least 1, not 0"),
        (("--mode", "magic"), "'--mode'"),
        (("--mode", "extra_buffer_lazy", "--no-overlap"), "needs the overlap schedule"),
        (("--env-cap-s", -1), "env_cap_s must be 0 or more"),
        (("--kv-bytes", 8064), "one of them, and not both"),
        (("--preset", "h20-tp4-ling-3.0-flash"), "--preset is the engine of --calibrate"),
        (("--calibrate", "--preset", "tpu"), "unknown preset 'tpu'"),
    ],
)
def test_what_cannot_be_is_refused(
    run: Run, trace: Path, model: tuple[object, ...], arguments: tuple[object, ...], said: str
) -> None:
    assert said in run("plan", trace, *model, *arguments).complaint


def test_options_that_are_missing(run: Run, trace: Path, config: Path) -> None:
    assert "--cache-memory-gb" in run("plan", trace, "--model-config", config).complaint
    assert "give either --model-config FILE, or" in run("plan", trace, "--cache-memory-gb", 70).complaint
    assert "go together" in run("plan", trace, "--cache-memory-gb", 70, "--kv-bytes", 8064).complaint
    assert "must be at least 1" in run(
        "plan", trace, "--cache-memory-gb", 70, "--kv-bytes", 0, "--state-bytes", 1
    ).complaint  # fmt: skip


@pytest.mark.parametrize(("kv", "state"), [(10**400, 1), (8064, 10**400)])
def test_sizes_that_no_gpu_has(run: Run, trace: Path, kv: int, state: int) -> None:
    sizes = ("--kv-bytes", kv, "--state-bytes", state)
    assert "both at most 1000000000000" in run("plan", trace, "--cache-memory-gb", 70, *sizes).complaint


def test_files_that_do_not_do(run: Run, trace: Path, config: Path, tmp_path: Path) -> None:
    asked = ("--tp", 4, "--cache-memory-gb", 70)
    assert "none.json does not exist" in run("plan", trace, "--model-config", tmp_path / "none.json", *asked).complaint
    assert "does not exist" in run("plan", tmp_path / "none.jsonl", "--model-config", config, *asked).complaint
    config.write_text(json.dumps({**LING, "kv_lora_rank": None}))
    assert "has no kv_lora_rank" in run("plan", trace, "--model-config", config, *asked).complaint
    config.write_text(json.dumps({**LING, "architectures": ["Mystery"]}))
    assert "unknown architecture Mystery" in run("plan", trace, "--model-config", config, *asked).complaint
    config.write_text(json.dumps(LING))
    empty = tmp_path / "empty.jsonl"
    empty.write_text(json.dumps({"id": "a", "domain": "d", "turns": []}))
    assert "field turns: expected at least one entry" in run("plan", empty, "--model-config", config, *asked).complaint
    empty.write_text("")
    assert "holds no trajectory" in run("plan", empty, "--model-config", config, *asked).complaint


def test_the_sample(run: Run, model: tuple[object, ...]) -> None:
    figures = run("plan", SAMPLE, *model, "--json").figures
    assert figures["trajectories"] == 166
    assert figures["contexts"] > 1  # τ² runs have two
    assert run("plan", "sample", *model, "--json").figures == figures


def test_a_generated_workload_by_name(run: Run, model: tuple[object, ...]) -> None:
    """Spec §9: SWE-bench Multilingual has 289 trajectories and r_bal 0.09 on Ling-3.0-Flash, TP 4."""
    figures = run("plan", "swe", *model, "--mode", "no_buffer", "--json").figures
    assert figures["trajectories"] == 289
    assert figures["r_bal"] == pytest.approx(0.09, abs=0.005)


def test_help_teaches(run: Run) -> None:
    ran = run("plan", "--help")
    assert ran.status == 0
    assert "Try it" in ran.out
    assert "agentbatch plan examples/traces/sample.jsonl --model-config config.json" in " ".join(ran.out.split())
