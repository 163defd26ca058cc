"""A policy: the widest gangs first."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from optsched.driver import World
from optsched.plugins.options import PluginOptions
from optsched_solvers.policies.parts.list_scheduling import ListScheduling


class WidestFirst(ListScheduling):
    """Starts the widest gang that fits; from `alike` GPUs on the first to come."""

    name = "widest-first"
    title = "the widest gang first, without preemption"

    @dataclass(frozen=True, kw_only=True)
    class Options(PluginOptions):
        alike: Annotated[int, Ge(1), "Gangs of at least so many GPUs are equally wide."] = 64

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.alike = options.alike

    def rank(self, world: World, job_id: str) -> float:
        """The smallest rank comes first, of equal ones the job that came first."""
        return -min(world.service_gpus(job_id), self.alike)
