"""Whether a process hangs: it has used more of the processor's time than its work may take, or none for as long.

Invariant: a machine that is loaded or stopped for a while makes no process hang: what counts is the processor's time,
and of the time on the clock only what this process has seen pass. """
from __future__ import annotations

import os
import time

TURN = 2.0      # seconds; a watcher that asks about once a second and was away for longer has been stopped, too
IDLE = 1.0      # seconds of the processor's time, of which a process that goes on uses more


def processor_time(pid: int) -> float:
    """Seconds that a process and those children that have ended have used; 0 if it has ended itself."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Watch:
    """A process from now on; `hangs` is to be asked about once a second."""

    def __init__(self, pid: int, seconds: float) -> None:
        self.pid, self.seconds = pid, seconds
        self.begin = self.used = processor_time(pid)
        self.asked, self.idle = time.monotonic(), 0.0

    def hangs(self) -> bool:
        now, used = time.monotonic(), processor_time(self.pid)
        self.idle += min(now - self.asked, TURN)
        self.asked = now
        if used - self.used >= IDLE:
            self.used, self.idle = used, 0.0
        return used - self.begin >= self.seconds or self.idle >= self.seconds
