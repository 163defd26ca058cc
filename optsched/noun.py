"""Nouns with a number before them."""


def number_of(count: int, noun: str) -> str:
    """Return `1 GPU`, `0 jobs`, `1,024 nodes`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
