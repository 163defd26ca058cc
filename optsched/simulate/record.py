"""What happened in a simulation, in columns: one row for each stretch in which a job held the same
GPUs."""

from collections.abc import Iterator
from dataclasses import replace
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from ..driver import Ending
from ..frozen import entity
from ..model import Cluster, Decision, Incident, Instance, JobPlan, Mode, Placement, Plan, Segment
from ..physics import TIME_TOLERANCE_S, gpus_by_type
from ..verify import decision_now

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


SEVERAL_TYPES = -2
"""In place of a GPU type: the gang has GPUs of several."""


INCIDENTS: dict[int, Incident] = {
    Ending.FAILED: "failure",
    Ending.NODE_LOST: "outage",
    Ending.OUT_OF_MEMORY: "out_of_memory",
}


@entity
class Record:
    """Rows in the order in which they ended. All columns have one entry a row.

    `job` is the position in `instance.jobs`; `mode` that in `modes` (without `share_with`);
    `placements` has one entry a row; `partner` is the position of the job on the same GPUs or -1.
    `gpu_type` is the position in `instance.cluster.gpu_types`, -1 without GPUs, `SEVERAL_TYPES`
    where only the placement tells; `gpus` and `cpus` are counted over all nodes. `overhead_s` are
    the seconds of the row spent on start-up, restore and checkpoint; `work_s` the reference work
    done in it, `lost_s` the reference work of this stay and row that counts for nothing because of
    how the row ended. A job's work is the sum of its `work_s` less its `lost_s`.
    """

    instance: Instance
    job: Ints
    start_s: Floats
    end_s: Floats
    mode: Ints
    partner: Ints
    gpu_type: Ints
    gpus: Ints
    cpus: Ints
    overhead_s: Floats
    work_s: Floats
    lost_s: Floats
    ending: Ints
    modes: tuple[Mode, ...]
    placements: tuple[Placement, ...]
    decision_s: Floats
    """When the policy decided."""
    decision_wall_s: Floats
    """How long each of these decisions took, on the machine's clock; the only column that is not
    deterministic."""

    @property
    def rows(self) -> int:
        return len(self.job)

    def plan(self) -> Plan:
        """Return the segments of every job. O(rows)."""
        segments: list[list[Segment]] = [[] for _ in self.instance.jobs]
        ids = [job.id for job in self.instance.jobs]
        columns = (self.job, self.start_s, self.end_s, self.mode, self.partner, self.ending)
        for j, start_s, end_s, m, partner, ending, placement in zip(
            *(column.tolist() for column in columns), self.placements, strict=True
        ):
            mode = self.modes[m]
            if partner >= 0:
                mode = replace(mode, share_with=ids[partner])
            segments[j].append(
                Segment(
                    start_s=start_s,
                    end_s=end_s,
                    mode=mode,
                    placement=placement,
                    stopped_by=INCIDENTS.get(ending),
                )
            )
        entries = []
        for job, own_segments in zip(self.instance.jobs, segments, strict=True):
            if len(own_segments) == 1 and job.id not in self.instance.running_job:
                waits = own_segments[0].start_s > self.instance.now_s + TIME_TOLERANCE_S
                begins: Decision = "resume" if job.id in self.instance.suspended_job else "start"
                decision: Decision = "wait" if waits else begins
            else:
                decision = decision_now(self.instance, job, tuple(own_segments))
            entries.append(JobPlan(id=job.id, decision=decision, segments=tuple(own_segments)))
        return Plan(jobs=tuple(entries))


ROW = np.dtype(
    [
        ("job", "i8"),
        ("start_s", "f8"),
        ("end_s", "f8"),
        ("mode", "i8"),
        ("partner", "i8"),
        ("overhead_s", "f8"),
        ("work_s", "f8"),
        ("lost_s", "f8"),
        ("ending", "i8"),
    ]
)
"""What a row says, but for its placement."""
_ROW, _DECISION = Struct("=qddqqdddq").pack, Struct("=dd").pack


class Rows:
    """The rows of a record while they are being written."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rows, self._decisions = bytearray(), bytearray()
        self._placements: list[Placement] = []
        self._modes: list[Mode] = []
        self._gpu_types: list[int] = []
        self._number_of: dict[object, int] = {}

    def add(
        self,
        job: int,
        start_s: float,
        end_s: float,
        mode: Mode,
        placement: Placement,
        partner: int,
        overhead_s: float,
        work_s: float,
        lost_s: float,
        ending: Ending,
    ) -> None:
        """Write one row."""
        number = self._number_of.get(mode)
        if number is None:
            number = self._number(mode, placement)
        self._placements.append(placement)
        self._rows += _ROW(job, start_s, end_s, number, partner, overhead_s, work_s, lost_s, ending)

    def amend(self, job: int, end_s: float, lost_s: float, ending: Ending) -> None:
        """End the job's stay at the instant at which its last row was to go on: that row ends so
        instead."""
        rows = np.frombuffer(self._rows, ROW)
        row = len(rows) - 1
        while row >= 0 and rows["end_s"][row] >= end_s:
            if rows["job"][row] == job:
                if rows["ending"][row] == Ending.GOES_ON:
                    rows["ending"][row], rows["lost_s"][row] = ending, lost_s
                return
            row -= 1

    def _number(self, mode: Mode, placement: Placement) -> int:
        """Return the number of a mode on the GPU types that it names, or that its placement has."""
        named = mode.gpu_type is not None or not mode.gpus
        key = mode if named else (mode, *gpus_by_type(self._cluster, placement))
        number = self._number_of.get(key)
        if number is None:
            number = self._number_of[key] = len(self._modes)
            held = list(gpus_by_type(self._cluster, placement))
            only = self._cluster.gpu_types.index(held[0]) if held else -1
            self._modes.append(mode)
            self._gpu_types.append(only if len(held) <= 1 else SEVERAL_TYPES)
        return number

    def decided(self, time_s: float, wall_s: float) -> None:
        """Write one decision."""
        self._decisions += _DECISION(time_s, wall_s)

    def since(self, row: int) -> NDArray[np.void]:
        """Return the rows from this one on."""
        return np.frombuffer(bytes(memoryview(self._rows)[row * ROW.itemsize :]), ROW)

    def held_since(self, row: int) -> Iterator[tuple[int, int, float, float]]:
        """Yield job, GPUs, begin and end of the rows from this one on."""
        for own in self.since(row):
            gpus = self._modes[own["mode"]].gpus
            yield int(own["job"]), gpus, float(own["start_s"]), float(own["end_s"])

    def record(self, instance: Instance) -> Record:
        """Return what has been written, in columns."""
        rows, modes = self.since(0), self._modes
        decisions = np.frombuffer(bytes(self._decisions)).reshape(-1, 2).T.copy()
        columns = {name: np.ascontiguousarray(rows[name]) for name in ROW.names or ()}
        mode = columns["mode"]

        def of_mode(values: list[int]) -> Ints:
            return np.array(values, dtype=np.int64)[mode] if modes else mode

        return Record(
            instance=instance,
            **columns,
            gpu_type=of_mode(self._gpu_types),
            gpus=of_mode([used.gpus for used in modes]),
            cpus=of_mode(
                [used.gpus * used.cpus_per_gpu if used.gpus else used.cpus for used in modes]
            ),
            modes=tuple(modes),
            placements=tuple(self._placements),
            decision_s=decisions[0],
            decision_wall_s=decisions[1],
        )
