"""Stands for a library whose import does not return."""

import time

time.sleep(60)
