"""The accounting identity under disorder, on PostgreSQL."""

import itertools

import pytest
from hypothesis import HealthCheck, settings

from openclaw_gateway.store.databases import Postgres
from tests.unit.gateway.test_store_rules import RULES, StoreRules

pytestmark = pytest.mark.contract
_numbers = itertools.count()


class PostgresRules(StoreRules):
    url = ""

    def database(self):
        return Postgres(self.url, namespace="rules", training=f"t{next(_numbers)}")


@pytest.fixture(autouse=True)
def _url(server):
    PostgresRules.url = server.url


PostgresRules.TestCase.settings = settings(
    RULES,
    max_examples=8,
    suppress_health_check=[*HealthCheck],  # the fixture only names the server
)
test_store_rules_on_postgres = PostgresRules.TestCase
