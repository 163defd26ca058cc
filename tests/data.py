"""Where the public data is, and the skip for tests that need it."""

import os
from pathlib import Path

import pytest

DATA = Path(
    os.environ.get("OPTSCHED_DATA", Path(__file__).parent.parent.parent / "shared" / "data")
)


def needs_data(folder: str) -> pytest.MarkDecorator:
    """Skip where a folder of the public data is absent."""
    return pytest.mark.skipif(
        not (DATA / folder).is_dir(), reason=f"{DATA / folder} is absent; set OPTSCHED_DATA"
    )
