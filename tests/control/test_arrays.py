"""Tasks of an array: never more at once than its user wants, whatever becomes of them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Job
from optsched.control.journal.events import Cancelled, Held, Released, Submitted
from optsched.control.journal.state import State
from optsched.control.submission import Submission
from optsched.control.what_if.future import outlook
from optsched.control.what_if.simulated import Change
from optsched.control.what_if.snapshot import snapshot

from .courses import what_if
from .test_controller import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def submit(lab: Lab, tasks: int, at_once: int | None, seconds: float, **more: Any) -> None:
    for index in range(tasks):
        lab.submit(
            f"sweep-{index}", 1, seconds, array="sweep", index=index, at_once=at_once, **more
        )


def holding(lab: Lab) -> int:
    """How many tasks hold something, or have a place that they will hold."""
    state = lab.controller.state
    return sum(job.live is not None or job.id in state.claims for job in state.open.values())


def test_so_many_run_at_once_in_the_order_of_their_index(lab: Lab) -> None:
    submit(lab, 8, 3, 10.0)
    most = 0
    for _ in range(60):
        lab.run(1)
        most = max(most, holding(lab))
    assert most == 3 and set(lab.status().values()) == {"completed"}
    began = [key.job for key in lab.executor.begun]
    assert [sorted(began[i : i + 3]) for i in (0, 3)] == [
        ["sweep-0", "sweep-1", "sweep-2"],
        ["sweep-3", "sweep-4", "sweep-5"],
    ]


def test_without_a_limit_all_run(lab: Lab) -> None:
    submit(lab, 8, None, 10.0)
    lab.run(2)
    assert holding(lab) == 8


@settings(max_examples=20)
@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(
            st.sampled_from(["hold", "release", "cancel", "crash", "gang"]), st.integers(0, 6)
        ),
        max_size=8,
    ),
)
def test_never_more_than_that_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, at_once: int, events: list[tuple[str, int]]
) -> None:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    submit(lab, 7, at_once, 20.0, retries=1)
    for number, (what, index) in enumerate(events):
        lab.run(3)
        name = f"sweep-{index}"
        if what == "crash":
            lab.crash()
        elif what == "gang":  # it preempts
            lab.submit(f"gang-{number}", 8, 1.0, job={"weight": 1e3})
        elif name in lab.controller.state.open:
            kind = {"hold": Held, "release": Released, "cancel": Cancelled}[what]
            lab.controller.record(kind(job=name, by="me"))
        tasks = [job for job in lab.controller.state.open.values() if job.submission.array]
        live = [
            job for job in tasks if job.live is not None or job.id in lab.controller.state.claims
        ]
        assert len(live) <= at_once
    for job in lab.controller.state.open.values():
        if job.held is not None:
            lab.controller.record(Released(job=job.id, by="me"))
    lab.run(400, turn_s=2.0)
    assert set(lab.status().values()) <= {"completed", "cancelled"}


def test_what_if_sees_the_limit(lab: Lab) -> None:
    submit(lab, 6, 2, 100.0)
    lab.run(1)
    course = what_if(outlook(snapshot(lab.controller)), Change(), time_limit_s=60.0).before
    assert course.complete and 290.0 <= max(course.end_s.values()) <= 330.0


def test_arrays_are_forgotten_with_their_last_task() -> None:
    state = State()
    for index in range(2):
        job = Job(id=f"a-{index}", gpus=1, duration_s=1.0)
        submission = Submission(job=job, argv=("x",), directory="/", array="a", index=index)
        state.apply(float(index), Submitted(submission=submission))
        state.apply(float(index), Cancelled(job=job.id, by="me"))
    state.drop("a-0")
    assert [*state.arrays["a"]] == ["a-1"]
    state.drop("a-1")
    assert not state.arrays and not state.jobs
