"""The price of strict priorities: the same jobs simulated once more as if all had one."""

from collections import defaultdict
from dataclasses import replace
from statistics import fmean
from typing import Any

from ..model import Instance
from .outcome import Setting, Simulated


def as_one_tier(instance: Instance) -> Instance:
    """Return the instance in which all jobs have one priority."""
    return replace(
        instance,
        cluster=replace(instance.cluster, tiers=()),
        jobs=tuple(replace(job, priority=0) if job.priority else job for job in instance.jobs),
    )


def price_of_priorities(setting: Setting, simulated: Simulated) -> dict[str, Any]:
    """Return the mean JCT of a simulation and of the same jobs in one tier, of all jobs and of
    those of each priority, the highest first; `cost` is by how much of the latter the former is
    larger, negative where it is smaller. Raises what a simulation raises."""
    one_tier = setting.simulation(as_one_tier(simulated.instance))
    one_tier.run()
    strict_s = _jcts_s(simulated)
    equal_s = _jcts_s(Simulated(setting, one_tier))
    jobs = simulated.instance.jobs
    priorities = sorted({job.priority for job in jobs}, reverse=True)

    def compared(names: list[str]) -> dict[str, Any]:
        strict, equal = (
            fmean(jct_s[name] for name in names) if names else 0.0 for jct_s in (strict_s, equal_s)
        )
        cost = strict / equal - 1 if equal else None
        return {"jobs": len(names), "mean_jct_s": strict, "one_tier_s": equal, "cost": cost}

    tiers = defaultdict(list)
    for job in jobs:
        tiers[job.priority].append(job.id)
    return {
        **compared([job.id for job in jobs]),
        "priorities": [
            {"priority": priority, **compared(tiers[priority])} for priority in priorities
        ],
    }


def _jcts_s(simulated: Simulated) -> dict[str, float]:
    submit_s = {job.id: job.submit_s for job in simulated.instance.jobs}
    return {
        entry.id: entry.segments[-1].end_s - submit_s[entry.id]
        for entry in simulated.plan.jobs
        if entry.segments
    }


def in_words(price: dict[str, Any]) -> list[str]:
    """Return the price as lines of text."""
    lines = [f"strict priorities cost {_signed(price['cost'])} of mean JCT, by priority:"]
    for tier in price["priorities"]:
        jobs = f"{tier['jobs']:,} job{'s' * (tier['jobs'] != 1)}"
        lines.append(f"  {tier['priority']}: {_signed(tier['cost'])} ({jobs})")
    return lines


def _signed(share: float | None) -> str:
    return "0 %" if share is None else f"{100 * share:+.1f} %"
