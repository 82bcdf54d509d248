"""The machine that everything runs on."""
import time
from pathlib import Path


def calm(busy=0.25, seconds=60):
    """Waits until the processors have little to do, but not for ever."""
    def times():
        fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
        return sum(fields), fields[3] + fields[4]
    deadline = time.monotonic() + seconds
    before = times()
    while time.monotonic() < deadline:
        time.sleep(0.5)
        now = times()
        if 1 - (now[1] - before[1]) / max(now[0] - before[0], 1) < busy:
            return
        before = now
