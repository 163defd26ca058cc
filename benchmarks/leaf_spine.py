"""vClos link by link: what hashing flows onto the links of a leaf costs, and what exclusive links
are worth.

    python -m benchmarks.leaf_spine hashing [--seeds 1,2,3]
    python -m benchmarks.leaf_spine isolation [--seeds 1,2,3]

In the simulator a rack has one uplink, which gangs share evenly. Here each leaf of the study of
vClos has as many links as GPUs, one to each spine, each as fast as what a GPU sends: shared evenly
they never bind. A gang over several leaves goes round a `ring` (one flow leaves each leaf) or
exchanges with those half of it away (`halving`: the largest messages of recursive halving and
doubling, up to one flow for each GPU). ECMP hashes each flow onto a spine, by its job and its two
ends; it takes a link up to the spine and one down. The gang goes on at the pace of its most loaded
link, its own flows counted. Policies decide and believe as ever: they do not see the links. With
`balanced` routing a flow goes, when its gang starts, over the spine whose links are least loaded.

`hashing` is for the policies of the study the mean completion time without contention (`ideal_h`)
and on links (`jct_h`), the change and half its 95 % interval, the share of gangs that ever span
leaves (`spread`), that of these which were ever slowed down (`slowed`) and the largest loss of pace
(`worst`). `isolation` compares vClos with links of its own, equal sets of spines for all leaves of
a gang (`vclos`) or any spines, as optical switches allow (`ocs`), with `backfill` under ECMP, and
with vClos where nothing ever contends.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import combinations, product
from typing import Literal

from benchmarks.command_line import parser_of, tell
from optsched import generate
from optsched.driver.contention import Channels, Loads
from optsched.driver.view import Fit
from optsched.driver.world import World
from optsched.model.cluster import Cluster
from optsched.model.instance import Instance, Placement
from optsched.model.job import Job, Mode
from optsched.model.profile import Profile
from optsched.objectives import parse
from optsched.physics import crossed_uplinks
from optsched.physics.contention import Channel
from optsched.plugins.policy import Policy
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation
from optsched.study.intervals import mean_interval
from optsched.traces.generate.shared_uplinks import GANG_GBPS
from optsched_solvers.policies.parts.gang_placement import by_rack, fill, usable
from optsched_solvers.policies.vclos import UP_TO_A_RACK, Vclos

SPINES = 8
WORKLOAD = {
    "cluster": "v100=64",
    "gpus_per_node": 1,
    "families": "resnet18,resnet50,transformer,lstm,bert,vgg16,gnmt,yolov3",
    "gangs": "2,4,6,8,12",
    "run_times": "10m-5h",
    "heavy_tail": True,
    "uplinks": SPINES * GANG_GBPS,
    "jobs": 100,
}
"""That of instances/studies/systems/vclos.toml, with a link for each GPU of a leaf."""
METHODS = ("backfill", "srsf", "vclos", "optsched")
LOADS = (1.0, 1.5)
WCT = parse("wct")
Pattern = Literal["ring", "halving"]
PATTERNS: tuple[Pattern, ...] = ("ring", "halving")


def flows(cluster: Cluster, placement: Placement, pattern: Pattern) -> list[tuple[str, str]]:
    """Return the nodes between which a gang sends from leaf to leaf, each GPU to one and from one:
    a cyclic shift of its GPUs, leaf by leaf, by one or by half of them."""
    leaf = {slot.node: cluster.node[slot.node].rack or "" for slot in placement}
    slots = sorted(placement, key=lambda slot: (leaf[slot.node], slot.node))
    gpus = [slot.node for slot in slots for _ in range(slot.gpus)]
    shift = 1 if pattern == "ring" else len(gpus) // 2
    pairs = ((gpus[i], gpus[(i + shift) % len(gpus)]) for i in range(len(gpus)))
    return [(here, there) for here, there in pairs if leaf[here] != leaf[there]]


def spine_of(job_id: str, ends: tuple[str, str], spines: int) -> int:
    """Return the spine onto which a flow is hashed."""
    text = "\0".join((job_id, *ends)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest()) % spines


class Hashed(Channels):
    """The links of leaves, onto which flows are hashed, beside the uplinks as policies believe in
    them: all links of a leaf as one."""

    def __init__(self, cluster: Cluster, pattern: Pattern, spines: int) -> None:
        super().__init__(cluster)
        self._pattern, self._spines = pattern, spines
        self.worst: dict[int, float] = {}
        """By how much each gang over leaves was slowed down at most."""

    def loads(self, job: Job, mode: Mode, placement: Placement) -> Loads:
        """Return what a gang takes of uplinks and links."""
        whole = super().loads(job, mode, placement)
        if not crossed_uplinks(self._cluster, placement) or not job.profile.network_gbps:
            return whole
        taken: dict[Channel, float] = dict(whole)
        for ends in flows(self._cluster, placement, self._pattern):
            for link in self._links(ends, self._spine(job.id, ends, taken)):
                taken[link] = taken.get(link, 0.0) + GANG_GBPS
        return taken

    def _links(self, ends: tuple[str, str], spine: int) -> tuple[Channel, Channel]:
        """Return the link up and the one down of a flow through a spine."""
        up, down = (self._cluster.node[name].rack for name in ends)
        return ("uplink", f"{up} to {spine}"), ("uplink", f"{spine} to {down}")

    def _spine(self, job_id: str, ends: tuple[str, str], taken: Loads) -> int:
        """Return the spine of a flow of a job that has `taken` links for others already."""
        return spine_of(job_id, ends, self._spines)

    def slowdown(self, index: int, profile: Profile) -> float:
        """Return by how much a job is slowed down now, and remember the most."""
        times = super().slowdown(index, profile)
        if self.on(index):
            self.worst[index] = max(times, self.worst.get(index, 1.0))
        return times

    def slowdown_with(self, profile: Profile, own: Loads, more: Loads) -> float:
        """Return what who does not see the hash expects: the uplinks alone."""
        uplinks = self._cluster.rack_uplink_gbps
        seen = {channel: gbps for channel, gbps in own.items() if channel[1] in uplinks}
        return super().slowdown_with(profile, seen, more)

    def _ratio(self, channel: Channel, gbps: float) -> float:
        if channel[1] in self._cluster.rack_uplink_gbps:
            return super()._ratio(channel, gbps)
        return max(1.0, gbps / GANG_GBPS)


class Balanced(Hashed):
    """The same links, where each flow is routed, when its gang starts, over those that are least
    loaded then."""

    def _spine(self, job_id: str, ends: tuple[str, str], taken: Loads) -> int:
        def load(spine: int) -> float:
            links = self._links(ends, spine)
            return max(self.gbps(link) + taken.get(link, 0.0) for link in links)

        return min(range(self._spines), key=load)


ROUTINGS = {"ecmp": Hashed, "balanced": Balanced}


@dataclass(frozen=True)
class Share:
    """Of one leaf: so many GPUs, and the spines to which it has its links, as a bit set."""

    gpus: int
    spines: int


def choose(
    free: Sequence[int], links: Sequence[int], gpus: int, pattern: Pattern, *, optical: bool = False
) -> dict[int, Share] | None:
    """Return a virtual Clos network for a gang that no leaf holds: its share of each of its leaves,
    by their position.

    `free` are the GPUs of the leaves, `links` the spines to which they have links left. All leaves
    get as many links, to the same spines unless `optical`: one each for a ring, else one for each
    GPU that the gang has on any of them. Fewest leaves, of these with the fewest GPUs left over, of
    these the fewest links; exact, by enumeration. None where there is none.
    """
    able = [i for i, count in enumerate(free) if count and links[i]]
    for size in range(2, len(able) + 1):
        best: tuple[int, int, dict[int, Share]] | None = None
        for leaves in combinations(able, size):
            left_over = sum(free[i] for i in leaves) - gpus
            if left_over < 0 or (best is not None and left_over > best[0]):
                continue
            sets = _spines(leaves, links, optical)
            for k in range(1, min(spines.bit_count() for spines in sets.values()) + 1):
                most = {i: free[i] if pattern == "ring" else min(free[i], k) for i in leaves}
                if sum(most.values()) >= gpus:
                    if best is None or (left_over, k) < best[:2]:
                        best = left_over, k, _shares(most, gpus, sets, k)
                    break
        if best is not None:
            return best[2]
    return None


def _spines(leaves: Sequence[int], links: Sequence[int], optical: bool) -> dict[int, int]:
    """Return the spines that each leaf may use: any, or those to which all have links left."""
    common = -1
    for i in leaves:
        common &= links[i]
    return {i: links[i] if optical else common for i in leaves}


def _shares(
    most: Mapping[int, int], gpus: int, sets: Mapping[int, int], k: int
) -> dict[int, Share]:
    shares = {}
    for i, count in most.items():
        taken = min(count, gpus)
        gpus -= taken
        shares[i] = Share(taken, _lowest(sets[i], k))
    return shares


def _lowest(bits: int, k: int) -> int:
    """Return the k lowest of the bits that are set."""
    kept = 0
    for _ in range(k):
        low = bits & -bits
        kept, bits = kept | low, bits ^ low
    return kept


class OwnLinks(Vclos):
    """vClos with a choice of spines: a gang over several leaves starts only where it has links for
    itself, through spines that all its leaves reach; source routing keeps its flows apart there, as
    no GPU sends or receives more than one (Koenig's theorem)."""

    def __init__(self, pattern: Pattern, spines: int, *, optical: bool = False) -> None:
        super().__init__()
        self._pattern: Pattern = pattern
        self._all, self._optical = (1 << spines) - 1, optical
        self.held: dict[str, dict[str, int]] = {}
        """The spines of each leaf that a job has for itself."""

    def find(self, world: World, job_id: str) -> Fit | None:
        """Return a place of its own."""
        fit = self._gate.find(world, job_id, UP_TO_A_RACK, 0.0)
        if not world.job(job_id).profile.network_gbps:
            return fit or world.fit(job_id)
        if fit is not None and not crossed_uplinks(world.cluster, fit[1]):
            return fit
        return self._over_leaves(world, job_id)

    def _over_leaves(self, world: World, job_id: str) -> Fit | None:
        held = {name for job in (world.running, world.saving) for name in job}
        self.held = {name: links for name, links in self.held.items() if name in held}
        for option in world.options(job_id):
            if option.spread != "cluster" or option.mode.gpus < 2:
                continue
            free = usable(world, world.need(job_id, option))
            racks = {leaf: names for (_, leaf), names in by_rack(world, free).items()}
            counts = [sum(free[name] for name in names) for names in racks.values()]
            links = [self._left(leaf) for leaf in racks]
            shares = choose(counts, links, option.mode.gpus, self._pattern, optical=self._optical)
            if shares is None:
                continue
            leaves = list(racks)
            names = [n for i, share in shares.items() for n in racks[leaves[i]][: share.gpus]]
            placement = fill(world, job_id, option, names, free)
            if placement is not None:
                self.held[job_id] = {leaves[i]: share.spines for i, share in shares.items()}
                return option, placement
        return None

    def _left(self, leaf: str) -> int:
        """Return the spines to which a leaf has links left."""
        left = self._all
        for links in self.held.values():
            left &= ~links.get(leaf, 0)
        return left


@dataclass(frozen=True)
class Course:
    """What came of a simulation: mean seconds, and by how much gangs over leaves were slowed down
    at most."""

    jct_s: float
    wait_s: float
    worst: tuple[float, ...] = ()


def course(instance: Instance, rule: Policy, hashed: Hashed | None = None) -> Course:
    """Simulate a policy, on links where they are given."""
    simulation = Simulation(instance, rule)
    if hashed is not None:
        simulation.world._channels = hashed
    simulation.run()
    jct_s = wait_s = 0.0
    for entry in simulation.record().plan().jobs:
        submit_s = instance.job[entry.id].submit_s
        jct_s += entry.completion_s - submit_s
        wait_s += entry.segments[0].start_s - submit_s
    jobs = len(instance.jobs)
    return Course(jct_s / jobs, wait_s / jobs, tuple(hashed.worst.values()) if hashed else ())


@cache
def workload(load: float, seed: int) -> Instance:
    """Return the jobs of the study."""
    return generate("even", seed=seed, load=load, **WORKLOAD)  # type: ignore[arg-type]


@cache
def alone(method: str, load: float, seed: int) -> Course:
    """Return the course where nothing contends."""
    return course(workload(load, seed), policy(method, WCT))


@cache
def on_links(routing: str, method: str, pattern: Pattern, load: float, seed: int) -> Course:
    """Return the course where flows are hashed, or routed."""
    instance = workload(load, seed)
    links = ROUTINGS[routing](instance.cluster, pattern, SPINES)
    return course(instance, policy(method, WCT), links)


def mean_h(courses: Sequence[Course]) -> float:
    """Return the mean completion time in hours."""
    return round(sum(one.jct_s for one in courses) / len(courses) / 3600, 3)


def hashing(seeds: Sequence[int]) -> Iterator[dict[str, object]]:
    """Return what contention on links costs each method of the study."""
    jobs = [job for seed in seeds for job in workload(1.0, seed).jobs]
    gangs = sum(job.profile.network_gbps > 0 for job in jobs)
    for pattern, routing, method in product(PATTERNS, ROUTINGS, METHODS):
        ideal = [alone(method, 1.0, seed) for seed in seeds]
        real = [on_links(routing, method, pattern, 1.0, seed) for seed in seeds]
        change = mean_interval([a.jct_s / b.jct_s - 1 for a, b in zip(real, ideal, strict=True)])
        worst = [times for one in real for times in one.worst]
        yield {
            **{"pattern": pattern, "routing": routing, "method": method, "seeds": len(seeds)},
            **{"ideal_h": mean_h(ideal), "jct_h": mean_h(real)},
            **{"change": round(change.mean, 4), "half": round(change.half or 0.0, 4)},
            "spread": round(len(worst) / gangs, 4),
            "slowed": round(sum(times > 1.0 for times in worst) / len(worst), 4),
            "worst": round(1 - 1 / max(worst), 4),
        }


def isolation(seeds: Sequence[int]) -> Iterator[dict[str, object]]:
    """Return what links of its own are worth to vClos."""
    for pattern in PATTERNS:
        for load in LOADS:
            ecmp = [on_links("ecmp", "backfill", pattern, load, seed) for seed in seeds]
            ideal = [alone("vclos", load, seed) for seed in seeds]
            for name in ("vclos", "ocs"):
                own = [
                    course(workload(load, seed), OwnLinks(pattern, SPINES, optical=name == "ocs"))
                    for seed in seeds
                ]
                pairs = [*zip(own, ecmp, ideal, strict=True)]
                jct = mean_interval([a.jct_s / b.jct_s - 1 for a, b, _ in pairs])
                wait = mean_interval([a.wait_s / b.wait_s - 1 for a, b, _ in pairs])
                above = mean_interval([a.jct_s / c.jct_s - 1 for a, _, c in pairs])
                line: dict[str, object] = {"pattern": pattern, "load": load, "method": name}
                line["jct_h"] = mean_h(own)
                for key, change in (("jct", jct), ("wait", wait), ("above_ideal", above)):
                    line[key] = round(change.mean, 4)
                    line[f"{key}_half"] = round(change.half or 0.0, 4)
                yield line


def main() -> None:
    """Print a line of JSON for each pattern and method."""
    parser = parser_of(__doc__, seeds=list(range(1, 11)))
    parser.add_argument("what", choices=["hashing", "isolation"])
    args = parser.parse_args()
    for line in (hashing if args.what == "hashing" else isolation)(args.seeds):
        tell(line)


if __name__ == "__main__":
    main()
