"""cluster.toml read again while jobs run: as a restart would take it, or not at all."""

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched.control.api.views import job_view
from optsched.control.journal.state import State
from optsched.control.reloading import reload
from optsched.control.settings import Settings, read_settings
from optsched.errors import InputError
from optsched.executors.base import Executor

from .hostile import JOBS, MEMORY, Hostile

FILE = """format = "optsched-cluster/1"
state = "state"
objective = "wct"
[[nodes]]
name = "n[0-1]"
gpu_type = "a"
gpus = 4
[[tenants]]
name = "a"
gpu_quota = 6
borrow_gpus = 2
[[tenants]]
name = "b"
gpu_quota = 6
[resources]
licence = 2
[limits]
max_weight = 2
[retention]
rounds = "2d"
"""
EDITS = st.sampled_from(
    [
        ("gpus = 4", "gpus = 8"),
        ("gpu_quota = 6", "gpu_quota = 1"),
        ('name = "b"', 'name = "c"'),
        ("licence = 2", "licence = 0.5"),
        ("[resources]\nlicence = 2\n", ""),
        ('objective = "wct"', 'policy = "fifo"'),
        ('objective = "wct"', 'objective = "makespan"'),
        ("max_weight = 2", "max_running = 1"),
        ('state = "state"', 'state = "elsewhere"'),
        ('objective = "wct"', 'executor = "slurm"'),
        ("gpus = 4", "gpus = -4"),
        ('name = "b"', 'name = "a"'),
        ("[limits]", "[limitz]"),
        ("", ""),
    ]
)


class Reloaded(Hostile):
    """A lab whose cluster.toml is edited while it runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "cluster.toml"
        self.path.write_text(FILE)
        self.controller._configure(read_settings(self.path))
        self.opened: list[Settings] = []
        self.refuses: InputError | None = None
        self.times = 1

    def open(self, how: Settings) -> Executor:
        self.opened.append(how)
        if self.refuses is not None and len(self.opened) <= self.times:
            raise self.refuses
        return self.executor

    def reload(self, text: str | None = None, **more: str) -> Any:
        if text is not None:
            self.path.write_text(text)
        return reload(self.controller, lambda: read_settings(self.path), self.open)


@pytest.fixture
def lab(tmp_path: Path) -> Reloaded:
    return Reloaded(tmp_path)


def test_what_changes_is_taken_over_and_what_runs_goes_on(lab: Reloaded) -> None:
    name = lab.submit({"gpus": 4, "duration_s": 100.0, "tenant": "a"}, 100.0, 0.0, 0, None)
    lab.run(5)
    before = lab.controller.state.jobs[name].live
    edited = FILE.replace("gpus = 4", "gpus = 2").replace("2d", "3d").replace("= 2\n", "= 3\n")
    assert lab.reload(edited).changed == ("nodes", "tenants", "resources", "limits", "retention")
    controller = lab.controller
    assert controller.settings.limits.max_weight == 3.0 == controller.cluster.resources["licence"]
    assert controller.retention.settings.rounds == 3 * 86400.0 and len(lab.opened) == 1
    lab.run(5)
    assert lab.controller.state.jobs[name].live is before and not lab.bugs
    assert lab.reload().changed == () and len(lab.opened) == 1


def test_shares_are_taken_over_as_by_a_restart(lab: Reloaded) -> None:
    lab.submit({"gpus": 4, "duration_s": 40.0, "tenant": "a"}, 40.0, 0.0, 0, None)
    lab.run(60)
    lab.submit({"gpus": 2, "duration_s": 500.0, "tenant": "b"}, 500.0, 0.0, 0, None)
    lab.run(40)
    controller = lab.controller
    assert controller.state.used(lab.clock.at_s) == ()
    for half_life in ("365d", "2m", "1h"):
        assert lab.reload(f'{FILE}[shares]\nhalf_life = "{half_life}"\n').changed == ("shares",)
        restarted = State(controller.settings.half_life_s)
        for entry in controller.journal.entries():
            restarted.apply(entry.at_s, entry.event)
        used = controller.state.used(lab.clock.at_s)
        assert used == restarted.used(lab.clock.at_s)
        lab.run(1)
        if half_life == "365d":
            assert [use.gpu_s for use in used] == pytest.approx([4 * 40.0, 2 * 40.0], rel=0.1)
    assert lab.reload(FILE).changed == ("shares",) and controller.state.use is None
    lab.run(1)
    assert not lab.bugs


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (('state = "state"', 'state = "other"'), "state changes only when the controller is"),
        (("[limits]", "outputs = 'o'\n[limits]"), "resources.outputs"),
        (("gpus = 4", "gpus = -1"), "nodes"),
        (('"wct"', '"wtc"'), "wtc"),
        (("[limits]", "[api]\nport = 7\n[limits]"), "api.port changes only when"),
        (("format", "= ="), "cluster.toml"),
    ],
)
def test_a_fault_changes_nothing(lab: Reloaded, edit: tuple[str, str], said: str) -> None:
    before = vars(lab.controller).copy()
    last = lab.controller.journal.last
    with pytest.raises(InputError, match=re.escape(said)):
        lab.reload(FILE.replace(*edit).replace("2d", "9d"))
    assert vars(lab.controller) == before and lab.controller.journal.last == last
    assert not lab.opened


def test_an_executor_that_cannot_be_opened_so_is_opened_as_it_was(lab: Reloaded) -> None:
    before = lab.controller.settings
    lab.refuses = InputError("8 GPUs are declared on this host, which has 4")
    with pytest.raises(InputError, match="which has 4"):
        lab.reload(FILE.replace("gpus = 4", "gpus = 8"))
    assert lab.controller.settings is before and lab.opened[-1] is before
    lab.run(3)
    assert not lab.bugs


def test_an_executor_that_cannot_be_opened_at_all_is_tried_again(lab: Reloaded) -> None:
    name = lab.submit({"gpus": 4, "duration_s": 30.0}, 30.0, 0.0, 0, None)
    lab.run(3)
    lab.refuses, lab.times = InputError("the API server does not answer"), 5
    with pytest.raises(InputError, match="does not answer"):
        lab.reload(FILE.replace("gpus = 4", "gpus = 8"))
    lab.run(2)
    assert lab.controller.executor is not lab.executor
    lab.run(40)
    assert lab.controller.executor is lab.executor and not lab.bugs
    assert lab.controller.state.jobs[name].finished == "completed"


def test_waiting_jobs_that_fit_no_more_are_named_and_say_why(lab: Reloaded) -> None:
    large = lab.submit({"gpus": 4, "duration_s": 9.0, "tenant": "b"}, 9.0, 0.0, 0, None)
    lab.controller.state.jobs[large].ready_s = 1e9
    unfit = lab.reload(FILE.replace('name = "b"', 'name = "c"')).unfit
    assert unfit.keys() == {large} and "tenant" in unfit[large]
    lab.controller.state.jobs[large].ready_s = 0.0
    lab.run(3)
    job = lab.controller.state.jobs[large]
    assert "tenant" in (job_view(lab.controller, job, lab.clock.at_s).reason or "")
    assert lab.reload(FILE).unfit == {}
    lab.run(20)
    assert job.finished == "completed"


def test_a_policy_that_stays_keeps_what_it_remembers(lab: Reloaded) -> None:
    lab.reload(FILE.replace('objective = "wct"', 'policy = "fifo"'))
    policy = lab.controller.policy
    assert policy is not None
    lab.reload(FILE.replace('objective = "wct"', 'policy = "fifo"').replace("2d", "5d"))
    assert lab.controller.policy is policy
    lab.reload(FILE)
    assert lab.controller.policy is None


@given(
    st.lists(
        st.one_of(EDITS, JOBS, st.integers(1, 10), st.binary(min_size=1, max_size=3)),
        min_size=3,
        max_size=12,
    ),
    st.integers(0, len(FILE) - 1),
)
@settings(max_examples=25)
def test_no_edit_ends_the_controller(events: list[Any], place: int) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        lab = Reloaded(Path(folder))
        for event in events:
            if isinstance(event, int):
                lab.run(event)
                continue
            if isinstance(event, dict):
                lab.submit(event, 5.0, 1.0, 0, None)
                continue
            text = FILE.encode()
            if isinstance(event, tuple):
                text = FILE.replace(*event).encode()
            else:
                text = text[:place] + event + text[place + 1 :]
            lab.path.write_bytes(text)
            before = lab.controller.settings
            try:
                lab.reload()
            except InputError:
                assert lab.controller.settings is before
            lab.look()
        assert not lab.bugs
        lab.controller.journal.close()
