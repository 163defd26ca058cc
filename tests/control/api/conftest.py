"""A controller with its API, for all tests of a file."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .live import Live


@pytest.fixture
def folder() -> Iterator[Path]:
    """A state folder that all users may pass through, with a short name."""
    with tempfile.TemporaryDirectory(prefix="api") as name:
        path = Path(name)
        path.chmod(0o711)
        yield path


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with tempfile.TemporaryDirectory(prefix="api") as name:
        Path(name).chmod(0o711)
        found = Live(Path(name), api={"port": 0})
        yield found
        found.close()
        assert found.failed is None
