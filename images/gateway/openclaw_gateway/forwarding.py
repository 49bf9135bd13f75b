"""What an engine is asked: the client's fields that are on the list, every sampling parameter, and our own flags.

A list of what passes, not of what doesn't: SGLang has request fields that name files, adapters, priorities and
request ids, and new ones come with each version.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from openclaw_gateway.chat_requests import ChatRequest

FORWARDED = (
    "messages",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "presence_penalty",
    "response_format",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "user",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stop_token_ids",
    "chat_template_kwargs",
    "reasoning_effort",
    "reasoning",
    "thinking",
    "separate_reasoning",
    "stream_reasoning",
    "continue_final_message",
)
PROMPT = ("messages", "tools", "tool_choice", "chat_template_kwargs", "reasoning_effort", "continue_final_message")
FORWARDED_COMPLETION = (
    "prompt",
    "best_of",
    "echo",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "max_tokens",
    "n",
    "presence_penalty",
    "response_format",
    "seed",
    "stop",
    "stop_token_ids",
    "stream",
    "stream_options",
    "suffix",
    "user",
)
_IDS_OF_A_STREAM = {"return_input_ids_in_sglext": True, "return_output_ids_in_sglext": True}
_IDS_OF_A_REPLY = {"return_token_ids": True, "return_prompt_token_ids": True, "return_meta_info": True}


def upstream_body(request: ChatRequest, *, model: str, rid: str, recorded: bool) -> bytes:
    """JSON for the engine's /v1/chat/completions. `recorded`: ask for exact ids and logprobs too."""
    body = _chosen(FORWARDED, request) | _sampling(request) | _counted(request) | {"model": model, "rid": rid}
    if recorded:
        body |= {"logprobs": True} | (_IDS_OF_A_STREAM if request.stream else _IDS_OF_A_REPLY)
    return orjson.dumps(body)


def completion_body(request: ChatRequest, *, model: str, rid: str) -> bytes:
    """JSON for the engine's /v1/completions."""
    body = _chosen(FORWARDED_COMPLETION, request) | _sampling(request) | _counted(request)
    return orjson.dumps(body | {"model": model, "rid": rid})


def tokenize_body(chat: Mapping[str, Any], *, model: str) -> bytes:
    """JSON for the engine's /v1/tokenize: the fields of a chat completion that its prompt depends on."""
    return orjson.dumps({name: chat[name] for name in PROMPT if name in chat} | {"model": model})


def _chosen(names: Sequence[str], request: ChatRequest) -> dict[str, Any]:
    return {name: request.body[name] for name in names if name in request.body}


def _counted(request: ChatRequest) -> dict[str, Any]:
    """Every stream ends with its count of tokens; for a client that did not ask, `relay` cuts that event out."""
    options = request.body.get("stream_options")
    if not request.stream or not isinstance(options, dict | None):
        return {}  # any other value is the engine's to refuse
    return {"stream_options": (options or {}) | {"include_usage": True}}


def _sampling(request: ChatRequest) -> dict[str, Any]:
    sampling = request.sampling
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": request.repetition_penalty,
    }


def with_adapter(body: bytes, version: str) -> bytes:
    """The same request for a LoRA adapter: `body` is a JSON object of ours, and it does not name one yet."""
    return body[:-1] + b',"lora_path":' + orjson.dumps(version) + b"}"
