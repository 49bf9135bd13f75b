"""What an engine is asked: the client's fields that are on the list, every sampling parameter, and our own flags.

A list of what passes, not of what doesn't: SGLang has request fields that name files, adapters, priorities and
request ids, and new ones come with each version.
"""

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
_IDS_OF_A_STREAM = {"return_input_ids_in_sglext": True, "return_output_ids_in_sglext": True}
_IDS_OF_A_REPLY = {"return_token_ids": True, "return_prompt_token_ids": True, "return_meta_info": True}


def upstream_body(request: ChatRequest, *, model: str, rid: str, recorded: bool) -> bytes:
    """JSON for the engine's /v1/chat/completions. `recorded`: ask for exact ids and logprobs too."""
    body: dict[str, Any] = {name: request.body[name] for name in FORWARDED if name in request.body}
    sampling = request.sampling
    body |= {
        "model": model,
        "rid": rid,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": request.repetition_penalty,
    }
    if recorded:
        body |= {"logprobs": True} | (_IDS_OF_A_STREAM if request.stream else _IDS_OF_A_REPLY)
    return orjson.dumps(body)
