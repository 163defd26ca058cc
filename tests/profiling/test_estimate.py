"""Jobs of which nothing is known start from jobs like them."""

from itertools import count

import pytest

from optsched.model.profile import Profile, Sharing
from optsched.profiling.estimate import estimate
from optsched.profiling.likeness import name_of, program
from optsched.profiling.store import Stored, Version, check_name

NUMBER = count(1)


def stored(
    user: str, command: str, at: str = "2026-01-01T00:00:00Z", by_hand=(), **fields
) -> Stored:
    profile = Profile(**fields)
    return Stored(
        name=f"p{next(NUMBER)}",
        user=user,
        command=command,
        profile=profile,
        by_hand=by_hand,
        versions=(Version(version=1, at=at, source="measured by probe", profile=profile),),
    )


def test_the_most_alike_come_first() -> None:
    same = stored("ann", "python train.py --lr 1", restore_s=1.0)
    similar = stored("ann", "python train.py --lr 2", restore_s=2.0)
    program_ = stored("ann", "python train.py --model gpt", restore_s=3.0)
    others = stored("bob", "python train.py --lr 1", restore_s=4.0)
    others_similar = stored("bob", "python train.py --lr 7", restore_s=5.0)
    others_program = stored("bob", "torchrun x/train.py", restore_s=6.0)
    users = stored("ann", "./simulate", restore_s=7.0)
    rest = stored("eve", "./other", restore_s=8.0)
    everything = [rest, users, others_program, others_similar, others, program_, similar, same]
    for expected in range(1, 9):
        found = estimate("ann", "python train.py --lr 1", everything)
        assert found == Profile(restore_s=expected)
        everything.pop()
    assert estimate("ann", "python train.py --lr 1", []) == Profile()


def test_each_field_by_itself() -> None:
    """The like one never measured its memory: that is taken from the others, the most of it."""
    found = estimate(
        "ann",
        "train",
        [
            stored("ann", "train", restore_s=5.0, by_hand=("startup_s",)),
            stored("bob", "x", gpu_memory_gib=10.0, startup_s=9.0),
            stored("bob", "y", gpu_memory_gib=30.0),
        ],
    )
    assert found == Profile(restore_s=5.0, gpu_memory_gib=30.0), "startup_s: 0 by hand is an answer"


def test_times_are_medians_and_tables_those_of_the_latest() -> None:
    found = estimate(
        "ann",
        "train",
        [
            stored(
                "ann",
                "train",
                at="2026-01-03T00:00:00Z",
                checkpoint_s=1.0,
                cpus_per_gpu={1: 0.5, 2: 1.0},
            ),
            stored(
                "ann",
                "train",
                at="2026-01-02T00:00:00Z",
                checkpoint_s=2.0,
                cpus_per_gpu={8: 1.0},
                sharing=Sharing(duty=0.3, partners={"gpt": 0.1}),
            ),
            stored("ann", "train", at="2026-01-01T00:00:00Z", checkpoint_s=90.0),
        ],
    )
    assert found.checkpoint_s == 2
    assert found.cpus_per_gpu == {1: 0.5, 2: 1.0}
    assert found.sharing == Sharing(duty=0.3), "partners are not those of another job"
    assert found.rate == {}


def test_jobs_that_do_not_save_when_asked_are_not_mixed_with_those_that_do() -> None:
    found = estimate(
        "ann",
        "train",
        [
            stored("ann", "train", checkpoint_every_s=600.0),
            stored("bob", "other", checkpoint_s=9.0),
        ],
    )
    assert (found.checkpoint_every_s, found.checkpoint_s) == (600, 0)
    assert estimate(
        "eve",
        "other",
        [
            stored("ann", "train", checkpoint_every_s=600.0),
            stored("bob", "other", checkpoint_s=9.0),
        ],
    ) == Profile(checkpoint_s=9.0)


def test_without_user_and_command() -> None:
    found = estimate(
        None, None, [stored("ann", "a", restore_s=4.0), stored("bob", "b", restore_s=6.0)]
    )
    assert found.restore_s == 5


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py --lr 1", "train.py"),
        ("env A=1 /usr/bin/python3.11 -u src/train.py", "train.py"),
        ("torchrun --nproc 2 train.py", "train.py"),
        ("python -m torch.distributed.run", "torch.distributed.run"),
        ("bash run.sh", "run.sh"),
        ("OMP_NUM_THREADS=1 ./simulate -n 3", "simulate"),
        ("python", None),
        ("echo 'unbalanced", None),
        ("", None),
    ],
)
def test_program(command, found) -> None:
    assert program(command) == found


def test_names_of_profiles() -> None:
    found = name_of("ann", "python train.py --seed 1 --out runs/2026-01-01")
    assert found.startswith("ann-train-py-")
    assert name_of("ann", "python train.py --seed 22 --out runs/2026-02-03") == found
    of_another = name_of("bob", "python train.py --seed 1 --out runs/2026-01-01")
    assert len({found, of_another, name_of("ann", "python train.py --seed 1")}) == 3


@pytest.mark.parametrize("user", [None, "", "é/..", "a" * 300])
@pytest.mark.parametrize("command", ["", "7", "../../x.py", "'", "x" * 5000, "\n"])
def test_names_are_always_good(user, command) -> None:
    check_name(name_of(user, command))
