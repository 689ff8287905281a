"""Changes between two calls are noticed: globals, builtins, closures, functions and their parts, Python modules."""
from __future__ import annotations

import builtins
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guard_cases import Case, Cases, Plain, X

case = Cases()


k_global = 2
l_global = [1, 2]


@case
def global_value() -> Case:
    return lambda x: x * k_global, (X,), lambda: globals().update(k_global=5)


@case
def global_list() -> Case:
    return lambda x: x * len(l_global), (X,), lambda: globals().update(l_global=[1])


@case
def builtin_shadowed() -> Case:
    return lambda x: x * len([1, 2]), (X,), lambda: globals().update(len=lambda x: 9)


@case
def builtin_replaced() -> Case:
    old = builtins.abs

    def fn(x: Any, k: int) -> Any:
        return x * abs(k)

    class Restore:
        def __call__(self) -> None:
            builtins.abs = lambda v: 50

    change = Restore()
    change.undo = lambda: setattr(builtins, "abs", old)
    return fn, (X, -2), change


def helper(x: Any) -> Any:
    return x * k_global + 1


@case
def global_of_callee() -> Case:
    return lambda x: helper(x), (X,), lambda: globals().update(k_global=5)


@case
def callee_replaced() -> Case:
    return lambda x: helper(x), (X,), lambda: globals().update(helper=lambda x: x - 1)


@case
def callee_code_replaced() -> Case:
    def inner(x: Any) -> Any:
        return x * 2

    def change() -> None:
        inner.__code__ = (lambda x: x * 7).__code__

    return lambda x: inner(x), (X,), change


@case
def closure_value() -> Case:
    k = 2

    def change() -> None:
        nonlocal k
        k = 5

    return lambda x: x * k, (X,), change


@case
def closure_of_callee() -> Case:
    k = 2

    def inner(x: Any) -> Any:
        return x * k

    def change() -> None:
        nonlocal k
        k = 5

    return lambda x: inner(x), (X,), change


@case
def closure_function_swapped_for_twin() -> Case:
    def make(k: int) -> Callable[[Any], Any]:
        return lambda x: x * k

    box = [make(2)]
    return lambda x: box[0](x), (X,), lambda: box.__setitem__(0, make(5))


@case
def defaults() -> Case:
    def inner(x: Any, k: int = 2, *, j: int = 3) -> Any:
        return x * k + j

    def change() -> None:
        inner.__defaults__ = (9,)

    return lambda x: inner(x), (X,), change


@case
def keyword_defaults() -> Case:
    def inner(x: Any, k: int = 2, *, j: int = 3) -> Any:
        return x * k + j

    def change() -> None:
        inner.__kwdefaults__ = {"j": 9}

    return lambda x: inner(x), (X,), change


@case
def keyword_defaults_removed() -> Case:
    def inner(x: Any, *, j: int = 3) -> Any:
        return x + j

    def change() -> None:
        inner.__kwdefaults__ = None

    return lambda x: inner(x), (X,), change


@case
def keyword_defaults_added() -> Case:
    def inner(x: Any, *, j: int) -> Any:
        return x + j

    def outer(x: Any) -> Any:
        try:
            return inner(x)
        except TypeError:
            return x

    def change() -> None:
        inner.__kwdefaults__ = {"j": 4}

    return outer, (X,), change


@case
def defaults_added_where_they_lacked() -> Case:
    def inner(x: Any, k: int) -> Any:
        return x * k

    functions = [inner]

    def outer(x: Any) -> Any:
        try:
            return [function(x) for function in functions]
        except TypeError as error:
            return str(error)

    def change() -> None:
        inner.__defaults__ = (4,)

    return outer, (X,), change


@case
def defaults_removed() -> Case:
    def inner(x: Any, k: int = 2) -> Any:
        return x * k

    def change() -> None:
        inner.__defaults__ = None

    return lambda x: inner(x), (X,), change


@case
def defaults_added() -> Case:
    def inner(x: Any, k: int) -> Any:
        return x * k

    def outer(x: Any) -> Any:
        try:
            return inner(x)
        except TypeError:
            return x

    def change() -> None:
        inner.__defaults__ = (4,)

    return outer, (X,), change


@case
def mutable_default() -> Case:
    def inner(x: Any, k: list[int] = [1]) -> Any:
        return x * k[0]

    return lambda x: inner(x), (X,), lambda: inner.__defaults__[0].__setitem__(0, 7)


@case
def function_attribute() -> Case:
    def inner(x: Any) -> Any:
        return x * inner.k

    inner.k = 2
    return lambda x: inner(x), (X,), lambda: setattr(inner, "k", 5)


@case
def function_attribute_added() -> Case:
    def inner(x: Any) -> Any:
        return x * getattr(inner, "k", 3)

    return lambda x: inner(x), (X,), lambda: setattr(inner, "k", 5)


@case
def function_name() -> Case:
    def inner(x: Any) -> Any:
        return x

    return lambda x: (x + 1, inner.__name__, inner.__doc__), (X,), lambda: setattr(inner, "__name__", "other")


@case
def function_doc() -> Case:
    def inner(x: Any) -> Any:
        """One."""

    return lambda x: (x + 1, inner.__doc__), (X,), lambda: setattr(inner, "__doc__", "Two.")


@case
def functions_compared() -> Case:
    def make() -> Callable[[], int]:
        return lambda: 1

    f = make()
    box = [f]
    return lambda x: (x + 1, box[0] is f, box[0] == f), (X,), lambda: box.__setitem__(0, make())


@case
def function_as_key() -> Case:
    def make() -> Callable[[], int]:
        return lambda: 1

    f, g = make(), make()
    box = [f]
    table = {f: 2, g: 3}
    return lambda x: x * table[box[0]], (X,), lambda: box.__setitem__(0, g)


@case
def method_compared() -> Case:
    a, b = Plain(), Plain()
    box = [a.scale]
    return lambda x: (x + 1, box[0] == a.scale), (X,), lambda: box.__setitem__(0, b.scale)


@case
def bound_method_in_list() -> Case:
    a, b = Plain(2), Plain(3)
    box = [a.scale]
    return lambda x: box[0](x), (X,), lambda: box.__setitem__(0, b.scale)


@case
def id_of_function() -> Case:
    def make() -> Callable[[], int]:
        return lambda: 1

    box = [make()]
    return lambda x: (x + 1, id(box[0])), (X,), lambda: box.__setitem__(0, make())


@case
def wrapped_function() -> Case:
    def deco(f: Any) -> Any:
        @functools.wraps(f)
        def inner(*a: Any) -> Any:
            return f(*a) * 2

        return inner

    @deco
    def run(x: Any) -> Any:
        return x + 1

    def change() -> None:
        run.__wrapped__.__code__ = (lambda x: x + 5).__code__

    return lambda x: run(x), (X,), change


@case
def partial_args() -> Case:
    def inner(k: int, x: Any) -> Any:
        return x * k

    box = [functools.partial(inner, 2)]
    return lambda x: box[0](x), (X,), lambda: box.__setitem__(0, functools.partial(inner, 5))


@case
def partial_keywords() -> Case:
    def inner(x: Any, k: int = 1) -> Any:
        return x * k

    p = functools.partial(inner, k=2)
    return lambda x: p(x), (X,), lambda: p.keywords.update(k=5)


@case
def python_module_function() -> Case:
    module = types.ModuleType("some_module")
    module.scale = lambda x: x * 2
    return lambda x: module.scale(x), (X,), lambda: setattr(module, "scale", lambda x: x * 9)


@case
def torch_function_monkeypatched() -> Case:
    module = types.ModuleType("fake_torch")
    module.relu = torch.relu
    return lambda x: module.relu(x - 2), (X,), lambda: setattr(module, "relu", torch.abs)


@case
def module_getattr() -> Case:
    module = types.ModuleType("lazy_module")
    values = {"k": 2}
    module.__getattr__ = lambda name: values[name]
    return lambda x: x * module.k, (X,), lambda: values.update(k=3)


@case
def module_hasattr() -> Case:
    module = types.ModuleType("some_module")
    return lambda x: x * getattr(module, "k", 2), (X,), lambda: setattr(module, "k", 5)


@pytest.mark.parametrize("name", case.all)
def test_a_change_is_noticed(name):
    case.check(name, globals())
