"""When this process came to phasezero: imported first, before torch, which takes seconds."""

import time

STARTED = time.perf_counter()
