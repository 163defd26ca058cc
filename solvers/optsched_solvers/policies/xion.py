"""Xion: preempt only where it pays."""

from dataclasses import replace

from optsched.driver.world import World
from optsched.model.instance import Running
from optsched.physics import TIME_TOLERANCE_S, hold_to_save_s, lost_s, setup_s, unsaved_s

from .parts.cheapest_victims import Victim, at_least_s, cheapest, cost_s, fewest
from .parts.demand_queue import Entry, arrival_key
from .parts.preemptive import Moment, Preemptive, gives_way
from .sources import SOURCES
from .srtf import Srtf


class Xion(Srtf):
    """Shortest remaining time first, but a running job is only preempted where the sum of
    completion times falls by it.

    Let a waiting job w (work W, set-up L_w) start now on the GPUs of a running job r (R to go),
    which pauses for P_r and needs L_r to load again. w gains R - P_r, r loses P_r + L_w + W + L_r,
    so that it pays if and only if

        R - W > 2 P_r + L_w + L_r.

    Only running jobs of which this is true may give way. Where one of them is not enough, a set S
    of them pays if and only if, with P the longest pause in S and T when w would fit if nobody were
    preempted,

        T - P > sum over S of (P + L_w + W + L_r);

    T is looked at for a single victim too, as other jobs may end before it. The set with the
    smallest sum + P is taken. Without overheads nothing is lost by a swap: then victims are chosen
    as by SRTF, and the plan is the same.

    A lower priority gives way without having to pay. T comes from the expected ends of running
    jobs. Of a job with periodic checkpoints L_r has the work that it would do again.
    """

    name = "xion"
    title = "shortest remaining time first, preempting only where pausing and loading again are worth it"  # noqa: E501
    source = SOURCES[name]
    reserves = False

    def moment(self, world: World) -> Moment:
        """Return who gives way for whom, if it pays."""
        return _Moment(self, world)


class _Moment(Moment):
    """One decision; `_known` are the jobs that may be preempted now, the last in order first."""

    def __init__(self, rule: Preemptive, world: World) -> None:
        super().__init__(rule, world)
        self._known: list[tuple[Entry, Victim]] | None = None

    def evict_for(self, entry: Entry) -> bool:
        """Preempt the cheapest set of jobs with which the waiting one fits, if that pays."""
        key, job_id = entry
        world = self.world
        finish_s = world.fastest_finish_s(job_id)
        victims = {
            other[1]: victim if other[0][0] == key[0] else replace(victim, delayed=False)
            for other, victim in self._preemptible()
            if gives_way(other[0], key)
            and (other[0][0] != key[0] or pays(other[0][1], finish_s, victim))
        }
        if not victims or self._starts_sooner_anyway(job_id, list(victims.values()), finish_s):
            return False
        chosen = None
        if any(victim.costs for victim in victims.values()):
            chosen = cheapest(world, job_id, self.look_ahead(), list(victims.values()), finish_s)
        if chosen is None:
            chosen = self.needed(job_id, victims)
        if chosen is None:
            return False
        if not self._pays(job_id, [victims[one] for one in chosen], finish_s):
            for one in chosen:
                self.look_ahead().put_back(one)
            return False
        for one in chosen:
            world.preempt(one)
        self._known = [
            (other, victim) for other, victim in self._preemptible() if other[1] in world.running
        ]
        self.evicted(chosen)
        return True

    def _starts_sooner_anyway(self, job_id: str, victims: list[Victim], finish_s: float) -> bool:
        """Return whether the job would start by itself before even the cheapest thinkable set of
        victims paid."""
        if not all(one.delayed and one.costs for one in victims):
            return False
        count = fewest(self.world, job_id, self.look_ahead(), victims)
        return self._fits_by(job_id, at_least_s(count, victims, finish_s))

    def _pays(self, job_id: str, victims: list[Victim], finish_s: float) -> bool:
        """Return whether the sum of completion times falls. The victims are released in `soon`
        already."""
        if not any(victim.costs for victim in victims if victim.delayed):
            return True
        paid_s = cost_s([victim.job for victim in victims], victims, finish_s)
        for victim in victims:  # T is when it would fit without anybody's help
            self.look_ahead().put_back(victim.job)
        sooner_anyway = self._fits_by(job_id, paid_s)
        for victim in victims:
            self.look_ahead().release(victim.job)
        return not sooner_anyway

    def _fits_by(self, job_id: str, seconds: float) -> bool:
        """Return whether the job fits so long from now at the latest, if nobody is preempted."""
        world = self.world
        outlook = self.look_ahead()
        until_s = world.now_s + seconds + TIME_TOLERANCE_S
        gone = [one for one in world.running if world.expected_release_s(one) <= until_s]
        for one in gone:
            outlook.release(one)
        fits = world.fit(job_id, outlook.room) is not None
        for one in gone:
            outlook.put_back(one)
        return fits

    def _preemptible(self) -> list[tuple[Entry, Victim]]:
        if self._known is None:
            world = self.world
            found = []
            for one in world.running:
                if world.may_preempt(one):
                    found.append(
                        (
                            (arrival_key(world, one, self.rule.rank(world, one)), one),
                            _victim(world, one),
                        )
                    )
                elif world.now_s < (at_s := world.preemptible_at_s(one)):
                    self.recheck_s = min(self.recheck_s, at_s)
            self._known = sorted(found, key=lambda entry: entry[0], reverse=True)
        return self._known


def pays(left_s: float, finish_s: float, victim: Victim) -> bool:
    """The swap rule for a running job with `left_s` to go and a waiting one that takes `finish_s`,
    set-up included."""
    return left_s - finish_s > 2 * victim.pause_s + victim.load_s


def _victim(world: World, job_id: str) -> Victim:
    """Return what it costs to preempt a running job, in seconds."""
    job, entry = world.job(job_id), world.entry(job_id)
    assert isinstance(entry, Running)
    return Victim(
        job_id,
        hold_to_save_s(job),
        setup_s(job, ran_before=True) + lost_s(job, unsaved_s(entry, world.now_s)),
        True,
    )
