"""tests/unit/gateway/test_opt_outs.py once more, on PostgreSQL: one contract, two databases."""

import pytest

from tests.unit.gateway.test_opt_outs import *  # noqa: F403 - the tests are the same

pytestmark = pytest.mark.contract
