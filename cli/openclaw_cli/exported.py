"""Exports as files: JSON lines as they come, or Parquet in row groups. A file is whole or not there."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from openclaw_cli.gateway_access import AccessError

_BLOCK_BYTES = 1 << 20
_ROWS = 1000
"""Turns in memory at once, and in one row group."""


def write_lines(answer: IO[bytes], output: IO[bytes]) -> None:
    shutil.copyfileobj(answer, output)


def write_parquet(answer: IO[bytes], file: Path) -> int:
    """How many turns were written. Messages are JSON strings, for their shape is the client's; the rest is typed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise AccessError("--format parquet needs pyarrow: pip install 'openclaw-training-cli[parquet]'") from error
    schema = _schema(pyarrow)
    many = 0
    with _whole(file) as partial, parquet.ParquetWriter(partial, schema, compression="zstd") as writer:
        lines = _lines(answer)
        while rows := [_row(line) for line in islice(lines, _ROWS)]:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
            many += len(rows)
    return many


@contextlib.contextmanager
def whole_file(file: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name when everything is in it."""
    with _whole(file) as partial, partial.open("wb") as output:
        yield output


@contextlib.contextmanager
def _whole(file: Path) -> Iterator[Path]:
    partial = file.with_name(f".{file.name}.part")
    try:
        yield partial
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


def _lines(answer: IO[bytes]) -> Iterator[bytes]:
    """Lines of an HTTP answer. Its own `readline` takes a connection that was cut off for the end."""
    rest = b""
    while block := answer.read(_BLOCK_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines


def _row(line: bytes) -> dict[str, Any]:
    turn: dict[str, Any] = json.loads(line)
    for name in ("messages", "response", "next_state"):
        if turn[name] is not None:
            turn[name] = json.dumps(turn[name], ensure_ascii=False)
    return turn


def _schema(pa: Any) -> Any:
    span = pa.struct([("version", pa.string()), ("start", pa.int32()), ("end", pa.int32())])
    sampling = pa.struct(
        [("temperature", pa.float64()), ("top_p", pa.float64()), ("top_k", pa.int32()), ("min_p", pa.float64())]
    )
    return pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("session", pa.string(), nullable=False),
            pa.field("owner", pa.string(), nullable=False),
            pa.field("turn", pa.int32(), nullable=False),
            pa.field("state", pa.string(), nullable=False),
            ("reason", pa.string()),
            pa.field("began_at", pa.float64(), nullable=False),
            ("score", pa.int8()),
            ("votes", pa.list_(pa.int8())),
            ("messages", pa.string()),
            ("response", pa.string()),
            ("next_state", pa.string()),
            ("edited", pa.bool_()),
            ("prompt_ids", pa.list_(pa.int32())),
            ("output_ids", pa.list_(pa.int32())),
            ("rollout_logprobs", pa.list_(pa.float64())),
            ("spans", pa.list_(span)),
            ("sampling", sampling),
        ]
    )
