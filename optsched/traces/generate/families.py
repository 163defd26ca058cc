"""The job families that synthetic workloads draw from: invented, in the range of published
measurements."""

from ...frozen import record
from ...model import Locality, Profile

CORE_LEVELS = {
    "light": {1: 0.9, 2: 0.97, 4: 1.0},
    "medium": {1: 0.55, 3: 0.9, 6: 1.0},
    "hungry": {2: 0.35, 4: 0.65, 8: 1.0},
}
"""Rate by cores per GPU, after the classes of CPU sensitivity in Synergy (OSDI'22): language models
hardly need cores, image and speech models need many."""

STARTUP_S = 10.0
CHECKPOINT_PERIOD_S = 1800
"""What runs is taken to have saved each half hour."""


@record
class Family:
    """What jobs of one kind have in common.

    Rates of V100 and P100 are relative to an A100; `doubling` is the rate kept each time the number
    of nodes of a gang doubles.
    """

    name: str
    gpu_memory_gib: float
    v100: float
    p100: float
    cores: str
    doubling: float
    checkpoint_s: float
    restore_s: float

    @property
    def rate(self) -> dict[str, float]:
        """Return the rate by GPU type."""
        return {"a100": 1.0, "v100": self.v100, "p100": self.p100}

    def profile(self, overheads: bool) -> Profile:
        """Return the family's profile. A gang in one rack is taken to have lost one doubling,
        beyond it two."""
        return Profile(
            name=self.name,
            rate=self.rate,
            cpus_per_gpu=CORE_LEVELS[self.cores],
            locality=Locality(rack=self.doubling, cluster=round(self.doubling**2, 4)),
            gpu_memory_gib=self.gpu_memory_gib,
            checkpoint_s=self.checkpoint_s if overheads else 0.0,
            restore_s=self.restore_s if overheads else 0.0,
            startup_s=STARTUP_S if overheads else 0.0,
        )


FAMILIES = (
    Family("resnet18", 12, 0.70, 0.40, "hungry", 0.90, 5, 10),
    Family("resnet50", 12, 0.62, 0.35, "hungry", 0.92, 8, 20),
    Family("resnet152", 24, 0.60, 0.32, "medium", 0.88, 12, 30),
    Family("vgg16", 12, 0.64, 0.36, "medium", 0.65, 15, 30),
    Family("mobilenet", 12, 0.70, 0.40, "hungry", 0.95, 5, 10),
    Family("efficientnet", 24, 0.58, 0.30, "hungry", 0.93, 8, 20),
    Family("vit-base", 12, 0.55, 0.28, "medium", 0.90, 10, 25),
    Family("vit-large", 24, 0.52, 0.26, "medium", 0.85, 20, 45),
    Family("yolo", 12, 0.65, 0.36, "hungry", 0.90, 10, 45),
    Family("mask-rcnn", 24, 0.60, 0.33, "medium", 0.88, 12, 40),
    Family("unet", 12, 0.63, 0.34, "medium", 0.80, 8, 20),
    Family("cyclegan", 12, 0.66, 0.38, "light", 0.78, 10, 20),
    Family("diffusion", 24, 0.50, 0.25, "light", 0.86, 25, 50),
    Family("deepspeech2", 12, 0.62, 0.35, "hungry", 0.82, 10, 25),
    Family("wav2vec2", 24, 0.56, 0.29, "medium", 0.84, 15, 40),
    Family("lstm-lm", 12, 0.68, 0.39, "light", 0.60, 8, 15),
    Family("transformer-mt", 12, 0.60, 0.32, "light", 0.75, 10, 25),
    Family("bert-base", 12, 0.55, 0.28, "light", 0.85, 12, 30),
    Family("bert-large", 24, 0.52, 0.26, "light", 0.80, 25, 60),
    Family("gpt2", 24, 0.50, 0.25, "light", 0.78, 30, 60),
    Family("recommendation", 12, 0.70, 0.40, "medium", 0.70, 20, 40),
    Family("a3c", 12, 0.68, 0.38, "hungry", 0.98, 5, 10),
    Family("llm-7b-finetune", 60, 0.50, 0.25, "light", 0.75, 45, 90),
    Family("llm-13b-lora", 60, 0.50, 0.25, "light", 0.70, 60, 120),
)
