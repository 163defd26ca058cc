"""Loaded by every Python that starts with this folder on PYTHONPATH: reports what PyTorch does,
changes nothing.

Each process that imports torch appends lines of JSON to a file of its own in the folder
OPTSCHED_PROFILE, each with one system call, so that not even SIGKILL loses what was done before.
Times are CLOCK_MONOTONIC. Without torch nothing happens. Needs the standard library only, as it
runs in the interpreter of the command.
"""

import atexit
import functools
import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FOLDER = os.environ.get("OPTSCHED_PROFILE", "")
MEMORY_EVERY_S = 0.5
MOST_LINES = 2_000_000
"""Then no more steps are reported: some 50 MB."""


class Report:
    """The file of this process; one that forks gets a file of its own."""

    def __init__(self) -> None:
        self.pid = -1
        self.descriptor = -1
        self.lines = 0

    def line(self, *parts: object) -> None:
        """Write one line; what cannot be written is not, the command goes on."""
        if self.lines >= MOST_LINES:
            return
        try:
            if self.pid != os.getpid():
                self.pid = os.getpid()
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self.descriptor = os.open(os.path.join(FOLDER, f"{self.pid}.jsonl"), flags, 0o600)
                self._write("process", self.pid, os.environ.get("RANK"))
            self._write(*parts)
        except OSError:
            self.lines = MOST_LINES

    def _write(self, *parts: object) -> None:
        self.lines += 1
        os.write(self.descriptor, json.dumps(parts).encode() + b"\n")


def install(torch: ModuleType) -> None:
    """Report the steps of optimizers, what is saved and loaded, and the memory that torch has
    reserved."""
    report = Report()
    optimizers: dict[int, int] = {}
    depth = 0
    memory_at = 0.0

    def memory() -> None:
        cuda = torch.cuda
        if cuda.is_available() and cuda.is_initialized():
            for device in range(cuda.device_count()):
                reserved = cuda.max_memory_reserved(device)
                if reserved:
                    report.line("gpu", device, reserved, cuda.max_memory_allocated(device))

    def stepped(optimizer: object, *_: object) -> None:
        nonlocal memory_at
        now = time.monotonic()
        report.line("step", now, optimizers.setdefault(id(optimizer), len(optimizers)))
        if now - memory_at >= MEMORY_EVERY_S:
            memory_at = now
            memory()

    def timed(owner: Any, name: str, kind: str, target: int | None) -> None:
        """Wrap a function that may be called within another of these: the outermost one counts."""
        inner: Callable[..., Any] = getattr(owner, name)

        def outer(*args: Any, **named: Any) -> Any:
            nonlocal depth
            depth += 1
            began = time.monotonic()
            try:
                return inner(*args, **named)
            finally:
                depth -= 1
                if depth == 0:
                    file = (
                        None
                        if target is None
                        else named.get("f", args[target] if len(args) > target else None)
                    )
                    report.line(kind, began, time.monotonic() - began, size(file))

        setattr(owner, name, functools.wraps(inner)(outer))

    optimizer = importlib.import_module("torch.optim.optimizer")  # which torch.optim does not show
    register = getattr(optimizer, "register_optimizer_step_post_hook", None)
    if register is not None:  # torch before 2.0: no steps are reported
        register(stepped)
    timed(torch, "save", "save", 1)
    timed(torch, "load", "load", 0)
    timed(torch.nn.Module, "load_state_dict", "load", None)
    timed(torch.optim.Optimizer, "load_state_dict", "load", None)
    atexit.register(memory)


def size(file: Any) -> int | None:
    """Return bytes of a file given by name or open, None where that cannot be told."""
    try:
        if hasattr(file, "fileno"):
            file.flush()
            return os.fstat(file.fileno()).st_size
        return os.path.getsize(file)
    except Exception:  # whatever the command saves to is its own affair
        return None


def watch(loader: Any) -> None:
    """Have `install` called when the loader has loaded torch."""
    execute = loader.exec_module

    def execute_and_install(module: ModuleType) -> None:
        execute(module)
        try:
            install(module)
        except Exception as error:  # a torch of another kind; the command must not suffer
            print(f"optsched: torch is not watched: {error!r}", file=sys.stderr)

    loader.exec_module = execute_and_install


class Finder:
    """Finds torch as the other finders do, and has `install` called when it is loaded; those who
    only ask whether there is a torch are answered."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None for all but torch."""
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = (
                None if finder is self or find is None else find(name, path, target)
            )
            if spec is not None:
                watch(spec.loader)
                return spec
        return None


def load_hidden() -> None:
    """Run the sitecustomize that this one hides, if there is one."""
    here = os.path.dirname(os.path.realpath(__file__))
    for folder in sys.path:
        file = os.path.join(folder, "sitecustomize.py")
        if os.path.realpath(folder or ".") != here and os.path.isfile(file):
            spec = importlib.util.spec_from_file_location("sitecustomize", file)
            if spec is not None and spec.loader is not None:
                module = importlib.util.module_from_spec(spec)
                sys.modules["sitecustomize"] = module
                spec.loader.exec_module(module)
            return


if FOLDER:
    sys.meta_path.insert(0, Finder())
load_hidden()
