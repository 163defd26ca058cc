"""What Slurm does not start, by its own reasons: when that is tried again, and what else is not
tried until then."""

import re
import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from ..base import AttemptKey, AttemptState, NodeStatus, Observation

FIRST_S, LONGEST_S = 15.0, 300.0
ELSEWHERE_S = 5.0
"""After so long a job is tried on other nodes than those that were at fault."""
AVOID_S = 20.0
"""For so long nothing is tried on these: not longer, as it may have been the job's doing after
all."""
SURE_S = 5.0
"""A limit is Slurm's answer to all jobs alike; so long one is waited for that is about to be
seen to have ended."""
LIMIT = re.compile(r"(?i)(qos|assoc|account|max)")
OF_NODES = re.compile(r"(?i)(reqnode|reserv|node)")
OF_THE_JOB = re.compile(
    r"(?i)^(partition|licen|bad|begintime|dependency|jobarray|deadline|jobheld|invalid|(qos|assoc)min)|perjob|pernode"
    "|wall|timelimit|memper"
)
"""Limits of a job by itself among them, which leave other jobs of its user alone."""
FORGET_S = 3600.0


@dataclass(slots=True)
class Bar:
    """Nothing alike is tried before `until_s` (monotonic), as Slurm said `why` so many `times`
    in a row, the last time of `job`."""

    why: str
    job: str
    times: int = 0
    until_s: float = 0.0

    def raise_again(self) -> float:
        """Return for how long it is up now."""
        seconds = min(LONGEST_S, FIRST_S * 2.0 ** min(self.times, 10))
        self.times += 1
        self.until_s = time.monotonic() + seconds
        return seconds


class Declining:
    """Remembers for whom (`who`: what a limit may be of), on which nodes, and of which jobs
    Slurm has started nothing."""

    def __init__(self) -> None:
        self._bars: dict[Hashable, Bar] = {}
        self._last_on: dict[str, str] = {}
        self._begun: set[AttemptKey] = set()

    def gives_up(
        self,
        statuses: Iterable[NodeStatus],
        late: str | None,
        who: Hashable,
        job: str,
        nodes: tuple[str, ...],
    ) -> tuple[str, float] | None:
        """Return why an attempt that waits for its `nodes` is given up, and after how many seconds
        it is tried again: one of them takes no jobs any more by the `statuses` of those that answer
        Slurm, or Slurm says why it is `late`. None where it is waited for."""
        for status in statuses:
            if status.node.name in nodes and not status.usable:
                return f"node {status.node.name} {status.reason}", ELSEWHERE_S
        if late is None:
            return None
        return f"Slurm did not start it: {late}", self.declined(late, who, job, nodes)

    def learn(self, seen: Observation, who: Hashable, job: str, nodes: tuple[str, ...]) -> None:
        """Hear of an attempt that begins, and of one that ends, whether its limit leaves room
        again."""
        if seen.state is AttemptState.RUNNING and seen.key not in self._begun:
            self._begun.add(seen.key)
            self.began(who, job, nodes)
        elif seen.state is AttemptState.ENDED and seen.key in self._begun:
            self._begun.discard(seen.key)
            self.freed(who)

    def declined(self, why: str, who: Hashable, job: str, nodes: tuple[str, ...]) -> float:
        """Note that Slurm has not started `job` of `who` on `nodes`; return after how many seconds
        that is tried again.

        A limit bars all jobs of `who`; what is up to the nodes bars these; what may be up to
        them does as soon as it was so for two jobs. Of one job it is said less and less often.
        """
        if LIMIT.match(why) and not OF_THE_JOB.search(why):
            return self._raise(("who", who), why, job)
        first = ("job", job) not in self._bars
        retry_s = self.later(why, job)
        if OF_THE_JOB.search(why):
            return retry_s
        of_nodes = OF_NODES.match(why) is not None
        self.avoid(
            why, job, [name for name in nodes if of_nodes or self._last_on.get(name, job) != job]
        )
        self._last_on |= dict.fromkeys(nodes, job)
        return ELSEWHERE_S if of_nodes and first else retry_s

    def later(self, why: str, job: str) -> float:
        """Have a job wait, the longer the more often; for how many seconds."""
        return self._raise(("job", job), why, job)

    def avoid(self, why: str, job: str, nodes: Iterable[str]) -> None:
        """Try nothing on these nodes for a while, or until `job` has begun elsewhere."""
        for name in nodes:
            self._bars[("node", name)] = Bar(why, job, until_s=time.monotonic() + AVOID_S)

    def _raise(self, what: Hashable, why: str, job: str) -> float:
        now_s = time.monotonic()
        self._bars = {key: bar for key, bar in self._bars.items() if bar.until_s > now_s - FORGET_S}
        bar = self._bars.setdefault(what, Bar(why, job))
        bar.why, bar.job = why, job
        return bar.raise_again()

    def began(self, who: Hashable, job: str, nodes: tuple[str, ...]) -> None:
        """Note that Slurm has started one."""
        over = {("who", who), ("job", job), *(("node", name) for name in nodes)}
        self._bars = {
            what: bar for what, bar in self._bars.items() if what not in over and bar.job != job
        }
        for name in nodes:
            self._last_on.pop(name, None)

    def freed(self, who: Hashable) -> None:
        """Note that a job of `who` has ended, so that a limit may leave room again."""
        bar = self._bars.get(("who", who))
        if bar is not None:
            bar.until_s = 0.0

    def limit(self, who: Hashable) -> str | None:
        """Return why no job of `who` is tried now; None if one is."""
        return self._why(("who", who))

    def left_s(self, who: Hashable) -> float:
        """Return for how long none is."""
        bar = self._bars.get(("who", who))
        return 0.0 if bar is None else max(0.0, bar.until_s - time.monotonic())

    def node(self, name: str) -> str | None:
        """Return why no job is tried on that node now; None if one is."""
        return self._why(("node", name))

    def _why(self, what: Hashable) -> str | None:
        bar = self._bars.get(what)
        return bar.why if bar is not None and time.monotonic() < bar.until_s else None
