"""Jobs are believed to be as long, for what is said of them, as earlier ones of the same user and
command were."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..frozen import frozen
from ..model import Completed, Job, gang
from .commands import similar
from .errors import ASSUMED, Belief, RunTimeErrors, kind_of
from .errors import NEWEST as MOST_KEPT
from .lengths import Lengths
from .unknown import FIRST_GUESS_S

NEWEST = 0.2
"""The weight of the newest job in a rolling mean; what was believed before any of them begins that
mean, so it counts as much as the first four of them together."""
LEAST_S = 10.0
"""Nothing is believed to be shorter for what earlier jobs were: how much shorter one is than
another cannot be told."""

ASSUMED_WEIGHT = 4.0
"""What is assumed of how far beliefs are off counts as much as so many jobs with a similar command,
as it does in the rolling means."""
SAME_WEIGHT = 4.0
"""A job with the very same command and GPUs counts as much as so many with a similar one."""

Group = tuple[str | int | None, ...]
"""Jobs that are taken to be alike."""


@frozen
class Likeness:
    """By what jobs are told to be alike: who runs what on how many GPUs, and on what the belief
    before is based ("stated": what its user says it takes; "limit": when it is ended; None: nothing
    is said of it)."""

    user: str | None
    command: str | None
    gpus: int
    basis: str | None = None

    @classmethod
    def of(cls, job: Job, basis: str | None = None) -> "Likeness":
        """Return what tells of a job which others are like it."""
        return cls(user=job.user, command=job.command, gpus=gang(job), basis=basis)


@dataclass(slots=True)
class Rolling:
    """An exponentially weighted mean that begins with a belief, which has the weight `left` yet,
    and the newest of its values."""

    count: int = 0
    total: float = 0.0
    left: float = 1.0
    longest_s: float = 0.0
    newest: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))

    def add(self, value: float) -> None:
        """Add one more value, the newest."""
        self.count += 1
        self.newest.append(value)
        self.total += (value - self.total) * NEWEST
        self.left *= 1 - NEWEST

    def after(self, belief: float) -> float:
        """Return the mean that `belief` begins."""
        return self.left * belief + self.total

    @property
    def mean(self) -> float:
        """Return the mean of the values alone, of which there must be one."""
        return self.total / (1 - self.left)


class Ended:
    """What jobs that have completed tell of the length of new ones: by which factor those most like
    it took longer or shorter than was believed of each beforehand.

    Factors are kept in rolling means, first of the user's jobs with a similar command, then of
    those with the very same command and number of GPUs. The first mean begins with the factor 1,
    the second with the first: one job moves a belief by little more than a third of the way, and
    what others ran, or ran otherwise, does not count at all. `errors` are how far the beliefs were
    off.
    """

    def __init__(self) -> None:
        self._of: dict[Group, Rolling] = {}
        self._lengths: dict[Likeness, tuple[tuple[int, int], Lengths]] = {}
        self.errors = RunTimeErrors()

    def add(self, like: Likeness, prior_s: float, worked_s: float) -> None:
        """Add one more job that has completed: it worked for `worked_s`, and `prior_s` was said or
        assumed of it."""
        if not (
            math.isfinite(worked_s) and worked_s >= 0 and math.isfinite(prior_s) and prior_s > 0
        ):
            return
        belief = self.belief(like, prior_s)
        self.errors.add(belief.kind, belief.work_s, worked_s)
        for group in _groups(like):
            rolling = self._of.setdefault(group, Rolling())
            rolling.add(worked_s / prior_s)
            rolling.longest_s = max(rolling.longest_s, worked_s)

    def belief_s(self, like: Likeness, prior_s: float) -> float:
        """Return how long a job is believed to be of which `prior_s` is said or assumed: never
        below `LEAST_S` unless that is, and never longer than both that and the longest job like
        it."""
        factor, longest_s = 1.0, prior_s
        for group in _groups(like):
            rolling = self._of.get(group)
            if rolling is not None:
                factor, longest_s = rolling.after(factor), max(longest_s, rolling.longest_s)
        return min(longest_s, max(prior_s * factor, min(prior_s, LEAST_S)))

    def belief(self, like: Likeness, prior_s: float) -> Belief:
        """Return how long a job is believed to be, and what that rests on."""
        return Belief(self.belief_s(like, prior_s), kind_of(like.basis, self.jobs(like)[0]))

    def rank_s(self, like: Likeness, prior_s: float, done_s: float) -> float:
        """Return the Gittins rank of a job that has done `done_s` and of which `prior_s` is said or
        assumed: it may be as many times as long as
        that as those like it were, or as is assumed of any (`ASSUMED`)."""
        ended, (known, lengths) = self.jobs(like), self._lengths.get(like, (None, None))
        if lengths is None or known != ended:
            lengths = self._factors(like)
            self._lengths[like] = ended, lengths
        return prior_s * lengths.rank_s(done_s / prior_s)

    def _factors(self, like: Likeness) -> Lengths:
        """Return the factors by which a job may be longer or shorter than is said or assumed."""
        factors, weights = [*ASSUMED], [ASSUMED_WEIGHT / len(ASSUMED)] * len(ASSUMED)
        for group, weight in zip(_groups(like), (1.0, SAME_WEIGHT - 1.0), strict=True):
            rolling = self._of.get(group)
            if rolling is not None:
                factors += rolling.newest
                weights += [weight] * len(rolling.newest)
        return Lengths(factors, weights)

    def jobs(self, like: Likeness) -> tuple[int, int]:
        """Return how many have completed that are like it, and how many of these had its very
        command and GPUs."""
        counts = [
            0 if rolling is None else rolling.count for rolling in map(self._of.get, _groups(like))
        ]
        return counts[0], counts[-1]


class History:
    """`Ended` as estimates of a simulation. Jobs of which nothing has completed are believed to be
    `FIRST_GUESS_S`.

    After the rolling estimate of Helios' QSSF (Hu et al., SC 2021, section 4.2); `similar` stands
    for the string distance of the paper.
    """

    name = "history"

    def __init__(self) -> None:
        self.ended = Ended()
        self._like: dict[str, Likeness] = {}

    def remember(self, past: Sequence[Completed]) -> None:
        """Learn from each in the order in which they completed."""
        for done in sorted(past, key=by_completion):
            self.completed(done.job, done.work_s, done.completed_s)

    def work_s(self, job: Job, now_s: float) -> float:
        """Return what those like it make of the first guess."""
        like = self._like[job.id] = Likeness.of(job)
        return self.ended.belief_s(like, FIRST_GUESS_S)

    def rank_s(self, job: Job, done_s: float) -> float:
        """Return the Gittins rank that jobs like it give it."""
        return self.ended.rank_s(self._like[job.id], FIRST_GUESS_S, done_s)

    def completed(self, job: Job, worked_s: float, now_s: float) -> None:
        """Learn from one more job."""
        self.ended.add(Likeness.of(job), FIRST_GUESS_S, worked_s)


def by_completion(done: Completed) -> tuple[float, str]:
    """Return the order in which jobs completed, those of one instant by id."""
    return done.completed_s, done.job.id


def _groups(like: Likeness) -> Iterator[Group]:
    """Yield the groups that a job belongs to, the widest first. Jobs without a command are like the
    user's others without."""
    alike = None if like.command is None else similar(like.command) or like.command
    yield "similar", like.user, alike, like.basis
    yield "same", like.user, like.command, like.basis, like.gpus
