"""How functions on arrays of numbers are compiled, and what several of them need.

What was compiled before is made anew only when the file of its function has changed: a change of
`random`, `pick` or `put` needs one in the files that call them.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile a function when it is first called, or read what was compiled before."""
    options = {"error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
    made: Function
    try:
        made = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can be written to
        made = numba.njit(**options)(function)
    return made


def within(function: Function) -> Function:
    """Compile a function with those that call it: without what a call from Python needs."""
    made: Function = numba.njit(
        error_model="numpy", _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True
    )(function)
    return made


def was_compiled(*functions: Callable[..., object]) -> bool:
    """Return whether one of these was compiled in this process, and not read."""
    return any(cast(Any, function).stats.cache_misses for function in functions)


@within
def random(state: npt.NDArray[Any]) -> float:
    """Return a random number from 0 to 1 (SplitMix64: Steele, Lea and Flood, OOPSLA 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return float((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@within
def pick(state: npt.NDArray[Any], count: int) -> int:
    """Return a random number of 0, 1, ... below `count`."""
    return min(int(random(state) * count), count - 1)


@within
def put(order: npt.NDArray[np.int64], at: int, to: int) -> None:
    """Move the job at a place of a list to another."""
    j = order[at]
    for k in range(at, to):
        order[k] = order[k + 1]
    for k in range(at, to, -1):
        order[k] = order[k - 1]
    order[to] = j
