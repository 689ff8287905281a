"""Changes between two calls are noticed: containers, dataclasses, enums, constants; which objects are one."""
from __future__ import annotations

import collections
import dataclasses
import enum
import math
import types
from typing import Any, NamedTuple

import pytest
import torch
from guard_cases import Case, Cases, Plain, X

case = Cases()


@case
def list_item() -> Case:
    box = [1, 2]
    return lambda x: x * box[1], (X,), lambda: box.__setitem__(1, 7)


@case
def list_longer() -> Case:
    box = [1, 2]
    return lambda x: x * sum(box), (X,), lambda: box.append(7)


@case
def list_order() -> Case:
    box = [1, 2]
    return lambda x: x * box[0], (X,), lambda: box.reverse()


@case
def list_type() -> Case:
    class L(list):
        def __len__(self) -> int:
            return 9

    box = [[1, 2]]
    return lambda x: x * len(box[0]), (X,), lambda: box.__setitem__(0, L([1, 2]))


@case
def list_subclass_contents() -> Case:
    class L(list):
        pass

    box = L([1, 2])
    return lambda x: x * sum(box), (X,), lambda: box.append(3)


@case
def dict_value() -> Case:
    box = {"a": 1}
    return lambda x: x * box["a"], (X,), lambda: box.update(a=4)


@case
def dict_key_added() -> Case:
    box = {"a": 1}
    return lambda x: x * box.get("b", 3), (X,), lambda: box.update(b=4)


@case
def dict_key_removed() -> Case:
    box = {"a": 1, "b": 2}
    return lambda x: x * box.get("b", 3), (X,), lambda: box.pop("b")


@case
def dict_contains() -> Case:
    box = {"a": 1}
    return lambda x: (x + 1, "b" in box, "a" in box), (X,), lambda: box.update(b=4)


@case
def dict_contains_removed() -> Case:
    box = {"a": 1}
    return lambda x: (x + 1, "a" in box), (X,), lambda: box.pop("a")


@case
def dict_length() -> Case:
    box = {"a": 1}
    return lambda x: x * len(box), (X,), lambda: box.update(b=4)


@case
def dict_truth() -> Case:
    box: dict[str, int] = {}
    return lambda x: x * (2 if box else 3), (X,), lambda: box.update(b=4)


@case
def dict_order() -> Case:
    box = {"a": 1, "b": 2}

    def change() -> None:
        box["a"] = box.pop("a")

    return lambda x: x * next(iter(box.values())), (X,), change


@case
def dict_key_type() -> Case:
    box: dict[Any, int] = {1: 1}

    def change() -> None:
        del box[1]
        box[True] = 1

    return lambda x: (x + 1, list(box)), (X,), change


@case
def dict_key_type_by_lookup() -> Case:
    box: dict[Any, int] = {1: 1}
    return lambda x: (x + 1, box.get(1.0), True in box), (X,), lambda: box.pop(1)


@case
def dict_object_key() -> Case:
    a, b = Plain(), Plain()
    box = {a: 2}
    return lambda x: (x + 1, box.get(b, 5)), (X,), lambda: box.update({b: 3})


@case
def dict_object_key_lookup_in_simple() -> Case:
    a = Plain()
    box: dict[Any, int] = {"k": 2}
    return lambda x: (x + 1, box.get(a, 5)), (X,), lambda: box.update({a: 3})


@case
def dict_class_key() -> Case:
    box: dict[Any, int] = {"k": 2}
    return lambda x: (x + 1, box.get(Plain, 5)), (X,), lambda: box.update({Plain: 3})


@case
def defaultdict_factory() -> Case:
    box = collections.defaultdict(int)

    def fn(x: Any) -> Any:
        value = box["q"]
        del box["q"]
        return x + 1, value

    def change() -> None:
        box.default_factory = list

    return fn, (X,), change


@case
def ordered_dict_order() -> Case:
    box = collections.OrderedDict(a=1, b=2)
    return lambda x: (x + 1, list(box)), (X,), lambda: box.move_to_end("a")


@case
def dict_subclass_missing() -> Case:
    class D(dict):
        def __missing__(self, key: Any) -> int:
            return 4

    box = D()
    return lambda x: x * box["q"], (X,), lambda: setattr(D, "__missing__", lambda self, key: 8)


@case
def set_member() -> Case:
    box = {1, 2}
    return lambda x: (x + 1, 3 in box), (X,), lambda: box.add(3)


@case
def set_types() -> Case:
    box: set[Any] = {1}

    def change() -> None:
        box.clear()
        box.add(True)

    return lambda x: (x + 1, list(box)), (X,), change


@case
def tuple_in_list() -> Case:
    box = [(1, 2)]
    return lambda x: x * box[0][1], (X,), lambda: box.__setitem__(0, (1, 3))


@case
def nested_tuple_type() -> Case:
    box: list[Any] = [(1, (2, 3))]
    return lambda x: (x * 1, box[0]), (X,), lambda: box.__setitem__(0, (1, (2, 3.0)))


class Point(NamedTuple):
    a: int
    b: int


@case
def named_tuple_field() -> Case:
    box = [Point(1, 2)]
    return lambda x: x * box[0].b, (X,), lambda: box.__setitem__(0, Point(1, 5))


@case
def range_changes() -> Case:
    box = [range(3)]
    return lambda x: x * sum(box[0]), (X,), lambda: box.__setitem__(0, range(4))


@case
def slice_changes() -> Case:
    box = [slice(0, 1)]
    return lambda x: x[box[0]] + 1, (X,), lambda: box.__setitem__(0, slice(0, 2))


@dataclasses.dataclass
class Data:
    a: int = 1
    b: list[int] = dataclasses.field(default_factory=lambda: [1])


@case
def dataclass_field() -> Case:
    box = Data()
    return lambda x: x * box.a, (X,), lambda: setattr(box, "a", 5)


@case
def dataclass_default() -> Case:
    @dataclasses.dataclass
    class D:
        a: int = 1

    def change() -> None:
        D.__init__.__defaults__ = (7,)

    return lambda x: x * D().a, (X,), change


@case
def simple_namespace() -> Case:
    box = types.SimpleNamespace(a=1)
    return lambda x: x * box.a, (X,), lambda: setattr(box, "a", 5)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@case
def enum_member() -> Case:
    box = [Colour.RED]
    return lambda x: x * box[0].value, (X,), lambda: box.__setitem__(0, Colour.BLUE)


@case
def enum_attribute() -> Case:
    class E(enum.Enum):
        A = 1

        @property
        def doubled(self) -> int:
            return self.value * 2

    return lambda x: x * E.A.doubled, (X,), lambda: setattr(E, "doubled", property(lambda self: 9))


@case
def string_value() -> Case:
    box = ["relu"]
    return lambda x: torch.relu(x - 2) if box[0] == "relu" else x, (X,), lambda: box.__setitem__(0, "none")


@case
def nan_value() -> Case:
    box = [1.5]
    return lambda x: (x + 1, box[0] != box[0]), (X,), lambda: box.__setitem__(0, math.nan)


@case
def same_object_becomes_two() -> Case:
    a = [1, 2]
    pair = [a, a]

    def fn(x: Any) -> Any:
        pair[0].append(3)
        result = x * len(pair[1]), pair[0] is pair[1]
        pair[0].pop()
        return result

    return fn, (X,), lambda: pair.__setitem__(1, [1, 2])


@case
def two_objects_become_one() -> Case:
    a, b = [1, 2], [1, 2]
    pair = [a, b]

    def fn(x: Any) -> Any:
        pair[0].append(3)
        result = x * len(pair[1])
        pair[0].pop()
        return result

    return fn, (X,), lambda: pair.__setitem__(1, a)


@case
def two_tensors_become_one() -> Case:
    a, b = X.clone(), X.clone()
    pair = [a, b]

    def fn(x: Any) -> Any:
        pair[0].add_(1)
        result = pair[1] * 2
        pair[0].sub_(1)
        return result

    return fn, (X,), lambda: pair.__setitem__(1, a)


@case
def tensors_overlap() -> Case:
    base = torch.zeros(4)
    pair = [base[:2], torch.zeros(2)]

    def fn(x: Any) -> Any:
        pair[0].add_(1)
        result = pair[1] * 2
        pair[0].sub_(1)
        return result

    return fn, (X,), lambda: pair.__setitem__(1, base[1:3])


@case
def tensor_is_tensor() -> Case:
    a, b = X.clone(), X.clone()
    pair = [a, b]
    return lambda x: (pair[0] + pair[1], pair[0] is pair[1]), (X,), lambda: pair.__setitem__(1, a)


@case
def objects_compared_by_identity() -> Case:
    a, b = Plain(), Plain()
    pair = [a, b]
    return lambda x: (x + 1, pair[0] is pair[1]), (X,), lambda: pair.__setitem__(1, a)


@case
def none_becomes_value() -> Case:
    box: list[Any] = [None]
    return lambda x: x if box[0] is None else x * box[0], (X,), lambda: box.__setitem__(0, 4)


@pytest.mark.parametrize("name", case.all)
def test_a_change_is_noticed(name):
    case.check(name, globals())
