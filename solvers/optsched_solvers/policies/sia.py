"""Sia's allocation of adaptive jobs on several GPU types."""

from optsched.driver import World

from .parts.configuration_choice import Configuration, choose
from .parts.gang_counts import GangCounts, by_type
from .parts.gpu_pool import GpuPool, Rows
from .parts.reallocation import Grant, ReallocationOptions, SolvedReallocation, held
from .parts.restarts import Growth, restart_factor

POWER = -0.5
NO_ALLOCATION = 1.1
DELAY_S = 30.0


class Sia(SolvedReallocation):
    """At each interval every job gets one configuration, a GPU type and a count, or nothing, at the
    least sum of (normalised goodput)^-0.5 for the jobs that get one and of 1.1 for each of the
    others.

    Counts are powers of two within a node, then whole nodes; a job that can run on none of these
    has its fewest. The goodput of an elastic job is its rate relative to its lowest one, that of a
    rigid job the same times its GPUs. What differs from what a job holds counts by the restart
    factor max(age - restarts x delay, 0) / (age + delay), with what its own start and restore take
    as delay (30 s if that is nothing), from this age on. A job grows to at most twice the most GPUs
    that it has had. Rigid jobs choose a type only.

    The integer program is solved to the optimum; `facts` counts the rounds that hit the limit on
    effort.

    Source: S. Jayaram Subramanya et al., Sia: Heterogeneity-aware, goodput-optimized ML-cluster
    scheduling, SOSP'23, section 3.3, and its public simulator for the constants.
    """

    name = "sia"
    title = (
        "one GPU type and count for each elastic job by an integer program over normalised goodput"
    )

    Options = ReallocationOptions

    def __init__(self, options: ReallocationOptions) -> None:
        super().__init__(options)
        self._growth = Growth()

    def allocate(self, world: World, movable: list[str], pool: GpuPool) -> dict[str, Grant]:
        """Solve the integer program of this round."""
        grants, jobs = self.set_apart(world, movable, pool)
        self._growth.note(world, jobs)
        rows = Rows(world, jobs, pool)
        ways = [self._ways(world, rows, i, job_id) for i, job_id in enumerate(jobs)]
        solution = choose([[way for way, _ in own] for own in ways], rows.room)
        self.solved(solution.proven)
        chosen = zip(jobs, ways, solution.chosen, strict=True)
        return grants | {job_id: grant for job_id, own, i in chosen if (grant := own[i][1])}

    def _ways(
        self, world: World, rows: Rows, i: int, job_id: str
    ) -> list[tuple[Configuration, Grant]]:
        """Return the configurations of a job, with what each grants; the last is none."""
        options = tuple(option for option in world.options(job_id) if option.mode.gpus)
        counts = by_type(options)
        rigid = len({option.mode.gpus for option in options}) == 1
        lowest = min(gangs.rate(0) for gangs in counts) / (options[0].mode.gpus if rigid else 1)
        profile = world.profile(job_id)
        delay_s = profile.startup_s + profile.restore_s + profile.checkpoint_s or DELAY_S
        age_s = world.now_s - world.job(job_id).submit_s
        now = held(world, job_id) if job_id in world.running else None
        factor = (
            restart_factor(world, job_id, delay_s) if now is not None and age_s >= delay_s else 1.0
        )
        ways: list[tuple[Configuration, Grant]] = []
        for gangs in counts:
            most = self._growth.limit(job_id, gangs.gpus(0))
            for step in self._steps(world, gangs):
                gpus = gangs.gpus(step)
                goodput = (
                    gangs.rate(step) / lowest * (1.0 if (gangs.gpu_type, gpus) == now else factor)
                )
                if gpus > most or goodput <= 0:
                    continue
                use = rows.use(i, gangs.gpu_type, gpus)
                ways.append((Configuration(goodput**POWER, tuple(use)), gangs.down_from(step)))
        ways.append((Configuration(NO_ALLOCATION), ()))
        return ways

    def _steps(self, world: World, counts: GangCounts) -> list[int]:
        """Return the counts that are configurations, as positions."""
        largest = max(node.gpus for node in world.cluster.nodes if node.gpu_type == counts.gpu_type)
        steps = [
            step
            for step in range(len(counts.options))
            if _is_configuration(counts.gpus(step), largest)
        ]
        return steps or [0]


def _is_configuration(gpus: int, per_node: int) -> bool:
    """Return whether a count is a power of two within a node, or whole nodes."""
    return gpus % per_node == 0 if gpus >= per_node else gpus & (gpus - 1) == 0
