"""A causal model that computes nothing: the next token follows from the length, a step's time from a formula.

STUB_COST = "step_ms,prefill_token_us,decode_row_us": a prefill step takes step + tokens · prefill_token, a decode step
step + rows · decode_row.
"""

import os

import torch
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from torch import nn

from agentbatch_stub_models.pace import PACE

STEP_MS, PREFILL_TOKEN_US, DECODE_ROW_US = (float(part) for part in os.environ["STUB_COST"].split(","))


class Stub(nn.Module):
    """What SGLang's model runner asks of a model, and no more."""

    shared_experts_config = None

    def __init__(self, config, quant_config=None, prefix=""):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.zeros(1), requires_grad=False)

    def load_weights(self, weights):
        """Take none: there is nothing to load."""

    @torch.no_grad()
    def forward(self, input_ids, positions, forward_batch, *args, **kwargs):
        """Sleep as long as the step would take; make the next token 40 + (7919 · length + 13) mod 50."""
        rows = forward_batch.batch_size
        if forward_batch.forward_mode.is_extend():
            seconds = STEP_MS * 1e-3 + PREFILL_TOKEN_US * 1e-6 * input_ids.shape[0]
        else:
            seconds = STEP_MS * 1e-3 + DECODE_ROW_US * 1e-6 * rows
        PACE.step(seconds)
        following = 40 + (forward_batch.seq_lens[:rows].to(torch.int64) * 7919 + 13) % 50
        logits = torch.full((rows, self.config.vocab_size), -1e4, dtype=torch.float32)
        logits[torch.arange(rows), following.cpu()] = 0.0
        return LogitsProcessorOutput(next_token_logits=logits)


EntryClass = [type(name, (Stub,), {}) for name in ("KimiLinearForCausalLM", "LlamaForCausalLM")]
