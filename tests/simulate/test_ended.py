"""How long jobs will be, from those that have ended."""

import math
import random
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched.control.learning import believed
from optsched.estimates.history import LEAST_S, NEWEST, Ended, History, Likeness
from optsched.estimates.unknown import FIRST_GUESS_S
from optsched.model.job import Job

RUNS_S = 3600.0
BASES = [None, "stated", "limit"]


class Past(NamedTuple):
    user: str | None
    command: str | None
    gpus: int
    work_s: float
    prior_s: float = FIRST_GUESS_S
    basis: str | None = None


def past(user: str | None, command: str | None, work_s: float, gpus: int = 1, **more: Any) -> Past:
    return Past(user, command, gpus, work_s, **more)


class Known:
    def __init__(self, past: Iterable[Past] = ()) -> None:
        self.ended = Ended()
        for job in past:
            self.add(job)

    def add(self, job: Past) -> None:
        like = Likeness(user=job.user, command=job.command, gpus=job.gpus, basis=job.basis)
        self.ended.add(like, job.prior_s, job.work_s)

    def work_s(
        self,
        user: str | None,
        command: str | None,
        gpus: int,
        prior_s: float = FIRST_GUESS_S,
        basis: str | None = None,
    ) -> float:
        like = Likeness(user=user, command=command, gpus=gpus, basis=basis)
        return self.ended.belief_s(like, prior_s)

    def told(
        self, command: str, duration_s: float | None = None, limit_s: float | None = None
    ) -> str | None:
        learning: Any = SimpleNamespace(ended=self.ended)
        job = Job(id="new", user="ann", command=command, gpus=1, duration_s=duration_s)
        return believed(learning, FIRST_GUESS_S, job, limit_s)[1]


def test_by_hand() -> None:
    known = Known(
        [past("ann", "train 1", 100), past("ann", "train 2", 300), past("bob", "train 1", 900, 8)]
    )
    similar = 0.64 * 600 + 0.16 * 100 + 0.2 * 300
    assert known.work_s("ann", "train 3", 1) == pytest.approx(similar)
    told = "10 min as a first guess, and 2 ended jobs of user ann with such a command"
    assert known.told("train 3") == told
    assert known.work_s("ann", "train 2", 1) == pytest.approx(0.8 * similar + 0.2 * 300)
    assert known.told("train 2") == f"{told}, 1 of them the same on as many GPUs"
    assert known.work_s("ann", "train 2", 4) == pytest.approx(similar)
    assert known.work_s("bob", "train 7", 1) == pytest.approx(0.8 * 600 + 0.2 * 900)


@pytest.mark.parametrize(
    ("user", "command"), [("eve", "true"), ("ann", "train.py"), ("ann", None), (None, None)]
)
def test_what_others_ran_or_ran_otherwise_does_not_count(
    user: str | None, command: str | None
) -> None:
    known = Known(past("ann", "true", 0.007) for _ in range(9))
    for basis in BASES:
        assert known.work_s(user, command, 1, RUNS_S, basis) == RUNS_S
        like = Likeness(user=user, command=command, gpus=1, basis=basis)
        assert known.ended.jobs(like) == (0, 0)


def test_one_short_job_is_outweighed_by_what_was_believed_and_several_outweigh_that() -> None:
    known, found = Known(), []
    for _ in range(40):
        known.add(past("ann", "true", 0.007, prior_s=RUNS_S))
        found.append(known.work_s("ann", "true", 1, RUNS_S))
    assert found[0] > RUNS_S / 2 and found[2] < RUNS_S / 3
    assert found == sorted(found, reverse=True) and found[-1] == LEAST_S


def test_a_job_is_as_much_shorter_than_its_limit_as_those_like_it_were() -> None:
    known = Known(past("ann", "train", 900, prior_s=3600, basis="limit") for _ in range(40))
    four_h = 4 * 3600.0
    assert known.work_s("ann", "train", 1, four_h, "limit") == pytest.approx(3600, rel=0.01)
    told = known.told("train", limit_s=four_h)
    assert told is not None
    assert told.startswith("4 h as its time limit, and 40 ended jobs of user ann")
    # what is said otherwise is another matter
    assert known.work_s("ann", "train", 1, four_h, "stated") == four_h


def test_nothing_has_ended() -> None:
    assert Known().work_s("ann", "train.py", 1) == 600
    assert Known().told("train.py") == "nobody stated how long it runs"
    assert Known().told("train.py", limit_s=60.0) == "its time limit"
    assert Known().told("train.py", duration_s=60.0) is None


def test_the_same_as_in_simulations() -> None:
    draw = random.Random(3)
    history, known = History(), Known()
    for i in range(300):
        user, command = draw.choice("abc"), draw.choice(["x 1", "x 2", "y", None])
        gpus, work_s = draw.choice([1, 2, 8]), draw.uniform(1, 1e5)
        job = Job(id=str(i), user=user, command=command, gpus=gpus, duration_s=work_s)
        assert known.work_s(user, command, gpus) == history.work_s(job, float(i))
        history.completed(job, work_s, float(i))
        known.add(past(user, command, work_s, gpus))


LENGTH_S = st.floats(0, 1e10)
PRIOR_S = st.floats(1e-3, 1e10)
COMMAND = st.sampled_from(["a 1", "a 2", "7", None])
PAST = st.builds(
    Past,
    user=st.sampled_from(["ann", None]),
    command=COMMAND,
    gpus=st.integers(0, 2),
    work_s=LENGTH_S,
    prior_s=PRIOR_S,
    basis=st.sampled_from(BASES),
)


@given(st.lists(PAST, max_size=60), COMMAND, PRIOR_S, st.sampled_from(BASES))
def test_beliefs_are_always_sensible(
    ended: list[Past], command: str | None, prior_s: float, basis: str | None
) -> None:
    belief_s = Known(ended).work_s("ann", command, 1, prior_s, basis)
    alike = [one.work_s for one in ended if one.user == "ann" and one.basis == basis]
    assert math.isfinite(belief_s) and belief_s > 0
    assert min(LEAST_S, prior_s) <= belief_s <= max([prior_s, *alike])
    # n jobs leave at least this much of what was believed before
    assert belief_s >= (1 - NEWEST) ** (2 * len(alike)) * prior_s * (1 - 1e-9)
    assert alike or belief_s == prior_s


@given(st.lists(PAST, min_size=1, max_size=20), st.data())
def test_a_job_that_was_longer_never_makes_others_seem_shorter(
    ended: list[Past], data: st.DataObject
) -> None:
    i = data.draw(st.integers(0, len(ended) - 1))
    longer = ended[i]._replace(work_s=data.draw(st.floats(ended[i].work_s, 1e10)))
    before, after = Known(ended), Known([*ended[:i], longer, *ended[i + 1 :]])
    asked = (
        data.draw(st.sampled_from(["ann", None])),
        data.draw(COMMAND),
        data.draw(st.integers(0, 2)),
        data.draw(PRIOR_S),
        data.draw(st.sampled_from(BASES)),
    )
    assert after.work_s(*asked) >= before.work_s(*asked) * (1 - 1e-9)


@pytest.mark.parametrize("work_s", [math.nan, math.inf, -1.0])
def test_what_is_no_length_of_time_is_not_learned(work_s: float) -> None:
    known = Known(
        [past("ann", "x", work_s, prior_s=RUNS_S), past("ann", "x", 1.0, prior_s=math.nan)]
    )
    assert known.work_s("ann", "x", 1, RUNS_S) == RUNS_S
