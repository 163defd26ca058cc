"""What the last round says of a live job: its decision, who is ahead, and what would have changed
it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...duration import human
from ...errors import InputError
from ...explain import Explainer, Explanation, Victim
from ...explain.inactive import with_sentence
from ...files import plain
from ...objectives import parse
from ...physics import may_preempt
from ...round.build import build
from ...round.model import RoundModel
from ...round.plan import BY_POLICY
from ...round.windows import at_present
from ..journal.state import LiveJob
from ..names import Names
from ..what_if.snapshot import Snapshot
from .blocked import Facts


def round_says(snapshot: Snapshot, job: LiveJob, facts: Facts, names: bool) -> list[str]:
    """Return what the last round says of a job, and what would have changed its decision."""
    instance, solution = snapshot.instance, snapshot.solution
    if instance is None or solution is None or job.id not in instance.job:
        return [] if job.live is not None else ["The next round decides about it."]
    if solution.by_policy:
        return [f"Policy {solution.solver.removeprefix(BY_POLICY)} says who starts."]
    seen = Names(snapshot.state, job, names)
    try:
        model = build(
            at_present(instance),
            parse(solution.objective),
            solution.round_s,
            refill=solution.refill,
            blocked=snapshot.blocked,
        )
        explanation = Explainer(model, solution).job(job.id)
    except InputError:
        return []  # nodes have come or gone since that round
    if explanation.state == "never" and snapshot.left_out:
        return []  # not beside those, whose GPUs and quota that round did not have
    ago = human(max(0.0, snapshot.now_s - instance.now_s))
    masked = with_sentence(instance, _masked(explanation, seen))
    facts["round"] = plain(masked)
    said = [f"The last round, {ago} ago: {masked.sentence}"]
    if explanation.state == "wait":
        if explanation.best is not None and explanation.best.mode.gpus:
            said += _ahead(model, job, seen, facts)
        said += _what_would_change(model, job, explanation, facts)
    return said


def _ahead(model: RoundModel, job: LiveJob, seen: Names, facts: Facts) -> list[str]:
    """Return who of those that wait or were just started for GPUs is worth more by GPU and
    second."""
    options, gpus = model.options, model.patterns.gpus[model.options.pattern]
    worth = options.value / np.maximum(gpus, 1.0)
    best = {
        waiting.id: (waiting.priority, float(worth[options.of(j)].max()))
        for j, waiting in enumerate(model.jobs)
        if model.running[j] is None and options.of(j) and gpus[options.first[j]] > 0
    }
    mine = best.pop(job.id, (job.submission.job.priority, 0.0))
    ahead = sorted(
        (name for name in best if best[name] > mine),
        key=lambda name: (-best[name][0], -best[name][1], name),
    )
    higher = any(best[name][0] > mine[0] for name in ahead)
    facts["ahead"] = {"jobs": len(ahead), "of": len(best) + 1}
    if not ahead:
        return ["No waiting job is worth more per GPU than this one."] if len(best) else []
    return [
        f"Of {len(best) + 1} waiting jobs it is number {len(ahead) + 1} by worth per GPU, "
        "behind "
        f"{seen.text(ahead)}: {'those of a higher priority, then ' if higher else ''}short jobs, "
        "those of more weight and those nearly done come first."
    ]


def _what_would_change(
    model: RoundModel, job: LiveJob, explanation: Explanation, facts: Facts
) -> list[str]:
    said = []
    weight, instance = job.submission.job.weight, model.instance
    if model.objective.is_linear and explanation.priced and not explanation.higher:
        factor = _factor(explanation)
        if factor is not None:
            facts["weight_needed"] = weight * factor
            said.append(
                f"With a weight of about {weight * factor:.3g} instead of {weight:g} it would be "
                "worth it."
            )
    forbidden = [
        entry for entry in instance.running if not may_preempt(instance, entry) and entry.mode.gpus
    ]
    if forbidden and explanation.best is not None:
        gpus = sum(entry.mode.gpus for entry in forbidden)
        facts["gpus_not_preemptible"] = gpus
        said.append(
            f"{gpus} GPUs are held by {len(forbidden)} job{'s' * (len(forbidden) != 1)} that may "
            "not be preempted."
        )
    asked, most = job.submission.job.gpus, facts.get("free", {}).get("most_on_one_node", 0)
    if isinstance(asked, int) and 0 < most < asked and not job.submission.job.modes:
        said.append(
            f"With {most} GPU{'s' * (most != 1)} instead of {asked} there would be room on one "
            "node now."
        )
    return said


def _factor(explanation: Explanation) -> float | None:
    """Return by how much its value must grow for it to run in place of what runs, or None where
    that is not all it lacks."""
    best, swap = explanation.best, explanation.swap
    if swap is None:
        return None
    factors = []
    if best is not None and 0 < best.value < best.price:
        factors.append(best.price / best.value)
    if swap.leavers and 0 < swap.value_gained < swap.value_lost:
        factors.append(swap.value_lost / swap.value_gained)
    return max(factors) * 1.01 if factors else None


def _masked(explanation: Explanation, seen: Names) -> Explanation:
    """Return the explanation without the names of jobs that are not to be named."""
    swap = explanation.swap
    if swap is not None:
        shown = [leaver for leaver in swap.leavers if seen.shown(leaver.id)]
        for preempted in (True, False):
            others = [
                leaver
                for leaver in swap.leavers
                if leaver.preempted is preempted and not seen.shown(leaver.id)
            ]
            if others:
                shown.append(_together(others, preempted))
        swap = replace(swap, leavers=tuple(shown))
    return replace(
        explanation,
        swap=swap,
        makes_way_for=seen.texts(explanation.makes_way_for),
        takes_from=seen.texts(explanation.takes_from),
    )


def _together(leavers: Sequence[Victim], preempted: bool) -> Victim:
    names = ("gpus", "value", "save_s", "startup_s", "restore_s", "lost_s")
    sums = {name: sum(getattr(leaver, name) for leaver in leavers) for name in names}
    others = f"{len(leavers)} job{'s' * (len(leavers) != 1)} of other users"
    return Victim(id=others, preempted=preempted, **sums)
