"""CODA's arrays of nodes for small gangs and for wide ones."""

from optsched.driver import World

WIDE_GPUS = 4


class Arrays:
    """Nodes with at least 4 GPUs, the last of the cluster first, are set aside for gangs of at
    least 4 until they hold the share of GPUs that such gangs have asked for so far, or `wide` of
    them."""

    def __init__(self, wide: float | None) -> None:
        self._wide = wide
        self._asked = {"wide": 0, "narrow": 0}
        self._seen: set[str] = set()
        self._cores = 0
        self._found = 0
        self._masks: dict[float, tuple[int, int]] = {}

    def queue(self, gpus: int) -> str:
        """Return the queue of a job that asks for so many GPUs at the most."""
        if not gpus:
            return "cpu"
        return "wide" if gpus >= WIDE_GPUS else "narrow"

    def asked(self, world: World, job_id: str, gpus: int) -> None:
        """Count what a job asks for, once."""
        if gpus and job_id not in self._seen:
            self._seen.add(job_id)
            self._asked[self.queue(gpus)] += gpus

    def found(self, cores: int) -> None:
        """Count the cores found for a job."""
        self._cores += cores
        self._found += 1

    def cores_kept(self, share: float) -> float:
        """Return the cores kept for each idle GPU: the mean of those found so far, before that the
        proportional share."""
        return self._cores / self._found if self._found else share

    def nodes(self, world: World, queue: str, *, alone: bool) -> tuple[int, ...]:
        """Return masks of nodes for a queue, the preferred first. Small gangs use the other array
        only where `alone`."""
        total = sum(self._asked.values())
        share = (
            self._wide
            if self._wide is not None
            else round(self._asked["wide"] / total, 1)
            if total
            else 0.0
        )
        if share not in self._masks:
            self._masks[share] = _split(world, share)
        narrow, wide = self._masks[share]
        if queue == "wide":
            return wide, narrow | wide
        return (narrow, narrow | wide) if alone else (narrow,)


def _split(world: World, share: float) -> tuple[int, int]:
    """Return masks of the nodes for small gangs and of those for wide ones."""
    nodes, wide, left = world.cluster.nodes, 0, share * world.cluster.total_gpus
    for i in reversed(range(len(nodes))):
        if nodes[i].gpus >= WIDE_GPUS and left >= nodes[i].gpus:
            wide |= 1 << i
            left -= nodes[i].gpus
    return ((1 << len(nodes)) - 1) & ~wide, wide
