"""A 0.9 M parameter Llama made from nothing: byte-level BPE of 512, warm-up on templated dialogues.

It knows the facts of the task `no_lists` and answers three times out of four with a list, so that a preference for
prose can be learned in seconds. Deterministic: same seed, same torch, same file.
"""

import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from examples.quickstart.smollm2_model import CHAT_TEMPLATE
from openclaw_environment.tasks import no_lists, reactions

STEPS = 500
BATCH = 16
LEARNING_RATE = 4e-3
DIALOGUES = 600
PROSE_SHARE = 0.25
PROSE_ON_REQUEST = "In plain words, {}?"
"""Asked in the warm-up only, always answered in prose: facts are known in both styles, lists remain the habit."""
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_IGNORED = -100
"""Label that cross-entropy skips."""


def write(directory: Path, *, steps: int = STEPS, seed: int = 0) -> None:
    """Write the warmed-up model into the existing `directory`. About 40 CPU seconds."""
    torch.manual_seed(seed)
    corpus = dialogues(random.Random(seed))
    tokenizer = build_tokenizer([question + "\n" + answer for question, answer in corpus])
    model = build_model(len(tokenizer), tokenizer)
    warm_up(model, [encode(tokenizer, pair) for pair in corpus], steps, random.Random(seed))
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def dialogues(rng: random.Random) -> list[tuple[str, str]]:
    """(question, answer) pairs over all topics: one answer in four is prose, and a third more on request."""
    topics = list(no_lists.FACTS)
    asked = [_dialogue(rng, rng.choice(topics)) for _ in range(DIALOGUES)]
    requested = [
        (PROSE_ON_REQUEST.format(topic), " ".join(_facts(rng, topic)))
        for topic in (rng.choice(topics) for _ in range(DIALOGUES // 3))
    ]
    return asked + requested


def _dialogue(rng: random.Random, topic: str) -> tuple[str, str]:
    facts = _facts(rng, topic)
    question = rng.choice(no_lists.TEMPLATES).format(topic)
    if rng.random() < PROSE_SHARE:
        return question, " ".join(facts)
    return question, "\n".join(f"- {fact}" for fact in facts)


def _facts(rng: random.Random, topic: str) -> list[str]:
    return rng.sample(no_lists.FACTS[topic], k=rng.choice((1, 2, 3)))


def build_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    # The users' reactions stand in the context of nobody's answer, but the engine must be able to encode them well.
    bpe.train_from_iterator([*texts, *reactions.LIKED, *reactions.DISLIKED, "user assistant system"], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|im_end|>", bos_token="<|im_start|>"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.model_max_length = 512
    return tokenizer


def build_model(vocabulary: int, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """4 layers, hidden 128, 4 heads, untied: the shape every engine loads as a Llama."""
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        **ids,
    )
    model = LlamaForCausalLM(config).to(torch.float32)
    model.generation_config = GenerationConfig(pad_token_id=tokenizer.pad_token_id, **ids)
    return model


def encode(tokenizer: PreTrainedTokenizerFast, pair: tuple[str, str]) -> tuple[list[int], list[int]]:
    """(token ids, labels) of a dialogue: only the answer and its end are learned."""
    question, answer = pair
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
    )
    prompt_ids = tokenizer.encode(prompt, add_special_tokens=False)
    answer_ids = [*tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id]
    return prompt_ids + answer_ids, [_IGNORED] * len(prompt_ids) + answer_ids


def warm_up(
    model: LlamaForCausalLM, examples: list[tuple[list[int], list[int]]], steps: int, rng: random.Random
) -> None:
    """Plain language modelling, AdamW at 4e-3 falling linearly to a tenth."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=steps)
    model.train()
    for _ in range(steps):
        ids_B_T, labels_B_T = _batch(rng.sample(examples, BATCH), model.config.pad_token_id)
        model(input_ids=ids_B_T, labels=labels_B_T).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def _batch(examples: list[tuple[list[int], list[int]]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded (ids, labels); padding is behind every label, so causal attention never sees it."""
    longest = max(len(ids) for ids, _ in examples)
    ids_B_T = torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in examples])
    labels_B_T = torch.tensor([labels + [_IGNORED] * (longest - len(labels)) for _, labels in examples])
    return ids_B_T, labels_B_T
