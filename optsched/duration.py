"""Lengths of time as people write and read them."""

import math
import re

PIECE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|min|m|h|d|)\s*")
SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_S = 1e10
"""What a file may hold, too (quantity.Seconds)."""


def parse_duration(text: str) -> float:
    """Return the seconds of `90`, `90s`, `5m`, `2h`, `1h30m`, `500ms`, `1d`. Raises ValueError with
    what is right."""
    pieces = PIECE.findall(text.strip())
    rest = PIECE.sub("", text.strip())
    if not pieces or rest or (len(pieces) > 1 and any(not unit for _, unit in pieces)):
        raise ValueError(
            f"{text!r} is not a duration; write seconds or a number with a unit: 90, 90s, 5m, 2h, "
            "1h30m"
        )
    total_s = math.fsum(float(number) * SECONDS[unit] for number, unit in pieces)
    if total_s > LONGEST_S:
        raise ValueError(f"{text!r} is longer than {LONGEST_S:g} seconds, which is three centuries")
    return total_s


def human(seconds: float) -> str:
    """Return a length of time in its two largest units: `45 s`, `5 min 20 s`, `2 h 5 min`, `3 d 4
    h`, `12 ms`."""
    if seconds < 0:
        return "-" + human(-seconds)
    if seconds == 0:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.{2 if seconds < 2 else 1}f}".rstrip("0").rstrip(".") + " s"
    whole = round(seconds)
    for large, large_s, small, small_s in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= large_s:
            count = round(seconds / small_s)
            major, minor = divmod(count, large_s // small_s)
            return f"{major:,} {large}" + (f" {minor} {small}" if minor else "")
    return f"{whole} s"
