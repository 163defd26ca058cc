"""CASSINI: gangs that share an uplink compute and communicate in turns, shifted in time or not.

    python -m benchmarks.phases                    # the page and the picture of its study
    python -m benchmarks.phases --seeds 1,2        # the verdicts on fewer seeds, and no page

In the simulator a gang takes its share of an uplink at all times. Here it computes, sends, computes
and so on, and those that send at once share each uplink by max-min fairness. Whoever joins or
leaves changes the pace of all gangs that are connected by uplinks: it is that of the steps that
they would do from then on, simulated until each of them has gone through many. A gang begins its
first step whenever it does: at a point of its step that a hash of its name says.

`cassini-style` does to the placements of Themis what is published: each link that gangs share has a
circle as long as the least common multiple of their steps, on which their demands are rotated for
the best compatibility score, 1 less the mean demand beyond the capacity over the capacity; of up to
ten places of a gang that which has the best mean score of all links is taken; and the rotations of
all circles give each gang one shift in time, by a walk through the graph of gangs and links.
Methods of the study that are named in `MODULES` have a part of that.

Steps last as long as the message of a family takes at the rate of a gang, over the share of the
step that it takes; both are whole ticks of 10 ms.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.command_line import parser_of
from benchmarks.messages import PARAMETERS_M
from benchmarks.systems import write_page
from optsched import api
from optsched.bounds import lower_bounds
from optsched.driver.contention import Channels
from optsched.driver.view import Fit
from optsched.driver.world import World
from optsched.model.instance import Instance
from optsched.model.profile import Profile
from optsched.objectives import parse, values
from optsched.physics import crossed_uplinks
from optsched.physics.contention import Channel
from optsched.picture.paper import pictures
from optsched.plugins.options import declared_by, read_words
from optsched.plugins.registry import policy
from optsched.simulate.metrics import measure
from optsched.simulate.metrics.summary import summary
from optsched.simulate.report.series import thinned
from optsched.simulate.run import Simulation
from optsched.study.address import digest
from optsched.study.commands import ONLY_PYTHON
from optsched.study.design import Run, Study, arguments, read_study, runs
from optsched.study.machine import made_on
from optsched.study.report.behaviour import speedups
from optsched.study.report.compare import compare
from optsched.study.report.foot import foot
from optsched.study.results import Result, Results
from optsched.study.table import as_markdown, rows
from optsched.study.verdicts import findings, verdicts_markdown
from optsched_solvers.policies.parts.gang_placement import by_rack, fill, usable

STUDY = Path(__file__).with_name("cassini-style.toml")
AGAIN = "python -m benchmarks.phases"
TICK_S = 0.01
CANDIDATES = 10
STEPS = 24
"""Of the longest step of connected gangs, of which the second half counts."""
CLOSE = 1e-9
WCT = parse("wct")


class Module(NamedTuple):
    """What of CASSINI is at work beside a policy."""

    places: bool = False
    shifts: bool = False
    contention: bool = True
    sends_evenly: bool = False
    """Whether the policy is told the mean rate of each gang, as if shifts made room for all."""


MODULES = {
    "cassini-style": Module(places=True, shifts=True),
    "shifts alone": Module(shifts=True),
    "places alone": Module(places=True),
    "no contention": Module(contention=False),
    "optsched shifted": Module(shifts=True, sends_evenly=True),
}
"""By the name of a method of the study; others are on their own."""


class Step(NamedTuple):
    """The ticks of a step, and of its end in which the gang sends."""

    ticks: int
    sends: int


@cache
def step_of(profile: Profile) -> Step:
    """Return the step of a gang that has its links for itself."""
    message_s = PARAMETERS_M[profile.name or ""] * 1e6 * 32 * 2 / 1e9 / profile.network_gbps
    sends = max(1, round(message_s / TICK_S))
    return Step(max(sends, round(message_s / profile.network_duty / TICK_S)), sends)


# ------------------------------------------------------------------------------------- circles


class Rotation(NamedTuple):
    """The compatibility score of gangs on a link, and the shift of each in ticks."""

    score: float
    shifts: tuple[int, ...]


@cache
def rotation(steps: tuple[Step, ...], capacity: float) -> Rotation:
    """Return the best rotation of steps on their unified circle, by enumeration; `capacity` is how
    many gangs the link carries at once. Of equal rotations the first.

    A gang and those before it meet again after the greatest common divisor of their circles, so
    that no other shifts need be tried.
    """
    before, choices = 1, []
    for i, step in enumerate(steps):
        choices.append(range(math.gcd(before, step.ticks) if i else 1))
        before = math.lcm(before, step.ticks)
    best = Rotation(-math.inf, ())
    for shifts in product(*choices):
        score = score_of(steps, shifts, capacity)
        if score > best.score + CLOSE:
            best = Rotation(score, shifts)
    return best


def score_of(steps: Sequence[Step], shifts: Sequence[int], capacity: float) -> float:
    """Return the compatibility score of steps that are shifted so."""
    at = np.arange(math.lcm(*(step.ticks for step in steps)))
    demand = np.zeros(len(at))
    for step, shift in zip(steps, shifts, strict=True):
        demand += (at - shift) % step.ticks >= step.ticks - step.sends
    return 1.0 - float(np.maximum(0.0, demand - capacity).mean()) / capacity


Links = Mapping[int, frozenset[Channel]]
"""The uplinks of each gang."""


def shared(links: Links) -> dict[tuple[int, ...], list[Channel]]:
    """Return the links that several gangs share, by who they are."""
    users: dict[Channel, list[int]] = {}
    for gang in sorted(links):
        for link in sorted(links[gang]):
            users.setdefault(link, []).append(gang)
    groups: dict[tuple[int, ...], list[Channel]] = {}
    for link, gangs in users.items():
        if len(gangs) > 1:
            groups.setdefault(tuple(gangs), []).append(link)
    return groups


def time_shifts(
    links: Links, steps: Mapping[int, Step], capacity: float
) -> tuple[dict[int, int], bool]:
    """Return a shift for each gang, in ticks, such that on each link gangs are rotated against each
    other as is best there, and whether that was possible: not where the graph of gangs and links
    has a circle. Links of the same gangs count as one."""
    groups = [*shared(links)]
    shifts: dict[int, int] = {}
    for first in sorted(links):
        if first in shifts:
            continue
        shifts[first], queue = 0, [first]
        for gang in queue:  # it grows while it is walked through
            for group in groups:
                if gang in group:
                    own = rotation(tuple(steps[i] for i in group), capacity).shifts
                    by = shifts[gang] - own[group.index(gang)]
                    for other, shift in zip(group, own, strict=True):
                        if other not in shifts:
                            shifts[other] = (by + shift) % steps[other].ticks
                            queue.append(other)
    edges = sum(len(group) for group in groups)
    nodes = len(groups) + len({i for group in groups for i in group})
    return shifts, edges == nodes - len(connected(groups))


def connected(groups: Iterable[tuple[int, ...]]) -> list[set[int]]:
    """Return the parts of the gangs that hang together by links."""
    parts: list[set[int]] = []
    for group in groups:
        touched = [part for part in parts if part & set(group)]
        parts = [part for part in parts if not part & set(group)]
        parts.append(set(group).union(*touched))
    return parts


# ------------------------------------------------------------------------------------- steps


@dataclass(frozen=True)
class Sender:
    """A gang that goes through its steps, from a tick of them on."""

    step: Step
    links: frozenset[Channel]
    from_tick: int


@cache
def fair_shares(links: tuple[frozenset[Channel], ...], capacity: float) -> list[float]:
    """Return the max-min fair shares of gangs that send: at most 1 each, at most `capacity` on
    each link together."""
    shares = [0.0] * len(links)
    growing = set(range(len(links)))
    left = {link: capacity for own in links for link in own}
    while growing:
        users = {link: sum(link in links[i] for i in growing) for link in left}
        rooms = [left[link] / count for link, count in users.items() if count]
        more = min(1.0 - shares[min(growing)], *rooms)
        for link, count in users.items():
            left[link] -= more * count
        for i in growing:
            shares[i] += more
        full = {link for link, count in users.items() if count and left[link] <= CLOSE}
        growing = {i for i in growing if shares[i] < 1.0 - CLOSE and not links[i] & full}
    return shares


@cache
def slowdowns(senders: tuple[Sender, ...], capacity: float) -> tuple[float, ...]:
    """Return how many times as long as alone each gang takes for its steps."""
    sends = [sender.from_tick >= sender.step.ticks - sender.step.sends for sender in senders]
    left = [
        float(sender.step.ticks - (0 if sending else sender.step.sends) - sender.from_tick)
        for sender, sending in zip(senders, sends, strict=True)
    ]
    end = float(STEPS * max(sender.step.ticks for sender in senders))
    now, half = 0.0, end / 2
    done = [0.0] * len(senders)
    while now < end - CLOSE:
        on = [i for i, sending in enumerate(sends) if sending]
        pace = [1.0] * len(senders)
        shares = fair_shares(tuple(senders[i].links for i in on), capacity)
        for i, share in zip(on, shares, strict=True):
            pace[i] = share
        until = half if now < half - CLOSE else end
        by = min(until - now, *(rest / fast for rest, fast in zip(left, pace, strict=True)))
        now += by
        for i, fast in enumerate(pace):
            left[i] -= by * fast
            if now > half + CLOSE:
                done[i] += by * fast
            if left[i] <= CLOSE:
                step = senders[i].step
                sends[i] = not sends[i] if step.ticks > step.sends else True
                left[i] = float(step.sends if sends[i] else step.ticks - step.sends)
    return tuple(max(1.0, round((end - half) / one, 9)) for one in done)


class Phased(Channels):
    """Uplinks on which gangs send at the end of each of their steps, beside the shares in which
    policies believe; `shifts` is whether the steps are shifted in time."""

    def __init__(self, instance: Instance, shifts: bool) -> None:
        super().__init__(instance.cluster)
        self._jobs, self._shifts = instance.jobs, shifts
        self._now: dict[int, float] | None = {}
        gbps = {job.profile.network_gbps for job in instance.jobs} - {0.0}
        room = set(instance.cluster.rack_uplink_gbps.values())
        assert len(gbps) == len(room) == 1, "gangs and links are alike in this study"
        self.capacity = room.pop() / gbps.pop()

    def step(self, index: int) -> Step:
        """Return the step of a gang."""
        return step_of(self._jobs[index].profile)

    @property
    def links(self) -> dict[int, frozenset[Channel]]:
        """Return the uplinks of each gang that has some."""
        return {index: frozenset(loads) for index, loads in self._on.items()}

    def join(self, index: int, loads: Mapping[Channel, float]) -> dict[int, None]:
        """Let a gang send from now on. Return the others, whose pace may change."""
        super().join(index, loads)
        self._now = None
        return dict.fromkeys(other for other in self._on if other != index) if loads else {}

    def leave(self, index: int) -> dict[int, None]:
        """Let a gang send no more. Return the others."""
        there = index in self._on
        super().leave(index)
        self._now = None
        return dict.fromkeys(self._on) if there else {}

    def slowdown(self, index: int, profile: Profile) -> float:
        """Return by how much a gang is slowed down now."""
        if index not in self._on:
            return 1.0
        if self._now is None:
            self._now = self._measured()
        return self._now[index]

    def _measured(self) -> dict[int, float]:
        links = self.links
        steps = {index: self.step(index) for index in links}
        if self._shifts:
            shifts, _ = time_shifts(links, steps, self.capacity)
        else:
            shifts = {i: _hashed(self._jobs[i].id, steps[i].ticks) for i in links}
        found: dict[int, float] = dict.fromkeys(links, 1.0)
        for part in connected(shared(links)):
            senders = [
                Sender(steps[i], links[i], -shifts[i] % steps[i].ticks) for i in sorted(part)
            ]
            found.update(zip(sorted(part), slowdowns(tuple(senders), self.capacity), strict=True))
        return found


def _hashed(name: str, ticks: int) -> int:
    """Return the tick of its step at which an unshifted gang begins."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) % ticks


# ------------------------------------------------------------------------------------- places


def candidates(world: World, job_id: str, fit: Fit) -> list[Fit]:
    """Return the place that was chosen for a gang, then others over racks: whole racks first, from
    another rack on each time."""
    option, placement = fit
    free = usable(world, world.need(job_id, option))
    racks = [*by_rack(world, free).values()]
    found = [placement]
    for i in range(len(racks)):
        order = sorted(
            (*racks[i:], *racks[:i]), key=lambda names: -sum(free[name] for name in names)
        )
        names = [name for rack in order for name in rack]
        other = fill(world, job_id, option, names, free)
        if other is not None and other not in found and crossed_uplinks(world.cluster, other):
            found.append(other)
    return [(option, other) for other in found[:CANDIDATES]]


def best_place(world: World, links: Phased, job_id: str, fit: Fit) -> Fit:
    """Return the candidate that leaves the best mean score of all links, those without circles of
    gangs and links first; of equals the place that was chosen."""
    job = world.job(job_id)
    if not job.profile.network_gbps or not crossed_uplinks(world.cluster, fit[1]):
        return fit
    there, own = links.links, world.order(job_id)[1]
    steps = {**{i: links.step(i) for i in there}, -1 - own: step_of(job.profile)}

    def rank(other: Fit) -> tuple[bool, float]:
        with_it = {**there, -1 - own: frozenset(links.loads(job, other[0].mode, other[1]))}
        _, is_forest = time_shifts(with_it, steps, links.capacity)
        lost = math.fsum(
            len(on) * (1.0 - rotation(tuple(steps[i] for i in group), links.capacity).score)
            for group, on in shared(with_it).items()
        )
        return not is_forest, round(lost, 9)

    return min(candidates(world, job_id, fit), key=rank)


# ------------------------------------------------------------------------------------- the study


@cache
def instance_of(make: str) -> Instance:
    """Return the instance that a `generate` command makes."""
    words = arguments(make)[1:]
    return api.generate(**read_words("generate", declared_by(api.generate, *ONLY_PYTHON), words))


@cache
def bound_of(instance: Instance) -> float:
    """Return what no plan can beat; contention only makes plans worse."""
    return max(bound.value for bound in lower_bounds(instance, WCT, replay=True))


def sending_evenly(instance: Instance) -> Instance:
    """Return the instance with gangs that send at all times what they send in the mean."""
    profiles = [
        replace(
            job.profile,
            network_gbps=job.profile.network_gbps * job.profile.network_duty,
            network_duty=1.0,
        )
        for job in instance.jobs
    ]
    jobs = zip(instance.jobs, profiles, strict=True)
    return replace(instance, jobs=tuple(replace(job, profile=profile) for job, profile in jobs))


def simulated(run: Run) -> Result:
    """Return what a run of the study gives on links with phases."""
    begin_s = time.process_time()
    module = MODULES.get(run.method, Module())
    given = read_words(
        "simulate", declared_by(api.simulate, *ONLY_PYTHON), arguments(run.command)[1:]
    )
    instance = instance_of(run.make or "")
    told = sending_evenly(instance) if module.sends_evenly else instance
    goal = parse(given.get("objective", WCT.name))
    simulation = Simulation(told, policy(given["policy"], goal, given.get("options", {})))
    world = simulation.world
    links = Phased(instance, module.shifts)
    world._channels = links if module.contention else None
    if module.places:
        start = world.start
        world.start = lambda job_id, *fit: start(job_id, *best_place(world, links, job_id, fit))  # type: ignore[method-assign]
    simulation.run()
    record = simulation.record()
    measured = measure(record)
    [value] = values(WCT, instance, record.plan())
    bound = bound_of(instance)
    level = {"name": WCT.name, "value": value, "bound": bound, "gap": (value - bound) / value}
    answer: dict[str, Any] = {**summary(measured), "levels": [level], "curves": thinned(measured)}
    cpu_s = time.process_time() - begin_s
    return Result(run, answer, None, wall_s=cpu_s, cpu_s=cpu_s, made_on=made_on())


def results_of(study: Study, results: Results) -> list[Result]:
    """Return the result of each run; those that this code has given before are not run again."""
    own = Path(__file__).read_text()
    found = []
    for run in runs(study):
        address = results.address(run, digest(run.make, run.method, own), (0.0, 0.0))
        result = results.find(run, address)
        if result is None:
            result = replace(simulated(run), address=address)
            results.keep(result, {})
        found.append(result)
    return found


def tables(study: Study, results: Sequence[Result]) -> str:
    """Return the page of the study, as `optsched study` writes it."""
    seen = verdicts_markdown(findings(study, results))
    head = f"# {study.title}\n\n```sh\n{AGAIN}\n```\n\n{study.introduction}\n\n"
    return head + "\n".join([seen, as_markdown(rows(results), study.all_methods)])


def main() -> None:
    """Simulate all runs; write the page, or print the verdicts of fewer seeds."""
    parser = parser_of(__doc__, seeds=[])
    parser.add_argument("-o", type=Path, default=Path("build/phases"), help="folder for results")
    args = parser.parse_args()
    study = read_study(STUDY)
    if args.seeds:
        study = study.model_copy(update={"seeds": tuple(args.seeds)})
    results = results_of(study, Results(args.o))
    if args.seeds:
        print(tables(study, results))
        return
    chart = speedups(compare(study, results), study.baseline or study.all_methods[0].name)
    assert chart is not None
    below = foot(study, STUDY, AGAIN, results)[0], f"Again: {AGAIN}."
    picture = pictures(chart, below, ("svg",))["svg"]
    write_page(study.name, tables(study, results), picture)


if __name__ == "__main__":
    main()
