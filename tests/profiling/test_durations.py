"""How long jobs will be, from those that have ended."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched.estimates.history import LEAST_S, NEWEST, History
from optsched.model.job import Job
from optsched.profiling.durations import Durations, Past

RUNS_S = 3600.0
BASES = [None, "stated", "limit"]


def past(user: str | None, command: str | None, work_s: float, gpus: int = 1, **more: Any) -> Past:
    return Past(user=user, command=command, gpus=gpus, work_s=work_s, **more)


def test_by_hand() -> None:
    known = Durations(
        [past("ann", "train 1", 100), past("ann", "train 2", 300), past("bob", "train 1", 900, 8)]
    )
    similar = 0.64 * 600 + 0.16 * 100 + 0.2 * 300
    found = known.predict("ann", "train 3", 1)
    assert (found.work_s, found.jobs) == (pytest.approx(similar), 2)
    assert (
        found.taken_from
        == "10 min as a first guess, and 2 ended jobs of user ann with such a command"
    )
    found = known.predict("ann", "train 2", 1)
    assert found.work_s == pytest.approx(0.8 * similar + 0.2 * 300)
    assert found.taken_from.endswith("with such a command, 1 of them the same on as many GPUs")
    assert known.predict("ann", "train 2", 4).work_s == pytest.approx(similar)
    assert known.predict("bob", "train 7", 1).work_s == pytest.approx(0.8 * 600 + 0.2 * 900)


@pytest.mark.parametrize(
    ("user", "command"), [("eve", "true"), ("ann", "train.py"), ("ann", None), (None, None)]
)
def test_what_others_ran_or_ran_otherwise_does_not_count(
    user: str | None, command: str | None
) -> None:
    known = Durations(past("ann", "true", 0.007) for _ in range(9))
    for basis in BASES:
        found = known.predict(user, command, 1, prior_s=RUNS_S, basis=basis)
        assert (found.work_s, found.jobs) == (RUNS_S, 0)


def test_one_short_job_is_outweighed_by_what_was_believed_and_several_outweigh_that() -> None:
    known, found = Durations(), []
    for _ in range(40):
        known.add(past("ann", "true", 0.007, prior_s=RUNS_S))
        found.append(known.predict("ann", "true", 1, prior_s=RUNS_S).work_s)
    assert found[0] > RUNS_S / 2 and found[2] < RUNS_S / 3
    assert found == sorted(found, reverse=True) and found[-1] == LEAST_S


def test_a_job_is_as_much_shorter_than_its_limit_as_those_like_it_were() -> None:
    known = Durations(past("ann", "train", 900, prior_s=3600, basis="limit") for _ in range(40))
    found = known.predict("ann", "train", 1, prior_s=4 * 3600, basis="limit")
    assert found.work_s == pytest.approx(3600, rel=0.01)
    assert found.taken_from.startswith("4 h as its time limit, and 40 ended jobs of user ann")
    # what is said otherwise is another matter
    assert known.predict("ann", "train", 1, prior_s=4 * 3600, basis="stated").work_s == 4 * 3600


def test_nothing_has_ended() -> None:
    found = Durations().predict("ann", "train.py", 1)
    assert (found.work_s, found.jobs) == (600, 0)
    assert found.taken_from == "no job like it has ended yet: 10 min as a first guess"


def test_the_same_as_in_simulations() -> None:
    draw = random.Random(3)
    history, known = History(), Durations()
    for i in range(300):
        user, command = draw.choice("abc"), draw.choice(["x 1", "x 2", "y", None])
        gpus, work_s = draw.choice([1, 2, 8]), draw.uniform(1, 1e5)
        job = Job(id=str(i), user=user, command=command, gpus=gpus, duration_s=work_s)
        assert known.predict(user, command, gpus).work_s == history.work_s(job, float(i))
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
    belief_s = Durations(ended).predict("ann", command, 1, prior_s=prior_s, basis=basis).work_s
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
    one = ended[i]
    longer = Past(
        user=one.user,
        command=one.command,
        gpus=one.gpus,
        prior_s=one.prior_s,
        basis=one.basis,
        work_s=data.draw(st.floats(one.work_s, 1e10)),
    )
    before, after = Durations(ended), Durations([*ended[:i], longer, *ended[i + 1 :]])
    asked = (
        data.draw(st.sampled_from(["ann", None])),
        data.draw(COMMAND),
        data.draw(st.integers(0, 2)),
    )
    how = {"prior_s": data.draw(PRIOR_S), "basis": data.draw(st.sampled_from(BASES))}
    assert after.predict(*asked, **how).work_s >= before.predict(*asked, **how).work_s * (1 - 1e-9)


@pytest.mark.parametrize("work_s", [math.nan, math.inf, -1.0])
def test_what_is_no_length_of_time_is_not_learned(work_s: float) -> None:
    known = Durations(
        [past("ann", "x", work_s, prior_s=RUNS_S), past("ann", "x", 1.0, prior_s=math.nan)]
    )
    assert known.predict("ann", "x", 1, prior_s=RUNS_S).work_s == RUNS_S
