"""A policy for tests: starts jobs beside running ones wherever it may, and preempts now and
then."""

from optsched.driver.world import World


class StartsBeside:
    """Waiting jobs in order: beside the first running job that may share, else where they fit. Some
    decisions preempt a running job, before the starts or after them, as long as `preemptions`
    lasts. `heedless` of whether the GPUs have the memory for both."""

    name = "starts-beside"
    title = "shares GPUs wherever that is allowed"

    def __init__(self, preemptions: int = 6, heedless: bool = False) -> None:
        self.heedless = heedless
        self.decisions = 0
        self.preemptions = preemptions
        self.pairs: list[tuple[float, str, str]] = []

    def decide(self, world: World) -> None:
        self.decisions += 1
        if self.decisions % 6 == 3:
            self._preempt_one(world)
        for job_id in list(world.waiting):
            if not self._start_sharing(world, job_id) and (found := world.fit(job_id)) is not None:
                world.start(job_id, *found)
        if self.decisions % 6 in (0, 1):
            self._preempt_one(world)

    def _preempt_one(self, world: World) -> None:
        running = list(world.running)
        turn = self.decisions % max(1, len(running))
        for job_id in running[turn:] + running[:turn]:
            if self.preemptions and world.may_preempt(job_id):
                self.preemptions -= 1
                world.preempt(job_id)
                world.wake_at(world.now_s + 1.0)
                return

    def _start_sharing(self, world: World, job_id: str) -> bool:
        for option in world.options(job_id):
            for partner_id in world.running:
                if world.may_share(job_id, option, partner_id, heedless=self.heedless):
                    world.start_sharing(job_id, option, partner_id, heedless=self.heedless)
                    self.pairs.append((world.now_s, job_id, partner_id))
                    return True
        return False
