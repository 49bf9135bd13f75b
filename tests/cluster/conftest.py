"""The cluster under test, the operator installed from this chart, and a namespace of its own for each test module."""

from collections.abc import Iterator

import pytest

from tests.cluster.lab import Lab, install_operator


@pytest.fixture(scope="session")
def operator() -> None:
    """The operator of this working tree's chart and of the images `make images` pushed last."""
    install_operator()


@pytest.fixture(scope="module")
def lab(operator: None) -> Iterator[Lab]:
    """A namespace under the restricted Pod Security Standard; it and everything in it goes afterwards."""
    del operator  # it only has to run
    with Lab.fresh() as found:
        yield found
