"""Llama-shaped models (SmolLM2 among them), registered by SGLang through `EntryClass`."""

from sglang.srt.models.llama import LlamaForCausalLM

EntryClass = LlamaForCausalLM
