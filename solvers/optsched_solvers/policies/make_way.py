"""Who is preempted for a job that has waited long enough: the fewest seconds of others for its own."""

from collections.abc import Container, Mapping
from dataclasses import dataclass

from optsched.instance import Placement
from optsched.modes import Option
from optsched.physics import hold_to_save_s, setup_s
from optsched.simulate.outlook import Outlook
from optsched.simulate.world import World


@dataclass(frozen=True, slots=True)
class Way:
    """A place for a waiting job, who must leave for it, and what that delays others by, in weighted seconds."""

    option: Option
    placement: Placement
    victims: tuple[str, ...]
    delay_s: float


def make_way(
    world: World, job_id: str, most_s: float, stay: Container[str], claims: Mapping[str, tuple[Option, Placement]]
) -> Way | None:
    """The cheapest way to start a waiting job now (or as soon as those who leave are saved) on GPUs of one type, if it
    delays others by at most `most_s` weighted seconds.

    Each victim is delayed by the run time of the job and by what its own preemption costs. Those who hold most for
    their weight leave first, of equals the ones that take longest. Jobs of `stay` are left alone, and so is what
    `claims` take of what is free or coming free.
    """
    best: Way | None = None
    for gpu_type in dict.fromkeys(option.mode.gpu_type for option in world.options(job_id)):
        found = _on_type(world, job_id, gpu_type, most_s if best is None else best.delay_s, stay, claims)
        if found is not None and (best is None or found.delay_s < best.delay_s):
            best = found
    return best


def _on_type(
    world: World, job_id: str, gpu_type: str | None, most_s: float, stay: Container[str],
    claims: Mapping[str, tuple[Option, Placement]],
) -> Way | None:
    options = [option for option in world.options(job_id) if option.mode.gpu_type == gpu_type]
    run_s = setup_s(world.job(job_id), True) + world.remaining_work_s(job_id) / options[0].rate
    outlook = Outlook(world)
    for one in world.saving:
        outlook.release(one)
    for claimant, (option, placement) in claims.items():
        outlook.room.take(world.need(claimant, option), placement)
    delay_s = 0.0
    victims: list[str] = []
    found = world.fit(job_id, outlook.room)
    for one in _candidates(world, gpu_type, stay):
        if found is not None:
            break
        delay_s += _delay_s(world, one, run_s)
        if delay_s > most_s:
            return None
        outlook.release(one)
        victims.append(one)
        found = world.fit(job_id, outlook.room)
    if found is None:
        return None
    for one in victims[-2::-1]:  # the last was needed
        outlook.put_back(one)
        again = world.fit(job_id, outlook.room)
        if again is None:
            outlook.release(one)
        else:
            found = again
            victims.remove(one)
            delay_s -= _delay_s(world, one, run_s)
    return Way(found[0], found[1], tuple(victims), delay_s)


def _candidates(world: World, gpu_type: str | None, stay: Container[str]) -> list[str]:
    node = world.cluster.node
    able = [
        one for one in world.running
        if one not in stay and world.hold(one).partner is None and world.may_preempt(one)
        and (placement := world.hold(one).placement) and node[placement[0].node].gpu_type == gpu_type
    ]
    return sorted(able, key=lambda one: (
        world.job(one).weight / world.held_gpus(one), -world.expected_release_s(one), world.order(one)
    ))


def _delay_s(world: World, victim: str, run_s: float) -> float:
    job = world.job(victim)
    return job.weight * (run_s + hold_to_save_s(job) + setup_s(job, True))
