"""tests/unit/gateway/test_admission.py once more, on PostgreSQL: one contract, two databases."""

import pytest

from tests.unit.gateway.test_admission import *  # noqa: F403 - the tests are the same

pytestmark = pytest.mark.contract
