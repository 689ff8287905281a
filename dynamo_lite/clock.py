"""The compiler's own clock.

Tests of programs put other functions in the place of those of ``time``: ones that stand still, give prepared numbers
(which the compiler must not use up), or raise. Such replacements go through modules and exchange what they find there,
so the functions of this clock are attributes of a class, and ones that are seldom replaced.

Invariant: the clock runs, and reading it calls no code of the program's. A loop that ends by the clock has a largest
number of rounds nevertheless.
"""
import time


class Clock:
    """Seconds from a beginning that never changes."""

    _read = staticmethod(time.clock_gettime)
    sleep = staticmethod(time.sleep)

    @classmethod
    def now(cls) -> float:
        """Seconds that have passed, the process sleeping or not."""
        return cls._read(time.CLOCK_MONOTONIC)

    @classmethod
    def of_thread(cls) -> float:
        """Seconds that this thread has computed."""
        return cls._read(time.CLOCK_THREAD_CPUTIME_ID)
