"""Where the public data lies; a test that needs it is skipped where it is absent."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def data() -> Path:
    folder = Path(os.environ.get("OPTSCHED_DATA", REPOSITORY / ".." / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"the public data is not at {folder}; set OPTSCHED_DATA")
    return folder
