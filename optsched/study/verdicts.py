"""What was published of a method against what is seen: a verdict with its interval."""

from collections.abc import Sequence
from typing import Literal

from ..frozen import record
from .design import Claim, Scalar, Study
from .intervals import Interval, mean_interval
from .results import Result
from .table import COLUMNS, markdown

FEWEST_SEEDS = 10
"""With fewer, nothing counts as shown."""
Verdict = Literal["shown", "shown in part", "not shown"]


@record
class Finding:
    """A claim held against the runs: the relative change by instance, pairs of one seed each, and
    what follows from it."""

    claim: Claim
    changes: dict[str, Interval]
    verdict: Verdict
    why: str


def findings(study: Study, results: Sequence[Result]) -> list[Finding]:
    """Return a finding for each claim of a study."""
    return [_finding(claim, _changes(claim, results)) for claim in study.claims]


def shows(claim: Claim, change: Interval) -> bool:
    """Return whether an interval of enough seeds lies on the published side of 0 altogether."""
    if len(change.values) < FEWEST_SEEDS or change.half is None:
        return False
    return change.high < 0.0 if claim.is_of_less else change.low > 0.0


def _finding(claim: Claim, changes: dict[str, Interval]) -> Finding:
    """Decide: shown where every instance shows it, and in the mean at least half of what was
    published, if a number was; in part where some instance shows it."""
    showing = [instance for instance, change in changes.items() if shows(claim, change)]
    mean = sum(change.mean for change in changes.values()) / max(1, len(changes))
    fewest = min((len(change.values) for change in changes.values()), default=0)
    if not changes:
        return Finding(claim, changes, "not shown", "no pair of runs")
    if fewest < FEWEST_SEEDS:
        return Finding(claim, changes, "not shown", f"{fewest} seeds of {FEWEST_SEEDS}")
    if not showing:
        return Finding(claim, changes, "not shown", "no interval excludes 0 on its side")
    if len(showing) < len(changes):
        why = f"on {len(showing)} of {len(changes)} instances"
        return Finding(claim, changes, "shown in part", why)
    if isinstance(claim.published, str):
        return Finding(claim, changes, "shown", f"{claim.published}; no number was published")
    share = mean / claim.published
    verdict: Verdict = "shown" if share >= 0.5 else "shown in part"
    return Finding(claim, changes, verdict, f"{share:.0%} of what was published")


def _changes(claim: Claim, results: Sequence[Result]) -> dict[str, Interval]:
    """Return the mean relative change by instance, over the seeds of which both methods have the
    number."""
    column = next(column for column in COLUMNS if column.name == claim.column)
    values: dict[str, dict[str, dict[Scalar | None, float]]] = {}
    for result in results:
        run = result.run
        meant = claim.only is None or {run.instance, run.group} & {*claim.only}
        if meant and run.method in (claim.method, claim.against):
            number = column.of(result)
            if number is not None:
                case = " ".join([run.instance, *(f"{k}={v}" for k, v in run.settings)])
                seeds = values.setdefault(case, {}).setdefault(run.method, {})
                seeds[dict(run.parameters).get("seed")] = number
    changes = {}
    for case, of_method in values.items():
        own, other = of_method.get(claim.method, {}), of_method.get(claim.against, {})
        pairs = [own[seed] / other[seed] - 1.0 for seed in own if other.get(seed)]
        if pairs:
            changes[case] = mean_interval(pairs)
    return changes


def percent(change: Interval) -> str:
    """Return a relative change as people read it."""
    half = "" if change.half is None else f" ± {100 * change.half:.1f}"
    return f"{100 * change.mean:+.1f}{half} %"


def published(claim: Claim) -> str:
    """Return what was published as people read it."""
    return (
        claim.published if isinstance(claim.published, str) else f"{100 * claim.published:+.3g} %"
    )


def verdicts_markdown(found: Sequence[Finding]) -> str:
    """Return a table: what was published, what is seen on each instance, and the verdict."""
    if not found:
        return ""
    heads = ["claim", "published", "seen (mean and 95 % interval)", "verdict"]
    lines = [
        [
            f"`{finding.claim.method}` against `{finding.claim.against}`, {finding.claim.column}",
            published(finding.claim)
            + (f" ({finding.claim.source})" if finding.claim.source else ""),
            "; ".join(f"{case} {percent(change)}" for case, change in finding.changes.items())
            or "-",
            f"**{finding.verdict}**: {finding.why}",
        ]
        for finding in found
    ]
    return "\n".join(markdown("Published and seen: verdicts", heads, lines, len(heads)))
