"""What was measured or chosen on this machine, kept as JSON in the cache folder under a digest of what it depends on.

Invariant: what can't be kept is measured again by the next process, and the log says so; what can't be read counts as
not kept.
"""
from __future__ import annotations

import hashlib
import json
from typing import Any

from dynamo_lite import exc, log
from dynamo_lite.backends.inductor import kept_files


def key_of(*around: str) -> str:
    """A key for what depends on these texts."""
    return hashlib.sha256("\n".join(around).encode()).hexdigest()


def read(key: str, suffix: str) -> Any:
    """What ``write`` has kept; None if there is nothing."""
    body = kept_files.read_entry(key, suffix)
    if body is None:
        return None
    try:
        return json.loads(bytes(body))
    except ValueError as error:
        log.artifact("cache").info("what was kept as %s is of another form: %s", suffix, error)
        return None


def write(key: str, suffix: str, value: Any) -> None:
    """Keeps a value."""
    try:
        kept_files.write_entry(key, suffix, json.dumps(value).encode())
    except exc.CacheError as error:
        log.artifact("cache").info("what was measured can't be kept: %s", error)
