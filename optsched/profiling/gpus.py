"""What NVML sees of the GPUs that a command is given."""

import contextlib
import os
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..executors.local.listing import holders, text
from ..frozen import record

GIB = 1 << 30
Whose = Callable[[Set[int]], tuple[Set[int], Set[int]]]
"""Divides processes into those of the command and those of others, without those whose numbers mean
nothing here, as those of other containers."""


@record
class GpuSample:
    """One look at one GPU: `busy` is the share of the last moment in which a kernel ran,
    `used_bytes` what the command holds of its memory (None where NVML cannot say), and `shared`
    tells whether others used it, too."""

    at_s: float
    gpu: str
    busy: float | None
    used_bytes: int | None
    shared: bool


@dataclass(slots=True)
class Gpus:
    """GPUs of this host that a command is given; `in_use` are those that others were using
    before."""

    nvml: Any
    handles: list[Any]
    ids: tuple[str, ...]
    name: str
    total_bytes: int
    used_before: list[int]
    in_use: tuple[str, ...]

    def sample(self, at_s: float, whose: Whose) -> list[GpuSample]:
        """Look at each GPU; one that does not answer is left out.

        What a GPU holds more than before is the command's where it has it alone, CUDA contexts
        included. Beside others it is what NVML says of its processes.
        """
        samples = []
        for gpu, handle, before in zip(self.ids, self.handles, self.used_before, strict=True):
            with contextlib.suppress(self.nvml.NVMLError):
                used: int | None = max(
                    0, int(self.nvml.nvmlDeviceGetMemoryInfo(handle).used) - before
                )
                busy = None
                with contextlib.suppress(self.nvml.NVMLError):  # MIG has no utilisation
                    busy = self.nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                held = holders(self.nvml, handle)
                own, strangers = whose(held.keys())
                if strangers or gpu in self.in_use:
                    used = _sum([held[pid] for pid in own]) if own or strangers else None
                samples.append(GpuSample(at_s, gpu, busy, used, bool(strangers)))
        return samples

    def close(self) -> None:
        """Let go of the driver."""
        with contextlib.suppress(self.nvml.NVMLError):
            self.nvml.nvmlShutdown()


def open_gpus(count: int) -> Gpus | None:
    """Return the first `count` GPUs of CUDA_VISIBLE_DEVICES, or of this host, idle ones first. None
    where there is no NVML or no GPU at all. Raises InputError where there are fewer."""
    if count == 0:
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    nvml: Any = pynvml
    handles = _visible(nvml)
    if not handles:
        nvml.nvmlShutdown()
        return None
    if len(handles) < count:
        nvml.nvmlShutdown()
        raise InputError(
            f"--gpus {count}: there are only {len(handles)} GPUs here; ask for at most that many"
        )
    used = {i: int(nvml.nvmlDeviceGetMemoryInfo(handle).used) for i, handle in enumerate(handles)}
    others = {i: holders(nvml, handle) for i, handle in enumerate(handles)}
    chosen = sorted(sorted(used, key=lambda i: (bool(others[i]), i))[:count])
    ids = tuple(text(nvml.nvmlDeviceGetUUID(handles[i])) for i in chosen)
    return Gpus(
        nvml=nvml,
        handles=[handles[i] for i in chosen],
        ids=ids,
        name=text(nvml.nvmlDeviceGetName(handles[chosen[0]])),
        total_bytes=min(int(nvml.nvmlDeviceGetMemoryInfo(handles[i]).total) for i in chosen),
        used_before=[used[i] for i in chosen],
        in_use=tuple(gpu_id for gpu_id, i in zip(ids, chosen, strict=True) if others[i]),
    )


def _visible(nvml: Any) -> list[Any]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    handles = []
    for word in filter(None, (part.strip() for part in named.split(","))):
        try:
            if word.isdigit():
                handles.append(nvml.nvmlDeviceGetHandleByIndex(int(word)))
            else:
                handles.append(nvml.nvmlDeviceGetHandleByUUID(word))
        except nvml.NVMLError:
            break  # CUDA, too, ignores what follows a name that is none
    return handles


def _sum(held: Sequence[int | None]) -> int | None:
    return None if None in held else sum(filter(None, held))
