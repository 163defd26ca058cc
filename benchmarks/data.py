"""Where the public data is."""

import os
from pathlib import Path

DATA = Path(os.environ.get("OPTSCHED_DATA", Path(__file__).parents[2] / "shared" / "data"))
