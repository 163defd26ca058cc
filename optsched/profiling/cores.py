"""How many cores a command needs: it is run with several counts, and the smallest on the plateau is
found."""

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import InputError
from ..frozen import frozen
from ..model.quantity import Fraction, PositiveCount, Rate
from .facts import steps_of
from .probe import ProbeError, raise_if_failed
from .run import Setting, run

WITHIN = 0.05
"""A count is on the plateau where its rate is at most so much below that of the plateau."""


@frozen
class CoreCount:
    """What this many cores for each GPU give (in all for a CPU-only command): the median of steps
    per second, and `rate` relative to the plateau, at most 1, with the least and the most that
    single repeats gave."""

    cpus_per_gpu: PositiveCount
    steps_per_s: Rate
    rate: Rate
    least_rate: Rate
    most_rate: Rate


@frozen
class CoreSweep:
    """What the counts gave; `smallest` is the smallest count on the plateau, within `within` of it.

    `sure` says that in each repeat alone every count is on the same side of that line as over all
    of them.
    """

    counts: tuple[CoreCount, ...]
    smallest: PositiveCount
    sure: bool
    repeats: PositiveCount
    within: Fraction = WITHIN


def plateau(measured: Mapping[int, Sequence[float]]) -> CoreSweep:
    """Return the smallest core count on the plateau, from steps per second of each count in each
    repeat.

    The host may be slower in one repeat than in another: each rate is divided by the median of its
    repeat, as in the first step of median polish (Tukey, Exploratory Data Analysis, 1977, chapter
    11), and medians are taken over the repeats. The best of several noisy medians is too high, so
    the level of the plateau is not that one but the median of all rates whose count is within 5 %
    of it. Rates must be above 0, and of each count there must be as many.
    """
    counts = sorted(measured)
    repeats = len(measured[counts[0]])
    usual = [statistics.median(measured[count][i] for count in counts) for i in range(repeats)]
    relative = {
        count: [value / usual[i] for i, value in enumerate(measured[count])] for count in counts
    }
    middle = {count: statistics.median(relative[count]) for count in counts}
    best = max(middle.values())
    near = [count for count in counts if middle[count] >= (1 - WITHIN) * best]
    line = (1 - WITHIN) * statistics.median(value for count in near for value in relative[count])
    on = [count for count in counts if middle[count] >= line]
    level = line / (1 - WITHIN)
    return CoreSweep(
        counts=tuple(
            CoreCount(
                cpus_per_gpu=count,
                steps_per_s=statistics.median(measured[count]),
                rate=min(1.0, middle[count] / level),
                least_rate=min(relative[count]) / level,
                most_rate=max(relative[count]) / level,
            )
            for count in counts
        ),
        smallest=on[0],
        sure=all(
            (value >= line) == (middle[count] >= line)
            for count in counts
            for value in relative[count]
        ),
        repeats=repeats,
    )


def check_counts(counts: Sequence[int], gpus: int, cores: int) -> None:
    """Raise InputError for counts above the cores there are."""
    for count in counts:
        needed = count * max(1, gpus)
        if needed > cores:
            each = (
                f"{count} cores for each of {gpus} GPUs are {needed}"
                if gpus > 1
                else f"{needed} cores"
            )
            raise InputError(
                f"--cpus {count}: {each}, but this host has {cores} to use; leave that count out"
            )


def sweep(
    setting: Setting,
    counts: Sequence[int],
    repeats: int,
    on_run: Callable[[int, int], None] | None = None,
) -> CoreSweep:
    """Run the command with each count, `repeats` times, up and down the counts in turn so that a
    host that gets slower or warmer is unfair to none. `setting.cores` are those there are; `on_run`
    is told count and repeat before each run.

    Raises InputError where the command cannot be started, ProbeError where it fails or no steps
    are seen.
    """
    check_counts(counts, setting.gpus, len(setting.cores))
    measured: dict[int, list[float]] = {count: [] for count in sorted(counts)}
    for repeat in range(repeats):
        for count in sorted(measured, reverse=repeat % 2 == 1):
            if on_run is not None:
                on_run(count, repeat)
            measured[count].append(
                _steps_per_s(replace(setting, cores=setting.cores[: count * max(1, setting.gpus)]))
            )
    return plateau(measured)


def _steps_per_s(setting: Setting) -> float:
    with tempfile.TemporaryDirectory(prefix="optsched-profile-") as name:
        scratch = Path(name) / "run"
        scratch.mkdir()
        watched = run(setting, scratch, Path(name) / "checkpoints", 1)
    raise_if_failed(watched)
    steps = steps_of(watched)
    if steps is None:
        raise ProbeError(
            f"with {len(setting.cores)} cores no two steps were seen in {setting.for_s:g} s, so "
            "there is no rate to "
            "compare; give it longer with --for, or let the command report its steps "
            "(docs/profiling.md)"
        )
    return 1 / steps.times.mean_s
