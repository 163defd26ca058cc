"""What was measured of one run of a command, by a probe or while it ran as a job."""

from dataclasses import field

from ..frozen import frozen
from ..model.quantity import Count, Fraction, Gib, Instant, PositiveCount, Rate, Seconds


@frozen
class Measured:
    """Facts of a run; None is what was not measured, and `absent` says of some why.

    The run had `cpus` cores and `gpus` GPUs of `gpu_type`. `step_s` is time over steps after the
    warm-up, with `step_median_s` and `step_p90_s` of single steps, or of the means between two
    reports where a report covers several. `startup_s` is from exec to the first step, the warm-up
    of that step included; `restore_s` what reading a checkpoint adds. `stop_s` is from SIGTERM to
    the end of a command that saved and stopped, `save_s` what writing alone took, `save_every_s`
    how often it saves unasked. `preemptible` says whether it followed the contract (exit status
    85). `memory_gib` is the peak of host memory over all its processes, `gpu_memory_gib` that of
    the fullest GPU, CUDA contexts included, `torch_gpu_memory_gib` what PyTorch had reserved of it,
    of the GPU's `gpu_memory_total_gib`. `cpu_use` is core-seconds per second and `gpu_duty` the
    share of time in which a kernel ran, both after the warm-up.
    """

    at_s: Instant = 0.0
    gpus: Count
    command: str | None = None
    user: str | None = None
    host: str | None = None
    gpu_type: str | None = None
    cpus: PositiveCount | None = None
    steps: Count | None = None
    step_source: str | None = None
    step_s: Seconds | None = None
    step_median_s: Seconds | None = None
    step_p90_s: Seconds | None = None
    startup_s: Seconds | None = None
    restore_s: Seconds | None = None
    stop_s: Seconds | None = None
    save_s: Seconds | None = None
    save_every_s: Seconds | None = None
    checkpoint_gib: Gib | None = None
    preemptible: bool | None = None
    memory_gib: Gib | None = None
    gpu_memory_gib: Gib | None = None
    torch_gpu_memory_gib: Gib | None = None
    gpu_memory_total_gib: Gib | None = None
    cpu_use: Rate | None = None
    gpu_duty: Fraction | None = None
    notes: tuple[str, ...] = ()
    absent: dict[str, str] = field(default_factory=dict)
