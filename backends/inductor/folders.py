"""Where files are kept: the folders, in the order in which they are looked through, and the secret of this user's.

The first is ``config.cache_dir``. Where that can't be used, because it is another's or others can write it, it can't be
made, or its disk is full, a folder of the user's own among the temporary ones stands in for it; where that can't be
used either, one that lasts as long as this process. Each folder that is passed over is reported once, with the reason.

Invariant: the folders that come from here, and what stands in them, can be written by nobody but this user (and root).
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
    """The folders to look for kept files in."""
    for number, path in enumerate(_candidates()):
        try:
            yield private_files.folder(path)
        except FileNotFoundError:
            pass  # nothing has been kept there
        except (OSError, Untrusted) as error:
            if number == 0:  # the others may be there for other users
                passed_over(path, error)
    yield from (path for path in (_of_this_process.get(os.getpid()),) if path is not None)


def writable() -> Iterator[str]:
    """The folders to keep files in; the next is for when the one before turns out to be of no use."""
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
    """Says that a folder is not used, once; unless the error is a signal handler's, which is raised again."""
    signal_handlers.pass_on(error)
    if log.first_time("cache", ("folder", path)):
        log.artifact("cache").warning(
            "the cache folder %s is not used: %s; another one stands in for it (set DYNAMO_LITE_CACHE_DIR to a folder "
            "of your own)", path, exc.one_line(error))


def _for_this_process() -> str | None:
    for base in _bases():
        try:
            made = tempfile.mkdtemp(prefix="dynamo_lite-", dir=base)
            os.chmod(made, 0o700)
            path = private_files.folder(made)
        except (OSError, Untrusted):
            continue  # the caller says that there is none, or which one it is
        _of_this_process[os.getpid()] = path
        atexit.register(_remove, os.getpid(), path)
        log.artifact("cache").warning("nothing can be kept: compiled kernels go to %s until this process ends", path)
        return path
    return None


def _remove(process: int, path: str) -> None:
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)


def secret() -> bytes:
    """What kept files are signed with: from the user's own file, made now if there is none; where no file can be made,
    one that this process forgets, so that what it keeps is of no use to the next.
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
    """The secret in a file; one that may be another's gives way if that is ``renewable``, no file of the user's choice.
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
    """What changes when a file is replaced, written, or given other rights."""
    status = os.stat(path, follow_symlinks=False)
    return status.st_dev, status.st_ino, status.st_ctime_ns
