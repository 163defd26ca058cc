"""The model caches of nodes while jobs start, and which of them must fetch their model first."""

import math

from ..model import Instance, Job, Placement


class ModelCaches:
    """The caches of all nodes in a simulation. A start costs O(models in the caches of its nodes).

    A model, known by `profile.name`, is fetched at a start unless every node of the placement has
    it. It is then in the caches of these nodes, as the one used last; what was used longest ago
    makes room. A start does not find what others fetch that start at the same instant; these enter
    in the order of the jobs. Jobs without `fetch_s` leave the caches alone. The verifier has loops
    of its own for this (`verify.fetches`).
    """

    def __init__(self, instance: Instance) -> None:
        self._capacity = {node.name: node.model_cache_gib for node in instance.cluster.nodes}
        self._held: dict[str, dict[str, float]] = {name: {} for name in self._capacity}
        self._latest_s: dict[str, float] = {}
        self._entering: dict[str, list[tuple[int, str, float]]] = {}
        position = instance.position
        for entry in sorted(
            instance.running, key=lambda entry: (entry.started_s, position[entry.job])
        ):
            self.start(position[entry.job], instance.job[entry.job], entry.placement, -math.inf)
            self._settle(entry.placement, math.inf)
        self._latest_s.clear()

    def begin_s(self, placement: Placement, now_s: float) -> float:
        """Return when a start of now begins: not before the last one on these nodes, which may be a
        hair's breadth ahead."""
        return max([now_s, *(self._latest_s.get(slot.node, now_s) for slot in placement)])

    def holds(self, node: str, model: str | None, now_s: float) -> bool:
        """Return whether a start at `now_s` would find the model on the node."""
        if model is None:
            return False
        if self._latest_s.get(node, now_s) < now_s:
            self._settle_node(node)
        return model in self._held[node]

    def fetch_s(self, job: Job, placement: Placement, now_s: float) -> float:
        """Return the seconds for which a job that starts at `now_s` fetches its model."""
        fetch_s = job.profile.fetch_s
        if not fetch_s or (
            placement and all(self.holds(slot.node, job.profile.name, now_s) for slot in placement)
        ):
            return 0.0
        return fetch_s

    def start(self, index: int, job: Job, placement: Placement, begin_s: float) -> None:
        """Start job number `index`: its model enters the caches of its nodes."""
        profile = job.profile
        if not profile.fetch_s:
            return
        self._settle(placement, begin_s)
        for slot in placement:
            self._latest_s[slot.node] = begin_s
            if profile.name is not None and self._capacity[slot.node] is not None:
                self._entering.setdefault(slot.node, []).append(
                    (index, profile.name, profile.model_gib)
                )

    def clear(self, node: str) -> None:
        """Lose the node, with all that it held."""
        self._held[node].clear()
        self._entering.pop(node, None)

    def evicted_by(self, job: Job, node: str, now_s: float) -> list[str]:
        """Return the models that would make room for that of a job started on the node."""
        if self.holds(node, job.profile.name, now_s) or job.profile.name is None:
            return []
        held = dict(self._held[node])
        before = list(held)
        self._enter(held, self._capacity[node], job.profile.name, job.profile.model_gib)
        return [model for model in before if model not in held]

    def _settle(self, placement: Placement, now_s: float) -> None:
        for slot in placement:
            if self._latest_s.get(slot.node, now_s) < now_s:
                self._settle_node(slot.node)

    def _settle_node(self, node: str) -> None:
        """Let those enter that started before."""
        for _, model, gib in sorted(self._entering.pop(node, ())):
            self._enter(self._held[node], self._capacity[node], model, gib)

    @staticmethod
    def _enter(held: dict[str, float], capacity: float | None, model: str, gib: float) -> None:
        if capacity is None or gib > capacity:
            return
        held.pop(model, None)
        held[model] = gib
        while math.fsum(held.values()) > capacity:
            del held[next(iter(held))]


def model_caches(instance: Instance) -> ModelCaches | None:
    """Return the caches of an instance; None where no job fetches a model."""
    return None if fetching(instance) is None else ModelCaches(instance)


def fetching(instance: Instance) -> str | None:
    """Return the first job that may have to fetch its model; None where none does."""
    return next((job.id for job in instance.jobs if job.profile.fetch_s), None)
