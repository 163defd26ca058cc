"""How much room there is below the policies: plans by a search that knows which jobs will come.

    python -m benchmarks.clairvoyant [--case NAME ...] [--seeds 8]

At each event of a case of `preemption_cost` the list search of `optsched` plans the jobs that are
here and all that are still to come, preemptions of those that run included, and the best plan so
far is followed. It begins with the orders in which the policies started the jobs. The room of a
seed is the difference between the best policy but `optsched` and the best of all plans that are
known, this search's or a policy's: a search proves nothing, so there may be more. Work is counted,
so that results do not depend on the machine.
"""

import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.command_line import parser_of, tell
from benchmarks.preemption_cost import CASES, RIVALS
from optsched.driver.snapshot import snapshot
from optsched.driver.world import World
from optsched.model.instance import Instance
from optsched.model.plan import Plan
from optsched.objectives import parse
from optsched.plugins import registry
from optsched.simulate.run import simulate
from optsched.verify import verify
from optsched_solvers.policies.parts.agenda import Agenda, Outline, search

WCT = parse("wct")
COSTS_S = (60, 200, 400)
BLIND = "blind"
FIRST_S, AGAIN_S = 20.0, 0.3
"""Counted work of the first plan, and of each that is sought at an event."""


class Clairvoyant:
    """Follows the best plan that is known of all jobs, those to come included unless `blind`."""

    name, title = "clairvoyant", "a search that knows which jobs will come"

    def __init__(self, jobs: Instance, outlines: list[Outline], blind: bool = False) -> None:
        self._jobs, self._outlines = () if blind else jobs.jobs, outlines
        self._first_s, self._order = (AGAIN_S if blind else FIRST_S), outlines[-1][0]
        self._agenda: Agenda | None = None

    def decide(self, world: World) -> None:
        """Do what the plan says now, or a better one that is found."""
        world.take_arrived()
        world.start_claimed()
        limit_s = AGAIN_S if self._agenda else self._first_s
        last = self._agenda.step(world, ()) if self._agenda else None
        coming = [job for job in self._jobs if job.submit_s > world.now_s]
        found = search(world, snapshot(world), WCT, self._outlines, limit_s, coming)
        trial = found and found[0].step(world, (), found[1])
        if (
            found
            and trial
            and not (last and self._agenda and not _is_sooner(found[0], self._agenda))
        ):
            self._agenda, last = found[0], trial
        if last is not None:
            last.carry_out()
        if self._agenda is not None:
            self._outlines = [({**self._order, **_starts_s(self._agenda)}, ())]
            if (next_s := self._agenda.next_start_s(world.now_s)) is not None:
                world.wake_at(next_s)


def _is_sooner(plan: Agenda, other: Agenda) -> bool:
    """Return whether the jobs of a plan complete sooner in the sum than in another."""
    return sum(end_s - other.ends_s[job_id] for job_id, end_s in plan.ends_s.items()) < -1e-6


def _starts_s(plan: Agenda) -> dict[str, float]:
    """Return about when each job starts, those that run at once."""
    return {job_id: plan.starts.get(job_id, (0.0,))[0] for job_id in plan.ends_s}


def outline(plan: Plan) -> Outline:
    """Return when each job last started in a plan."""
    return {entry.id: entry.segments[-1].start_s for entry in plan.jobs}, ()


def mean_jct_s(instance: Instance, plan: Plan) -> float:
    """Return the mean JCT of a plan that the verifier accepts."""
    report = verify(instance, plan, WCT, replay=True)
    assert report.values is not None, report.violations
    return report.values[0] / len(instance.jobs)


def of_seed(case: str, cost_s: float, seed: int) -> dict[str, float]:
    """Return the mean JCT of each policy and of the search."""
    instance = CASES[case].instance(seed, cost_s)
    plans = {name: simulate(instance, registry.policy(name)) for name in (*RIVALS, "optsched")}
    outlines = [outline(plan) for plan in plans.values()]
    for name in ("clairvoyant", BLIND):
        plans[name] = simulate(instance, Clairvoyant(instance, outlines, blind=name == BLIND))
    return {name: mean_jct_s(instance, plan) for name, plan in plans.items()}


def rows(
    cases: list[str], costs_s: list[float], seeds: range, processes: int
) -> Iterator[dict[str, Any]]:
    """Yield one row for each case and cost."""
    with ProcessPoolExecutor(processes) as pool:
        for case in cases:
            for cost_s in costs_s:
                runs = [pool.submit(of_seed, case, cost_s, seed) for seed in seeds]
                yield {"case": case, "cost_s": cost_s, **row([run.result() for run in runs])}


def row(seeds: list[dict[str, float]]) -> dict[str, Any]:
    """Return the means over the seeds, the room below the best rule and how much of it `optsched`
    takes."""
    means = {name: statistics.fmean(seed[name] for seed in seeds) for name in seeds[0]}
    rule = min(RIVALS, key=means.__getitem__)
    known = statistics.fmean(min(seed.values()) for seed in seeds)
    room = means[rule] - known
    return {
        "rule": rule,
        "rule_s": round(means[rule]),
        "optsched_s": round(means["optsched"]),
        "clairvoyant_s": round(means["clairvoyant"]),
        "blind_s": round(means[BLIND]),
        "known_s": round(known),
        "room": round(room / means[rule], 4),
        "taken": round((means[rule] - means["optsched"]) / room, 2) if room > 0 else None,
    }


def main() -> None:
    """Print a JSON object for each case and cost."""
    parser = parser_of(__doc__, seeds=8, processes=2)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--cost", action="append", type=float, help="seconds of saving")
    args = parser.parse_args()
    for result in rows(
        args.case or ["small300", "gang300"],
        args.cost or list(COSTS_S),
        range(args.seeds),
        args.processes,
    ):
        tell(result)


if __name__ == "__main__":
    main()
