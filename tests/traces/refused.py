"""What importers say of a file that they do not read."""

from collections.abc import Callable
from typing import Any

import pytest

from optsched.errors import InputError


def refusal(read: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Return the message of the InputError that reading ends with."""
    with pytest.raises(InputError) as caught:
        read(*arguments, **options)
    return str(caught.value)
