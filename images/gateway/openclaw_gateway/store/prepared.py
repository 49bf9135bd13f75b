"""A statement compiled once for each database and then run on the driver's own cursor.

SQLAlchemy Core writes the SQL, so both databases share it; but to run one of its statements costs it ten times what
SQLite needs for the same, and a turn runs a dozen. Parameters are named, rows come as named tuples.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import CompoundSelect, Connection, Delete, Dialect, Insert, Select, Update
from sqlalchemy.exc import DBAPIError

Row: TypeAlias = Any
"""A named tuple: columns by name."""
Clause: TypeAlias = Select[Any] | CompoundSelect[Any] | Insert | Update | Delete


class _Compiled:
    """SQL in one dialect and where its parameters come from: a name, or a constant of the statement."""

    def __init__(self, clause: Clause, dialect: Dialect, columns: Sequence[str] | None) -> None:
        made = clause.compile(dialect=dialect, column_keys=columns)
        self.sql = str(made)
        constants = {name: value for name, value in made.params.items() if value is not None}
        self._constants = {name: _plain(value) for name, value in constants.items()}
        self._order: Sequence[str] | None = made.positiontup
        self._names = tuple(made.params)
        columns_out = [str(column[1]) for column in made._result_columns]
        shape: Any = namedtuple("Row", columns_out)  # type: ignore[misc]  # mypy wants to see the names
        self.row: Callable[[Sequence[Any]], Row] | None = shape._make if shape._fields else None

    def bound(self, given: Mapping[str, Any]) -> Sequence[Any] | Mapping[str, Any]:
        if self._order is not None:
            constants = self._constants
            return [given[name] if name in given else constants.get(name) for name in self._order]
        return {name: given[name] if name in given else self._constants.get(name) for name in self._names}


class Prepared:
    """`columns`: of an INSERT, those that are given."""

    def __init__(self, clause: Clause, *, columns: Sequence[str] | None = None) -> None:
        self._clause, self._columns = clause, columns
        self._compiled: dict[str, _Compiled] = {}

    def run(self, connection: Connection, given: Mapping[str, Any]) -> list[Row]:
        """The rows, if it gives any. Raises DBAPIError, as a statement of SQLAlchemy would."""
        dialect = connection.dialect
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            compiled = self._compiled[dialect.name] = _Compiled(self._clause, dialect, self._columns)
        driver = connection.connection.driver_connection
        try:
            cursor = driver.execute(compiled.sql, compiled.bound(given))  # type: ignore[union-attr]  # both have it
            return [] if compiled.row is None else list(map(compiled.row, cursor.fetchall()))
        except connection.dialect.loaded_dbapi.Error as error:
            lost = dialect.is_disconnect(error, driver, None)
            if lost:
                connection.invalidate(error)
            raise DBAPIError(compiled.sql, None, error, connection_invalidated=lost) from error


class PreparedIn:
    """A statement with an in-list of any length; lengths are rounded up, the last value repeated."""

    def __init__(self, clause: Callable[[Sequence[str]], Clause], most: int) -> None:
        self._sizes: list[tuple[list[str], Prepared]] = []
        size = 1
        while size < 2 * most:
            names = [f"b_in_{number}" for number in range(size)]
            self._sizes.append((names, Prepared(clause(names))))
            size *= 2

    def run(self, connection: Connection, given: Mapping[str, Any], values: Sequence[Any]) -> list[Row]:
        names, prepared = next(sized for sized in self._sizes if len(sized[0]) >= len(values))
        padded = [*values, *[values[-1]] * (len(names) - len(values))]
        return prepared.run(connection, {**given, **dict(zip(names, padded, strict=True))})


def _plain(value: Any) -> Any:
    """Drivers know strings, not our enumerations of them."""
    return str(value) if isinstance(value, str) else value
