"""Tables that people write: TOML."""

import tomllib
from pathlib import Path
from typing import Any

from ..errors import InputError
from .regular import read_regular


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a file says. Raises InputError where it cannot be read or is not TOML."""
    try:
        return tomllib.loads(read_regular(path).decode("utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {error}") from None
    except (ValueError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        fault = "is nested too deeply" if deep else "has a number of too many digits"
        raise InputError(f"{path}: {fault} to be read; write less") from None
