"""Whose files are read: this user's, in folders that nobody else can write; whatever else lies there is refused."""
import os
import socket
import stat
import threading

import pytest

from dynamo_lite.backends.inductor import private_files
from dynamo_lite.backends.inductor.private_files import Damaged, OtherSecret, Untrusted

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
SECRET, OTHER = b"s" * 32, b"t" * 32


@pytest.fixture
def kept(tmp_path):
    private_files.write(str(tmp_path / "kept"), b"content")
    return tmp_path / "kept"


def test_written_and_read(kept):
    assert private_files.read(str(kept)) == b"content"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and os.listdir(kept.parent) == ["kept"]
    private_files.write(str(kept), b"", 0o700)
    assert private_files.read(str(kept)) == b"" and stat.S_IMODE(kept.stat().st_mode) == 0o700
    with pytest.raises(FileExistsError):
        private_files.write(str(kept), b"x", replace=False)
    assert os.listdir(kept.parent) == ["kept"]


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_any_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        made = private_files.folder(str(tmp_path / "a" / "b"), create=True)
        private_files.write(os.path.join(made, "f"), b"x")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(os.stat(p).st_mode) for p in (tmp_path / "a", made, made + "/f")] == [0o700, 0o700, 0o600]
    assert private_files.read(made + "/f") == b"x"


# ---------------------------------------------------------------- files
def fifo(path):
    os.mkfifo(path)


def unix_socket(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(os.path.relpath(path))


def huge(path):
    with open(path, "wb") as f:
        f.truncate(1 << 40)


NO_FILES = {
    "fifo": fifo, "socket": unix_socket, "folder": os.mkdir, "huge": huge,
    "link": lambda path: os.symlink(os.path.abspath(__file__), path),
    "dangling": lambda path: os.symlink("/nowhere", path), "loop": lambda path: os.symlink(path, path),
    "device": lambda path: os.symlink("/dev/zero", path),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_plain_file_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    NO_FILES[kind](str(tmp_path / "kept"))
    with pytest.raises(Untrusted):
        private_files.read(str(tmp_path / "kept"))


@as_root
@pytest.mark.timeout(20)
def test_a_device_is_refused(tmp_path):
    try:
        os.mknod(tmp_path / "zero", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("devices can't be made here")
    with pytest.raises((Untrusted, PermissionError)):
        private_files.read(str(tmp_path / "zero"))


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777])
def test_a_file_that_others_can_write(kept, mode):
    kept.chmod(mode)
    with pytest.raises(Untrusted, match="other users can write"):
        private_files.read(str(kept))


@as_root
def test_a_file_of_another_user(kept):
    os.chown(kept, 12345, 12345)
    with pytest.raises(Untrusted, match="belongs to another user"):
        private_files.read(str(kept))


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644])
def test_a_secret_that_others_can_read(kept, mode):
    kept.chmod(mode)
    with pytest.raises(Untrusted, match="other users can read"):
        private_files.read(str(kept), owner_only=True)


def test_a_file_that_grows_or_shrinks_meanwhile(kept, monkeypatch):
    """What is read is what was open, and no more than was looked at."""
    real = os.fstat

    def grown(handle):
        status = real(handle)
        kept.write_bytes(b"x" * 100)
        return status

    monkeypatch.setattr(os, "fstat", grown)
    assert len(private_files.read(str(kept))) == len(b"content")


# ---------------------------------------------------------------- folders
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777, 0o1770, 0o775])
def test_a_folder_that_others_can_write(tmp_path, mode):
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    for create in (False, True):
        with pytest.raises(Untrusted, match="other users can write"):
            private_files.folder(str(folder), create)


@pytest.mark.parametrize(("mode", "accepted"), [(0o755, True), (0o1777, True), (0o777, False), (0o707, False)])
def test_a_folder_below_one_that_others_can_write(tmp_path, mode, accepted):
    above = tmp_path / "above"
    below = above / "a" / "b"
    below.mkdir(parents=True, mode=0o700)
    above.chmod(mode)
    if accepted:
        assert private_files.folder(str(below)) == str(below)
    else:
        with pytest.raises(Untrusted, match="other users can write"):
            private_files.folder(str(below))


@pytest.mark.parametrize(("mode", "accepted"), [(0o775, True), (0o777, False)])
def test_a_group_of_one_user(tmp_path, monkeypatch, mode, accepted):
    """Where each user has a group, folders above the cache are often made for it; the cache folder itself is not."""
    monkeypatch.setattr(private_files, "_is_own_group", lambda gid, uid: True)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() or 1000)
    below = tmp_path / "above" / "below"
    below.mkdir(parents=True, mode=0o700)
    (tmp_path / "above").chmod(mode)
    if accepted:
        assert private_files.folder(str(below)) == str(below)
    with pytest.raises(Untrusted, match="other users can write"):
        private_files.folder(str(below.parent))
    if not accepted:
        with pytest.raises(Untrusted, match="other users can write"):
            private_files.folder(str(below))


@as_root
@pytest.mark.parametrize("whose", ["folder", "above", "link"])
def test_a_folder_of_another_user(tmp_path, whose):
    above, folder, link = tmp_path / "above", tmp_path / "above" / "folder", tmp_path / "link"
    folder.mkdir(parents=True, mode=0o700)
    link.symlink_to(folder)
    assert private_files.folder(str(link)) == str(folder)
    os.chown({"folder": folder, "above": above, "link": link}[whose], 12345, 12345, follow_symlinks=False)
    with pytest.raises(Untrusted, match="belongs to another user"):
        private_files.folder(str(link))


def test_links_and_dots_on_the_way(tmp_path):
    (tmp_path / "real" / "deep").mkdir(parents=True, mode=0o700)
    (tmp_path / "absolute").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "up").symlink_to("../real//./deep/..")
    path = f"{tmp_path}/absolute/up/../absolute/up/deep"
    assert private_files.folder(path) == os.path.realpath(path) == str(tmp_path / "real" / "deep")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        private_files.folder(str(tmp_path / "loop"))
    (tmp_path / "file").write_text("")
    for path in ("file", "file/below"):
        with pytest.raises(NotADirectoryError):
            private_files.folder(str(tmp_path / path), create=True)
    with pytest.raises(FileNotFoundError):
        private_files.folder(str(tmp_path / "nothing"))


def test_names_of_any_kind(tmp_path):
    for name in ("with space", "näme", "new\nline", "\udcff", "'quoted\"", "%s{}$(x)"):
        made = private_files.folder(str(tmp_path / name), create=True)
        private_files.write(made + "/f", b"x")
        assert private_files.read(made + "/f") == b"x"


# ---------------------------------------------------------------- seals
def test_a_seal_covers_name_content_and_secret():
    data = b"body" + private_files.seal("name", b"body", SECRET)
    assert private_files.unseal("name", data, SECRET) == b"body"
    swapped = b"other" + private_files.seal("other", b"other", SECRET)
    mixed = b"body" + swapped[len(b"other"):]
    for name, wrong in [("other", data), ("name", swapped), ("name", mixed), ("name", data[1:]), ("name", data[:-1]),
                        ("name", data + b"x"), ("name", b""), ("name", b"x" + data), ("", data)]:
        with pytest.raises(Damaged):
            private_files.unseal(name, wrong, SECRET)
    with pytest.raises(OtherSecret):
        private_files.unseal("name", data, OTHER)


def test_every_bit_counts():
    data = b"\0body" + private_files.seal("name", b"\0body", SECRET)
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            with pytest.raises((Damaged, OtherSecret)):
                private_files.unseal("name", bytes(changed), SECRET)


def test_name_and_content_do_not_run_into_each_other():
    assert private_files.seal("ab", b"c", SECRET) != private_files.seal("a", b"bc", SECRET)


def test_a_secret_is_made_once(tmp_path):
    path = str(tmp_path / "deep" / "secret")
    found = []
    threads = [threading.Thread(target=lambda: found.append(private_files.read_secret(path))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 8 and len(set(found)) == 1 and len(found[0]) == 32
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and os.listdir(tmp_path / "deep") == ["secret"]
    assert private_files.read_secret(path, renew=True) != found[0]


@pytest.mark.parametrize("number", [1, 38])
def test_a_secret_where_files_have_one_name_only(tmp_path, monkeypatch, number):
    monkeypatch.setattr(os, "link", lambda *a: (_ for _ in ()).throw(OSError(number, os.strerror(number))))
    path = str(tmp_path / "secret")
    assert private_files.read_secret(path) == private_files.read_secret(path)
