"""Who asks for what, and when."""

import sys
from pathlib import Path

from ..control.submission import Submission
from ..frozen import record
from ..model import Job, Profile

CLUSTER = """\
format = "optsched-cluster/1"
name = "demo"
budget = "2s"
every = "5s"

[[nodes]]
name = "a100-0"
gpu_type = "a100"
gpus = 4
emulate = true

[[nodes]]
name = "h100-0"
gpu_type = "h100"
gpus = 4
emulate = true
"""
STEP_S = 0.2
STARTUP_S = 0.3
"""What a process takes until its first step, about."""


@record
class Arrival:
    """A job that is submitted `at_s` after the start and takes `train_s`, the save at its end
    included."""

    name: str
    at_s: float
    gpu_type: str
    gpus: int
    train_s: float
    save_s: float
    load_s: float

    def submission(self, folder: Path) -> Submission:
        """Return the job with its command, run in `folder`."""
        steps = round((self.train_s - self.save_s) / STEP_S)
        profile = Profile(
            name=self.name,
            rate={self.gpu_type: 1.0},
            checkpoint_s=self.save_s,
            restore_s=self.load_s,
            startup_s=STARTUP_S,
        )
        script = str(Path(__file__).with_name("training_job.py"))
        words = (str(steps), str(STEP_S), str(self.save_s), str(self.load_s))
        return Submission(
            job=Job(
                id=self.name,
                gpus=self.gpus,
                duration_s=self.train_s,
                profile=profile,
                command="training_job.py",
            ),
            argv=(sys.executable, "-S", "-E", script, *words),
            directory=str(folder),
            grace_s=30.0,
            total_steps=steps,
        )


ARRIVALS = (
    Arrival("pretrain", 0.0, "a100", 4, 18.0, 0.4, 0.4),
    Arrival("finetune", 0.0, "h100", 4, 16.0, 5.0, 4.0),
    Arrival("debug", 3.0, "a100", 4, 4.0, 0.4, 0.4),
    Arrival("evaluate", 5.0, "h100", 4, 5.0, 0.4, 0.4),
    Arrival("sweep-a", 8.0, "h100", 2, 4.0, 0.4, 0.4),
    Arrival("sweep-b", 8.0, "h100", 2, 3.0, 0.4, 0.4),
)
PAYS, REFUSED = "debug", "evaluate"
"""For whom somebody is preempted, and for whom nobody is."""
VICTIMS = {PAYS: "pretrain", REFUSED: "finetune"}
