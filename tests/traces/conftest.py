"""Where the public data lies; a test that needs it is skipped where it is absent."""

from pathlib import Path

import pytest

from tests.data import DATA


@pytest.fixture(scope="session")
def data() -> Path:
    if not DATA.is_dir():
        pytest.skip(f"the public data is not at {DATA}; set OPTSCHED_DATA")
    return DATA
