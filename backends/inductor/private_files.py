"""Files that hold code or data that becomes code; they are read only where nobody but this user can have written them.

    folder          resolves links in a folder's path, and checks it and every folder above it
    read, write     read and write a complete file in such a folder; it is opened once, and the open file is checked
    seal, unseal    add and check a footer that says who wrote the data, and under which name

A file counts as this user's if it is in a folder that nobody else can write, belongs to this user or to root, and can't
be written by others. The footer has two digests: one of the name and the content, by which a file is recognized that is
truncated, mixed up or renamed, and one of that with the user's secret, which others can't compute.

Invariant: ``unseal`` returns the data that a holder of the secret has passed to ``seal`` for the same name, or raises.
"""
from __future__ import annotations

import contextlib
import errno
import functools
import grp
import hashlib
import hmac
import io
import os
import pwd
import stat
import tempfile

LARGEST = 1 << 28
"""Largest size of a file in bytes: far above that of a compiled graph (BERT's: 0.2 MB), far below that of memory."""

_MAGIC = b"\ndynamo_lite kept 2 sha256 "
FOOTER = len(_MAGIC) + 128
_SECRET_BYTES = 32
_MAX_LINKS = 40  # the Linux kernel's limit
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Untrusted(Exception):
    """Says why a file or a folder may be somebody else's, in words that follow its path."""


class Damaged(Exception):
    """A file does not have the content that was written under its name."""


class OtherSecret(Exception):
    """A file is intact, but was signed with a secret other than this user's."""


# ---------------------------------------------------------------- folders
def _owners() -> tuple[int, ...]:
    """The owners whose files are accepted: this user, root, and the owner of ``/`` (root, seen in a user namespace)."""
    return os.geteuid(), 0, os.lstat("/").st_uid


def folder(path: str, create: bool = False) -> str:
    """A folder's path with links resolved.

    Args:
        create: whether missing folders are created, for this user alone.

    Raises:
        Untrusted: others can write it, or can put something else in its place.
        OSError: it does not exist, or can't be created.
    """
    owners = _owners()
    rest = (path if os.path.isabs(path) else os.path.join(os.getcwd(), path)).split("/")[::-1]
    at, links = "/", 0
    status = os.lstat(at)
    while rest:
        name = rest.pop()
        if name == "..":
            at = os.path.dirname(at)
        if name in ("", ".", ".."):
            continue
        here = os.path.join(at, name)
        status = _made(here) if create else os.lstat(here)
        if status.st_uid not in owners:
            raise Untrusted(f"{here} belongs to another user ({status.st_uid})")
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), here)
            target = os.readlink(here)
            at = "/" if target.startswith("/") else at
            rest += target.split("/")[::-1]
            continue
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), here)
        if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX and not _own_group(status):
            raise Untrusted(f"other users can write {here}")
        at = here
    if os.lstat(at).st_mode & _OTHERS_WRITE:
        raise Untrusted(f"other users can write {at}")
    return at


def _made(path: str) -> os.stat_result:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mkdir(path, 0o700)
            os.chmod(path, 0o700)  # the umask may have removed this user's own permissions
    return os.lstat(path)


def _own_group(status: os.stat_result) -> bool:
    """Whether only the group can write, and this user is the group's only member. Systems that give each user such a
    group often create the folders above the cache with these permissions.
    """
    if status.st_mode & stat.S_IWOTH or os.geteuid() == 0:
        return False
    return _is_own_group(status.st_gid, os.geteuid())


@functools.lru_cache(maxsize=16)
def _is_own_group(gid: int, uid: int) -> bool:
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and user.pw_name == group.gr_name and set(group.gr_mem) <= {user.pw_name}


# ---------------------------------------------------------------- files
def read(path: str, owner_only: bool = False, limit: int = LARGEST) -> bytes:
    """A file's content.

    Args:
        owner_only: whether to accept only this user's own file, which nobody else can read.

    Raises:
        Untrusted: it is not a regular file, others can have written it, or it is too large.
        OSError: it does not exist, or can't be read.
    """
    try:
        # O_NOFOLLOW: links are not followed; O_NONBLOCK: opening a pipe without a writer does not block.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise Untrusted(f"{path} is no plain file") from error
        raise
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Untrusted(f"{path} is no plain file")
        if status.st_uid not in ((os.geteuid(),) if owner_only else _owners()):
            raise Untrusted(f"{path} belongs to another user ({status.st_uid})")
        if status.st_mode & (0o077 if owner_only else _OTHERS_WRITE):
            raise Untrusted(f"other users can {'read' if owner_only else 'write'} {path}")
        if status.st_size > limit:
            raise Untrusted(f"{path} is too large ({status.st_size} bytes)")
        parts = []
        left = status.st_size
        while left > 0 and (part := os.read(handle, left)):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(handle)
    return b"".join(parts)


def write(path: str, data: bytes, mode: int = 0o600, replace: bool = True) -> None:
    """Writes a file atomically: completely or not at all.

    Args:
        replace: whether an existing file of that name is replaced.

    Raises:
        OSError: FileExistsError if a file exists and is not to be replaced.
    """
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=os.path.dirname(path))
    try:
        with io.open(handle, "wb", buffering=0) as file:
            os.fchmod(handle, mode)
            view = memoryview(data)
            while view:
                view = view[file.write(view):]
        if replace or not _link(temporary, path):
            os.replace(temporary, path)
        else:
            os.unlink(temporary)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _link(source: str, path: str) -> bool:
    """Gives a file a second name, which must not exist; returns False on file systems without hard links."""
    try:
        os.link(source, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EACCES):
            return False
        raise
    return True


# ---------------------------------------------------------------- signatures
def read_secret(path: str, renew: bool = False) -> bytes:
    """The secret in a file, which is created if there is none.

    Args:
        renew: whether to replace the secret by a new one.

    Raises:
        Untrusted: others can have seen or written it, or the file is not a secret.
        OSError: it can't be read or created.
    """
    at = os.path.join(folder(os.path.dirname(os.path.abspath(path)), create=True), os.path.basename(path))
    if renew:
        write(at, os.urandom(_SECRET_BYTES))
    elif not os.path.lexists(at):
        with contextlib.suppress(FileExistsError):  # another process was faster: all use its secret
            write(at, os.urandom(_SECRET_BYTES), replace=False)
    found = read(at, owner_only=True)
    if len(found) != _SECRET_BYTES:
        raise Untrusted(f"{at} holds no secret of dynamo_lite's")
    return found


def seal(name: str, body: bytes, secret: bytes) -> bytes:
    """The footer of a file that is kept under a given name."""
    digest = _digest(name, body)
    return _MAGIC + hmac.digest(secret, digest, "sha256").hex().encode() + digest.hex().encode()


def unseal(name: str, data: bytes, secret: bytes) -> memoryview:
    """The content of a file without its footer, after checking that.

    Raises:
        Damaged: it is not the data that was kept under this name.
        OtherSecret: it was kept with another secret.
    """
    body, footer = memoryview(data)[:-FOOTER], data[-FOOTER:]
    digest = _digest(name, body)
    if not footer.startswith(_MAGIC) or footer[-64:] != digest.hex().encode():
        raise Damaged
    if not hmac.compare_digest(footer[-128:-64], hmac.digest(secret, digest, "sha256").hex().encode()):
        raise OtherSecret
    return body


def _digest(name: str, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(b"%d:%s" % (len(name), name.encode()))
    digest.update(body)
    return digest.digest()
