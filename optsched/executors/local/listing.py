"""Lists the GPUs of this host, one JSON line for each line read: `python listing.py`.

A program of its own, since a driver that hangs never comes back to whoever asked it. Each line has
`gpus`, a list of [id, kind, pids] in the driver's order of those that answer; or `fault`, a clause
on why nothing can be listed. The kind of a whole GPU is "", that of an instance (MIG) its profile,
as "1g.10gb"; `pids` are the processes that hold more of its memory than a bare CUDA context.
"""

import json
import sys
from contextlib import suppress
from types import ModuleType

CONTEXT_BYTES = 1 << 30
"""A CUDA context alone takes less: 0.5 GiB on an H200."""


def listing() -> "dict[str, object]":
    """Return what is there now."""
    try:
        import pynvml
    except ImportError:
        return {"fault": "nvidia-ml-py is not installed (pip install optsched)"}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"fault": f"NVIDIA's management library does not answer ({error})"}
    try:
        gpus: list[tuple[str, str, list[int]]] = []
        for i in range(pynvml.nvmlDeviceGetCount()):
            with suppress(pynvml.NVMLError):  # as one that has fallen off the bus: the others go on
                gpus += _parts(pynvml, pynvml.nvmlDeviceGetHandleByIndex(i))
        return {"gpus": gpus}
    except pynvml.NVMLError as error:
        return {"fault": f"NVIDIA's management library cannot list them ({error})"}
    finally:
        pynvml.nvmlShutdown()


def _parts(pynvml: ModuleType, gpu: object) -> "list[tuple[str, str, list[int]]]":
    """Return the GPU itself; of one that is divided its instances, and nothing where it has
    none."""
    try:
        divided = bool(pynvml.nvmlDeviceGetMigMode(gpu)[0])
    except pynvml.NVMLError as error:
        if getattr(error, "value", None) in (
            pynvml.NVML_ERROR_GPU_IS_LOST,
            pynvml.NVML_ERROR_UNKNOWN,
        ):
            raise
        divided = False  # a GPU that cannot be divided
    if not divided:
        return [(text(pynvml.nvmlDeviceGetUUID(gpu)), "", _users(pynvml, gpu))]
    instances = []
    for i in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i)
            name = text(pynvml.nvmlDeviceGetName(instance))
            kind = name.rpartition(" MIG ")[2] or "MIG"
            uuid = text(pynvml.nvmlDeviceGetUUID(instance))
            instances.append((uuid, kind, _users(pynvml, instance)))
        except pynvml.NVMLError:  # no instance has this number
            continue
    return instances


def _users(pynvml: ModuleType, gpu: object) -> "list[int]":
    """Return the processes that hold more of its memory than a bare context, as far as is known."""
    held = holders(pynvml, gpu)
    return [pid for pid, size in held.items() if size is None or size > CONTEXT_BYTES]


def holders(pynvml: ModuleType, gpu: object) -> "dict[int, int | None]":
    """Return how many bytes of its memory each process holds, None where the driver does not tell;
    nothing where it does not even tell who."""
    try:
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    except pynvml.NVMLError:
        return {}
    return {int(one.pid): one.usedGpuMemory for one in running}


def text(value: "str | bytes") -> str:
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    for _ in sys.stdin:
        print(json.dumps(listing()), flush=True)
