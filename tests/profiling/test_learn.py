"""What profiles become by what is measured, by hand."""

from dataclasses import replace

from optsched.model.profile import Profile, Sharing
from optsched.profiling.learn import learned, step_times
from optsched.profiling.measured import Measured

RUN = Measured(gpus=1, cpus=4)


def after(profile: Profile, *runs: Measured) -> Profile:
    return learned(profile, runs)[0]


def test_times_are_medians_of_the_latest_five() -> None:
    runs = [replace(RUN, restore_s=float(value)) for value in (100, 90, 1, 2, 3, 4, 50)]
    found, notes = learned(Profile(restore_s=7.0, startup_s=8.0), runs)
    assert found.restore_s == 3  # of 1, 2, 3, 4, 50
    assert found.startup_s == 8, "nobody measured it"
    assert notes == {"restore_s": "restore_s: median of the latest 5 runs"}


def test_runs_without_a_measurement_do_not_count() -> None:
    assert after(Profile(), replace(RUN, stop_s=5.0), *[RUN] * 20).checkpoint_s == 5


def test_memory_is_the_peak_and_a_tenth() -> None:
    found = after(Profile(), replace(RUN, gpu_memory_gib=20.0), replace(RUN, gpu_memory_gib=10.0))
    assert found.gpu_memory_gib == 22
    assert after(Profile(), replace(RUN, torch_gpu_memory_gib=10.0)).gpu_memory_gib == 11
    assert after(Profile(), replace(RUN, gpus=4, memory_gib=100.0)).memory_gib_per_gpu == 27.5
    assert after(Profile(), replace(RUN, gpus=0, memory_gib=100.0)).memory_gib_per_gpu == 0, (
        "a CPU-only job has no GPU"
    )


def test_memory_that_may_be_chosen_stays_as_it_is() -> None:
    profile = Profile(
        gpu_memory_gib=40.0,
        gpu_memory_rates={20.0: 0.9},
        memory_gib_per_gpu=64.0,
        memory_rates={32.0: 0.5},
    )
    run = replace(RUN, gpus=1, gpu_memory_gib=20.0, memory_gib=30.0)
    found = after(profile, run)
    assert (found.gpu_memory_gib, found.memory_gib_per_gpu) == (40.0, 64.0)


def test_memory_is_at_most_that_of_the_gpu() -> None:
    """Frameworks fill the GPU; a tenth more would fit nowhere."""
    assert (
        after(
            Profile(), replace(RUN, gpu_memory_gib=78.0, gpu_memory_total_gib=80.0)
        ).gpu_memory_gib
        == 80
    )


def test_memory_of_another_number_of_gpus_does_not_count() -> None:
    runs = [replace(RUN, gpus=1, gpu_memory_gib=40.0), replace(RUN, gpus=8, gpu_memory_gib=10.0)]
    assert after(Profile(), *runs).gpu_memory_gib == 11


def test_saving_now_and_then_ends_where_it_saves_when_asked() -> None:
    periodic = after(Profile(), replace(RUN, save_every_s=600.0))
    assert (periodic.checkpoint_every_s, periodic.checkpoint_s) == (600, 0)
    on_demand = after(
        periodic, replace(RUN, save_every_s=600.0), replace(RUN, stop_s=30.0, save_every_s=600.0)
    )
    assert (on_demand.checkpoint_every_s, on_demand.checkpoint_s) == (None, 30)


def test_duty_keeps_partners() -> None:
    found = after(
        Profile(sharing=Sharing(duty=0.2, partners={"gpt": 0.7})), replace(RUN, gpu_duty=0.6)
    )
    assert found.sharing == Sharing(duty=0.6, partners={"gpt": 0.7})


def test_rates_follow_step_times_of_listed_types() -> None:
    """0.1 s on the a100, 0.4 s on the v100: a quarter of the rate. The t4 is not listed, so it may
    not run the job."""
    profile = Profile(rate={"a100": 1.0, "v100": 0.5, "p100": 0.1})
    runs = [
        replace(RUN, gpu_type=kind, step_s=step_s)
        for kind, step_s in (("a100", 0.1), ("v100", 0.4), ("t4", 1.0))
    ]
    assert after(profile, *runs).rate == {"a100": 1.0, "v100": 0.25, "p100": 0.1}
    assert after(profile, runs[1]).rate == profile.rate, "one type alone says nothing"
    other_cores = replace(runs[1], cpus=8)
    assert after(profile, runs[0], other_cores).rate == profile.rate, (
        "with other cores the times do not compare"
    )
    assert after(Profile(), *runs).rate == {}


def test_step_times_by_size() -> None:
    runs = [replace(RUN, step_s=step_s) for step_s in (1.0, 3.0, 2.0)] + [
        replace(RUN, cpus=8, step_s=9.0)
    ]
    assert step_times(runs) == {(None, 1, 4): 2.0, (None, 1, 8): 9.0}
