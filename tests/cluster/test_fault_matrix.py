"""Twelve telling cells of the fault matrix: real processes on a real API server, struck in the middle of a sync."""

import os
from pathlib import Path

import pytest

from tests.faults import matrix

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and nft need root")
async def test_weight_sync_survives_every_telling_fault(tmp_path: Path) -> None:
    cells = await matrix.run(matrix.SUBSET, tmp_path)
    assert {(cell.actor, cell.state, cell.fault): cell.result for cell in cells} == dict.fromkeys(matrix.SUBSET, "ok")
