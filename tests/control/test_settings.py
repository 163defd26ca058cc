"""cluster.toml: every fault at once, with its place and what would be right."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from optsched.control.settings import read_settings
from optsched.errors import InputError

START = 'format = "optsched-cluster/1"\n'


def said_of(folder: Path, text: str) -> list[str]:
    path = folder / "cluster.toml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_settings(path)
    first, *faults = str(refused.value).splitlines()
    assert first.startswith(f"{path}: ")
    return [fault.strip() for fault in faults]


def test_every_fault_of_shape_is_said_at_once(tmp_path: Path) -> None:
    assert said_of(
        tmp_path,
        """
format = "optsched-cluster/2"
nam = "lab"
budget = "soon"
length = -3
[[nodes]]
name = "gpu-0"
gpus = -1
cpu = 3
[[nodes]]
memory_gib = 0
[slurm]
sbatch = "maybe"
[api]
port = 99999
""",
    ) == [
        "format: should be 'optsched-cluster/1', not \"optsched-cluster/2\"; write that",
        "length: must be a number of seconds, or a text as 90s, 5m, 2h; correct it",
        "budget: 'soon' is not a duration; write seconds or a number with a unit: 90, 90s, 5m, 2h, "
        "1h30m; correct it",
        "nodes[0].gpus: should be at least 0, not -1; write a number in range",
        "nodes[0].cpu: is not a known field; remove it or correct its name (did you mean cpus?)",
        "nodes[1].name: is missing; add it",
        "nodes[1].memory_gib: should be above 0, not 0; write a number in range",
        "api.port: should be at most 65535, not 99999; write a number in range",
        "nam: is not a known field; remove it or correct its name (did you mean name?)",
        'slurm.sbatch: should be true or false, not "maybe"; write true or false, without quotes',
    ]


def test_every_fault_of_sense_is_said_at_once(tmp_path: Path) -> None:
    found = said_of(
        tmp_path,
        START
        + """
objective = "wtc"
solver = "prize"
executor = "slrum"
every = 0
[[nodes]]
name = "gpu-[0-"
[[nodes]]
name = "gpu-[0-1]"
[[nodes]]
name = "gpu-1"
[[tenants]]
name = "red"
[[tenants]]
name = "red"
[ray]
poll = 0
""",
    )
    assert [fault.partition(":")[0] for fault in found] == [
        "nodes[0].name",
        "nodes",
        "tenants",
        "every",
        "objective",
        "solver",
        "executor",
        "ray.poll",
    ]
    assert "nodes: 'gpu-1' appears more than once; rename or remove one" in found
    assert "'wtc' is unknown (did you mean wct?)" in found[4]
    assert found[5].startswith(
        "solver: 'prize' is unknown (did you mean price?); choose from highs, milp, price"
    )
    assert found[6].startswith(
        "executor: 'slrum' is unknown (did you mean slurm?); choose from kubernetes, local"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (START + "nodes = 3\n", "nodes: should be a list, not 3; write a list in [ ]"),
        (
            START + 'api = "on"\n',
            'api: should be a table, not "on"; write its fields below a line [name]',
        ),
    ],
)
def test_a_table_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    assert said_of(tmp_path, text) == [said]


def test_faults_of_tiers(tmp_path: Path) -> None:
    found = said_of(
        tmp_path,
        START
        + """
[[tenants]]
name = "vision"
[[tiers]]
name = "urgent"
priority = 5
tenants = ["visoin"]
[limits.labels.fast]
tenants = {visio = 3}
[[tiers]]
name = "urgent"
priority = 5
""",
    )
    assert found == [
        "tiers: 'urgent' appears more than once; rename or remove one",
        "limits.labels.fast.tenants: there is no tenant 'visio' (did you mean vision?); name one "
        "of [[tenants]]",
        "tiers[0].priority: 5 is the priority of more than one tier; give each its own",
        "tiers[0].tenants: there is no tenant 'visoin' (did you mean vision?); name one of "
        "[[tenants]]",
        "tiers[1].priority: 5 is the priority of more than one tier; give each its own",
    ]


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("9" * 5000, "has a number of too many digits"),
        ("[" * 5000, "is nested too deeply"),
        ("{a = " * 5000, "is nested too deeply"),
    ],
    ids=lambda text: text[:10],
)
def test_what_toml_cannot_be_read_is_one_sentence(tmp_path: Path, value: str, fault: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(f"{START}keep_free_gib = {value}\n")
    with pytest.raises(InputError) as refused:
        read_settings(path)
    assert str(refused.value) == f"{path}: {fault} to be read; write less"


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (os.mkfifo, "a pipe or device, where a regular file is needed"),
        (lambda path: path.symlink_to("/dev/zero"), "a pipe or device, where a regular file is n"),
        (os.mkdir, "Is a directory"),
    ],
    ids=["pipe", "device", "directory"],
)
def test_what_is_no_regular_file_is_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None], fault: str
) -> None:
    path = tmp_path / "cluster.toml"
    make(path)
    with pytest.raises(InputError, match=f"cluster.toml: cannot be read: {fault}"):
        read_settings(path)
