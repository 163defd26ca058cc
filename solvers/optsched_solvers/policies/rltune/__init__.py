"""RLTune's learned scorer and its mapping onto nodes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from optsched.plugins.options import PluginOptions
from optsched.plugins.policy import Source

from .scorer import read
from .training import Scoring, Trained, train

DEFAULT_WEIGHTS = Path(__file__).with_name("weights.json")


class Rltune(Scoring):
    """A small network scores the waiting gangs by seven features that tell nothing of how long they
    run; the best one is next, and while it has no place nobody else starts. Of at most four ways to
    place it the one that solves RLTune's program is taken (`mapping`).

    Source: RLTune, SoCC 2025, and its public code (philly_env_base_v2.py, allocation_score.py).
    """

    name = "rltune"
    title = "a learned score of seven features picks the next gang, an exact program its nodes"

    source = Source(
        authors="S. Dongare, R. I. S. Khan, H. Albahar, N. Zhao, D. Melendez Maita, A. R. Butt",
        title="Hybrid learning and optimization-based dynamic scheduling for DL workloads on "
        "heterogeneous GPU "
        "clusters",
        venue="SoCC",
        year=2025,
        link="doi:10.1145/3772052.3772257",
        needs=("job.gpus",),
        sureness="verified",
        verified="features, network, reward, ways to place a gang and the program to choose one, "
        "in public code",
        derived="trained by an evolution strategy instead of PPO; the program's fragmentation "
        "term, which the "
        "published big-M rows leave inert, is encoded in both directions; jobs without GPUs "
        "start as they fit",
        published="utilisation up to 20 % higher, queueing delay up to 81 % and JCT up to 70 % "
        "lower",
    )

    @dataclass(frozen=True, kw_only=True)
    class Options(PluginOptions):
        weights: Annotated[
            Path | None,
            "Weights that `optsched learn rltune` wrote; none: those that come with the package.",
        ] = None
        backfill: Annotated[
            bool,
            "While the best gang has no place, gangs start that will be done before; only this "
            "looks at how long jobs run.",
        ] = False

    def __init__(self, options: Options) -> None:
        super().__init__(read(options.weights or DEFAULT_WEIGHTS))
        self.backfill = options.backfill

    learn = staticmethod(train)
    """What `optsched learn rltune` runs."""


__all__ = ["Rltune", "Trained"]
