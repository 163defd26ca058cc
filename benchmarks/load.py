"""Processor time to load a 20,000-job instance file; the target is under 1 s. Prints one line of
JSON.

python -m benchmarks.load [--jobs 20000] [--gpus 4096] [--repeats 5]
"""

import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.command_line import parser_of, tell
from optsched import files
from optsched.traces.generate.synth import generate

TARGET_S = 1.0


def main() -> None:
    """Generate once, load a few times; the first load, which also builds the validator, is reported
    apart."""
    arguments = parser_of(__doc__, jobs=20_000, gpus=4_096, repeats=5).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "instance.json"
        made = generate(jobs=arguments.jobs, gpus=arguments.gpus, seed=0)
        files.write_text(path, files.dump_instance(made))
        times = []
        for _ in range(1 + arguments.repeats):
            start = time.process_time()
            instance = files.read_instance(path)
            times.append(time.process_time() - start)
        tell(
            {
                "benchmark": "load",
                "jobs": len(instance.jobs),
                "nodes": len(instance.cluster.nodes),
                "megabytes": round(path.stat().st_size / 1e6, 2),
                "first_s": round(times[0], 3),
                "load_s": round(statistics.median(times[1:]), 3),
                "target_s": TARGET_S,
            }
        )


if __name__ == "__main__":
    main()
