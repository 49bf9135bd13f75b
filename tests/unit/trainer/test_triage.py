"""Every leased sample goes to exactly one place, with the reason users read in the metrics."""

from openclaw_core.config.policy_training import PolicyTraining
from openclaw_core.wire import Sample, Sampling, Span
from openclaw_trainer.triage import triage


def _sample(identity: int, *versions: int, prompt: int = 4, logprobs: list[float] | None = None) -> Sample:
    return Sample(
        id=identity,
        session="s",
        turn=1,
        prompt_ids=list(range(prompt)),
        output_ids=[1, 2],
        rollout_logprobs=[-1.0, -1.0] if logprobs is None else logprobs,
        spans=[Span(version=f"{v}-00000000", start=i, end=i + 1) for i, v in enumerate(versions)],
        sampling=Sampling(temperature=1.0),
        score=1,
    )


def _sorted(training: PolicyTraining, *samples: Sample, consumed: tuple[int, ...] = ()) -> tuple[object, ...]:
    result = triage(samples, step_starts_from=10, training=training, consumed=consumed)
    return [s.id for s in result.kept], result.lags, result.dropped, result.consumed


def test_lag_counts_from_the_oldest_span_and_the_bound_is_inclusive(training: PolicyTraining) -> None:
    fresh, mixed, at_bound, stale = _sample(1, 10), _sample(2, 8, 10), _sample(3, 6), _sample(4, 5, 10)
    assert _sorted(training, fresh, mixed, at_bound, stale) == ([1, 2, 3], [0, 2, 4], {"stale": [4]}, [])


def test_sample_of_a_version_ahead_of_a_resumed_trainer_has_lag_zero(training: PolicyTraining) -> None:
    assert _sorted(training, _sample(1, 12)) == ([1], [0], {}, [])


def test_long_sample_is_dropped_as_too_long(training: PolicyTraining) -> None:
    short = training.model_copy(update={"max_sequence_tokens": 16})
    fits, long = _sample(1, 10, prompt=14), _sample(2, 10, prompt=15)
    assert _sorted(short, fits, long) == ([1], [0], {"too_long": [2]}, [])


def test_sample_trained_before_a_restart_is_acked_not_trained_again(training: PolicyTraining) -> None:
    assert _sorted(training, _sample(1, 10), _sample(2, 10), consumed=(1,)) == ([2], [0], {}, [1])


def test_malformed_samples_are_dropped_alone(training: PolicyTraining) -> None:
    broken = [
        _sample(1, 10, logprobs=[-1.0]),
        _sample(2, 10, logprobs=[-1.0, float("nan")]),
        _sample(3),
        _sample(4, 10).model_copy(update={"spans": [Span(version="latest", start=0, end=2)]}),
        _sample(5, 10, prompt=0),
    ]
    assert _sorted(training, *broken, _sample(6, 10)) == ([6], [0], {"malformed": [1, 2, 3, 4, 5]}, [])
