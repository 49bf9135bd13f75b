"""What makes the store's hot path cheap, and a store of an earlier release the same as a new one."""

import re
import sqlite3

from sqlalchemy.dialects import sqlite

from openclaw_gateway.store import statements
from openclaw_gateway.store.databases import Sqlite
from openclaw_gateway.store.prepared import Prepared
from openclaw_gateway.store.schema import RETIRED_INDEXES, metadata


def test_no_hot_statement_compares_what_indexes_are_made_for_with_a_parameter():
    """SQLite would plan it anew at each run."""
    hot = {name: found for name, found in vars(statements).items() if isinstance(found, Prepared)}
    assert len(hot) > 15
    for name, prepared in hot.items():
        sql = str(prepared._clause.compile(dialect=sqlite.dialect(), column_keys=prepared._columns))
        where = sql.partition("WHERE")[2]
        assert not re.search(r"turns\.(state|reason) (=|IN \()\s*\(?\?", where), name


def _indexes(file):
    with sqlite3.connect(file) as connection:
        found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    connection.close()
    return {name for name in found if not name.startswith("sqlite_")}


def test_indexes_of_an_earlier_releases_store_are_brought_up_to_date(tmp_path):
    file = tmp_path / "experience.db"
    database = Sqlite(file)
    database.prepare()
    new = _indexes(file)
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DROP INDEX turns_unfinished")
        connection.exec_driver_sql("CREATE INDEX turns_body ON turns (owner, body_hash)")
    database.engine.dispose()
    again = Sqlite(file)
    again.prepare()
    again.engine.dispose()
    assert _indexes(file) == new == {index.name for table in metadata.tables.values() for index in table.indexes}
    assert not new & set(RETIRED_INDEXES)
