"""Classes of the kinds that programs have, for the programs of the tests."""
import dataclasses
import enum


class Thing:
    def __init__(self, k=1):
        self.k = k


class Col(enum.Enum):
    R = 1
    G = 2
    B = R

    @property
    def low(self):
        return self.name.lower()

    def mix(self, o):
        return self.value + o.value

    @classmethod
    def default(cls):
        return cls.G


@dataclasses.dataclass(frozen=True, order=True)
class FDC:
    a: int
    b: int = 3
