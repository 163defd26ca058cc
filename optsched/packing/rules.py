"""The rules by name."""

from collections.abc import Callable

from ..errors import InputError, perhaps
from .engine import Rule
from .problem import Problem

RULES = {
    "random": "a node at random (published)",
    "dot-product": "the smallest dot product of free resources and request (published)",
    "clustering": "beside jobs that ask for as many GPUs (published)",
    "packing": "GPUs in use first, then nodes in use (published)",
    "best-fit": "the node with the least left (published)",
    "fgd": "where GPUs that typical jobs cannot use grow least (published)",
    "optsched": "where least is lost if typical jobs keep coming",
}
"""Name and what it prefers."""


def checked(name: str) -> str:
    """A name that is known. Raises InputError for another."""
    if name not in RULES:
        raise InputError(
            f"--rule {name!r} is unknown{perhaps(name, RULES)}; one of {', '.join(RULES)}"
        )
    return name


def rule(name: str, problem: Problem, seed: int) -> Rule:
    """A rule by its name. Raises InputError for an unknown one."""
    from .fragmentation import FragmentationGradient
    from .published import BestFit, Clustering, DotProduct, GpuPacking, Random
    from .repeated import RepeatedJobs

    made: dict[str, Callable[[Problem, int], Rule]] = {
        "random": Random,
        "dot-product": DotProduct,
        "clustering": Clustering,
        "packing": GpuPacking,
        "best-fit": BestFit,
        "fgd": FragmentationGradient,
        "optsched": RepeatedJobs,
    }
    return made[checked(name)](problem, seed)
