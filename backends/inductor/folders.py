"""The folders in which compiled files are kept, in the order in which they are searched, and this user's secret.

The first folder is ``config.cache_dir``. If that can't be used (it belongs to or can be written by other users, it
can't be made, or its disk is full), a folder of this user's below one of the temporary folders takes its place; if that
can't be used either, a folder that is deleted at the end of this process. Each folder that is passed over is reported
once, with the reason.

Invariant: only this user (and root) can write these folders and the files in them.
"""
from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator

from dynamo_lite import config, exc, log
from dynamo_lite.backends.inductor import private_files
from dynamo_lite.backends.inductor.private_files import Untrusted
from dynamo_lite.runtime import signal_handlers

_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")

_secrets: dict[str, tuple[tuple[int, ...], bytes]] = {}
_without_file: list[bytes] = []
_of_this_process: dict[int, str] = {}


def _bases() -> list[str]:
    bases = dict.fromkeys((os.environ.get("TMPDIR", ""), *_TEMPORARY))
    return [base for base in bases if os.path.isabs(base) and os.path.isdir(base)]


def _users_folder() -> str:
    return str(config.OPTIONS["cache_dir"].default)


def _candidates() -> list[str]:
    own = f"dynamo_lite-{os.geteuid()}"
    return list(dict.fromkeys((config.cache_dir, *(os.path.join(base, own) for base in _bases()))))


def readable() -> Iterator[str]:
    """The folders in which kept files are looked up."""
    for number, path in enumerate(_candidates()):
        try:
            yield private_files.folder(path)
        except FileNotFoundError:
            pass  # nothing has been kept there yet
        except (OSError, Untrusted) as error:
            if number == 0:  # folders of these names may exist for other users, which is no reason to warn
                passed_over(path, error)
    yield from (path for path in (_of_this_process.get(os.getpid()),) if path is not None)


def writable() -> Iterator[str]:
    """The folders in which files may be kept; a caller takes the next one if writing to the one before fails."""
    for path in _candidates():
        try:
            found = private_files.folder(path, create=True)
            if not os.access(found, os.W_OK | os.X_OK):
                raise PermissionError(f"{found} can't be written")
        except (OSError, Untrusted) as error:
            passed_over(path, error)
            continue
        yield found
    last = _of_this_process.get(os.getpid()) or _for_this_process()
    if last is not None:
        yield last


def passed_over(path: str, error: Exception) -> None:
    """Warns once that a folder is not used. If the error was raised by a signal handler, it is raised again."""
    signal_handlers.pass_on(error)
    if log.first_time("cache", ("folder", path)):
        log.artifact("cache").warning(
            "the cache folder %s is not used: %s; another one stands in for it (set DYNAMO_LITE_CACHE_DIR to a folder "
            "of your own)", path, exc.one_line(error))


def _for_this_process() -> str | None:
    """Creates a folder that is deleted at the end of this process; None if no temporary folder can be written to."""
    for base in _bases():
        try:
            made = tempfile.mkdtemp(prefix="dynamo_lite-", dir=base)
            os.chmod(made, 0o700)
            path = private_files.folder(made)
        except (OSError, Untrusted):
            continue  # reported below, if another one is used, or by the caller, if there is none
        _of_this_process[os.getpid()] = path
        atexit.register(_remove, os.getpid(), path)
        log.artifact("cache").warning("nothing can be kept: compiled kernels go to %s until this process ends", path)
        return path
    return None


def _remove(process: int, path: str) -> None:
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)


def secret() -> bytes:
    """The secret that kept files are signed with. It is read from the user's own file, which is made if there is none.
    If no file can be made, the secret lasts as long as this process, and later processes can't use what it keeps.
    """
    paths = [config.cache_secret] if config.cache_secret else [
        os.path.join(path, "secret") for path in (_users_folder(), *_candidates())]
    for path in dict.fromkeys(paths):
        found = _secret_in(path, renewable=not config.cache_secret)
        if found is not None:
            return found
    if not _without_file:
        _without_file.append(os.urandom(32))
        log.artifact("cache").warning("what is compiled is not found again by other processes: there is no folder to "
                                      "keep a secret in (%s)", ", ".join(paths))
    return _without_file[0]


def _secret_in(path: str, renewable: bool) -> bytes | None:
    """The secret in a file; None if there is no usable one. If the file may be another user's, a new secret replaces it
    where it is ``renewable``, that is, where the user has not configured the path.
    """
    try:
        identity, value = _secrets.get(path, ((), b""))
        if identity == _identity(path):
            return value
    except OSError:
        pass  # it is not there yet
    renew = False
    while True:
        try:
            value = private_files.read_secret(path, renew)
            identity = _identity(path)
        except (OSError, Untrusted) as error:
            if renewable and not renew and isinstance(error, Untrusted):
                renew = True
                continue
            log.artifact("cache").info("there is no secret of this user's in %s: %s", path, exc.one_line(error))
            return None
        if renew:
            log.artifact("cache").warning(
                "the secret in %s could be another's; it is made anew, and what was kept with it is compiled again",
                path)
        _secrets[path] = identity, value
        return value


def _identity(path: str) -> tuple[int, ...]:
    """A tuple that changes when a file is replaced, written, or given other permissions."""
    status = os.stat(path, follow_symlinks=False)
    return status.st_dev, status.st_ino, status.st_ctime_ns
