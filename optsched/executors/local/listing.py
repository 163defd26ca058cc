"""Lists the GPUs of this host, one JSON line for each line read: `python listing.py`.

A program of its own, since a driver that hangs never comes back to whoever asked it. Each line has
`gpus`, a list of [id, kind] in the driver's order of those that answer; or `fault`, a clause on why
nothing can be listed. The kind of a whole GPU is "", that of an instance (MIG) its profile, as
"1g.10gb".
"""

import json
import sys
from contextlib import suppress
from types import ModuleType


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
        gpus: list[tuple[str, str]] = []
        for i in range(pynvml.nvmlDeviceGetCount()):
            with suppress(pynvml.NVMLError):  # as one that has fallen off the bus: the others go on
                gpus += _parts(pynvml, pynvml.nvmlDeviceGetHandleByIndex(i))
        return {"gpus": gpus}
    except pynvml.NVMLError as error:
        return {"fault": f"NVIDIA's management library cannot list them ({error})"}
    finally:
        pynvml.nvmlShutdown()


def _parts(pynvml: ModuleType, gpu: object) -> "list[tuple[str, str]]":
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
        return [(_text(pynvml.nvmlDeviceGetUUID(gpu)), "")]
    instances = []
    for i in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i)
            name = _text(pynvml.nvmlDeviceGetName(instance))
            instances.append(
                (_text(pynvml.nvmlDeviceGetUUID(instance)), name.rpartition(" MIG ")[2] or "MIG")
            )
        except pynvml.NVMLError:  # no instance has this number
            continue
    return instances


def _text(value: "str | bytes") -> str:
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    for _ in sys.stdin:
        print(json.dumps(listing()), flush=True)
