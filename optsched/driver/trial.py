"""A world in which a step is tried before it is taken."""

from collections.abc import Callable, Collection, Mapping

from ..model import Placement
from ..physics import hold_to_save_s
from ..physics.modes import Option
from .sharing import sharing_placement
from .view import Hold, PolicyError
from .world import World

Command = Callable[[World], None]


class Trial(World):
    """A copy of a world at one instant: what is commanded here is noted, and changes what waits,
    runs, is being saved and is free, but only `carry_out` does it in the world itself.

    Jobs of `pinned` may not be preempted. Where nothing is commanded all answers are those of the
    world. Making one takes O(jobs + nodes). `ends_s` says when each job completes if this is the
    first step of a plan; None where a rule is to go on from here.
    """

    changes_cores = False

    def __init__(self, world: World, pinned: Collection[str] = ()) -> None:
        self.__dict__.update(world.__dict__)
        self.origin, self.shares_gpus = world, world.shares_gpus
        self.pinned = pinned
        self.waiting, self.running = dict(world.waiting), dict(world.running)
        self.saving, self.free = dict(world.saving), world.free.copy()
        self.claims, self.protected = dict(world.claims), set(world.protected)
        self.victims: list[str] = []
        self.started: dict[str, tuple[Option, Placement]] = {}
        self.joined: dict[str, tuple[Option, str]] = {}
        self.ends_s: Mapping[str, float] | None = None
        self._holds: dict[str, Hold] = {}
        self._commands: list[Command] = []
        self._fitted = None
        self._arrived, self._released = list(world.waiting), []

    @property
    def mark(self) -> object:
        """Return a value that changes whenever something is commanded or claimed."""
        return len(self._commands), self.claims.copy()

    def carry_out(self) -> None:
        """Do in the world what was commanded here."""
        for command in self._commands:
            command(self.origin)
        self.origin.claims = dict(self.claims)

    def take_arrived(self) -> list[str]:
        """Return those who have come to wait, without those who are hidden from a rule."""
        return [job_id for job_id in super().take_arrived() if job_id in self.waiting]

    def start(self, job_id: str, option: Option, placement: Placement) -> None:
        if job_id not in self.waiting:
            raise PolicyError(f"job {job_id} cannot start at {self.now_s:g} s: it does not wait")
        need = self.need(job_id, option)
        if not self.free.holds(need, placement):
            raise PolicyError(f"job {job_id} cannot start at {self.now_s:g} s: not enough room")
        self.free.take(need, placement)
        self.running[job_id] = self.waiting.pop(job_id)
        self._holds[job_id] = Hold(need, placement, None)
        self.started[job_id] = option, placement
        self._commands.append(lambda world: world.start(job_id, option, placement))

    def start_sharing(
        self, job_id: str, option: Option, partner_id: str, *, heedless: bool = False
    ) -> None:
        reason = self._why_not_share(job_id, option, partner_id, heedless)
        if reason is not None:
            raise PolicyError(f"job {job_id} cannot start beside {partner_id}: {reason}")
        partner = self.hold(partner_id)
        need, placement = self.need(job_id, option), sharing_placement(option, partner.placement)
        self.free.take(need, placement, with_gpus=False)
        self.running[job_id] = self.waiting.pop(job_id)
        self._holds[job_id] = Hold(need, placement, partner_id)
        self._holds[partner_id] = partner._replace(partner=job_id)
        self.joined[job_id] = option, partner_id
        self._commands.append(
            lambda world: world.start_sharing(job_id, option, partner_id, heedless=heedless)
        )

    def _why_not_share(
        self, job_id: str, option: Option, partner_id: str, heedless: bool
    ) -> str | None:
        if partner_id in self._holds:
            return f"{partner_id} has only just started, or shares its GPUs already"
        return super()._why_not_share(job_id, option, partner_id, heedless)

    def preempt(self, job_id: str) -> None:
        if not self.may_preempt(job_id):
            raise PolicyError(f"job {job_id} may not be preempted at {self.now_s:g} s")
        job = self.running.pop(job_id)
        self.victims.append(job_id)
        self._commands.append(lambda world: world.preempt(job_id))
        if hold_to_save_s(job) > 0:
            self.saving[job_id] = job
            return
        hold = self.hold(job_id)
        stays = hold.partner in self.running or hold.partner in self.saving
        shares = stays and hold.partner not in self.started
        self.free.give(hold.need, hold.placement, finished=False, with_gpus=not shares)
        self.waiting[job_id] = job
        self._arrived.append(job_id)
        self._released.append(job_id)

    def wake_at(self, time_s: float) -> None:
        """Note nothing: a trial ends where it began."""

    def may_preempt(self, job_id: str) -> bool:
        return (
            job_id in self.running
            and job_id not in self.started
            and job_id not in self.joined
            and job_id not in self.pinned
            and super().may_preempt(job_id)
        )

    def hold(self, job_id: str) -> Hold:
        return self._holds.get(job_id) or super().hold(job_id)

    def remaining_work_s(self, job_id: str) -> float:
        """Return the reference work that a job has left: a victim also what it loses."""
        left_s = super().remaining_work_s(job_id)
        lost_s = self._state[job_id].loses_s(self.now_s) if job_id in self.victims else 0.0
        return left_s + lost_s

    def expected_release_s(self, job_id: str) -> float:
        if job_id in self.started:
            return self.now_s + self.expected_run_s(job_id, *self.started[job_id])
        if job_id in self.victims:
            return self.now_s + hold_to_save_s(self.job(job_id))
        return super().expected_release_s(job_id)
