"""What a policy is: a rule that decides now, from the cluster's present view."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .simulate.world import World


class Policy(Protocol):
    """Decides at each event who starts, where, and who is preempted.

    A policy is made afresh for each simulation or controller. Its class may take `objective` (an `Objective`: what
    the plan will be judged by) and `options` (dict[str, str]: what the user set), each with a default; it raises
    InputError for an option it does not know. It sees jobs only through `World`, which tells it what it may know.
    Events come in a fixed order; a policy must not use randomness or the clock.
    """

    name: str
    title: str

    def decide(self, world: "World") -> None:
        """Called after all events of one instant, or in fixed rounds of one round: call `world.start`,
        `world.start_beside` and `world.preempt` as the rule says."""
        ...
