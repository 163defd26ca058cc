"""PSPLIB files: every file loads, two of them checked by hand, and what is said of damaged ones."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched import files
from optsched.errors import InputError
from optsched.files.faults import find_faults
from optsched.model.job import Mode
from optsched.traces.readers import psplib

from .refused import refusal

SMALL = """\
************************************************************************
file with basedata            : small.bas
initial value random generator: 1
************************************************************************
projects                      :  1
jobs (incl. supersource/sink ):  5
horizon                       :  9
RESOURCES
  - renewable                 :  1   R
  - nonrenewable              :  1   N
  - doubly constrained        :  0   D
************************************************************************
PROJECT INFORMATION:
pronr.  #jobs rel.date duedate tardcost  MPM-Time
    1      3      0        9        1        9
************************************************************************
PRECEDENCE RELATIONS:
jobnr.    #modes  #successors   successors
   1        1          1           2
   2        2          1           3
   3        1          1           4
   4        1          1           5
   5        1          0
************************************************************************
REQUESTS/DURATIONS:
jobnr. mode duration  R 1  N 1
------------------------------------------------------------------------
  1      1     0       0    0
  2      1     3       2    4
         2     6       1    0
  3      1     0       0    0
  4      1     5       1    2
  5      1     0       0    0
************************************************************************
RESOURCEAVAILABILITIES:
  R 1  N 1
    2    6
************************************************************************
"""


def small(tmp_path: Path, old: str = "", new: str = "", times: int = 1) -> Path:
    """A file with SMALL in it, after one change that must be possible."""
    assert old in SMALL
    path = tmp_path / "small.mm"
    path.write_text(SMALL.replace(old, new, times) if old else SMALL)
    return path


def fault(path: Path) -> str:
    return refusal(psplib.read, path).removeprefix(f"{path}: ")


def all_files(data: Path) -> list[Path]:
    optima = data / "known-optima"
    found = sorted(optima.glob("psplib-j30/*.sm")) + sorted(optima.glob("psplib-mm-j10/*.mm"))
    if not found:
        pytest.skip(f"no PSPLIB files in {optima}")
    return found


def check_round_trip(path: Path) -> None:
    imported = psplib.read(path)
    text = files.dump_instance(imported.instance)
    loaded = files.load_instance(text, path.name)
    assert loaded == imported.instance
    assert files.dump_instance(loaded) == text
    assert imported.read == imported.kept + 2


def test_a_sample_of_the_files_loads(data: Path) -> None:
    for path in all_files(data)[::20]:
        check_round_trip(path)


@pytest.mark.slow
def test_every_file_loads(data: Path) -> None:
    paths = all_files(data)
    assert len(paths) == 480 + 536
    for path in paths:
        check_round_trip(path)


def test_j301_1_by_hand(data: Path) -> None:
    imported = psplib.read(data / "known-optima/psplib-j30/j301_1.sm")
    instance = imported.instance
    assert (instance.name, imported.read, imported.kept) == ("j301_1", 32, 30)
    assert instance.cluster.resources == {"R1": 12, "R2": 13, "R3": 4, "R4": 12}
    assert instance.cluster.budgets == {} and instance.cluster.nodes == ()
    assert [job.id for job in instance.jobs] == [f"j{i}" for i in range(2, 32)]
    assert instance.job["j2"].modes == (Mode(duration_s=8, resources={"R1": 4}),)
    assert instance.job["j2"].after == ()  # its only predecessor is the source
    assert instance.job["j20"].modes == (Mode(duration_s=7, resources={"R2": 10}),)
    assert instance.job["j20"].after == ("j5", "j11", "j18")
    assert instance.job["j31"].after == ("j26", "j28")
    assert all(job.gpus == 0 and job.submit_s == 0 for job in instance.jobs)


def test_j1010_1_by_hand(data: Path) -> None:
    imported = psplib.read(data / "known-optima/psplib-mm-j10/j1010_1.mm")
    instance = imported.instance
    assert (imported.read, imported.kept) == (12, 10)
    assert imported.dropped == {
        "activities of no duration and demand (source, sink, milestones)": 2
    }
    assert instance.cluster.resources == {"R1": 11, "R2": 9}
    assert instance.cluster.budgets == {"N1": 42, "N2": 17}
    assert instance.job["j3"].modes == (
        Mode(duration_s=1, resources={"R2": 6}, budgets={"N1": 2}),
        Mode(duration_s=7, resources={"R2": 6}, budgets={"N2": 6}),
        Mode(duration_s=10, resources={"R1": 8}, budgets={"N2": 6}),
    )
    assert instance.job["j5"].after == ("j2", "j3")
    assert instance.job["j9"].after == ("j4", "j7", "j8")
    assert sum(len(job.modes) for job in instance.jobs) == 30


def test_precedence_passes_through_a_milestone(tmp_path: Path) -> None:
    instance = psplib.read(small(tmp_path)).instance
    assert [(job.id, job.after) for job in instance.jobs] == [("j2", ()), ("j4", ("j2",))]
    assert [mode.duration_s for mode in instance.job["j2"].modes] == [3, 6]


def test_gzip_and_first_jobs(tmp_path: Path) -> None:
    path = tmp_path / "small.mm.gz"
    path.write_bytes(gzip.compress(SMALL.encode()))
    imported = psplib.read(path, jobs=1)
    assert imported.instance.name == "small"
    assert [job.id for job in imported.instance.jobs] == ["j2"]
    assert imported.dropped["after the first 1"] == 1


def test_release_date_and_modes_beyond_capacity_stay(tmp_path: Path) -> None:
    path = small(tmp_path, "1      3      0        9", "1      3      4        9")
    path.write_text(
        path.read_text().replace("2      1     3       2    4", "2      1     3       9    4")
    )
    instance = psplib.read(path).instance
    assert {job.submit_s for job in instance.jobs} == {4.0}
    assert instance.job["j2"].modes[0].resources == {
        "R1": 9
    }  # 9 of 2: never usable, but the other mode is
    assert find_faults(instance) == []


def test_cycle_through_a_milestone_is_found(tmp_path: Path) -> None:
    path = small(
        tmp_path, "   4        1          1           5", "   4        1          2           3   5"
    )
    (found,) = find_faults(psplib.read(path).instance)
    assert "waits for itself" in found.problem


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "doubly constrained        :  0",
            "doubly constrained        :  2",
            "line 11: 2 doubly constrained resources are not supported; "
            "state each as one renewable and one non-renewable resource",
        ),
        (
            "  4      1     5",
            "  4      1     five",
            "line 32: expected mode 1 of activity 4: a duration and 2 amounts (R1 N1) as a whole "
            "number, "
            "found 'five'",
        ),
        (
            "  4      1     5       1    2",
            "  4      1     5       1",
            "line 32: expected mode 1 of activity 4: a duration and 2 amounts (R1 N1), "
            "found '4      1     5       1'",
        ),
        (
            "  4      1     5       1    2",
            "  4      1     0       1    2",
            "line 32: expected a duration of at least 1 (0 only in a lone mode that uses "
            "nothing) in mode 1 of "
            "activity 4: a duration and 2 amounts (R1 N1), found '4      1     0       1    2'",
        ),
        (
            "   2        2          1           3",
            "   2        2          1           7",
            "line 20: expected successors between 1 and 5, found '7'",
        ),
        (
            "   2        2          1           3",
            "   2        2          2           3",
            "line 20: expected activity 2 of 5: its number, modes, successor count and successors, "
            "found '2        2          2           3'",
        ),
        (
            "   3        1          1           4\n",
            "",
            "line 21: expected activity 3 of 5: its number, modes, successor count and successors, "
            "found '4        1          1           5'",
        ),
        (
            "   5        1          0\n",
            "",
            "line 24: expected activity 5 of 5: its number, modes, successor count and successors, "
            "found 'REQUESTS/DURATIONS:'",
        ),
        (
            "projects                      :  1",
            "projects                      :  2",
            "line 5: expected 1 project, found '2'",
        ),
        ("    2    6\n", "    2\n", "line 37: expected the 2 amounts available (R1 N1), found '2'"),
        ("    2    6\n", "", "line 37: the file ends, expected the 2 amounts available (R1 N1)"),
        (
            "RESOURCEAVAILABILITIES:\n",
            "",
            "line 37: the file ends, expected the section 'RESOURCE AVAILABILITIES:'",
        ),
        (
            "REQUESTS/DURATIONS:\n",
            "",
            "line 37: the file ends, expected the section 'REQUESTS/DURATIONS:'",
        ),
        (
            "  - renewable                 :  1   R",
            "  - renewable                 :",
            "line 9: expected '- renewable' as a whole number, found ''",
        ),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert fault(small(tmp_path, old, new)) == message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert fault(tmp_path / "absent.sm") == "cannot be read: No such file or directory"
    empty = tmp_path / "empty.sm"
    empty.write_text("")
    assert fault(empty) == "line 0: the file ends, expected a line 'projects'"
    binary = tmp_path / "binary.sm"
    binary.write_bytes(b"\xff\xfe\x00projects")
    assert fault(binary) == "is not a text file; expected UTF-8"
    cut = tmp_path / "cut.sm.gz"
    cut.write_bytes(gzip.compress(SMALL.encode())[:200])
    assert "is not a sound gzip file" in fault(cut)


@given(st.integers(0, len(SMALL) - 1))
def test_a_file_cut_anywhere_is_refused_or_whole(
    tmp_path_factory: pytest.TempPathFactory, length: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "small.mm"
    path.write_text(SMALL[:length])
    try:
        instance = psplib.read(path).instance
    except InputError as error:
        assert "line " in str(error)
    else:
        assert (
            SMALL[:length].rstrip("*\n").endswith("2    6")
        )  # nothing but the closing rule is missing
        assert len(instance.jobs) == 2
