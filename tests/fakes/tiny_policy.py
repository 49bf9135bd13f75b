"""A random Llama small enough to be made inside a test pod, and versions of it that differ.

Run as a script in the engine image: `python tiny_policy.py <volume> <target file> <name>` writes `base`, `v1`, `v2`, a
`v3` whose weights are those of `v2`, a damaged `v4`, and LoRA adapters `v5` to `v8`; the versions to announce are in
`<volume>/versions.json`, and the target file names one of them. A fourth word `135M` makes `base`, `v1` and `v2` of the
shape of SmolLM2-135M instead (538 MB each), for benches.
2 layers, hidden 64, byte-level BPE of 400, context 4096, float32.
"""

import json
import sys
from pathlib import Path
from typing import Any

RANK, ALPHA = 8, 16
_SPECIAL = ["<|im_start|>", "<|im_end|>"]
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TEXT = "The capital of France is Paris. user assistant system What is the largest ocean? The Pacific is. " * 8


def write_model(directory: Path, seed: int, shape: str = "tiny") -> None:
    """Write model and tokenizer; the same seed gives the same bytes."""
    import torch
    from transformers import LlamaForCausalLM

    torch.manual_seed(seed)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    config = _config(len(tokenizer)) if shape == "tiny" else _config_135m()
    LlamaForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def adapter_weights(seed: int) -> dict[str, Any]:
    """A and B of a LoRA on every linear map, under the names of an adapter file; strong enough to see."""
    import torch

    config, generator = _config(400), torch.Generator().manual_seed(seed)
    wide, narrow = config.hidden_size, config.hidden_size // 2  # two of four heads hold keys and values
    shapes = {
        **{f"self_attn.{name}_proj": (wide, wide) for name in "qo"},
        **{f"self_attn.{name}_proj": (wide, narrow) for name in "kv"},
        **{f"mlp.{name}_proj": (wide, config.intermediate_size) for name in ("gate", "up")},
        "mlp.down_proj": (config.intermediate_size, wide),
    }
    weights = {}
    for layer in range(config.num_hidden_layers):
        for name, (inputs, outputs) in shapes.items():
            prefix = f"base_model.model.model.layers.{layer}.{name}"
            weights[f"{prefix}.lora_A.weight"] = torch.randn(RANK, inputs, generator=generator) / inputs**0.5
            weights[f"{prefix}.lora_B.weight"] = torch.randn(outputs, RANK, generator=generator) * 0.1
    return weights


def write_adapter(directory: Path, seed: int) -> None:
    """The files of an adapter as the trainer writes them."""
    from safetensors.torch import save_file

    weights = adapter_weights(seed)
    directory.mkdir(parents=True)
    save_file(weights, directory / "adapter_model.safetensors")
    modules = sorted({name.split(".")[-3] for name in weights})
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "target_modules": modules}
    (directory / "adapter_config.json").write_text(json.dumps(config))


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator([_TEXT], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    tokenizer.chat_template = _TEMPLATE
    tokenizer.model_max_length = 4096
    return tokenizer


def _config(vocabulary: int) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
        initializer_range=0.3,
    )


def _config_135m() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=4096,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=True,
    )


def write_large_volume(root: Path) -> dict[str, str]:
    """Base and two versions of 135 million weights."""
    import weight_versions

    announced = {"base": "0-00000000"}
    for number in (0, 1, 2):
        write_model(root / (f"v{number}" if number else "base"), number, "135M")
    for number in (1, 2):
        announced[f"v{number}"] = str(weight_versions.seal(root / f"v{number}", number))
    return announced


def write_volume(root: Path) -> dict[str, str]:
    """Base, four versions and four adapters; directory to version."""
    import weight_versions  # lies beside this script in the pod

    write_model(root / "base", seed=0)
    announced = {"base": "0-00000000"}
    for number, seed in ((1, 1), (2, 2), (3, 2), (4, 4)):
        write_model(root / f"v{number}", seed)
        announced[f"v{number}"] = str(weight_versions.seal(root / f"v{number}", number))
    for number in (5, 6, 7, 8):
        write_adapter(root / f"v{number}", number)
        announced[f"v{number}"] = str(weight_versions.seal(root / f"v{number}", number))
    damaged = root / "v4" / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0")
    return announced


if __name__ == "__main__":
    volume, target, aim = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    announced_versions = (write_large_volume if "135M" in sys.argv[4:] else write_volume)(volume)
    (volume / "versions.json").write_text(json.dumps(announced_versions))
    target.write_text(json.dumps({"version": announced_versions[aim]}))
