"""`executor = "ray"` in cluster.toml."""

from pathlib import Path

import pytest

from optsched.control.settings import read_settings
from optsched.errors import InputError
from optsched.executors.base import AttemptKey as Key
from optsched.executors.base import NoAnswerError, Order, RefusedError
from optsched.executors.opening import open_executor
from optsched.executors.ray import RayExecutor
from optsched.model.instance import Slot

HEAD = 'format = "optsched-cluster/1"\nexecutor = "ray"\n'


def opened(folder: Path, text: str) -> RayExecutor:
    (folder / "cluster.toml").write_text(HEAD + text)
    found = open_executor(read_settings(folder / "cluster.toml"))
    assert isinstance(found, RayExecutor)
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[ray]\naddress = "10.0.0.1:8265"',
            r"ray.address: '10.0.0.1:8265' is not the address of a job server",
        ),
        ('[ray]\ntoken_file = "token"', r"ray.token_file: token is not an absolute path"),
        ("[ray]\npoll = 0", r"ray.poll: must be longer than 0 s"),
        (
            '[ray]\nadress = "http://x:1"',
            r"ray.adress: is not a known field; .* .did you mean address",
        ),
    ],
)
def test_faults(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        opened(tmp_path, text)
    assert not (tmp_path / "state").exists()


def test_without_a_ray_nothing_starts_and_nothing_is_left(tmp_path: Path) -> None:
    executor = opened(tmp_path, '[ray]\naddress = "http://127.0.0.1:9"\ntimeout = "2s"')
    try:
        order = Order(
            key=Key("job", 1), placement=(Slot(node="n1"),), argv=("true",), directory="/"
        )
        for ask in (executor.inventory, executor.observe, lambda: executor.start(order)):
            with pytest.raises(NoAnswerError, match=r"http://127.0.0.1:9 does not answer"):
                ask()
        assert not (tmp_path / "state" / "attempts" / "job").exists()
        executor.kill(order.key)
        with pytest.raises(NoAnswerError):
            executor.observe()
        executor.start(order)  # it never will be, which is known without Ray
        with pytest.raises(RefusedError, match="not the name of an attempt"):
            executor.start(Order(key=Key("..", 1), placement=(), argv=("true",), directory="/"))
    finally:
        executor.close()


def test_the_mark_of_a_folder_stays(tmp_path: Path) -> None:
    tags = []
    for _ in range(2):
        executor = opened(tmp_path, "")
        tags.append(executor._tag)
        executor.close()
    assert tags[0] == tags[1]
    (tmp_path / "state" / "ray.json").write_text("{")
    with pytest.raises(InputError, match=r"ray.json is damaged"):
        opened(tmp_path, "")
