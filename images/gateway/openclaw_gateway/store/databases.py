"""The two databases under the store: how a commit begins in each, and what is known when one breaks.

Every commit has the whole store to itself: SQLite by `BEGIN IMMEDIATE`, PostgreSQL by an advisory lock that all
gateways of the training take first. Bounds are therefore checked against what is committed, however many gateways
there are. PostgreSQL also tells the time, so that leases don't depend on the gateways' clocks agreeing.
"""

import re
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import StaticPool

from openclaw_gateway.store.prepared import Driver
from openclaw_gateway.store.schema import RETIRED_INDEXES, metadata

_LOCK_WAIT_MS = 10_000
_IDLE_MS = 5_000
_STATEMENT_MS = 30_000
_TRUNCATE_LOG = "PRAGMA wal_checkpoint(TRUNCATE)"
_CONNECT = {
    "connect_timeout": 5,
    # A server that is gone without a word is noticed within 10 s, also in the middle of a commit.
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "application_name": "openclaw-gateway",
}


@dataclass(frozen=True)
class Started:
    """A commit that has begun and has the store to itself."""

    now: float
    """Unix seconds, by the one clock of this store."""
    ticket: str | None = None
    """Tells afterwards whether this commit happened, where that can be in doubt."""


class Database(Protocol):
    """What the writer needs of a database. Not thread-safe: the writer's thread alone uses it."""

    engine: Engine
    is_shared: bool
    """Other gateways may use it at the same time."""

    def prepare(self) -> None:
        """Make the tables, if absent. Raises DBAPIError."""

    def start(self, connection: Connection) -> Started:
        """Take the store for this transaction. Raises DBAPIError."""

    def happened(self, ticket: str | None) -> bool:
        """Whether the commit of `ticket`, whose connection broke, took place. Raises DBAPIError while nobody knows."""

    def scrub(self) -> None:
        """Make sure that what was deleted cannot be read from the database's files. Raises DBAPIError."""


def _make_tables(connection: Connection) -> None:
    """What is absent is made; the indexes of a store that an earlier release made are brought up to date."""
    metadata.create_all(connection)
    for table in metadata.tables.values():
        for index in table.indexes:
            index.create(connection, checkfirst=True)
    for name in RETIRED_INDEXES:
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {name}")


class Sqlite:
    """One file (None: in memory) of one process; WAL, every commit on disk before it returns."""

    is_shared = False

    def __init__(self, file: Path | None, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
        self.engine = create_engine(
            f"sqlite:///{file}" if file else "sqlite://",
            poolclass=StaticPool,
            connect_args={"check_same_thread": False},
        )
        event.listen(self.engine, "connect", _configure_sqlite)
        event.listen(self.engine, "begin", _begin_immediate)

    def prepare(self) -> None:
        with self.engine.begin() as connection:
            _make_tables(connection)

    def start(self, connection: Connection) -> Started:
        return Started(self._clock())

    def happened(self, ticket: str | None) -> bool:
        return False

    def scrub(self) -> None:
        """`secure_delete` has zeroed the pages; older images of them are still in the write-ahead log."""
        raw = self.engine.raw_connection()  # a checkpoint wants no transaction
        try:
            raw.cursor().execute(_TRUNCATE_LOG)
        except sqlite3.Error as error:
            raise DBAPIError(_TRUNCATE_LOG, None, error) from error
        finally:
            raw.close()


def _configure_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves
    pragmas = ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", "cache_size=-8192", "busy_timeout=5000")
    for pragma in (*pragmas, "journal_size_limit=67108864"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_immediate(connection: Connection) -> None:
    Driver(connection).execute("BEGIN IMMEDIATE")


class PostgresUrlError(ValueError):
    """The connection URL cannot be used; the message never quotes it."""


class Postgres:
    """A schema of its own in an existing database (PostgreSQL ≥ 13): trainings may share one."""

    is_shared = True

    def __init__(self, url: str, *, namespace: str, training: str) -> None:
        self.schema = schema_name(namespace, training)
        self.engine = create_engine(
            parse_url(url), pool_size=1, max_overflow=0, pool_use_lifo=True, connect_args=dict(_CONNECT)
        )
        settings = {
            "search_path": f'"{self.schema}"',
            "lock_timeout": f"{_LOCK_WAIT_MS}",
            # A gateway that is stopped in the middle of a commit must not stop the others.
            "idle_in_transaction_session_timeout": f"{_IDLE_MS}",
            "statement_timeout": f"{_STATEMENT_MS}",
        }
        # For this transaction only, so that it works behind a pooler that shares sessions. In this order: the
        # settings, the lock, then the clock.
        local = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
        self._start = (
            f"SELECT {local}, pg_advisory_xact_lock({_lock_key(self.schema)}), "
            "extract(epoch FROM clock_timestamp())::float8, pg_current_xact_id()::text"
        )

    def prepare(self) -> None:
        with self.engine.begin() as connection:
            self.start(connection)
            if not connection.execute(text("SELECT to_regnamespace(:name)"), {"name": f'"{self.schema}"'}).scalar():
                connection.exec_driver_sql(f'CREATE SCHEMA "{self.schema}"')
            _make_tables(connection)

    def start(self, connection: Connection) -> Started:
        *_, now, ticket = connection.exec_driver_sql(self._start).one()
        return Started(float(now), str(ticket))

    def happened(self, ticket: str | None) -> bool:
        """Asked with the lock held: the transaction in question is over then, one way or the other."""
        with self.engine.begin() as connection:
            self.start(connection)
            found = connection.execute(text("SELECT pg_xact_status(CAST(:xid AS xid8))"), {"xid": ticket}).scalar()
        return bool(found == "committed")

    def scrub(self) -> None:
        """Rewrite the tables that held words: a plain VACUUM leaves deleted bytes in their pages."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for setting in (f"lock_timeout = {_LOCK_WAIT_MS}", "statement_timeout = 0"):
                connection.exec_driver_sql(f"SET {setting}")
            for table in metadata.tables:
                connection.exec_driver_sql(f'VACUUM (FULL) "{self.schema}"."{table}"')
            for setting in ("lock_timeout", "statement_timeout"):
                connection.exec_driver_sql(f"RESET {setting}")


def is_lost(error: Exception) -> bool:
    """True when the connection broke, so that the database may work again on a new one."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


def parse_url(url: str) -> URL:
    """`postgresql://user:password@host[:port]/database[?sslmode=…]`. PostgresUrlError says what is wrong with it."""
    try:
        parsed = make_url(url.strip())
    except ArgumentError:
        raise PostgresUrlError("is no URL; write postgresql://user:password@host:5432/database") from None
    if parsed.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise PostgresUrlError("does not begin with postgresql://")
    if not parsed.database:
        raise PostgresUrlError("names no database; write postgresql://user:password@host:5432/database")
    return parsed.set(drivername="postgresql+psycopg")


def schema_name(namespace: str, training: str) -> str:
    """Schema of a training: `openclaw_<namespace>_<training>`, cut and told apart by a hash beyond PostgreSQL's 63."""
    name = re.sub(r"[^a-z0-9_.-]", "_", f"openclaw_{namespace}_{training}")
    if len(name) <= 63:
        return name
    return f"{name[:54]}_{blake2b(name.encode(), digest_size=4).hexdigest()}"


def _lock_key(schema: str) -> int:
    return int.from_bytes(blake2b(schema.encode(), digest_size=8).digest(), "big", signed=True)
