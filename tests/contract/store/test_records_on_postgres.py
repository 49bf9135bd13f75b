"""tests/unit/gateway/test_records.py once more, on PostgreSQL; erased words are in none of its files either."""

import pytest

from openclaw_core import wire
from openclaw_gateway.store.store import Store
from openclaw_gateway.store.turns import Finished
from tests.contract.store.shared import POLICY
from tests.unit.gateway.stored import arrival, recording, talk
from tests.unit.gateway.test_records import *  # noqa: F403 - the tests are the same

pytestmark = pytest.mark.contract
WORD = "Zwetschgenknoedel"


async def test_erased_words_are_in_no_table_file(server, database):
    store = await Store.open(database, POLICY, "pod-00000001")
    try:
        for session in ("gone", "kept"):
            begun = await store.arrive(arrival(talk(f"{session} {WORD}"), session=session))
            answer = {"role": "assistant", "content": f"{session} {WORD}"}
            finished = Finished(talk(f"{session} {WORD}"), answer, None, recording())
            await store.finish(begun.turn_id, finished)
        on_disk(server)
        assert present(server, f"gone {WORD}") and present(server, f"kept {WORD}")
        await store.erase(wire.EraseSession(session="gone"))
        on_disk(server)
        assert not present(server, f"gone {WORD}") and present(server, f"kept {WORD}")
    finally:
        await store.close()


def on_disk(server):
    server.query("CHECKPOINT")


def present(server, words):
    return any(words.encode() in file for file in server.files())
