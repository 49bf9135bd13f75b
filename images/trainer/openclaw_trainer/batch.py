"""Samples as padded tensors.

Axes: B samples, P prompt tokens, T answer tokens. Rows are aligned where the prompt ends and the answer begins (prompt
padded on the left, answer on the right), so that the logits of every answer are the same last T+1 columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from openclaw_core import staleness
from openclaw_core.versions import WeightVersion
from openclaw_core.wire import Sample


@dataclass(frozen=True)
class Batch:
    """One micro batch on the trainer's device."""

    ids_B_PT: Tensor
    attention_B_PT: Tensor
    positions_B_PT: Tensor
    answer_B_T: Tensor
    mask_B_T: Tensor
    """1.0 on answer tokens, 0.0 on padding."""
    rollout_B_T: Tensor
    """The engine's logprobs, 0.0 on padding."""
    temperature_B: Tensor
    advantage_B: Tensor
    lag_B: Tensor


def temperature(sample: Sample) -> float:
    """Temperature of the sample's logprobs: its own, or 1 where decoding was greedy (0)."""
    return sample.sampling.temperature or 1.0


def tokens(sample: Sample) -> int:
    return len(sample.prompt_ids) + len(sample.output_ids)


def lag(sample: Sample, step_starts_from: int) -> int:
    """Versions between the sample's oldest span and the version the step starts from."""
    return staleness.lag(step_starts_from, [WeightVersion.parse(span.version).number for span in sample.spans])


def collate(samples: Sequence[Sample], advantages: Sequence[float], lags: Sequence[int], device: torch.device) -> Batch:
    """Pad and stack. ValueError when a sample's logprobs do not match its tokens."""
    for sample in samples:
        if len(sample.rollout_logprobs) != len(sample.output_ids) or not sample.output_ids:
            raise ValueError(f"sample {sample.id} has {len(sample.output_ids)} tokens, other logprobs")
    prompt = max(len(sample.prompt_ids) for sample in samples)
    answer = max(len(sample.output_ids) for sample in samples)
    prompts = torch.tensor([_left(sample.prompt_ids, prompt) for sample in samples])
    answers = torch.tensor([_right(sample.output_ids, answer) for sample in samples])
    attention = torch.tensor(
        [[0] * (prompt - len(s.prompt_ids)) + _right([1] * tokens(s), len(s.prompt_ids) + answer) for s in samples]
    )
    return Batch(
        ids_B_PT=torch.cat([prompts, answers], dim=1).to(device),
        attention_B_PT=attention.to(device),
        positions_B_PT=(attention.cumsum(1) - 1).clamp(min=0).to(device),
        answer_B_T=answers.to(device),
        mask_B_T=torch.tensor([_right([1.0] * len(s.output_ids), answer) for s in samples]).to(device),
        rollout_B_T=torch.tensor([_right(s.rollout_logprobs, answer) for s in samples]).to(device),
        temperature_B=torch.tensor([temperature(sample) for sample in samples]).to(device),
        advantage_B=torch.tensor(list(advantages), dtype=torch.float32).to(device),
        lag_B=torch.tensor(list(lags)).to(device),
    )


def split(samples: Sequence[Sample], budget: int) -> list[list[int]]:
    """Indices of `samples` in micro batches of at most `budget` padded tokens (one sample always fits).

    Longest first, so that rows of a micro batch are alike and little is padding.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(samples)), key=lambda i: (-tokens(samples[i]), i)):
        if groups and _padded([samples[i] for i in (*groups[-1], index)]) <= budget:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _padded(samples: Sequence[Sample]) -> int:
    longest = max(len(s.prompt_ids) for s in samples) + max(len(s.output_ids) for s in samples)
    return longest * len(samples)


def _left(values: Sequence[int], length: int) -> list[int]:
    return [0] * (length - len(values)) + list(values)


def _right(values: Sequence[float], length: int) -> list[float]:
    """Padded with 0 of the values' own type: ids stay integers."""
    return [*values, *([type(values[0])(0)] * (length - len(values)))]
