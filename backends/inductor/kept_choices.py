"""Measurements and choices made on this machine, kept as JSON in the cache folder under a digest of what they depend
on.

Invariant: a value that can't be kept is measured again by the next process, and the log says so; an entry that can't be
read counts as missing.
"""
from __future__ import annotations

import hashlib
import json
from typing import Any

from dynamo_lite import exc, log
from dynamo_lite.backends.inductor import kept_files


def key_of(*around: str) -> str:
    """The key of a value that depends on these strings."""
    return hashlib.sha256("\n".join(around).encode()).hexdigest()


def read(key: str, suffix: str) -> Any:
    """The value that ``write`` has kept; None if there is none."""
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
