"""How close a generated workload is to the real trace and to published figures, in numbers."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from ....frozen import record
from ....model import Instance, gang
from .columns import Columns
from .distribution import Floats
from .model import Model
from .population import Ints

GANG_CLASSES = ((1, 1), (2, 4), (5, 8), (9, 1 << 30))
"""Smallest and largest gang of each class by which run times are compared."""
FEWEST = 25
"""Marginals of fewer values are not compared."""
TOP_USERS = 0.05


@record
class Distance:
    """Of one marginal: Kolmogorov-Smirnov (`ks`) or total variation (`tv`), between 0 and 1, to
    what, of how many."""

    marginal: str
    measure: str
    value: float
    against: str
    count: int


def kolmogorov_smirnov(a: Floats, b: Floats) -> float:
    """Return the largest difference of two empirical distribution functions."""
    a, b = np.sort(a), np.sort(b)
    at = np.unique(np.concatenate([a, b]))
    return float(
        np.abs(
            np.searchsorted(a, at, "right") / len(a) - np.searchsorted(b, at, "right") / len(b)
        ).max()
    )


def total_variation(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """Return half the sum of the differences of two sets of counts or shares, each divided by its
    sum."""
    total_a, total_b = sum(a.values()), sum(b.values())
    return sum(abs(a.get(key, 0) / total_a - b.get(key, 0) / total_b) for key in {**a, **b}) / 2


def distances(model: Model, made: Columns, real: Columns | None) -> list[Distance]:
    """Return every marginal that the real trace has, and the causes of failures against the
    published counts."""
    known = [] if real is None else [*_to_trace(made, real)]
    if made.after_s:
        counts = published_causes(model)
        attempts = {kind: float(len(after_s)) for kind, after_s in made.after_s.items()}
        against = f"counts of {model.failing.source}, all sizes"
        value, of = total_variation(attempts, counts), round(sum(counts.values()))
        known.append(Distance("causes of failures", "tv", value, against, of))
    return known


def _to_trace(made: Columns, real: Columns) -> Iterator[Distance]:
    """Yield the distance of each marginal to the real trace, where both have it."""

    def ks(marginal: str, a: Floats, b: Floats) -> Distance:
        return Distance(marginal, "ks", kolmogorov_smirnov(a, b), real.name, len(b))

    if made.gpus is not None and real.gpus is not None:
        if made.run_s is not None and real.run_s is not None:
            yield ks("run time", made.run_s, real.run_s)
            for bounds in GANG_CLASSES:
                a, b = (
                    columns[gang_class(gpus, *bounds)]
                    for columns, gpus in ((made.run_s, made.gpus), (real.run_s, real.gpus))
                )
                if min(len(a), len(b)) >= FEWEST:
                    yield ks(f"run time, {class_name(*bounds)}", a, b)
        value = total_variation(sizes(made.gpus), sizes(real.gpus))
        yield Distance("gang size", "tv", value, real.name, len(real.gpus))
    if made.submit_s is not None and real.submit_s is not None and len(made.submit_s) > FEWEST:
        yield ks("interval / mean interval", gap_ratios(made.submit_s), gap_ratios(real.submit_s))
    count = 0 if real.submit_s is None else len(real.submit_s)
    for name, own, theirs in (
        ("hour of the day", made.hours, real.hours),
        ("weekday", made.weekdays, real.weekdays),
    ):
        if own is not None and theirs is not None:
            yield Distance(name, "tv", float(np.abs(own - theirs).sum()) / 2, real.name, count)
    if made.tenants and real.tenants:
        value = total_variation(made.tenants, real.tenants)
        yield Distance("virtual clusters", "tv", value, real.name, sum(real.tenants.values()))


def published_causes(model: Model) -> dict[str, float]:
    """Return published counts of failed attempts by cause, over all gang sizes."""
    return {cause.kind: float(sum(cause.trials)) for cause in model.failing.causes}


def gang_class(gpus: Ints, smallest: int, largest: int) -> NDArray[np.bool_]:
    """Tell which jobs have a gang in this range."""
    return (gpus >= smallest) & (gpus <= largest)


def class_name(smallest: int, largest: int) -> str:
    """Return the range in words."""
    if largest > 1 << 20:
        return f"over {smallest - 1} GPUs"
    return (
        f"{smallest} to {largest} GPUs"
        if smallest < largest
        else f"{smallest} GPU" + "s" * (smallest > 1)
    )


def gap_ratios(submit_s: Floats) -> Floats:
    """Return intervals between submissions in mean intervals."""
    gaps = np.diff(submit_s)
    return np.asarray(gaps / max(gaps.mean(), 1e-9))


def sizes(gpus: Ints) -> dict[str, float]:
    """Return how many jobs have each gang size."""
    values, counts = np.unique(gpus, return_counts=True)
    return {str(value): float(count) for value, count in zip(values, counts, strict=True)}


# --------------------------------------------------------------------------------------------
# published totals


def _top_users(instance: Instance, model: Model) -> float:
    """Return the share of the GPU time that the users with the most of it take."""
    seconds: Counter[str | None] = Counter()
    for job in instance.jobs:
        seconds[job.user] += gang(job) * job.work_s  # type: ignore[assignment]
    taken = sorted(seconds.values(), reverse=True)
    return sum(taken[: max(1, round(TOP_USERS * model.users))]) / max(sum(taken), 1e-9)


TOTALS: dict[str, tuple[str, Callable[[Instance, Model], float]]] = {
    "mean_gpus": ("mean GPUs of a job", lambda made, _: fmean(map(gang, made.jobs))),
    "mean_run_s": ("mean run time, s", lambda made, _: fmean(job.work_s for job in made.jobs)),
    "median_run_s": ("median run time, s", lambda made, _: median(job.work_s for job in made.jobs)),
    "gpu_s": (
        "GPU-seconds of a job, mean",
        lambda made, _: fmean(gang(job) * job.work_s for job in made.jobs),
    ),
    "failing": (
        "share of jobs with a failed attempt",
        lambda made, _: len({failure.job for failure in made.failures}) / len(made.jobs),
    ),
    "top_users": ("GPU time of the top 5 % of users (published: six months)", _top_users),
}
"""Published totals by their name in `Model.published`: what they are called, and how they come from
a workload."""


def totals(model: Model, instance: Instance) -> list[tuple[str, float, float]]:
    """Return name, published value and value of the generated workload."""
    return [
        (TOTALS[key][0], value, TOTALS[key][1](instance, model))
        for key, value in model.published.items()
    ]
