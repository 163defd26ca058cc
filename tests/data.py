"""Where the public data is, and the skip for tests that need it."""

import pytest

from benchmarks.data import DATA


def needs_data(folder: str) -> pytest.MarkDecorator:
    """Skip where a folder of the public data is absent."""
    return pytest.mark.skipif(
        not (DATA / folder).is_dir(), reason=f"{DATA / folder} is absent; set OPTSCHED_DATA"
    )
