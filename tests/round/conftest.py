"""What tests of rounds share."""

from collections.abc import Iterator

import pytest

from optsched.round import tiers


@pytest.fixture(scope="module")
def in_one_tier() -> Iterator[None]:
    """Rounds as one problem also where jobs borrow; bounds of their tiers are tried elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiers, "borrowers", lambda instance: frozenset())
        yield
