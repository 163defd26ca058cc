"""What a policy is: a rule that decides now, from the cluster's present view."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from ..driver.world import World

Sureness = Literal["verified", "derived", "reconstructed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a policy comes from, and how sure it is that this is what was published.

    `authors`, `title`, `venue` and `year` are the publication's, `link` is its address: "doi:...",
    "arXiv:..." or a URL; None for a rule of this project. `needs` are the fields of the instance
    file that it reads beyond what every policy does, as "profile.checkpoint_s" or "node.rack";
    without them it decides as if they were absent.

    `sureness` is "verified" where the rule was read in public code or text, "derived" where it
    follows by arithmetic from a stated model, "reconstructed" where only an abstract or a secondary
    text describes it. The three texts after it say which part is which, each in a sentence or None.
    `published` is the headline result as its authors state it.
    """

    authors: str
    title: str
    venue: str
    year: int
    link: str | None
    needs: tuple[str, ...] = ()
    sureness: Sureness
    verified: str | None = None
    derived: str | None = None
    reconstructed: str | None = None
    published: str | None = None

    @property
    def cite(self) -> str:
        """The publication in one line."""
        link = f" {self.link}" if self.link else ""
        return f"{self.authors}. {self.title}. {self.venue}, {self.year}.{link}"


class Policy(Protocol):
    """Decides at each event who starts, where, and who is preempted.

    A policy is made afresh for each simulation or controller. Its class may take `objective` (an
    `Objective`: what the plan will be judged by); one that declares `Options` (see `options`) is
    given them as `options`. It sees jobs only through `World`, which tells it what it may know.
    Events come in a fixed order; a policy must not use randomness or the clock.

    It may have a `source` (`Source`: who published it), and `facts()`, a dict of numbers and texts
    that it has to say of itself when the simulation is over; `summary.json` has them under
    `policy_facts`. One that solves rounds may have `decided`: the snapshot and the `RoundSolution`
    of its last decision, None where that needed no round; a live round is written down with them.
    """

    name: str
    title: str

    def decide(self, world: "World") -> None:
        """Called after all events of one instant, or in fixed rounds of one round: call
        `world.start`, `world.start_sharing` and `world.preempt` as the rule says."""
        ...
