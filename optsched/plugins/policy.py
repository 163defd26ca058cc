"""The contract of policies: a rule that decides now, from the cluster's present view."""

from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..frozen import frozen

if TYPE_CHECKING:
    from ..driver import World

Sureness = Literal["verified", "derived", "reconstructed"]


@frozen
class Source:
    """The origin of a policy, and how sure it is that this is what was published.

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
        """Return the publication in one line."""
        link = f" {self.link}" if self.link else ""
        return f"{self.authors}. {self.title}. {self.venue}, {self.year}.{link}"


@cache
def published(package: str) -> dict[str, Source]:
    """Return where the policies of a package come from, by name, as its `sources.toml` says: a
    table `[policies.NAME]` for each with the fields of `Source`; those of a `[papers.NAME]` that it
    names as `paper` are added."""
    import tomllib
    from importlib.resources import files

    path = files(package).joinpath("sources.toml")
    if not path.is_file():
        return {}
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    sources: dict[str, Source] = {}
    for name, own in tables["policies"].items():
        paper = tables.get("papers", {}).get(own.pop("paper", ""), {})
        fields: dict[str, Any] = {"link": None, **paper, **own}
        sources[name] = Source(**{**fields, "needs": tuple(fields.get("needs", ()))})
    return sources


def source_of(policy: Any, name: str) -> Source | None:
    """Return where a policy comes from: its own `source`, or what the `sources.toml` of a package
    that it is in says of its name."""
    package, _, _ = getattr(policy, "__module__", "").rpartition(".")
    source: Source | None = getattr(policy, "source", None)
    while source is None and package:
        source = published(package).get(name)
        package, _, _ = package.rpartition(".")
    return source


class Policy(Protocol):
    """Decides at each event who starts, where, and who is preempted.

    A policy is made afresh for each simulation or controller. Its class may take `objective` (an
    `Objective`: what the plan will be judged by); one that declares `Options` (see `options`) is
    given them as `options`. It sees jobs only through `World`, which tells it what it may know.
    Events come in a fixed order; a policy must not use randomness or the clock.

    It may have a `source` (`Source`: who published it; or in `sources.toml`, see `source_of`),
    and `facts()`, a dict of numbers and texts that it has to say of itself when the simulation
    is over; `summary.json` has them under `policy_facts`. One that solves rounds may have
    `decided`: the snapshot and the `RoundSolution` of its last decision, None where that needed
    no round; a live round is written down with them.
    """

    name: str
    title: str

    def decide(self, world: "World") -> None:
        """Decide after all events of one instant, or in fixed rounds of one round: call
        `world.start`, `world.start_sharing` and `world.preempt` as the rule says."""
        ...
