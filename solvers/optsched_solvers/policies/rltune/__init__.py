"""RLTune's learned scorer and its mapping onto nodes."""

from pathlib import Path
from typing import Annotated, Literal

from optsched.driver import World
from optsched.plugins.options import PluginOptions, declared_options

from .queue import RULES, Moment
from .scorer import Floats, read
from .training import Scoring, Trained, train

DEFAULT_WEIGHTS = Path(__file__).with_name("weights.json")


class Rltune(Scoring):
    """A small network scores the waiting gangs by seven features that tell nothing of how long they
    run; the best one is next, and while it has no place nobody else starts. Of at most four ways to
    place it on the fastest GPU type that has one, the way that solves RLTune's program is taken.

    Source: RLTune, SoCC 2025, and its public code (philly_env_base_v2.py, allocation_score.py).
    """

    name = "rltune"
    title = "a learned score of seven features picks the next gang, an exact program its nodes"

    @declared_options
    class Options(PluginOptions):
        weights: Annotated[
            Path | None,
            "Weights that `optsched learn rltune` wrote; none: those that come with the package.",
        ] = None
        rule: Annotated[
            Literal["network", "smallest", "wfp", "f1"],
            "What scores: the network, or a plain rule: fewest GPUs, or WFP or F1, which know how "
            "long jobs run.",
        ] = "network"
        backfill: Annotated[
            bool,
            "While the best gang has no place, gangs start that do not delay it, the highest score "
            "first; only this looks at how long jobs run.",
        ] = False

    def __init__(self, options: Options) -> None:
        super().__init__(read(options.weights or DEFAULT_WEIGHTS), options.backfill)
        self.rule = RULES.get(options.rule)

    def scores(self, world: World, moment: Moment, visible: list[str]) -> Floats:
        """Return the scores of the network, or of the rule in its place."""
        if self.rule is None:
            return super().scores(world, moment, visible)
        return self.rule(world, visible)

    learn = staticmethod(train)
    """What `optsched learn rltune` runs."""


__all__ = ["Rltune", "Trained"]
