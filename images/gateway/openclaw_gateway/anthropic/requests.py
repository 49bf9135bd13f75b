"""A Messages request as the chat completion it means. Pure.

Tool results become `tool` messages, thinking becomes `reasoning_content`, what Anthropic alone knows (cache_control,
betas, metadata, service_tier, …) stays out of the prompt. Raises ApiError 400 naming the field as the client wrote it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from openclaw_gateway.errors import bad_request

Json = dict[str, Any]
_AS_THEY_ARE = ("model", "temperature", "top_p", "top_k", "metadata", "session_id", "turn_type", "session_done")
_BILLING = "x-anthropic-billing-header:"
"""Claude Code puts a line that differs with each request in front of its system prompt: for Anthropic's eyes alone."""
_EFFORTS = {"xhigh": "max"}


def to_chat(body: Mapping[str, Any]) -> Json:
    """Body of the chat completion. The last message may be the assistant's: the answer then continues it."""
    chat: Json = {name: body[name] for name in _AS_THEY_ARE if body.get(name) is not None}
    chat["messages"] = messages(body)
    if chat["messages"] and chat["messages"][-1]["role"] == "assistant":
        chat["continue_final_message"] = True
    chat["max_tokens"] = _max_tokens(body)
    if body.get("stop_sequences"):
        chat["stop"] = _strings(body["stop_sequences"], "stop_sequences")
    if body.get("stream") is not None:
        chat["stream"] = body["stream"]
        chat["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return chat | prompt_fields(body)


def prompt_fields(body: Mapping[str, Any]) -> Json:
    """The chat fields beside `messages` that the prompt depends on: tools and thinking."""
    fields = _tools(body) | _thinking(body.get("thinking"))
    output = body.get("output_config")
    if isinstance(output, Mapping):
        if isinstance(effort := output.get("effort"), str):
            fields["reasoning_effort"] = _EFFORTS.get(effort, effort)
        if isinstance(form := output.get("format"), Mapping):
            schema = {"name": "response", "schema": form.get("schema"), "strict": True}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    return fields


def messages(body: Mapping[str, Any]) -> list[Json]:
    """`system` and `messages` as chat messages, in the client's order."""
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise bad_request("messages", "messages must be a non-empty list")
    chat = _system(body.get("system"))
    for number, message in enumerate(given):
        where = f"messages.{number}"
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "system"):
            raise bad_request(f"{where}.role", f"{where}.role must be user or assistant")
        chat += _ROLES[message["role"]](_blocks(message.get("content"), where), where)
    return chat


def _max_tokens(body: Mapping[str, Any]) -> int:
    value = body.get("max_tokens")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise bad_request("max_tokens", "max_tokens must be a positive integer")
    return value


def _blocks(content: Any, where: str) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list) and all(isinstance(block, dict) for block in content):
        return content
    raise bad_request(f"{where}.content", f"{where}.content must be a string or a list of content blocks")


def _system(content: Any) -> list[Json]:
    if content is None:
        return []
    texts = [str(block.get("text") or "") for block in _blocks(content, "system")]
    text = "\n\n".join(text for text in texts if text.strip() and not text.startswith(_BILLING))
    return [{"role": "system", "content": text}] if text else []


def _inline_system(blocks: list[Json], _: str) -> list[Json]:
    return _system(blocks)


def _assistant(blocks: list[Json], where: str) -> list[Json]:
    texts, thoughts, calls = [], [], []
    for number, block in enumerate(blocks):
        match block.get("type"):
            case "text":
                texts.append(_text(block, f"{where}.content.{number}"))
            case "thinking":
                thoughts.append(str(block.get("thinking") or ""))
            case "redacted_thinking":
                continue  # nobody but Anthropic can read it
            case "tool_use":
                calls.append(_call(block, f"{where}.content.{number}"))
            case other:
                raise _unknown(other, f"{where}.content.{number}")
    message: Json = {"role": "assistant", "content": "".join(texts)}
    if any(thoughts):
        message["reasoning_content"] = "\n".join(thought for thought in thoughts if thought)
    if calls:
        message["tool_calls"] = calls
    return [message]


def _call(block: Json, where: str) -> Json:
    if not isinstance(block.get("id"), str) or not isinstance(block.get("name"), str):
        raise bad_request(where, f"{where}: a tool_use block needs id and name")
    arguments = orjson.dumps(block.get("input") or {}).decode()
    return {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": arguments}}


def _user(blocks: list[Json], where: str) -> list[Json]:
    """Tool results are messages of their own; what stands before and after them stays there."""
    chat: list[Json] = []
    parts: list[Json] = []

    def flush() -> None:
        if parts:
            chat.append({"role": "user", "content": _content(parts)})
            parts.clear()

    for number, block in enumerate(blocks):
        if block.get("type") == "tool_result":
            flush()
            chat.append(_tool_result(block, f"{where}.content.{number}"))
        else:
            parts.extend(_part(block, f"{where}.content.{number}"))
    flush()
    return chat or [{"role": "user", "content": ""}]


_ROLES: Mapping[str, Callable[[list[Json], str], list[Json]]] = {
    "user": _user,
    "assistant": _assistant,
    "system": _inline_system,
}


def _tool_result(block: Json, where: str) -> Json:
    if not isinstance(block.get("tool_use_id"), str):
        raise bad_request(f"{where}.tool_use_id", f"{where}.tool_use_id must name the call this is the result of")
    content = block.get("content")
    inner = _blocks(content, where) if content is not None else []
    parts = [part for number, item in enumerate(inner) for part in _part(item, f"{where}.content.{number}")]
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _content(parts) if parts else ""}


def _content(parts: list[Json]) -> str | list[Json]:
    """A lone text as a string, which every chat template takes."""
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else list(parts)


def _part(block: Json, where: str) -> list[Json]:
    match block.get("type"):
        case "text":
            return [{"type": "text", "text": _text(block, where)}]
        case "image":
            return [{"type": "image_url", "image_url": {"url": _image_url(block.get("source"), where)}}]
        case "tool_reference":  # every tool is in the prompt already: only its name is news
            return [{"type": "text", "text": str(block.get("tool_name") or block.get("name") or "")}]
        case "document":
            return [{"type": "text", "text": _document(block, where)}]
        case "search_result":
            inner = _blocks(block.get("content") or [], where)
            words = [str(block.get("title") or ""), *(str(item.get("text") or "") for item in inner)]
            return [{"type": "text", "text": "\n".join(word for word in words if word)}]
        case other:
            raise _unknown(other, where)


def _text(block: Json, where: str) -> str:
    if not isinstance(block.get("text"), str):
        raise bad_request(f"{where}.text", f"{where}.text must be a string")
    return str(block["text"])


def _image_url(source: Any, where: str) -> str:
    if isinstance(source, dict) and source.get("type") == "url" and isinstance(source.get("url"), str):
        return str(source["url"])
    if isinstance(source, dict) and source.get("type") == "base64" and isinstance(source.get("data"), str):
        return f"data:{source.get('media_type') or 'image/png'};base64,{source['data']}"
    raise bad_request(f"{where}.source", f"{where}.source must be of type base64 (data) or url (url)")


def _document(block: Json, where: str) -> str:
    source = block.get("source")
    if not isinstance(source, dict) or source.get("type") != "text" or not isinstance(source.get("data"), str):
        raise bad_request(f"{where}.source", f"{where}.source: only documents of type text can be read here")
    return "\n".join(word for word in (str(block.get("title") or ""), source["data"]) if word)


def _unknown(kind: Any, where: str) -> Exception:
    return bad_request(f"{where}.type", f"{where}.type {kind!r} is not supported here")


def _tools(body: Mapping[str, Any]) -> Json:
    given, choice = body.get("tools") or [], body.get("tool_choice")
    if not isinstance(given, list):
        raise bad_request("tools", "tools must be a list")
    fields: Json = {}
    if given:
        fields["tools"] = [_tool(tool, f"tools.{number}") for number, tool in enumerate(given)]
    if isinstance(choice, Mapping):
        fields["tool_choice"] = _choice(choice)
        fields["parallel_tool_calls"] = not choice.get("disable_parallel_tool_use")
    return fields


def _tool(tool: Any, where: str) -> Json:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        raise bad_request(f"{where}.name", f"{where} needs a name")
    if tool.get("type") not in (None, "custom"):
        raise bad_request(
            f"{where}.type", f"{where}.type {tool['type']!r} is a tool that runs at Anthropic; this server has none"
        )
    schema = tool.get("input_schema") or {"type": "object", "properties": {}}
    function: Json = {"name": tool["name"], "description": tool.get("description") or "", "parameters": schema}
    return {"type": "function", "function": function | ({"strict": True} if tool.get("strict") is True else {})}


def _choice(choice: Mapping[str, Any]) -> Any:
    match choice.get("type"):
        case "auto" | "none" as same:
            return same
        case "any":
            return "required"
        case "tool":
            return {"type": "function", "function": {"name": choice.get("name")}}
        case other:
            raise bad_request("tool_choice.type", f"tool_choice.type {other!r} is not auto, any, tool or none")


def _thinking(thinking: Any) -> Json:
    """Chat templates know the switch under two names."""
    if not isinstance(thinking, Mapping):
        return {}
    on = thinking.get("type") != "disabled"
    return {"chat_template_kwargs": {"thinking": on, "enable_thinking": on}}


def _strings(value: Any, field: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise bad_request(field, f"{field} must be a list of strings")
    return value
