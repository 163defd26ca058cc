"""Families of rounds: value, bound, gap, seconds and work of each, over some seeds.

    python -m benchmarks.families                       every family, five seeds
    python -m benchmarks.families llm types-12 --seeds 10
    python -m benchmarks.families llm --next --table    the first round and the ones after it
    python -m benchmarks.families --clock cpu           budgets are processor time
    python -m benchmarks.families --budget 600s --gap 2e-4 ...
    python -m benchmarks.families --clock cpu --table   one line a family

All rounds are of 300 s, nothing is started between rounds, and half of the jobs run as far as they
fit. Each is decided once, from the instance to the verified plan, within the budget of its family;
imports come before. `relaxations` counts the passes over all options, `placements` the attempts to
put an option on nodes, `cpu_s` is processor time. On a machine with other work `--clock cpu` gives
every deadline in processor time. With `--next` a round is decided until it has the gap of the
family, as the first one of a process that knows nothing of the cluster; then so are the next ones,
each with the one before as `last`, after that has been carried out and 1 % of the jobs have
changed: `next_share` is the median processor time of these over that of the first.
"""

import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

import optsched_solvers.native.highs as highs
import optsched_solvers.price.columns as columns
import optsched_solvers.price.dual as dual
import optsched_solvers.price.solver as price_solver
from benchmarks.command_line import parser_of, tell
from benchmarks.round import ROUND_S, carried_out, load_solvers
from optsched.cli.parts.duration import duration
from optsched.model.cluster import Node, Tenant
from optsched.model.instance import Instance, Running
from optsched.model.profile import Profile, Sharing
from optsched.physics import catalogue
from optsched.round.decide import decide
from optsched.round.exact import Program
from optsched.round.model import Floats
from optsched.round.place import Packing
from optsched.round.plan import RoundSolution
from optsched.round.verify import verify_round
from optsched.traces.generate.shared_uplinks import with_shared_uplinks
from optsched.traces.generate.synth import generate
from optsched_solvers.native.within import within

LEAST_GAP = 1e-6
"""No smaller gap is told apart in tables."""
CHANGES = 0.01
"""Part of the running jobs that end before the next round; as many come."""
ROUNDS = 3
"""Rounds after the first."""


def with_quotas(jobs: int, gpus: int, tenants: int, seed: int = 1) -> Instance:
    """Return an instance in which each job belongs to one of so many tenants, each of which may
    hold a little more than its part of the GPUs."""
    instance = generate(jobs=jobs, gpus=gpus, seed=seed, like="mixed", running=0.5)
    draw = random.Random(seed)
    owner = {job.id: f"t{draw.randrange(tenants)}" for job in instance.jobs}
    held = dict.fromkeys((f"t{k}" for k in range(tenants)), 0)
    for entry in instance.running:
        held[owner[entry.job]] += entry.mode.gpus
    return replace(
        instance,
        jobs=tuple(replace(job, tenant=owner[job.id]) for job in instance.jobs),
        tenants=tuple(
            Tenant(name=name, gpu_quota=max(32, used, gpus // tenants))
            for name, used in held.items()
        ),
    )


def with_sharing(jobs: int, gpus: int, seed: int = 1) -> Instance:
    """Return an instance in which each job may share its GPUs, at one of three duties."""
    instance = generate(jobs=jobs, gpus=gpus, seed=seed, like="mixed", running=0.5)
    draw = random.Random(seed)
    return _reprofiled(
        instance,
        lambda profile: replace(
            profile, sharing=Sharing(duty=draw.choice((0.2, 0.4, 0.6))), gpu_memory_gib=12.0
        ),
    )


def with_kinds(jobs: int, gpus: int, kinds: int, seed: int = 1) -> Instance:
    """Return an instance in which each node has one of so many numbers of cores."""
    instance = generate(jobs=jobs, gpus=gpus, seed=seed, like="mixed", running=0.5)
    draw = random.Random(seed)
    return _on_nodes(
        instance, lambda node: replace(node, cpus=64 + draw.randrange(kinds), memory_gib=512.0)
    )


def with_types(jobs: int, gpus: int, types: int, seed: int = 1) -> Instance:
    """Return an instance of so many GPU types, equal parts of the nodes each; how fast a family
    is on a type is drawn, and each type suits some families better."""
    instance = generate(jobs=jobs, gpus=gpus, seed=seed, like="mixed", running=0.5, gpu_types=1)
    draw, count = random.Random(seed), len(instance.cluster.nodes)
    of_node = {node.name: f"g{i * types // count}" for i, node in enumerate(instance.cluster.nodes)}
    speed = [draw.uniform(0.3, 1.5) for _ in range(types)]
    rate: dict[str | None, dict[str, float]] = defaultdict(
        lambda: {f"g{k}": round(speed[k] * draw.uniform(0.6, 1.4), 3) for k in range(types)}
    )
    instance = _on_nodes(instance, lambda node: replace(node, gpu_type=of_node[node.name]))
    instance = _reprofiled(instance, lambda profile: replace(profile, rate=rate[profile.name]))
    running = []
    for entry in instance.running:
        used = {of_node[slot.node] for slot in entry.placement}
        if len(used) == 1:
            running.append(replace(entry, mode=replace(entry.mode, gpu_type=used.pop())))
    cluster = replace(instance.cluster, reference_gpu=None)
    return replace(instance, cluster=cluster, running=tuple(running))


def with_tight_memory(jobs: int, gpus: int, seed: int = 1) -> Instance:
    """Return an instance in which jobs take 8 to 96 GiB of host memory for each GPU, of the 40 that
    nodes have."""
    instance = generate(jobs=jobs, gpus=gpus, seed=seed, like="mixed", running=0.5)
    draw = random.Random(seed)
    instance = _on_nodes(instance, lambda node: replace(node, memory_gib=40.0 * node.gpus))
    return _as_far_as_it_fits(
        _reprofiled(
            instance,
            lambda profile: replace(
                profile, memory_gib_per_gpu=draw.choice((8.0, 24.0, 32.0, 64.0, 96.0))
            ),
        )
    )


def with_few_cores(jobs: int, gpus: int, seed: int = 1) -> Instance:
    """Return an instance in which nodes have 4 cores for each GPU, and jobs would rather have 1 to
    8."""
    instance = generate(jobs=jobs, gpus=gpus, seed=seed, like="mixed", running=0.5)
    instance = _on_nodes(instance, lambda node: replace(node, cpus=4 * node.gpus))

    def with_fewer(entry: Running) -> Running:
        level = max(n for n in instance.job[entry.job].profile.cpus_per_gpu if n <= 4)
        return replace(
            entry,
            mode=replace(entry.mode, cpus_per_gpu=level),
            placement=tuple(replace(slot, cpus=level * slot.gpus) for slot in entry.placement),
        )

    return replace(instance, running=tuple(with_fewer(entry) for entry in instance.running))


def with_uplinks(jobs: int, gpus: int, seed: int = 1) -> Instance:
    """Return an instance in which gangs share uplinks of 100 Gbit/s a rack."""
    instance = generate(jobs=jobs, gpus=gpus, seed=seed, like="mixed", running=0.5)
    return with_shared_uplinks(instance, 100.0)


def plain(jobs: int, gpus: int, like: str, seed: int = 1) -> Instance:
    """Return an instance of three node classes."""
    return generate(jobs=jobs, gpus=gpus, seed=seed, like=like, running=0.5)  # type: ignore[arg-type]


def _on_nodes(instance: Instance, change: Callable[[Node], Node]) -> Instance:
    nodes = tuple(change(node) for node in instance.cluster.nodes)
    return replace(instance, cluster=replace(instance.cluster, nodes=nodes))


def _reprofiled(instance: Instance, change: Callable[[Profile], Profile]) -> Instance:
    """Return the instance with the profile of each job changed; what comes out equal is one
    object."""
    same: dict[Profile, Profile] = {}
    jobs = []
    for job in instance.jobs:
        profile = change(job.profile)
        jobs.append(replace(job, profile=same.setdefault(profile, profile)))
    return replace(instance, jobs=tuple(jobs))


def _as_far_as_it_fits(instance: Instance) -> Instance:
    """Return the instance without the running jobs for which their nodes lack host memory."""
    room = {node.name: node.memory_gib or 0.0 for node in instance.cluster.nodes}
    running = []
    for entry in instance.running:
        each_gib = instance.job[entry.job].profile.memory_gib_per_gpu
        if all(room[slot.node] >= each_gib * slot.gpus for slot in entry.placement):
            running.append(entry)
            for slot in entry.placement:
                room[slot.node] -= each_gib * slot.gpus
    return replace(instance, running=tuple(running))


@dataclass(frozen=True, slots=True)
class Family:
    """Rounds of one kind: `make` gives that of a seed, `wanted` is the gap to reach within the
    budget."""

    make: Callable[..., Instance]
    budget_s: float
    wanted: float


FAMILIES = {
    "llm": Family(partial(plain, 10_000, 16_384, "llm"), 1.0, 2e-4),
    "mixed": Family(partial(plain, 10_000, 16_384, "mixed"), 1.0, 2e-4),
    "llm-100k": Family(partial(plain, 100_000, 131_072, "llm"), 15.0, 5e-4),
    "mixed-100k": Family(partial(plain, 100_000, 131_072, "mixed"), 15.0, 5e-4),
    "types-6": Family(partial(with_types, 2_000, 2_000, 6), 2.0, 5e-4),
    "types-12": Family(partial(with_types, 2_000, 2_000, 12), 2.0, 5e-4),
    "types-20": Family(partial(with_types, 2_000, 2_000, 20), 2.0, 5e-4),
    "kinds-144": Family(partial(with_kinds, 3_000, 4_000, 48), 2.0, 5e-3),
    "kinds-240": Family(partial(with_kinds, 3_000, 4_000, 80), 2.0, 5e-3),
    "sharing-1000": Family(partial(with_sharing, 1_000, 1_000), 2.0, 3e-3),
    "sharing-3000": Family(partial(with_sharing, 3_000, 4_000), 2.0, 3e-3),
    "memory": Family(partial(with_tight_memory, 500, 512), 2.0, 3e-3),
    "cores-500": Family(partial(with_few_cores, 500, 512), 2.0, 5e-3),
    "cores-3000": Family(partial(with_few_cores, 3_000, 4_000), 2.0, 5e-3),
    "quotas": Family(partial(with_quotas, 3_000, 4_000, 30), 2.0, 3e-4),
    "quotas-600": Family(partial(with_quotas, 3_000, 4_000, 600), 2.0, 3e-4),
    "uplinks": Family(partial(with_uplinks, 3_000, 4_000), 2.0, 3e-4),
}


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count relaxations and attempts to place."""
    work: Counter[str] = Counter()

    def counted(what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any) -> Any:
            work[what] += 1
            return call(*args)

        return count

    with (
        mock.patch.object(dual, "relaxed", counted("relaxations", dual.relaxed)),
        mock.patch.object(Packing, "put", counted("placements", Packing.put)),
    ):
        yield work


def solve(
    instance: Instance, budget_s: float, gap: float, last: RoundSolution | None = None
) -> tuple[RoundSolution, float]:
    """Decide one round; return it and the processor time that it took."""
    started_s = time.process_time()
    solution = decide(
        instance, round_s=ROUND_S, refill=False, budget_s=budget_s, gap=max(gap, 1e-9), last=last
    )
    return solution, time.process_time() - started_s


def measure(name: str, seed: int, budget_s: float | None, gap: float) -> dict[str, Any]:
    """Return the record of one round of a family."""
    family = FAMILIES[name]
    instance = family.make(seed=seed)
    with counting() as work:
        solution, cpu_s = solve(instance, budget_s or family.budget_s, gap)
    return {
        "family": name,
        "seed": seed,
        "jobs": len(instance.jobs),
        "gpus": instance.cluster.total_gpus,
        "budget_s": budget_s or family.budget_s,
        "wanted": family.wanted,
        "value": solution.value,
        "bound": solution.bound,
        "gap": float(solution.gap),
        "reached": bool(solution.gap <= family.wanted),
        "wall_s": round(solution.wall_s or 0.0, 3),
        "cpu_s": round(cpu_s, 3),
        "relaxations": work["relaxations"],
        "placements": work["placements"],
        "rows": len(solution.prices),
        "verified": not verify_round(instance, solution.jobs),
        "fallback": solution.fallback,
    }


def measure_next(name: str, seed: int) -> dict[str, Any]:
    """Return the processor time of a first round of a family and of those after it, and the largest
    gap of these."""
    family = FAMILIES[name]
    instance = family.make(seed=seed)
    catalogue._catalogue.cache_clear()
    catalogue._fitting.cache_clear()
    last, first_s = solve(instance, 10 * family.budget_s, family.wanted)
    later_s, gaps = [], []
    for _ in range(ROUNDS):
        instance = carried_out(instance, last, CHANGES)
        last, cpu_s = solve(instance, 10 * family.budget_s, family.wanted, last)
        later_s.append(cpu_s)
        gaps.append(float(last.gap))
    return {
        "family": name,
        "seed": seed,
        "jobs": len(instance.jobs),
        "gpus": instance.cluster.total_gpus,
        "wanted": family.wanted,
        "first_s": round(first_s, 3),
        "next_s": [round(each_s, 3) for each_s in later_s],
        "next_gap": max(gaps),
        "reached": max(gaps) <= family.wanted,
    }


def main() -> None:
    parser = parser_of(
        __doc__,
        seeds=5,
        first_seed=1,
        budget=str,
        gap=0.0,
        next=False,
        table=False,
        clock=("wall", "cpu"),
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    arguments = parser.parse_args()
    for name in arguments.families:
        if name not in FAMILIES:
            parser.error(f"no family {name!r}: there are {', '.join(FAMILIES)}")
    load_solvers()
    if arguments.clock == "cpu":
        _by_processor_time()
    budget_s = None if arguments.budget is None else duration(arguments.budget)
    for name in arguments.families or FAMILIES:
        lines = []
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            if arguments.next:
                line = measure_next(name, seed)
            else:
                line = measure(name, seed, budget_s, arguments.gap)
            lines.append(line)
            if not arguments.table:
                tell(line)
        if arguments.next or arguments.table:
            tell(_row_of_next(lines) if arguments.next else _row(lines))


def _row(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the rounds of a family come to together; a gap below `LEAST_GAP` counts as
    that."""
    gaps = [max(LEAST_GAP, line["gap"]) for line in lines]
    row = {what: lines[0][what] for what in ("family", "jobs", "gpus", "budget_s", "wanted")}
    return row | {
        "seeds": len(lines),
        "median_gap": round(statistics.median(gaps), 6),
        "worst_gap": round(max(gaps), 6),
        "reached": sum(line["reached"] for line in lines),
        "cpu_s": max(line["cpu_s"] for line in lines),
    }


def _row_of_next(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the first rounds of a family and the next ones come to together."""
    first_s = statistics.median(line["first_s"] for line in lines)
    next_s = statistics.median(cpu_s for line in lines for cpu_s in line["next_s"])
    row = {what: lines[0][what] for what in ("family", "jobs", "gpus", "wanted")}
    return row | {
        "seeds": len(lines),
        "first_s": round(first_s, 3),
        "next_s": round(next_s, 3),
        "next_share": round(next_s / first_s, 2),
        "reached": sum(line["reached"] for line in lines),
    }


def _by_processor_time() -> None:
    """Let every deadline of this process be one of processor time; those of native solvers, which
    are not, are longer by what other work has slowed this process down so far. To ask for processor
    time takes long on some machines, and is done every millisecond at most."""
    wall, maximise = time.perf_counter, highs.maximise
    solve = columns.Master.solve
    started_s, cpu_started_s = wall(), time.process_time()
    asked_s, used_s = started_s, cpu_started_s

    def used() -> float:
        nonlocal asked_s, used_s
        if wall() > asked_s + 1e-3:
            asked_s, used_s = wall(), time.process_time()
        return used_s

    def slowed() -> float:
        return max(1.0, (wall() - started_s) / (time.process_time() - cpu_started_s))

    def maximise_slowly(program: Program, limit_s: float, **limits: float) -> highs.Outcome:
        return maximise(program, slowed() * limit_s, **limits)

    time.monotonic = used

    def solve_slowly(master: columns.Master, left_s: float) -> tuple[float, Floats, Floats] | None:
        return solve(master, slowed() * left_s)

    highs.maximise = maximise_slowly  # type: ignore[assignment]
    columns.Master.solve = solve_slowly  # type: ignore[assignment,method-assign]
    price_solver.within = lambda limit_s, call: within(  # type: ignore[assignment,attr-defined]
        slowed() * limit_s, call
    )


if __name__ == "__main__":
    main()
