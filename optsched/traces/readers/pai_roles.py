"""What the roles of a PAI job ask for together."""

import math
from typing import Any, NamedTuple

from ..tables.table import Row
from .alibaba import MOST_GPUS, ROUNDING, Request


class Role(NamedTuple):
    """A task of a job: `instances` alike, each with `gpu_percent` of a GPU, cores and memory."""

    instances: int
    gpu_percent: float
    cores: float = 0.0
    memory_gib: float = 0.0
    start_s: float | None = None
    end_s: float | None = None

    @classmethod
    def of(cls, row: Row, gpu_column: str, **values: Any) -> "Role":
        """Return the role that a row tells of. Raises InputError where it has far too many GPUs."""
        role = cls(**values)
        if role.gpus > MOST_GPUS:
            row.refuse(f"inst_num times {gpu_column} of at most {MOST_GPUS} GPUs", gpu_column)
        return role

    @property
    def gpus(self) -> int:
        """Return the number of whole GPUs of all instances."""
        return self.instances * math.ceil(self.gpu_percent / 100 - ROUNDING)


def request_of(roles: list[Role], gpu_type: str | None) -> Request:
    """Return the request of roles that all have GPUs, or none of which has."""
    gpus = sum(role.gpus for role in roles)
    shared = gpus and all(role.gpu_percent < 100 for role in roles)
    return Request(
        gpus=gpus,
        cores=sum(role.instances * role.cores for role in roles),
        memory_gib=sum(role.instances * role.memory_gib for role in roles),
        fraction=sum(role.instances * role.gpu_percent for role in roles) / 100 / gpus
        if shared
        else None,
        gpu_types=(gpu_type,) if gpus and gpu_type is not None else (),
        one_node=sum(role.instances for role in roles) == 1,
    )
