"""Numbers that Python's generators draw, ``random.random()``, ``rng.uniform(0, 1)``: drawn each time the graph runs.

Such a call is a node of the graph, and what it gives a number that only the running graph knows (``scalars``); seeding
is a node without a result. Invariant: draws are made in the program's order, each as often as the program makes it, and
none while tracing; when the graph raises, the generators are put back (``rerun``).
"""
from __future__ import annotations

import _random
import random
from typing import Any

from ..graph_calls import Draw
from .base import VariableTracker, unsupported
from .constant import ConstantVariable
from .scalars import NUMBERS, ScalarVariable, is_number, new_number
from .sequences import ListVariable, TupleVariable

_FLOATS = frozenset({
    _random.Random.random, random.Random.uniform, random.Random.normalvariate, random.Random.gauss,
    random.Random.lognormvariate, random.Random.expovariate, random.Random.vonmisesvariate,
    random.Random.gammavariate, random.Random.betavariate, random.Random.paretovariate, random.Random.weibullvariate,
})
_INTS = frozenset({_random.Random.getrandbits, random.Random.randrange, random.Random.randint})
_CHOICE, _SEED = random.Random.choice, random.Random.seed
_DRAWS: frozenset[Any] = _FLOATS | _INTS | {_CHOICE, _SEED}


def is_draw(function: Any) -> bool:
    """Whether it is a method of random.Random whose calls a graph holds."""
    return function in _DRAWS


def draw(
    tx: Any, function: Any, owner: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """A call of such a method of a generator from outside."""
    real = getattr(owner, "value", None)
    if owner.source is None or type(real) is not random.Random or tx.output.effects.attributes_of(owner):
        unsupported("rng_state", f"{function.__name__}() of {owner.describe()}")
    if owner.source.key in tx.output.changing:
        unsupported("rng_state", f"{function.__name__}() of {owner.describe()}, another one at each call")
    tx.guard(owner.source, "is", real)
    return draw_from(tx, function, real, args, kwargs)


def draw_from(
    tx: Any, function: Any, generator: random.Random, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """The same of a generator that is known."""
    if function is _CHOICE:
        args = [_choices(tx, a) for a in args]
    given = [*args, *kwargs.values()]
    cls = _type_of_result(function, given)
    if cls is None:
        unsupported("rng_state", f"random.{function.__name__}({', '.join(a.describe() for a in given)})")
    if cls is not type(None):
        _try(function, args, kwargs)
    output = tx.output
    output.generators[id(generator)] = generator
    fake = None if cls is type(None) else new_number(output, cls, None)
    node_args = tuple(a.as_argument(tx) for a in args)
    node_kwargs = {name: a.as_argument(tx) for name, a in kwargs.items()}
    node = output.create_node(tx, "call_function", Draw(function, generator), node_args, node_kwargs, fake, True)
    node.meta["draws"] = True
    output.operations -= 1  # none on tensors
    return ConstantVariable(None) if cls is type(None) else ScalarVariable(node, cls, fake, None)


def _type_of_result(function: Any, given: list[VariableTracker]) -> type | None:
    """The type of what is drawn; None where it is no number, or that hangs on the arguments."""
    if function is _CHOICE:
        known = len(given) == 1 and type(given[0]) is ConstantVariable and given[0].python_type() is tuple
        return type(given[0].constant()[0]) if known else None
    if function is _SEED:
        known = len(given) == 1 and isinstance(given[0], ConstantVariable)
        return type(None) if known and given[0].python_type() in (int, float, str) else None
    if function in _INTS:
        return int if all(is_number(a) and a.python_type() is int for a in given) else None
    return float if all(map(is_number, given)) else None


def _choices(tx: Any, options: VariableTracker) -> VariableTracker:
    """A sequence of known numbers of one type as a constant; anything else as it is."""
    if not isinstance(options, (ListVariable, TupleVariable)) or options.python_type() not in (list, tuple):
        return options
    items = list(options.iterate(tx))
    plain = all(type(item) is ConstantVariable and item.python_type() in NUMBERS for item in items)
    if not plain or len({item.python_type() for item in items}) != 1:
        return options
    return ConstantVariable(tuple(item.constant() for item in items))


def _try(function: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
    """Refuses a call that raises whatever is drawn; Python makes it then."""
    if any(type(a) is not ConstantVariable for a in (*args, *kwargs.values())):
        return
    try:
        function(random.Random(0), *[a.constant() for a in args], **{k: a.constant() for k, a in kwargs.items()})
    except Exception as error:
        unsupported("rng_state", f"random.{function.__name__}() raises {type(error).__name__}")
