"""Anthropic's Messages API, translated to chat completions and back. Nothing here knows engines or the store."""
