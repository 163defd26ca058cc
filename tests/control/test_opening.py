"""What a controller leaves behind where it could not be opened."""

import os
import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from optsched.control.journal.disk import check_journal_disk
from optsched.control.opening import alone, opened
from optsched.control.settings import read_settings
from optsched.errors import InputError


def test_a_refused_cluster_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text('format = "optsched-cluster/1"\n[[nodes]]\nname = "a"\ngpus = 4096\n')
    with pytest.raises(InputError), opened(read_settings(file)):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.toml"]


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "mine").touch()
    file = tmp_path / "cluster.toml"
    file.write_text('format = "optsched-cluster/1"\n[[nodes]]\nname = "a"\ngpus = 4096\n')
    with pytest.raises(InputError), opened(read_settings(file)):
        pass
    assert (tmp_path / "state" / "mine").exists()


@pytest.mark.parametrize(
    ("kind", "refused"), [("nfs4", True), ("fuse.sshfs", True), ("ext4", False), ("overlay", False)]
)
def test_the_journal_is_on_a_disk_of_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, refused: bool
) -> None:
    """A mount of another kind further up does not matter, and one that merely begins alike does not
    either."""
    mounts = [("/", "nfs4"), (str(tmp_path), kind), (f"{tmp_path}/st", "nfs4")]
    found = [SimpleNamespace(mountpoint=at, fstype=fstype) for at, fstype in mounts]
    monkeypatch.setattr("psutil.disk_partitions", lambda all: found)
    with pytest.raises(InputError, match=f"is on {kind}.* as shared") if refused else nullcontext():
        check_journal_disk(tmp_path / "state" / "new")


def test_attempts_are_in_the_shared_folder(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(
        'format = "optsched-cluster/1"\nshared = "common"\n[[nodes]]\nname = "a"\ngpus = 1\n'
        'gpu_type = "x"\nemulate = true\n'
    )
    with opened(read_settings(file)) as controller:
        assert controller.checkpoints("j") == tmp_path / "common" / "checkpoints" / "j"
    assert (tmp_path / "common" / "attempts").is_dir() and (tmp_path / "state" / "journal").exists()
    assert not (tmp_path / "state" / "attempts").exists()


def test_a_state_folder_has_one_controller_until_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optsched.control.opening.LOCK_S", 0.0)
    took, died = os.pipe()
    first = os.fork()
    if not first:
        with alone(tmp_path / "state"):
            os.write(died, b".")
            signal.pause()
    try:
        os.read(took, 1)
        with pytest.raises(InputError, match="another controller runs on it; stop"):  # noqa: SIM117
            with alone(tmp_path / "state"):
                pass
    finally:
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
    with alone(tmp_path / "state"):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs what others own")
@pytest.mark.parametrize("linked", [False, True])
def test_a_state_folder_of_somebody_elses_is_refused(tmp_path: Path, linked: bool) -> None:
    """Its owner could put another journal there, or have root change what a link leads to."""
    theirs = tmp_path / ("theirs" if linked else "state")
    theirs.mkdir()
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (theirs / "profiles").symlink_to(victim)
    os.chown(theirs, 1000, 1000)
    if linked:
        (tmp_path / "state").symlink_to(theirs)
    file = tmp_path / "cluster.toml"
    file.write_text('format = "optsched-cluster/1"\n[[nodes]]\nname = "a"\ngpus = 1\n')
    with pytest.raises(InputError, match="belongs to user 1000"), opened(read_settings(file)):
        pass
    assert victim.stat().st_mode & 0o777 == 0o755
