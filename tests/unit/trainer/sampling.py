"""Samples a model really produced, with the logprobs an honest engine would report."""

import random
from typing import Any

import torch

from openclaw_core.wire import Sample, Sampling, Span


def sample(
    model: Any,
    identity: int,
    *,
    score: int = 1,
    temperature: float = 1.0,
    prompt: int = 5,
    answer: int = 6,
    version: int = 0,
) -> Sample:
    """Random prompt, sampled answer, logprobs = log_softmax(logits / T) one token at a time, without padding."""
    rng, generator = random.Random(identity), torch.Generator().manual_seed(identity)
    ids = [rng.randrange(model.config.vocab_size) for _ in range(prompt)]
    output: list[int] = []
    logprobs: list[float] = []
    for _ in range(answer):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids + output])).logits[0, -1].float()
        distribution = torch.log_softmax(logits / (temperature or 1.0), -1)
        token = int(torch.multinomial(distribution.exp(), 1, generator=generator))
        output.append(token)
        logprobs.append(float(distribution[token]))
    return Sample(
        id=identity,
        session=f"session-{identity}",
        turn=1,
        prompt_ids=ids,
        output_ids=output,
        rollout_logprobs=logprobs,
        spans=[Span(version=f"{version}-{version:08x}", start=0, end=answer)],
        sampling=Sampling(temperature=temperature),
        score=score,
    )


def batch_of(model: Any, count: int, *, first: int = 0, version: int = 0, **how: Any) -> list[Sample]:
    """`count` samples of unequal lengths with alternating scores."""
    return [
        sample(
            model,
            first + i,
            score=1 if i % 2 == 0 else -1,
            prompt=4 + i % 3,
            answer=3 + i % 4,
            version=version,
            **how,
        )
        for i in range(count)
    ]
