"""Rates of jobs as they are learned from the configurations that each has run in."""

from collections.abc import Iterable

from optsched.driver import World

from ..parts.reallocation import held
from .agent import Performance, Seen, fit

PERFECT = 0.0
"""Share of a step that is the same on any number of GPUs, until a job was seen on several."""


class Learned:
    """What each job has shown on each GPU type: a unit of its work is a step of one batch, of which
    each GPU has an equal part. Of a type that a job was not seen on it is believed what holds on
    the first one that it was."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str | None, dict[tuple[int, bool], Seen]]] = {}
        self._models: dict[tuple[str, str | None], Performance] = {}

    def note(self, world: World, jobs: Iterable[str]) -> None:
        """Look at the rates of those of the jobs that run, and forget all others."""
        before, self._seen = self._seen, {}
        for job_id in jobs:
            types = self._seen[job_id] = before.pop(job_id, {})
            if job_id not in world.running:
                continue
            gpu_type, gpus = held(world, job_id)
            nodes = len(world.placement(job_id))
            tried = types.setdefault(gpu_type, {})
            if (gpus, nodes > 1) not in tried:
                step_s = 1.0 / world.rate_now(job_id)
                tried[gpus, nodes > 1] = Seen(nodes, gpus, 1.0 / gpus, None, step_s)
                self._models.pop((job_id, gpu_type), None)
        for job_id, types in before.items():
            for gpu_type in types:
                self._models.pop((job_id, gpu_type), None)

    def rate(self, job_id: str, gpu_type: str | None, gpus: int, one_node: bool) -> float:
        """Return the rate that is believed of a job on so many GPUs, of one node or of several."""
        types = self._seen[job_id]
        if not types:
            return float(gpus)
        if gpu_type not in types:
            gpu_type = next(iter(types))
        model = self._models.get((job_id, gpu_type))
        if model is None:
            model = fit([*types[gpu_type].values()], PERFECT)
            self._models[job_id, gpu_type] = model
        return 1.0 / model.step_s(1 if one_node else 2, gpus, 1.0 / gpus)
