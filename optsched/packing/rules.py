"""The rules by name."""

from ..errors import InputError, perhaps
from .engine import Rule
from .fragmentation import FragmentationGradient
from .published import BestFit, Clustering, DotProduct, GpuPacking, Random
from .repeated import RepeatedJobs

RULES: dict[str, tuple[type[Rule], str]] = {
    "random": (Random, "a node at random (published)"),
    "dot-product": (
        DotProduct,
        "the smallest dot product of what is free and the request (published)",
    ),
    "clustering": (Clustering, "beside jobs that ask for as many GPUs (published)"),
    "packing": (GpuPacking, "GPUs in use first, then nodes in use (published)"),
    "best-fit": (BestFit, "the node with the least left (published)"),
    "fgd": (FragmentationGradient, "where GPUs of no use to typical jobs grow least (published)"),
    "optsched": (RepeatedJobs, "where least is lost if typical jobs keep coming"),
}
"""What each prefers."""


def rule(name: str) -> type[Rule]:
    """Return a rule by its name. Raises InputError for an unknown one."""
    if name not in RULES:
        raise InputError(
            f"--rule {name!r} is unknown{perhaps(name, RULES)}; one of {', '.join(RULES)}"
        )
    return RULES[name][0]
