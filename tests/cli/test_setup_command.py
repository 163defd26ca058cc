"""`optsched setup`: the lines are such that Slurm and optsched take them."""

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from optsched.cli.setup import command
from optsched.control.settings import read_settings
from optsched.errors import InputError


def test_a_partition(tmp_path: Path) -> None:
    words = [
        "slurm",
        "--nodes",
        "gpu-[0-3]",
        "--user",
        "root",
        "--shared",
        "/shared/x",
        "-o",
        str(tmp_path / "made"),
    ]
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == [
        "cluster.toml",
        "slurm.conf.part",
    ]
    lines = (tmp_path / "made" / "slurm.conf.part").read_text().splitlines()
    added = [line for line in lines if line and not line.startswith("#")]
    assert added == [
        "PartitionName=optsched Nodes=gpu-[0-3] MaxTime=INFINITE OverSubscribe=NO State=UP"
    ]
    settings = read_settings(tmp_path / "made" / "cluster.toml")
    assert (settings.executor, settings.table("slurm").partition, str(settings.attempts)) == (
        "slurm",
        "optsched",
        "/shared/x",
    )
    assert settings.state == tmp_path / "made" / "state"
    with pytest.raises(InputError, match="is there already"):
        CliRunner().invoke(command, words, catch_exceptions=False)


def test_a_reservation_is_printed() -> None:
    words = ["slurm", "--nodes", "a[1-2],b7", "--user", "alice", "--reservation", "ours"]
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert "reservationname=ours users=alice nodes='a[1-2],b7' \\\n" in done.stdout
    toml = tomllib.loads(done.stdout.partition("# ---- cluster.toml\n")[2])
    assert toml["slurm"] == {"reservation": "ours"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--nodes", "a[1", "--user", "alice"], "bracket without its partner"),
        (["--nodes", "a; rm", "--user", "alice"], "is not a list of nodes"),
        (["--nodes", "a1", "--user", "alice bob"], "is not a name"),
        (["--nodes", "a1"], "Missing option '--user'"),
    ],
)
def test_faulty_words(words: list[str], told: str) -> None:
    done = CliRunner().invoke(command, ["slurm", *words])
    assert done.exit_code == 2 and told in done.output


def test_a_reservation_is_not_for_root() -> None:
    with pytest.raises(InputError, match="make a partition"):
        CliRunner().invoke(
            command,
            ["slurm", "--nodes", "a1", "--user", "root", "--reservation", "r"],
            catch_exceptions=False,
        )
