"""Gangs with different numbers of GPUs on their nodes are several jobs of Slurm's: they begin and
end as one."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from optsched.executors.base import AttemptState, NoAnswerError, Order, RefusedError
from optsched.testing.executors import until
from tests.live.slurm_cluster import SlurmCluster, missing, slurm_cluster

from .test_slurm import jobs_of, open_with
from .test_slurm_conformance import SlurmPlace

RUN = "echo run >> runs; until test -e go; do sleep 0.05; done"


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    """One of its own: Slurm 22.05 loses count of the GPUs of a job that starts right after its
    controller does."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with slurm_cluster(nodes=2, gpus=4) as cluster:
        yield cluster


@pytest.fixture
def place(slurm: SlurmCluster) -> Iterator[SlurmPlace]:
    with tempfile.TemporaryDirectory(prefix="optsched-place-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        made = SlurmPlace(Path(name), slurm)
        yield made
        made.clear()


def uneven(place: SlurmPlace, *argv: str) -> Order:
    """Three GPUs on one node, one on another."""
    order = place.order(
        "gang", *argv, nodes=place.nodes[:2], environment={"PLACE": str(place.folder)}
    )
    first, second = order.placement
    return replace(order, placement=(replace(first, gpus=3), second))


def without_the_second(said: str) -> str:
    """An sbatch that submits the first part, and says this of the second."""
    return f'case "$*" in *--gres=gpu:1*) echo "{said}" >&2; exit 1;; esac; exec "$REAL" "$@"'


def test_a_part_that_is_cancelled_in_slurm(place: SlurmPlace) -> None:
    """The rest does not go on without it."""
    order = uneven(place, "sh", "-c", "touch at-$OPTSCHED_NODE_RANK; sleep 600")
    place.executor.start(order)
    until(lambda: all((place.folder / f"at-{rank}").exists() for rank in (0, 1)))
    [(first, _), (_, _)] = sorted(jobs_of(place))
    place.cluster.slurm("scancel", str(first))
    seen = place.end(order.key)
    assert (seen.exit_status, seen.reason) == (None, "its job was cancelled in Slurm")
    assert not place.processes(order.key)


def test_a_part_whose_submission_came_to_nothing(place: SlurmPlace) -> None:
    """Nothing runs before it is there; asked for again, it is submitted, and the other is not."""
    open_with(place, without_the_second("Unable to contact slurm controller"), 60.0)
    order = uneven(place, "sh", "-c", RUN)
    with pytest.raises(NoAnswerError):
        place.executor.start(order)
    until(lambda: [state for _, state in jobs_of(place)] == ["RUNNING"])
    place.reopen()
    assert (
        place.see(order.key).state is AttemptState.STARTING and not (place.folder / "runs").exists()
    )
    for _ in range(2):
        place.executor.start(order)
    place.reach(order.key, AttemptState.RUNNING)
    (place.folder / "go").touch()
    assert place.end(order.key).exit_status == 0
    assert len(jobs_of(place)) == 2
    assert (place.folder / "runs").read_text() == "run\n" * 2


def test_killed_before_all_of_it_was_there(place: SlurmPlace) -> None:
    open_with(place, without_the_second("Unable to contact slurm controller"), 60.0)
    order = uneven(place, "touch", "ran")
    with pytest.raises(NoAnswerError):
        place.executor.start(order)
    until(lambda: [state for _, state in jobs_of(place)] == ["RUNNING"])
    place.reopen()
    place.executor.kill(order.key)
    place.executor.start(order)
    place.end(order.key)
    assert not (place.folder / "ran").exists()
    until(lambda: not jobs_of(place, "PENDING,RUNNING,COMPLETING"))
    assert len(jobs_of(place)) == 1


def test_a_part_that_slurm_refuses(place: SlurmPlace) -> None:
    """What was submitted before it is taken back."""
    open_with(place, without_the_second("invalid"), 60.0)
    order = uneven(place, "touch", "ran")
    with pytest.raises(RefusedError, match="sbatch: invalid"):
        place.executor.start(order)
    place.end(order.key)
    assert not (place.folder / "ran").exists()
