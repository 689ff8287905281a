"""What a process has done with the fake GPU: see ``build``."""
import ctypes
import dataclasses
import re

_fake = ctypes.CDLL("libcudart.so.13")
_fake.fake_log.restype = ctypes.c_void_p
_free = ctypes.CDLL(None).free
_free.argtypes = [ctypes.c_void_p]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A line of the log: what happened, to what, and how."""

    kind: str
    what: str
    of: dict[str, str]

    @property
    def parameters(self) -> list[int]:
        """Of a launch: each one's bits."""
        return [int(p.split(":")[1], 16) for p in self.of["parameters"].split(",")]

    @property
    def stream(self) -> int:
        return 0 if self.of["stream"] == "(nil)" else int(self.of["stream"], 16)


def take(*kinds: str) -> list[Entry]:
    """What has happened since the last call, of some kinds or of all."""
    address = _fake.fake_log()
    text = ctypes.string_at(address).decode()
    _free(address)
    entries = []
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        entries.append(Entry(kind, rest.split(" ")[0], dict(re.findall(r"(\w+)=(\S+)", rest))))
        assert kind != "refused" or kind in kinds, line
    return [entry for entry in entries if not kinds or entry.kind in kinds]
