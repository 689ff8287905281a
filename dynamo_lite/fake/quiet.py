"""A filter for torch's log of fake tensors, for the fake tensor modes of traces.

torch logs each exception of a metadata rule with its traceback. In a trace such an exception is an expected answer: it
is the exception that eager raises, or it says that symbolic sizes have to be fixed. Invariant: messages about fake
tensor modes of other users are logged as before.
"""
from __future__ import annotations

import logging
import sys
from types import FrameType

from torch._subclasses.fake_tensor import FakeTensorMode


def drop_records_of(modes: type[FakeTensorMode]) -> None:
    """Drops torch's log messages about exceptions in operators that fake tensor modes of a class dispatch."""
    logging.getLogger("torch._subclasses.fake_tensor").addFilter(_OfOtherModes(modes))


class _OfOtherModes(logging.Filter):
    def __init__(self, modes: type[FakeTensorMode]) -> None:
        super().__init__()
        self._modes = modes

    def filter(self, record: logging.LogRecord) -> bool:
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code is not FakeTensorMode._dispatch_impl.__code__:
            frame = frame.f_back
        return frame is None or not isinstance(frame.f_locals["self"], self._modes)
