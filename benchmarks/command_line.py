"""What benchmarks take from their command line, and how they tell what they found."""

import argparse
import json
from typing import Any


def parser_of(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """Return a parser with an option for each default, of its type: one of a tuple (the first),
    integers between commas for a list, a flag for False; for a type, None unless it is given."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        option = "--" + name.replace("_", "-")
        if default is False:
            parser.add_argument(option, action="store_true")
        elif isinstance(default, tuple):
            parser.add_argument(option, choices=default, default=default[0])
        elif isinstance(default, list):
            parser.add_argument(option, type=_numbers, default=default)
        elif isinstance(default, type):
            parser.add_argument(option, type=default)
        else:
            parser.add_argument(option, type=type(default), default=default)
    return parser


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def tell(record: dict[str, Any]) -> None:
    """Print a record as a line of JSON, at once."""
    print(json.dumps(record), flush=True)
