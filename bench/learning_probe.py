"""Does the quickstart's recipe learn? One process, the trainer's own code, no cluster.

`python -m bench.learning_probe --model DIR --task short_statement --seeds 0 1` plays the loop with transformers as
the engine: sample a batch, react, train, publish into the sampler. With `--lag 1` batch k+1 is sampled before update k
is in, as in the asynchronous loop. Prints one JSON line per evaluation and per run.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from openclaw_core.config.policy_training import Lora, PolicyTraining
from openclaw_core.wire import Sample, Sampling, Span
from openclaw_environment.tasks import TASKS
from openclaw_environment.tasks.preference import PreferenceTask
from openclaw_environment.tasks.reactions import judge_reaction, reaction
from openclaw_trainer.advantage import RunningMean, advantages
from openclaw_trainer.batch import lag
from openclaw_trainer.policy import Policy
from openclaw_trainer.step import Learner


class Sampler:
    """Stands in for the engine: plain transformers weights in float32 at one version."""

    def __init__(self, directory: Path) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(directory)
        self.tokenizer.padding_side = "left"
        self.model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        self.version = 0

    def load(self, weights: dict[str, torch.Tensor], version: int) -> None:
        self.model.load_state_dict(weights, strict=False)
        self.version = version

    @torch.no_grad()
    def answer(self, prompts: Sequence[str], max_tokens: int, temperature: float) -> list[tuple[str, Sample]]:
        """(text, unscored sample) per prompt. Temperature 0 is greedy."""
        texts = [
            self.tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
            )
            for prompt in prompts
        ]
        inputs = self.tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        how = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
        made = self.model.generate(
            **inputs, max_new_tokens=max_tokens, return_dict_in_generate=True, output_logits=True, **how
        )
        length = inputs.input_ids.shape[1]
        scores = torch.stack(made.logits, 1).float() / (temperature or 1.0)
        logprobs = torch.log_softmax(scores, -1).gather(-1, made.sequences[:, length:, None]).squeeze(-1)
        return [
            self._sample(i, inputs, made.sequences[i, length:].tolist(), logprobs[i].tolist(), temperature)
            for i in range(len(prompts))
        ]

    def _sample(
        self, row: int, inputs: Any, answer: list[int], logprobs: list[float], temperature: float
    ) -> tuple[str, Sample]:
        end = self.tokenizer.eos_token_id
        length = answer.index(end) + 1 if end in answer else len(answer)
        prompt = inputs.input_ids[row][inputs.attention_mask[row] == 1].tolist()
        sample = Sample(
            id=row,
            session=str(row),
            turn=1,
            prompt_ids=prompt,
            output_ids=answer[:length],
            rollout_logprobs=logprobs[:length],
            spans=[Span(version=f"{self.version}-00000000", start=0, end=length)],
            sampling=Sampling(temperature=temperature),
            score=0,
        )
        return self.tokenizer.decode(answer[:length], skip_special_tokens=True), sample


def rollout(sampler: Sampler, task: PreferenceTask, batch: int, rng: random.Random, swapped: bool) -> list[Sample]:
    """One batch of turns, scored as the judge endpoint would from the users' reactions."""
    questions = [rng.choice(task.training) for _ in range(batch)]
    made = sampler.answer([task.prompt(question) for question in questions], task.max_tokens, task.temperature)
    return [
        sample.model_copy(update={"score": judge_reaction(reaction(task.prefers(asked, text), rng, swapped=swapped))})
        for asked, (text, sample) in zip(questions, made, strict=True)
    ]


def evaluate(sampler: Sampler, task: PreferenceTask) -> dict[str, Any]:
    """Preferred share of held-out answers at the task's temperature; correct share of greedy quality answers."""
    held_out: list[str] = []
    for start in range(0, len(task.held_out), 24):
        prompts = [task.prompt(question) for question in task.held_out[start : start + 24]]
        held_out += [text for text, _ in sampler.answer(prompts, task.max_tokens, task.temperature)]
    greedy = [text for text, _ in sampler.answer([task.prompt(q) for q in task.quality], task.max_tokens, 0.0)]
    correct = [task.is_correct(question, text) for question, text in zip(task.quality, greedy, strict=True)]
    return {
        "rate": sum(map(task.prefers, task.held_out, held_out)) / len(held_out),
        "quality": sum(correct) / len(correct),
        "words": sum(len(text.split()) for text in held_out) / len(held_out),
        "answers": held_out[:4] + greedy[:4],
    }


class Probe:
    """One run: engine, learner and users of one seed."""

    def __init__(self, arguments: argparse.Namespace, training: PolicyTraining, seed: int) -> None:
        self.task, self.rng, self.swapped = TASKS[arguments.task], random.Random(seed), arguments.swap
        self.training = training
        self.sampler = Sampler(arguments.model)
        self.learner = Learner(Policy.load(arguments.model, training), training)
        self.baseline = RunningMean()
        self.seconds = {"sample": 0.0, "train": 0.0, "sync": 0.0}
        torch.manual_seed(seed + 1000)
        self.ahead = [self._rollout() for _ in range(arguments.lag)]

    def update(self, number: int) -> dict[str, float]:
        """Sample one batch, train the oldest, load the result into the sampler."""
        started = time.process_time()
        self.ahead.append(self._rollout())
        samples = self.ahead.pop(0)
        sampled = time.process_time()
        scores = [float(sample.score) for sample in samples]
        signals, self.baseline = advantages(self.training.advantage, scores, self.baseline)
        result = self.learner.step(samples, signals, [lag(sample, number - 1) for sample in samples])
        trained = time.process_time()
        self.sampler.load(self.learner.export(), number)
        spent = (sampled - started, trained - sampled, time.process_time() - trained)
        self.seconds = {name: total + part for (name, total), part in zip(self.seconds.items(), spent, strict=True)}
        liked = sum(score > 0 for score in scores) / len(scores)
        return {"batch": liked, "grad": result.grad_norm, "diff": result.logprob_abs_diff}

    def _rollout(self) -> list[Sample]:
        return rollout(self.sampler, self.task, self.training.rollout_batch_size, self.rng, self.swapped)


def run(arguments: argparse.Namespace, training: PolicyTraining, seed: int) -> None:
    """Updates until the last one or until the held-out rate is reached; evaluations in between."""
    torch.manual_seed(seed)
    probe = Probe(arguments, training, seed)
    report(seed=seed, update=0, **evaluate(probe.sampler, probe.task))
    for number in range(1, arguments.updates + 1):
        report(seed=seed, update=number, **probe.update(number))
        if number % arguments.every == 0 or number == arguments.updates:
            after = evaluate(probe.sampler, probe.task)
            spent = {name: round(total / number, 2) for name, total in probe.seconds.items()}
            report(seed=seed, update=number, cpu_per_update=spent, **after)
            if after["rate"] >= arguments.stop_at:
                return


def report(**fields: Any) -> None:
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in fields.items()}
    sys.stdout.write(json.dumps(rounded) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--task", choices=sorted(TASKS), default="short_statement")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--every", type=int, default=10, help="updates between evaluations")
    parser.add_argument("--stop-at", type=float, default=2.0, help="held-out rate that ends a run")
    parser.add_argument("--lag", type=int, default=1, help="batches sampled ahead of the update")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--rank", type=int, default=16, help="LoRA rank; 0: full fine-tuning")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--advantage", choices=["none", "runningMean"], default="runningMean")
    parser.add_argument("--off-policy", default="decoupled")
    parser.add_argument("--kl", type=float, default=0.0)
    parser.add_argument("--swap", action="store_true", help="users praise what they dislike")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in arguments.seeds:
        training = PolicyTraining(
            device="cpu",
            dtype="float32",
            learning_rate=arguments.learning_rate,
            rollout_batch_size=arguments.batch,
            advantage=arguments.advantage,
            off_policy=arguments.off_policy,
            kl_coef=arguments.kl,
            lora=Lora(rank=arguments.rank, alpha=2 * arguments.rank) if arguments.rank else None,
            seed=seed,
        )
        run(arguments, training, seed)


if __name__ == "__main__":
    main()
