"""Configuration files as plain data that remembers the line of every key.

YAML and JSON (a subset of it) keep the parser's own marks; TOML's parser has none, so its lines are read off the
table headers and keys. Nothing here knows what the keys mean.
"""

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import yaml

Path_ = tuple[str | int, ...]
_TABLE = re.compile(r"^\s*\[\s*([A-Za-z0-9_.\-]+)\s*\]")
_KEY = re.compile(r"^\s*([A-Za-z0-9_\-]+)\s*=")


class FileError(ValueError):
    """The file cannot be read or parsed; the text names file, line and cause."""


class Located(NamedTuple):
    """One document: its data, and the line (from 1) of each key path."""

    data: Any
    lines: dict[Path_, int]

    def line(self, path: Path_) -> int:
        """Line of the path, or of its nearest parent that stands in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_yaml(file: Path) -> list[Located]:
    """Every document of a YAML or JSON file."""
    try:
        nodes = list(yaml.compose_all(_text(file), Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise FileError(f"{file}:{line}: not valid YAML or JSON: {error.problem}") from error
    documents = []
    for node in nodes:
        lines: dict[Path_, int] = {}
        _walk(node, (), lines)
        documents.append(Located(_construct(node), lines))
    return documents


def read_toml(file: Path) -> Located:
    """A TOML file of plain tables, the only form the configuration uses."""
    text = _text(file)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{file}: not valid TOML: {error}") from error
    lines: dict[Path_, int] = {}
    table: Path_ = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _TABLE.match(line):
            table = tuple(header.group(1).split("."))
            lines[table] = number
        elif key := _KEY.match(line):
            lines[(*table, key.group(1))] = number
    return Located(data, lines)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{file}: is not UTF-8 text") from error


def _construct(node: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _walk(node: yaml.Node, path: Path_, lines: dict[Path_, int]) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            lines[inner] = key.start_mark.line + 1
            _walk(value, inner, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*path, index), lines)
