"""A statement compiled once for each database and then run on the driver's own cursor.

SQLAlchemy Core writes the SQL, so both databases share it; but to run one of its statements costs it ten times what
SQLite needs for the same, and a turn runs a dozen. Parameters are named, rows come as named tuples.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from sqlalchemy import CompoundSelect, Connection, Delete, Dialect, Insert, Select, TextClause, Update
from sqlalchemy.exc import DBAPIError

Row: TypeAlias = Any
"""A named tuple: columns by name."""
Clause: TypeAlias = Select[Any] | CompoundSelect[Any] | Insert | Update | Delete | TextClause


class Driver:
    """A cursor of the driver's own connection under one of SQLAlchemy's, for as long as that has it.

    It is one for all statements: the rows of each are fetched before the next.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection, self.dialect = connection, connection.dialect
        self._raw: Any = connection.connection.driver_connection
        self.name = self.dialect.name
        self._error: type[Exception] = self.dialect.loaded_dbapi.Error
        self._cursor = self._open()

    def _open(self) -> Any:
        try:
            return self._raw.cursor()
        except self._error as error:  # psycopg looks whether the connection is still open
            raise self._named("", error) from error

    def execute(self, sql: str, bound: Sequence[Any] | Mapping[str, Any] = ()) -> None:
        """Raises DBAPIError, as a statement of SQLAlchemy would."""
        try:
            self._cursor.execute(sql, bound)
        except self._error as error:
            raise self._named(sql, error) from error

    def fetch(self, sql: str, bound: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        try:
            rows: list[Any] = self._cursor.execute(sql, bound).fetchall()
        except self._error as error:
            raise self._named(sql, error) from error
        return rows

    def _named(self, sql: str, error: Exception) -> DBAPIError:
        lost = self.dialect.is_disconnect(error, self._raw, None)  # type: ignore[arg-type]  # it is the driver's Error
        if lost:
            self._connection.invalidate(error)
        return DBAPIError(sql, None, error, connection_invalidated=lost)


class _Compiled:
    """SQL in one dialect and where its parameters come from: a name, or a constant of the statement."""

    def __init__(self, clause: Clause, dialect: Dialect, columns: Sequence[str] | None) -> None:
        made = clause.compile(dialect=dialect, column_keys=columns)
        self.sql = str(made)
        self._constants = {name: _plain(value) for name, value in made.params.items()}
        self._in_order = _in_order(made.positiontup) if made.positiontup is not None else None
        columns_out = [str(column[1]) for column in made._result_columns]
        shape: Any = namedtuple("Row", columns_out)  # type: ignore[misc]  # mypy wants to see the names
        self.row: Callable[[Sequence[Any]], Row] | None = shape._make if shape._fields else None

    def bound(self, given: Mapping[str, Any]) -> Sequence[Any] | Mapping[str, Any]:
        by_name = {**self._constants, **given}
        return by_name if self._in_order is None else self._in_order(by_name)


class Prepared:
    """`columns`: of an INSERT, those that are given."""

    def __init__(self, clause: Clause, *, columns: Sequence[str] | None = None) -> None:
        self._clause, self._columns = clause, columns
        self._compiled: dict[str, _Compiled] = {}

    def run(self, driver: Driver, given: Mapping[str, Any]) -> list[Row]:
        """The rows, if it gives any. Raises DBAPIError, as a statement of SQLAlchemy would."""
        compiled = self._compiled.get(driver.name)
        if compiled is None:
            compiled = self._compiled[driver.name] = _Compiled(self._clause, driver.dialect, self._columns)
        if compiled.row is None:
            driver.execute(compiled.sql, compiled.bound(given))
            return []
        return list(map(compiled.row, driver.fetch(compiled.sql, compiled.bound(given))))


class PreparedIn:
    """A statement with an in-list of any length; lengths are rounded up, the last value repeated."""

    def __init__(self, clause: Callable[[Sequence[str]], Clause], most: int) -> None:
        self._sizes: list[tuple[list[str], Prepared]] = []
        size = 1
        while size < 2 * most:
            names = [f"b_in_{number}" for number in range(size)]
            self._sizes.append((names, Prepared(clause(names))))
            size *= 2

    def run(self, driver: Driver, given: Mapping[str, Any], values: Sequence[Any]) -> list[Row]:
        names, prepared = next(sized for sized in self._sizes if len(sized[0]) >= len(values))
        padded = [*values, *[values[-1]] * (len(names) - len(values))]
        return prepared.run(driver, {**given, **dict(zip(names, padded, strict=True))})


def _in_order(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    """The values of a statement whose parameters are told by their place."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda by_name: [by_name[name] for name in names]


def _plain(value: Any) -> Any:
    """Drivers know strings, not our enumerations of them."""
    return str(value) if isinstance(value, str) else value
