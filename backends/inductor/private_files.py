"""Files that hold code or what becomes code: read only where nobody but this user can have written them.

    folder          a folder's path without links, once it and every folder above it have been looked at
    read, write     a file in such a folder, whole; opened once, and what is open is what is looked at
    seal, unseal    a body with a footer that says who wrote it, and under which name

A file is this user's when it lies in a folder that nobody else can write, belongs to this user or to root, and can't be
written by others. What it holds is known by two digests: one of its name and its content, which tells a file that is
truncated, mixed or under another's name, and one of that with a secret of the user's, which others can't make.

Invariant: ``unseal`` returns what ``seal`` was given for the same name by who holds the secret, or raises.
"""
from __future__ import annotations

import contextlib
import errno
import functools
import grp
import hashlib
import hmac
import os
import pwd
import stat
import tempfile

LARGEST = 1 << 28
"""Bytes of a file that is read or kept: far more than a compiled graph has (BERT's: 0.2 MB), far less than memory."""

_MAGIC = b"\ndynamo_lite kept 2 sha256 "
FOOTER = len(_MAGIC) + 128
_SECRET_BYTES = 32
_MAX_LINKS = 40  # as the kernel's
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Untrusted(Exception):
    """Why a file or a folder may be somebody else's, in words that follow its path."""


class Damaged(Exception):
    """A file is not what was written under its name."""


class OtherSecret(Exception):
    """A file is whole, and was signed with another secret than this user's."""


# ---------------------------------------------------------------- folders
def _owners() -> tuple[int, ...]:
    """Whose files are taken: this user's, root's, and those of who owns ``/`` (root, as a user namespace shows it)."""
    return os.geteuid(), 0, os.lstat("/").st_uid


def folder(path: str, create: bool = False) -> str:
    """A folder's path without links.

    Args:
        create: make what is missing of it, for this user alone.

    Raises:
        Untrusted: others can write it, or can put something else in its place.
        OSError: it is not there, or can't be made.
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
            os.chmod(path, 0o700)  # the umask may have taken this user's own rights
    return os.lstat(path)


def _own_group(status: os.stat_result) -> bool:
    """Whether only the group can write, and that is a group of this user alone: where each user has one, folders above
    the cache are often made so.
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
        owner_only: only this user's own file, that nobody else can read.

    Raises:
        Untrusted: it is no plain file, others can have written it, or it is too large.
        OSError: it is not there, or can't be read.
    """
    try:
        # Neither a link is followed, nor does a pipe without a writer make this wait.
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
    """Writes a file whole or not at all.

    Args:
        replace: whether a file of that name is replaced.

    Raises:
        OSError: FileExistsError where one is there and is not to be replaced.
    """
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=os.path.dirname(path))
    try:
        with open(handle, "wb", buffering=0) as file:
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
    """Gives a file a second name, which nothing has yet; False on file systems where none has two."""
    try:
        os.link(source, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EACCES):
            return False
        raise
    return True


# ---------------------------------------------------------------- who wrote it
def read_secret(path: str, renew: bool = False) -> bytes:
    """The secret in a file, made if there is none.

    Args:
        renew: make another one.

    Raises:
        Untrusted: others can have seen or written it, or it is no secret.
        OSError: it can't be read or made.
    """
    at = os.path.join(folder(os.path.dirname(os.path.abspath(path)), create=True), os.path.basename(path))
    if renew:
        write(at, os.urandom(_SECRET_BYTES))
    elif not os.path.lexists(at):
        with contextlib.suppress(FileExistsError):  # another process was faster: its secret is everybody's
            write(at, os.urandom(_SECRET_BYTES), replace=False)
    found = read(at, owner_only=True)
    if len(found) != _SECRET_BYTES:
        raise Untrusted(f"{at} holds no secret of dynamo_lite's")
    return found


def seal(name: str, body: bytes, secret: bytes) -> bytes:
    """The footer of a file that is kept under a name."""
    digest = _digest(name, body)
    return _MAGIC + hmac.digest(secret, digest, "sha256").hex().encode() + digest.hex().encode()


def unseal(name: str, data: bytes, secret: bytes) -> memoryview:
    """What stands before the footer.

    Raises:
        Damaged: it is not what was kept under this name.
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
