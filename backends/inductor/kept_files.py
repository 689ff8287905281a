"""Entries in the cache folder: bytes kept under a key, sealed (``private_files``), in the folders of ``folders``.

Invariant: data that is read is complete, and was written by this user.
"""
from __future__ import annotations

from pathlib import Path

from dynamo_lite import exc, log
from dynamo_lite.backends.inductor import folders, private_files
from dynamo_lite.runtime import signal_handlers


def content(path: Path, quiet: bool = False) -> memoryview | None:
    """The content of a kept file; None if it is missing, damaged or not this user's. The latter two are logged."""
    try:
        data = private_files.read(str(path))
        return private_files.unseal(path.name, data, folders.secret())
    except FileNotFoundError:
        return None
    except private_files.Damaged:
        if not quiet:
            log.artifact("cache").warning("%s is truncated or not from here; it is made again", path)
    except private_files.OtherSecret:
        if log.first_time("cache", ("secret", path.parent.parent)):
            log.artifact("cache").warning(
                "%s, and maybe others, was kept by another user, or with a secret that is gone (see "
                "DYNAMO_LITE_CACHE_SECRET); what was is made again", path)
    except (OSError, private_files.Untrusted) as error:
        signal_handlers.pass_on(error)
        if log.first_time("cache", ("file", path)):
            log.artifact("cache").warning("a kept file is not used: %s", error)
    return None


def read_entry(key: str, suffix: str) -> memoryview | None:
    """The bytes that ``write_entry`` has kept under a key; None if no intact entry is found."""
    for place in folders.readable():
        body = content(Path(place, key[:2], key + suffix))
        if body is not None:
            return body
    return None


def write_entry(key: str, suffix: str, body: bytes) -> None:
    """Keeps some bytes under a key.

    Raises:
        exc.CacheError: no folder can be used.
    """
    if len(body) > private_files.LARGEST // 2:
        raise exc.CacheError(f"it is too large ({len(body)} bytes)")
    for place in folders.writable():
        path = Path(place, key[:2], key + suffix)
        try:
            private_files.folder(str(path.parent), create=True)
            private_files.write(str(path), body + private_files.seal(path.name, body, folders.secret()))
        except (OSError, private_files.Untrusted) as error:
            folders.passed_over(place, error)
            continue
        return
    raise exc.CacheError("there is no folder that it can be written to; set DYNAMO_LITE_CACHE_DIR")
