"""Ranges of what generators take."""

import math

from ...errors import InputError

LONGEST_SPAN_DAYS = 100 * 366
RANGES: dict[str, tuple[float, float]] = {
    "jobs": (1, 1_000_000),
    "gpus": (1, 200_000),
    "gpus_per_node": (1, 1000),
    "gpu_types": (1, 3),
    "seed": (0, math.inf),
    "running": (0, 1),
    "load": (0, 100),
    "days": (0, LONGEST_SPAN_DAYS),
}
ABOVE = ("load", "days")
"""They must be above the least."""


def check_ranges(**given: float | None) -> None:
    """Raise InputError for the first argument that is out of its range; None is in any."""
    for name, value in given.items():
        least, most = RANGES[name]
        if value is None or (
            (least < value if name in ABOVE else least <= value) and value <= most
        ):
            continue
        wanted = f"between {least} and {most}"
        if name in ABOVE:
            wanted = f"above {least} and at most {most}"
        elif most == math.inf:
            wanted = f"{least} or more"
        raise InputError(f"generate: {name} must be {wanted}")
