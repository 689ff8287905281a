"""Values as bytes: what is written is read again, type by type, and other bytes are refused and run nothing."""
import dataclasses
import math
import os
import pickle
import random
import typing

import pytest
import torch

from dynamo_lite.backends.aot import ops
from dynamo_lite.backends.aot.graph import InputOutput, OutputAlias
from dynamo_lite.backends.inductor import graph_cache
from dynamo_lite.backends.inductor.artifact import Artifact, Pair
from dynamo_lite.backends.inductor.serialize import LARGEST_TENSOR, Malformed, NotKept

aten = torch.ops.aten
FORM = graph_cache._format()


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    if isinstance(a, torch.Tensor):
        return (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride()) and a.numpy(force=True).tobytes() == (
            b.numpy(force=True).tobytes())
    if isinstance(a, float):
        return a.hex() == b.hex()
    if isinstance(a, ops.RandomFill):
        return a.op is b.op
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    return (a == b or isinstance(a, complex)) and repr(a) == repr(b)


VALUES = [
    None, True, False, 0, -1, 2**80, 0.0, -0.0, 1e-310, math.inf, -math.inf, math.nan, 1 + 2j, complex(-0.0,
    math.nan), "",
    "short", "t", "x" * 1000 + "\n\"\\\0é\u2028", "\ud800", "\udcff" * 200, b"", b"\0\xff" * 99, (), [], {}, (1,), [1],
    ("t", 1), ["t", ["t"]], (((),),), {"a": 1, 2: (3,), (4, "b"): [5.0]}, torch.float32, torch.bool, torch.strided,
    torch.channels_last, torch.device("cpu"), torch.device("cuda", 1), aten.add.Tensor, aten.relu.default,
    torch.ops.prims.convert_element_type.default, ops.copy_strided, float, IndexError, torch.no_grad, ...,
    torch.tensor([1.0, -0.0, math.nan]), torch.tensor(3), torch.empty(0, 4), torch.tensor([True, False]),
    OutputAlias(InputOutput(1), (2, 3), (3, 1), 0, ((aten.view.dtype, (torch.int32,), {}, None),), "after"),
    ops.RandomFill(aten.bernoulli_.float), ops.Functionalized(aten.relu_.default, (0, "x")),
]


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_what_is_written_is_read(number):
    value = VALUES[number]
    data = FORM.dumps(value)
    assert same(FORM.loads(data), value) and FORM.dumps(value) == data
    assert same(FORM.loads(memoryview(FORM.dumps((value, [value])))), (value, [value]))


def dataclasses_in(hint):
    if dataclasses.is_dataclass(hint):
        yield hint
    for part in typing.get_args(hint):
        yield from dataclasses_in(part)


def test_the_table_has_all_classes_that_artifacts_are_made_of():
    """A class that is missing there leaves graphs unkept, and the next process slow."""
    met, rest = set(), [Artifact, Pair]
    while rest:
        cls = rest.pop()
        if cls not in met:
            met.add(cls)
            for hint in typing.get_type_hints(cls).values():
                rest.extend(dataclasses_in(hint))
    assert {cls.__name__ for cls in met} <= set(FORM._records) and len(met) >= 10


@pytest.mark.parametrize("make", [
    object, lambda: lambda: 1, lambda: os.system, lambda: torch.nn.Linear(1, 1), lambda: torch.ones(2, 3).t(),
    lambda: torch.zeros(LARGEST_TENSOR + 1, dtype=torch.uint8), lambda: torch.ones(1, requires_grad=True), lambda: {1,
    2},
    lambda: torch.nn.Parameter(torch.ones(1)), lambda: type("Str", (str,), {})("x"), lambda: torch.Size([1]),
    lambda: os,
    lambda: torch.ones(1).to_sparse(), lambda: torch.ones(1, dtype=torch.cfloat).conj(), lambda: KeyboardInterrupt,
])
def test_what_is_not_data_is_not_written(make):
    with pytest.raises(NotKept):
        FORM.dumps((1, [make()]))


class Evil:
    def __reduce__(self):
        return os._exit, (3,)


@pytest.mark.parametrize("data", [
    b"", b"\n", b"5", b"0\n", b"99999999999999999999999\nnull", b"-4\nnull", b"4\nnul", b"\xb25\nnull", b"3\nNaN",
    b"3\n1.5", b"2\n{}", b"2\n[]", b"5\n[[]] ", b"3\n[1]", b'7\n["zzz"]', b'5\n["s"]', b'9\n["s",0,1]',
    b'10\n["s",-1,1]',
    b'10\n["s",0,-1]', b'13\n["b",true,99]', b'7\n["d",1]', b'14\n["d",["l"],1]', b'9\n["f","x"]', b'11\n["f","00"]',
    b'12\n["y","torch"]', b'15\n["n","os.system"]', b'23\n["o","aten","__class__",""]',
    b'29\n["o","os","system","default"]',
    b'37\n["o","aten","_dir","__class__","extra"]', b'27\n["o","aten","add","__init__"]', b'21\n["r","EntrySpec",1,2]',
    b'13\n["r","Popen"]', b'30\n["T","torch.float32",[9],0,36]', b'35\n["T","torch.float32",["9"],0,36.0]',
    b"100001\n" + b"[" * 100001,
    b'31\n["T","torch.uint8",[-1,-1],0,1]x', pickle.dumps(Evil()), b'8\n"\xc3\xa9abcd"',
])
def test_other_bytes_are_refused(data):
    with pytest.raises(Malformed):
        FORM.loads(data)


def test_damaged_bytes_are_refused_or_are_data():
    """Whatever a file holds, nothing but ``Malformed`` comes of it, and nothing but data."""
    data = FORM.dumps([value for value in VALUES if not isinstance(value, torch.Tensor)])
    known = {type(value) for value in VALUES}
    generator = random.Random(0)
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(generator.choice((1, 1, 2, 5))):
            at = generator.randrange(len(damaged))
            damaged[at:at + generator.choice((0, 1, 1, 3))] = generator.choice(
                (b"", b"[", b"]", b'"', b"9", b"-", bytes([generator.randrange(256)])))
        try:
            found = FORM.loads(damaged)
        except Malformed:
            continue
        assert type(found) in known
