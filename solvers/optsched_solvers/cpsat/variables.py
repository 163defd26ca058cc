"""The variables of the CP-SAT model by job, for side constraints of one's own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from optsched.errors import InputError, perhaps
from optsched.model import Mode

from .model import Model


@dataclass(frozen=True)
class JobVariables:
    """The decisions of the model on one job; times are ticks (see `Variables.tick`).

    `modes` pairs every way to run the job with the literal that chooses it. `gpus` gives, for each
    node that the job may use, the GPUs that it holds there; `on` whether it uses the node.
    """

    start: Any
    end: Any
    modes: tuple[tuple[Mode, Any], ...]
    gpus: Mapping[str, Any]
    on: Mapping[str, Any]


class Variables(Mapping[str, JobVariables]):
    """The variables of each job, by its id: `variables["eval"].start`."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._index = {a.job.id: a.index for a in model.problem.activities}

    @property
    def tick_s(self) -> float:
        """Return the seconds of one tick of the model's clock."""
        return self._model.problem.tick.length_s

    def tick(self, instant_s: float, *, down: bool = False) -> int:
        """Return the tick of an instant of the instance's clock: the first one not before it, or
        with `down` the last one not after it."""
        problem = self._model.problem
        return self.ticks(instant_s - problem.instance.now_s, down=down)

    def ticks(self, length_s: float, *, down: bool = False) -> int:
        """Return a length of time in ticks, rounded up or, with `down`, down."""
        tick = self._model.problem.tick
        return tick.floor(length_s) if down else tick.ceil(length_s)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, job_id: str) -> JobVariables:
        if job_id not in self._index:
            raise InputError(f"job {job_id!r} is not in the model{perhaps(job_id, self._index)}")
        j = self._index[job_id]
        model = self._model
        alternatives = model.problem.activities[j].alternatives
        return JobVariables(
            start=model.start[j],
            end=model.end[j],
            modes=tuple(
                (alternative.mode, literal)
                for alternative, literal in zip(alternatives, model.chosen[j], strict=True)
            ),
            gpus={name: sum(n * x for x, n in uses) for name, uses in self._uses[j].items()},
            on={name: self._presence(job_id, name, uses) for name, uses in self._uses[j].items()},
        )

    @cached_property
    def _uses(self) -> dict[int, dict[str, list[tuple[Any, int]]]]:
        """Return for each activity and node the variables that put it there, with the GPUs of one
        unit."""
        model = self._model
        nodes = model.problem.instance.cluster.nodes
        uses: dict[int, dict[str, list[tuple[Any, int]]]] = {j: {} for j in self._index.values()}
        for (j, _, n), use in model.placing.items():
            uses[j].setdefault(nodes[n].name, []).append(use)
        for activity in model.problem.activities:
            for a, alternative in enumerate(activity.alternatives):
                for n, gpus in alternative.rooms if alternative.fixed else ():
                    literal = model.chosen[activity.index][a]
                    uses[activity.index].setdefault(nodes[n].name, []).append((literal, gpus))
        return uses

    def _presence(self, job_id: str, node: str, uses: list[tuple[Any, int]]) -> Any:
        """Return a literal that is true where the job uses the node."""
        cp = self._model.cp
        present = cp.new_bool_var(f"present_{job_id}_{node}")
        total = sum(variable for variable, _ in uses)
        cp.add(total >= 1).only_enforce_if(present)
        cp.add(total == 0).only_enforce_if(~present)
        return present
