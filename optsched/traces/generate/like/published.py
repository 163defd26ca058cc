"""Cluster models from their files: one a cluster, with the fitted numbers and where they are from.

A distribution is a list of values at the file's `levels` (those of Philly where it has none), or
the name of such a list under `run_s`, or median, standard deviation of the logarithm and longest of
a log-normal one. `rhythm` and `failing` may be `like` those of another cluster, but for what they
say themselves.
"""

import tomllib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from importlib.resources import files
from typing import Any

from ....model import UNMEASURED, Locality, Profile, Sharing
from .distribution import lognormal, quantiles, sigma_of
from .model import Cause, Failing, Group, Model, NodeKind, Rhythm, Row

NAMES = ("philly", "helios", "acme", "openb")
MINUTE_S = 60.0


@cache
def read(name: str) -> Model:
    """Return the model of a cluster."""
    raw = tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text())
    rows = tuple(_row(row, raw.get("run_s", {}), _levels(raw, "run_s")) for row in raw["rows"])
    return Model(
        name=name,
        title=raw["title"],
        sources=raw["sources"],
        nodes=tuple(NodeKind(**{"gpu_type": None, **kind}) for kind in raw["nodes"]),
        reference_gpu=raw.get("reference_gpu"),
        rows=rows,
        rhythm=_rhythm(raw["rhythm"], _levels(raw, "gaps")),
        failing=_failing(raw["failing"], rows),
        users=raw["users"],
        user_skew=raw["user_skew"],
        groups=tuple(Group(**group) for group in raw.get("groups", ())),
        published=raw["published"],
    )


def _levels(raw: dict[str, Any], what: str) -> Sequence[float]:
    if "levels" not in raw:
        raw = tomllib.loads(files(__package__).joinpath("philly.toml").read_text())
    levels: Sequence[float] = raw["levels"][what]
    return levels


def _row(raw: dict[str, Any], named: dict[str, list[float]], levels: Sequence[float]) -> Row:
    """Return a row; `cores`, `gib` and `duty` are for each GPU, or of all where there is none."""
    gpus, run_s = raw["gpus"], raw["run_s"]
    cores, gib = raw.get("cores"), raw.get("gib", 0)
    profile = UNMEASURED
    if gpus and cores is not None:
        profile = Profile(
            cpus_per_gpu={cores: 1.0},
            memory_gib_per_gpu=gib,
            sharing=Sharing(duty=raw["duty"]) if "duty" in raw else None,
            locality=Locality(rack=0.0, cluster=0.0) if gpus > 1 else None,
        )
    return Row(
        share=raw["share"],
        gpus=gpus,
        run_s=quantiles(levels, named[run_s]) if isinstance(run_s, str) else lognormal(*run_s),
        kind=raw.get("kind", "train"),
        cpus=0 if gpus else cores or 0,
        memory_gib=0.0 if gpus else gib,
        profile=profile,
    )


def _rhythm(raw: dict[str, Any], gap_levels: Sequence[float]) -> Rhythm:
    like = read(raw["like"]).rhythm if "like" in raw else None
    own: dict[str, Any] = {
        **{field.name: getattr(like, field.name) for field in fields(Rhythm) if like},
        **{key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()},
    }
    own.pop("like", None)
    if "gaps" in raw:
        own["gaps"] = quantiles(gap_levels, raw["gaps"])
    return Rhythm(**own)


# ------------------------------------------------------------------------------------------------
# failures


def _failing(raw: dict[str, Any], rows: Sequence[Row]) -> Failing:
    if "like" not in raw:
        return _by_mean_gang(raw) if "mean_gangs" in raw else _by_gang(raw)
    like = read(raw["like"]).failing
    if "shorter" in raw:
        return _scaled(like, raw["share"], raw["shorter"], rows)
    after_s = quantiles(raw["levels"], raw["after_s"])
    causes = (
        replace(cause, trials=(sum(cause.trials),), attempts=1.0, after_s=after_s)
        for cause in like.causes
    )
    return Failing(source=like.source, edges=(), chance=tuple(raw["chance"]), causes=tuple(causes))


def _by_gang(raw: dict[str, Any]) -> Failing:
    """Return how jobs fail where trials by gang size, the jobs that they hit and percentiles of the
    run time to failure are published. The shortest run times are not, and are taken to be as far
    below the median as the 90th percentile is above it, within bounds."""

    def cause(
        kind: str, trials: list[int], jobs: int, p50: float, p90: float, p95: float, longest: float
    ) -> Cause:
        shortest = max(p50 / max(1.5, min(p90 / p50, 10.0)), 0.05)
        minutes = (shortest, p50, p90, p95, longest)
        after_s = quantiles((0, 0.5, 0.9, 0.95, 1), [MINUTE_S * value for value in minutes])
        return Cause(
            kind=kind,
            trials=tuple(trials),
            attempts=sum(trials) / jobs,
            after_s=after_s,
            resumes=kind in raw["resume"],
        )

    causes = tuple(cause(*row) for row in raw["causes"])
    chance = tuple(
        sum(cause.trials[b] / cause.attempts for cause in causes) / jobs
        for b, jobs in enumerate(raw["jobs"])
    )
    return Failing(source=raw["source"], edges=tuple(raw["edges"]), chance=chance, causes=causes)


def _by_mean_gang(raw: dict[str, Any]) -> Failing:
    """Return how jobs fail where the mean gang of each cause is published, and the mean and median
    of its run time to failure."""
    small, middle, large = raw["mean_gangs"]

    def trials(count: float, gang: float) -> tuple[float, ...]:
        """Return the count over the two classes around a mean gang, such that the mean comes
        out."""
        if gang >= middle:
            part = min(1.0, (gang - middle) / (large - middle))
            return 0.0, count * (1 - part), count * part
        part = max(0.0, (gang - small) / (middle - small))
        return count * (1 - part), count * part, 0.0

    causes = tuple(
        Cause(
            kind=kind,
            trials=trials(count, gang),
            attempts=1.0,
            resumes=kind in raw["resume"],
            after_s=lognormal(MINUTE_S * median, sigma_of(median, mean), raw["longest_s"]),
        )
        for kind, count, gang, mean, median in raw["causes"]
    )
    return Failing(
        source=raw["source"], edges=tuple(raw["edges"]), chance=tuple(raw["chance"]), causes=causes
    )


def _scaled(like: Failing, share: float, shorter: float, rows: Sequence[Row]) -> Failing:
    """Return the same causes where only the share of jobs that fail is published, not why or when:
    chances by gang size in proportion, such that they come to `share` for these rows, and run times
    to failure `shorter` times as long."""
    overall = sum(row.share * like.chance[bisect_left(like.edges, row.gpus)] for row in rows) / sum(
        row.share for row in rows
    )
    causes = tuple(
        replace(
            cause,
            after_s=quantiles(
                cause.after_s.levels, [value * shorter for value in cause.after_s.values]
            ),
        )
        for cause in like.causes
    )
    chance = tuple(chance * share / overall for chance in like.chance)
    return replace(like, chance=chance, causes=causes)


MODELS = {name: read(name) for name in NAMES}
"""Every cluster model, by name."""
