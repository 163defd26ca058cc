"""SJF-BSBF: share GPUs where that lowers the mean finish of the pair."""

from operator import itemgetter
from typing import Annotated, Literal

from optsched.driver import World
from optsched.model import Placement, Slot
from optsched.physics import placed_rate
from optsched.physics.modes import Option
from optsched.plugins.options import PluginOptions, declared_options

from .parts.overlaps import Overlap, hosts, overlap
from .parts.pair_sharing import PairPolicy, fits_memory, slowdowns, ways_in_memory


def mean_finish_shared_s(
    new_s: float, running_s: float, new_slowdown: float, running_slowdown: float
) -> float:
    """Return the mean of the finish times of two jobs that share GPUs until one of them is done:
    `new_s` and `running_s` are their run times alone, the slowdowns how many times as long each
    takes beside the other."""
    new_shared_s, running_shared_s = new_slowdown * new_s, running_slowdown * running_s
    if new_shared_s >= running_shared_s:
        return 0.5 * new_s + (1 - 1 / (2 * new_slowdown)) * running_shared_s
    return 0.5 * running_s + (1 - 1 / (2 * running_slowdown)) * new_shared_s


def mean_finish_in_turn_s(new_s: float, running_s: float) -> float:
    """Return the same if the new job waits for the running one to end."""
    return running_s + 0.5 * new_s


class SjfBsbf(PairPolicy):
    """Shortest remaining time first, without preemption; what finds no free GPUs joins the running
    job beside which the two finish earliest on average, if that is earlier than one after the
    other, and the GPU memory holds both.

    With A and B the remaining times of the new and the running job alone and xi the slowdown of
    each beside the other, the pair finishes at A/2 + (1 - 1/(2 xi_A)) xi_B B on average where xi_A
    A >= xi_B B, and with the roles exchanged where not; one after the other at B + A/2. A job that
    can do neither is skipped. Where the memory does not hold both, the new job takes the largest
    smaller micro-batch that fits and accumulates gradients (`gpu_memory_rates`): where the two
    share, its A is longer. With `share` "first-fit" (SJF-FFS, a rival in the paper) it joins whom
    the GPU memory allows, whether or not that is earlier.
    """

    name = "sjf-bsbf"
    title = "shortest job first; shares GPUs where a pair finishes earlier on average than in turn"

    @declared_options
    class Options(PluginOptions):
        share: Annotated[
            Literal["benefit", "first-fit"],
            "Share where the pair finishes earlier on average than in turn, or wherever the GPU "
            "memory holds both.",
        ] = "benefit"
        batches: Annotated[
            Literal["sub", "whole"],
            "Where the GPU memory is short, take smaller micro-batches, or do not share.",
        ] = "sub"

        gangs: Annotated[
            Literal["overlap", "whole"],
            "Whether a gang may share some of its GPUs, with several others, or all with one.",
        ] = "overlap"

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._overlap = options.gangs == "overlap"
        self._first_fit = options.share == "first-fit"
        self.sub_batches = options.batches == "sub"
        self._seen: dict[str, int] = {}
        self._good: dict[str, tuple[tuple[str, int], ...]] = {}

    def rank(self, world: World, job_id: str) -> float:
        """Return seconds in the fastest option, start-up and restore included."""
        return world.fastest_finish_s(job_id)

    def _start(self, world: World, job_id: str) -> bool:
        """Start on free GPUs, else beside the best partners."""
        if self._overlap:
            return super()._start(world, job_id) or self._start_overlapping(world, job_id)
        if not super()._start(world, job_id) and not any(
            self._join(world, job_id, partner) for _, partner in self._partners(world, job_id)
        ):
            return False
        self._seen.pop(job_id, None)
        self._good.pop(job_id, None)
        return True

    def _start_overlapping(self, world: World, job_id: str) -> bool:
        """Start on the node where free GPUs and those of the best partners are enough whose last
        one is best; false where there is none."""
        for option in _of_each_size(world, job_id).values():
            for way in ways_in_memory(world, job_id, option, sub_batches=self.sub_batches):
                found: list[tuple[float, Overlap]] = []
                for node, beside in hosts(world, job_id, way).items():
                    place = (Slot(node=node, gpus=way.mode.gpus),)
                    ranked = sorted(
                        (shared_s, other)
                        for other in beside
                        if (shared_s := self._gain(world, job_id, (option, way), other, place))
                        is not None
                    )
                    best = ((other, beside[other]) for _, other in ranked)
                    one = overlap(world, job_id, way, node, best)
                    if one is not None:
                        last_s = max(
                            shared_s for shared_s, other in ranked if other in one.partners
                        )
                        found.append((last_s, one))
                if found:
                    min(found, key=itemgetter(0))[1].start(world, job_id)
                    return True
        return False

    def _partners(self, world: World, job_id: str) -> list[tuple[float, str]]:
        """Return running jobs beside which it is better to run than after them, with the mean
        finish of the pair, ascending.

        The less a running job has left, the better it is to wait for it: one that was not good
        enough is not looked at again, unless it may be believed to be longer later.
        """
        sizes = _of_each_size(world, job_id)
        seen = self._seen.get(job_id, 0) if world.estimates is None else 0
        again = [
            (partner, gpus)
            for partner, gpus in self._good.get(job_id, ())
            if self._singles.has(partner)
        ]
        new = [(partner, gpus) for gpus in sizes for partner in self._singles.newer(gpus, seen)]
        candidates = []
        for partner, gpus in dict.fromkeys((*again, *new)):
            shared_s = self._worth_it(world, job_id, sizes[gpus], partner)
            if shared_s is not None:
                candidates.append((shared_s, partner, gpus))
        self._seen[job_id] = self._singles.latest
        self._good[job_id] = tuple((partner, gpus) for _, partner, gpus in candidates)
        return [(shared_s, partner) for shared_s, partner, _ in sorted(candidates)]

    def _worth_it(self, world: World, job_id: str, option: Option, partner: str) -> float | None:
        """Return the mean finish of the pair if it is earlier than in turn."""
        if slowdowns(world, job_id, partner) is None:
            return None
        ways = ways_in_memory(world, job_id, option, sub_batches=self.sub_batches)
        way = next((own for own in ways if fits_memory(world, job_id, partner, own.mode)), None)
        if way is None:
            return None
        return self._gain(world, job_id, (option, way), partner, world.placement(partner))

    def _gain(
        self,
        world: World,
        job_id: str,
        ways: tuple[Option, Option],
        partner: str,
        placement: Placement,
    ) -> float | None:
        """Return the mean finish of a pair if it is earlier than in turn, the new job on its
        placement in the first of two ways alone and in the second beside the other; where pairs are
        not chosen, 0 for any. None where it makes no progress there."""
        slower = slowdowns(world, job_id, partner)
        job, mode = world.job(job_id), ways[1].mode
        if slower is None or placed_rate(world.instance, job, mode, placement) <= 0:
            return None
        if self._first_fit:
            return 0.0  # of equal ones, the first by id
        alone_s, new_s = (world.expected_run_s(job_id, way, placement) for way in ways)
        running_s = world.expected_release_s(partner) - world.now_s
        shared_s = mean_finish_shared_s(new_s, running_s, *slower)
        return shared_s if shared_s < mean_finish_in_turn_s(alone_s, running_s) else None


def _of_each_size(world: World, job_id: str) -> dict[int, Option]:
    """Return the fastest option of each number of GPUs."""
    sizes: dict[int, Option] = {}
    for option in world.options(job_id):
        sizes.setdefault(option.mode.gpus, option)
    return sizes
