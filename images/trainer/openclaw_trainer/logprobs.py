"""Logprobs of answers: log_softmax(logits / T), the convention of the engine and of every loss here.

T is the turn's sampling temperature (1 for greedy). Prox, θ, reference and teacher all come from `forward`.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from openclaw_trainer.batch import Batch


@dataclass(frozen=True)
class Scored:
    """Logprobs of the answer's tokens; entropy of each position's distribution where it was asked for."""

    logprobs_B_T: Tensor
    entropy_B_T: Tensor | None


def forward(model: Any, batch: Batch, *, entropy: bool = False) -> Scored:
    """One forward pass; float32 results. Values on padding are finite and meaningless."""
    first = batch.ids_B_PT.shape[1] - batch.answer_B_T.shape[1]
    # The column before a token predicts it. An index instead of a count gives contiguous rows: one matrix product for
    # the vocabulary instead of a slow batched one.
    columns_T = torch.arange(first - 1, batch.ids_B_PT.shape[1] - 1, device=batch.ids_B_PT.device)
    logits_B_T_V = model(
        input_ids=batch.ids_B_PT,
        attention_mask=batch.attention_B_PT,
        position_ids=batch.positions_B_PT,
        use_cache=False,
        logits_to_keep=columns_T,
    ).logits
    scaled_B_T_V = logits_B_T_V.float() / batch.temperature_B[:, None, None]
    logprobs = -F.cross_entropy(scaled_B_T_V.flatten(0, 1), batch.answer_B_T.flatten(), reduction="none")
    return Scored(logprobs.view_as(batch.mask_B_T), _entropy(scaled_B_T_V) if entropy else None)


def _entropy(scaled_B_T_V: Tensor) -> Tensor:
    """H = −Σ p log p."""
    log_p = torch.log_softmax(scaled_B_T_V, dim=-1)
    return -(log_p.exp() * log_p).sum(-1)
