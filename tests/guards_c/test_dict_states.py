"""Whatever happens to a dict, a program that remembers states of it comes out as one that looks for the first time."""
import collections
import random
import subprocess
import sys
import textwrap
import types
import weakref

import pytest
import torch
from guard_programs import program

from dynamo_lite import _guards as G


class Plain:
    pass


class Initialized:
    def __init__(self):
        self.size = 5
        self.hooks = {}


class Large:
    def __init__(self):
        for i in range(40):  # more than an object has inline values
            setattr(self, f"a{i}", i)


class WithSlots(Plain):
    __slots__ = ("slot",)


class WithNumbers(dict):
    pass


def instance_block(*checks):
    return [("load_local", 0, 0), ("load_instance_dict", 1, 0), ("begin_same", 1), *checks, ("end_same", 1)]


def programs():
    """One program for each step that remembers states, and for a block of several."""
    item = ("load_dict_item", 2, 1, "size")
    return [
        program(*instance_block(item, ("const", 2, 5))),
        program(*instance_block(("dict_lacks", 1, "other"))),
        program(*instance_block(("dict_has", 1, "size"), item, ("type_is", 2, int), ("dict_lacks", 1, "other"))),
        program(("load_local", 0, 0), ("load_instance_dict", 1, 0), item, ("collect", 2, 0), inputs=1),
        program(("load_local", 0, 0), ("load_instance_dict", 1, 0), ("dict_keys", 1, ("size", "hooks"))),
        program(("load_local", 0, 0), ("no_hooks", 0, ("hooks", "none"))),
    ]


def outcomes(made, obj):
    return [p.check((obj,), None, {}, {}) for p in made]


def expected(obj):
    d = obj.__dict__
    size, missing = d.get("size"), "size" not in d
    return [
        (False, 3) if missing else (True, ()) if size == 5 and type(size) is int else (False, 4),
        (False, 3) if "other" in d else (True, ()),
        (False, 3) if missing else (False, 5) if type(size) is not int else (False, 6) if "other" in d else (True, ()),
        (False, 2) if missing else (True, (size,)),
        (True, ()) if list(d) == ["size", "hooks"] else (False, 2),
        (False, 1) if d.get("hooks") or d.get("none") else (True, ()),
    ]


CHANGES = {
    "set": lambda o: setattr(o, "size", 6),
    "set to another type": lambda o: setattr(o, "size", 5.0),
    "set to itself": lambda o: setattr(o, "size", o.size),
    "add": lambda o: setattr(o, "other", 1),
    "add unseen": lambda o: setattr(o, f"name{random.random()}", 1),
    "delete": lambda o: delattr(o, "size"),
    "delete and add": lambda o: (delattr(o, "size"), setattr(o, "size", 5)),
    "set item": lambda o: o.__dict__.__setitem__("size", 7),
    "add item": lambda o: o.__dict__.__setitem__("other", 7),
    "add a number": lambda o: o.__dict__.__setitem__(3, 7),
    "delete item": lambda o: o.__dict__.__delitem__("size"),
    "pop": lambda o: o.__dict__.pop("size"),
    "popitem": lambda o: o.__dict__.popitem(),
    "popitems": lambda o: [o.__dict__.popitem() for _ in range(len(o.__dict__))],
    "setdefault": lambda o: o.__dict__.setdefault("other", 7),
    "update": lambda o: o.__dict__.update(size=8, other=2),
    "update from pairs": lambda o: o.__dict__.update([("size", 8)]),
    "update in place": lambda o: o.__dict__.__ior__({"size": 9}),
    "clear": lambda o: o.__dict__.clear(),
    "clear and fill": lambda o: (o.__dict__.clear(), o.__dict__.update({"size": 6, "hooks": {}})),
    "initialize": lambda o: dict.__init__(o.__dict__, size=3),
    "replace": lambda o: setattr(o, "__dict__", {"size": 6, "hooks": {1: 1}}),
    "replace by itself": lambda o: setattr(o, "__dict__", o.__dict__),
    "replace and set": lambda o: (setattr(o, "__dict__", o.__dict__), setattr(o, "size", 4)),
    "replace by a copy": lambda o: (setattr(o, "__dict__", o.__dict__.copy()), setattr(o, "other", 4)),
    "remove": lambda o: delattr(o, "__dict__"),
    "add a hook": lambda o: o.hooks.__setitem__(1, 1),
    "set hooks": lambda o: setattr(o, "hooks", {1: 1}),
    "set a list": lambda o: setattr(o, "hooks", [1]),
    "the C function": lambda o: object.__setattr__(o, "size", 12),
    "the operator": lambda o: vars(o).update({"size": 13}),
}


def set_size(obj):
    obj.size = 6


def add_other(obj):
    obj.other = 6


def delete_size(obj):
    del obj.size


def add_and_delete(obj):
    obj.other = 6
    del obj.size


CHANGES.update(set_size=set_size, add_other=add_other, delete_size=delete_size, add_and_delete=add_and_delete)


def make(cls):
    obj = torch.nn.Module() if cls is torch.nn.Module else cls()
    obj.size = 5
    obj.hooks = {}
    return obj


@pytest.mark.parametrize("cls", [Plain, Initialized, Large, WithSlots, torch.nn.Module, type("Made", (), {}),
                                 types.SimpleNamespace, lambda: types.ModuleType("m"), lambda: lambda: None])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("seen_before", [True, False])
def test_every_change_is_seen(cls, change, seen_before):
    if change in ("replace", "replace by itself", "replace and set", "replace by a copy", "remove"):
        try:
            obj = make(cls)
            obj.__dict__ = obj.__dict__
        except (AttributeError, TypeError):
            return  # a module keeps its dict
    for _ in range(20):  # so that the interpreter specializes the instructions of the change
        made, obj = programs(), make(cls)
        if seen_before:
            vars(obj)  # the object gets a dict before the first look
        for _ in range(3):
            assert outcomes(made, obj) == expected(obj)
        try:
            CHANGES[change](obj)
        except (AttributeError, TypeError):
            assert change == "remove"
        for _ in range(3):
            assert outcomes(made, obj) == expected(obj)


def test_a_random_walk():
    """Objects that come, go and change, under programs that they share and that remember states only now and then."""
    classes = [Plain, Initialized, Large, WithSlots]
    for seed in range(8):
        rng = random.Random(seed)
        made = programs()
        objects = [make(rng.choice(classes)) for _ in range(5)]
        for _ in range(2500):
            place = rng.randrange(5)
            if rng.random() < 0.3:
                name = rng.choice(list(CHANGES))
                try:
                    CHANGES[name](objects[place])
                except (AttributeError, KeyError, TypeError, IndexError):
                    pass  # what was to be changed is not there any more
            elif rng.random() < 0.15:
                objects[place] = None  # first, so that the next one may lie where it lay
                objects[place] = make(rng.choice(classes))
            for obj in rng.choices(objects, k=rng.randrange(3)) + [objects[place]]:
                assert outcomes(made, obj) == expected(obj)


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.defaultdict, WithNumbers])
def test_dicts_that_are_no_instances(kind):
    steps = [("load_local", 0, 0), ("begin_same", 0), ("load_dict_item", 1, 0, "a"), ("const", 1, 1), ("end_same", 0)]
    made = program(*steps)

    def holds(d):
        return made.check((d,), None, {}, {})[0]

    d = kind()
    assert not holds(d)
    for new in ({"a": 1}, {"a": 2}, {}, {"a": 1}, {"b": 1}, {"a": 1, "b": 2}):
        d.clear()
        d.update(new)  # into an empty dict: what is in the other one is cloned
        assert [holds(d) for _ in range(3)] == [new.get("a") == 1] * 3
    copy = d.copy()
    assert holds(copy)
    copy["a"] = 2
    assert holds(d) and not holds(copy)
    for _ in range(100):
        assert holds(kind(a=1) if kind is not collections.defaultdict else kind(int, a=1))
        assert not holds(kind(a=2) if kind is not collections.defaultdict else kind(int, a=2))


def test_a_class_dict_and_globals():
    made = program(("load_globals_dict", 0), ("begin_same", 0), ("load_dict_item", 1, 0, "size"), ("const", 1, 5),
                   ("end_same", 0))
    module = types.ModuleType("m")
    exec("def set_it(value):\n    global size\n    size = value\ndef delete_it():\n    global size\n    del size",
         module.__dict__)
    for value in [5, 5, 6, 5, 7] * 20:
        module.set_it(value)
        assert made.check((), None, module.__dict__, {})[0] == (value == 5)
    module.delete_it()
    assert not made.check((), None, module.__dict__, {})[0]


def test_a_destructor_that_looks_while_a_dict_is_cleared():
    made = programs()

    class Looks:
        def __del__(self):
            seen.append(outcomes(made, obj))

    for place in range(2):
        for _ in range(3):
            obj, seen = type("Fresh", (), {})(), []  # values lie in the order in which the first instance got them
            if place:
                obj.hooks, obj.size, obj.look = {}, 5, Looks()
            else:
                obj.look, obj.size, obj.hooks = Looks(), 5, {}
            outcomes(made, obj)
            outcomes(made, obj)
            obj.__dict__.clear()
            assert len(seen) == 1
            for _ in range(3):
                assert outcomes(made, obj) == expected(obj)
            obj.size = 5
            assert outcomes(made, obj) == expected(obj)


def test_an_object_that_goes_before_its_dict():
    made = program(("load_local", 0, 0), ("begin_same", 0), ("load_dict_item", 1, 0, "size"), ("const", 1, 5),
                   ("end_same", 0))
    for _ in range(20):
        obj = make(Plain)
        d = obj.__dict__
        assert made.check((d,), None, {}, {})[0] and made.check((d,), None, {}, {})[0]
        del obj
        assert made.check((d,), None, {}, {})[0]
        d["size"] = 6
        assert not made.check((d,), None, {}, {})[0]


def test_nothing_is_kept_alive_and_nothing_grows():
    made = programs()
    obj = make(Plain)
    for _ in range(5):
        outcomes(made, obj)
    gone = weakref.ref(obj)
    del obj
    assert gone() is None

    code = """
        import tracemalloc
        from test_dict_states import Plain, make, outcomes, programs
        made = programs()

        def run(n):
            for _ in range(n):
                outcomes(made, make(Plain))
                kept = [make(Plain) for _ in range(3)]
                for _ in range(3):
                    for obj in kept:
                        outcomes(made, obj)

        run(100)
        tracemalloc.start()
        run(100)
        before = tracemalloc.get_traced_memory()[0]
        run(2000)
        print(tracemalloc.get_traced_memory()[0] - before)
    """
    assert int(run_python(code)) < 10_000


def run_python(code):
    paths = [p for p in sys.path if p] + [__file__.rsplit("/", 1)[0]]
    code = f"import sys; sys.path[:] = {paths!r}\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---------------------------------------------------------------- watchers
program()  # the first one takes the watcher
needs_watchers = pytest.mark.skipif(G.dict_states() != "watcher", reason="states of dicts are known without a watcher")
WATCHERS = """
import ctypes
import torch  # it may take a watcher, too
from guard_programs import G

Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
api = ctypes.pythonapi
api.PyDict_Watch.argtypes = api.PyDict_Unwatch.argtypes = [ctypes.c_int, ctypes.py_object]
events = []
callback = Callback(lambda event, *rest: events.append(event) or 0)


def take():
    try:
        return api.PyDict_AddWatcher(callback)
    except RuntimeError:
        return None


def sound(made):
    from test_dict_states import Plain, expected, make, outcomes

    for i in range(20):
        obj = make(Plain)
        for value in (5, 6, 5, 5, 7):
            obj.size = value
            for _ in range(3):
                assert outcomes(made, obj) == expected(obj)
    return obj


"""


def with_watchers(code):
    return run_python(WATCHERS + textwrap.dedent(code)).split("\n")


@needs_watchers
def test_without_a_watcher_every_check_is_a_full_one():
    assert with_watchers("""
        taken = list(iter(take, None))
        from test_dict_states import programs
        made = programs()
        print(repr(G.dict_states()))
        sound(made)
        api.PyDict_ClearWatcher(taken.pop())
        later = programs()
        print(repr(G.dict_states()))
        sound(later)
        sound(made)
    """)[:2] == ["''", "'watcher'"]


@needs_watchers
def test_other_watchers_stay_as_they_are():
    assert with_watchers("""
        mine = take()
        from test_dict_states import programs
        made = programs()
        assert G.dict_states() == "watcher"
        for other in (mine, take()):
            obj = sound(made)
            api.PyDict_Watch(other, obj.__dict__)
            for value in range(4):
                obj.__dict__["size"] = value
            print(len(events))
            api.PyDict_Unwatch(other, obj.__dict__)
            obj.size = 5
            print(len(events))
            sound(made)
    """)[:4] == ["4", "4", "8", "8"]


@needs_watchers
def test_the_watcher_is_given_back_at_exit():
    assert with_watchers("""
        import atexit

        @atexit.register
        def last():  # registered first, so it runs last, after the watcher has been given back
            print(repr(G.dict_states()), len(list(iter(take, None))))
            obj.size = 6
            print(events)
            sound(made)
            programs()
            print(repr(G.dict_states()))

        taken = list(iter(take, None))
        api.PyDict_ClearWatcher(taken[-1])
        from test_dict_states import programs
        made = programs()
        assert take() is None
        obj = sound(made)
    """)[:3] == ["'given back' 1", "[]", "'given back'"]


@needs_watchers
def test_a_dict_is_let_go_when_it_changes():
    assert with_watchers("""
        from test_dict_states import Plain, make, outcomes, programs
        made = programs()
        obj = make(Plain)
        outcomes(made, obj)
        d = obj.__dict__
        word = ctypes.c_uint64.from_address(id(d) + object.__basicsize__ + 8)  # who watches is in its lowest byte
        print(bin(word.value & 0xFF).count("1"))
        d["size"] = 3
        print(word.value & 0xFF)
    """)[:2] == ["1", "0"]


# In a process of its own: once there has been a second interpreter, PyGILState_Check() says yes in any thread
# (check_enabled in CPython), and torch's autograd takes that for a caller that holds the lock.
IN_A_SUBINTERPRETER = """
    import sys
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    interpreters = __import__(name)
    made = interpreters.create("legacy") if sys.version_info >= (3, 13) else interpreters.create(isolated=False)
    failed = interpreters.run_string(made, CODE)
    assert failed is None, failed
    print("refused")
"""


def test_a_subinterpreter_is_refused():
    pytest.importorskip("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    code = f"""
import importlib.machinery, importlib.util
loader = importlib.machinery.ExtensionFileLoader("dynamo_lite._guards", {G.__file__!r})
spec = importlib.util.spec_from_file_location("dynamo_lite._guards", {G.__file__!r}, loader=loader)
try:
    loader.exec_module(importlib.util.module_from_spec(spec))
except ImportError as error:
    assert "subinterpreter" in str(error)
else:
    raise AssertionError("the module was made in a subinterpreter")
"""
    assert run_python(f"CODE = {code!r}\n" + textwrap.dedent(IN_A_SUBINTERPRETER)) == "refused\n"
