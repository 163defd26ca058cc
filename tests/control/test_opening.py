"""What a controller leaves behind where it could not be opened."""

from pathlib import Path

import pytest

from optsched.control.opening import opened
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
