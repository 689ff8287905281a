"""Random numbers that are drawn each time the graph runs: from Python's generators (``random.random()``,
``rng.uniform(0, 1)``) and from NumPy's legacy generators.

A call that draws is a node of the graph, and its result is a number that only the running graph knows (``scalars``).
Seeding is a node without a result. Invariant: draws are made in the program's order, each as often as the program makes
it, and none while tracing; when the graph raises, the states of the generators are restored (``deoptimize``).
"""
from __future__ import annotations

import _random
import random
import sys
from typing import TYPE_CHECKING, Any

from ...rules.table import Decision, Level, Rule, decide, row
from ...runtime import signal_handlers
from ...runtime.graph_calls import Draw
from ..base import VariableTracker, unsupported
from ..constant import ConstantVariable
from ..containers.sequences import ListVariable, TupleVariable
from ..rule_calls import calls_by
from .scalars import NUMBERS, ScalarVariable, is_number, new_number

if TYPE_CHECKING:
    from ..protocols import Tracer

_INTS = frozenset({_random.Random.getrandbits, random.Random.randrange, random.Random.randint})
_CHOICE, _SEED = random.Random.choice, random.Random.seed
# Methods of NumPy's RandomState that return a Python number: its type, and the names of the method's parameters.
# The functions of numpy.random are such methods.
_OF_NUMPY: dict[str, tuple[type, tuple[str, ...]]] = {
    **dict.fromkeys(("rand", "randn", "random", "random_sample", "standard_normal"), (float, ())),
    "uniform": (float, ("low", "high")), "normal": (float, ("loc", "scale")), "randint": (int, ("low", "high")),
}


def draw(
    tx: Tracer, function: Any, owner: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """Calls a drawing method of a generator that comes from outside."""
    real = owner.value
    if owner.source is None or type(real) is not random.Random or tx.output.effects.attributes_of(owner):
        unsupported("rng_state", f"{function.__name__}() of {owner.describe()}")
    if owner.source.key in tx.output.dynamic:
        unsupported("rng_state", f"{function.__name__}() of {owner.describe()}, another one at each call")
    tx.guard(owner.source, "is", real)
    return draw_from(tx, function, real, args, kwargs)


def draw_from(
    tx: Tracer, function: Any, generator: random.Random, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """Calls a drawing method of a known generator."""
    if function is _CHOICE:
        args = [_choices(tx, a) for a in args]
    given = [*args, *kwargs.values()]
    cls = _type_of_result(function, given)
    if cls is None:
        unsupported("rng_state", f"random.{function.__name__}({', '.join(a.describe() for a in given)})")
    error = None if cls is type(None) else _error(function, random.Random(0), args, kwargs)
    if error is not None:
        unsupported("rng_state", f"random.{function.__name__}() raises {type(error).__name__}")
    return _node(tx, function, generator, cls, args, kwargs)


@calls_by(Rule.RANDOM)
def _drawn(
    tx: Tracer, called: VariableTracker, decision: Decision, args: list[VariableTracker],
    kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    if decision.level is Level.METHOD:
        owner = called.value.__self__
        return draw_from(tx, decision.subject, owner, args, kwargs) if type(owner) is random.Random else None
    return draw(tx, called.value, args[0], args[1:], kwargs) if args else None


def is_draw_of_numpy(function: Any) -> bool:
    """Whether it is a method of NumPy's RandomState that can draw a single number."""
    return decide(function).calls is draw_by_numpy


def draw_by_numpy(
    tx: Tracer, called: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    """Calls a method of NumPy's RandomState that draws a single number; None for any other function."""
    function: Any = called.value
    where = args[0].source if args else None
    if not is_draw_of_numpy(function) or called.source is None or where is None:
        return None
    cls, names = _OF_NUMPY[function.__name__]
    states, owner, given = sys.modules["numpy"].random.RandomState, args[0], args[1:]
    real = owner.value
    if type(real) is not states:
        return None
    if names[: len(given) + len(kwargs)] != (*names[: len(given)], *kwargs) or len(given) > len(names):
        return None
    if not all(is_number(a) and (cls is float or a.python_type() is int) for a in (*given, *kwargs.values())):
        return None
    if where.key in tx.output.dynamic or _error(function, states(0), given, kwargs) is not None:
        return None
    tx.guard(called.source, "is", function)
    tx.guard(where, "is", real)
    return _node(tx, function, real, cls, given, kwargs)


def _node(
    tx: Tracer,
    function: Any,
    generator: Any,
    cls: type,
    args: list[VariableTracker],
    kwargs: dict[str, VariableTracker],
) -> VariableTracker:
    output = tx.output
    output.generators[id(generator)] = generator
    fake = None if cls is type(None) else new_number(output, cls, None)
    node_args = tuple(a.as_argument(tx) for a in args)
    node_kwargs = {name: a.as_argument(tx) for name, a in kwargs.items()}
    draw = Draw(function, generator)
    node = output.create_node(tx, "call_function", draw, node_args, node_kwargs, fake, True, counted=False)
    node.meta["draws"] = True
    return ConstantVariable(None) if cls is type(None) else ScalarVariable(node, cls, fake, None)


def _type_of_result(function: Any, given: list[VariableTracker]) -> type | None:
    """The type of the drawn value; None where it is not a number, or where the type depends on the arguments."""
    if function is _CHOICE:
        known = len(given) == 1 and type(given[0]) is ConstantVariable and given[0].python_type() is tuple
        return type(given[0].constant()[0]) if known else None
    if function is _SEED:
        known = len(given) == 1 and isinstance(given[0], ConstantVariable)
        return type(None) if known and given[0].python_type() in (int, float, str) else None
    if function in _INTS:
        return int if all(is_number(a) and a.python_type() is int for a in given) else None
    return float if all(map(is_number, given)) else None


def _choices(tx: Tracer, options: VariableTracker) -> VariableTracker:
    """A sequence of known numbers of one type as a constant; any other value as it is."""
    if not isinstance(options, (ListVariable, TupleVariable)) or options.python_type() not in (list, tuple):
        return options
    items = list(options.iterate(tx))
    plain = all(type(item) is ConstantVariable and item.python_type() in NUMBERS for item in items)
    if not plain or len({item.python_type() for item in items}) != 1:
        return options
    return ConstantVariable(tuple(item.constant() for item in items))


def _error(
    function: Any, generator: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> Exception | None:
    """The exception that a call raises whatever is drawn, found by trying the call on another generator. The caller
    leaves a call that raises to Python."""
    if any(type(a) is not ConstantVariable for a in (*args, *kwargs.values())):
        return None
    try:
        function(generator, *[a.constant() for a in args], **{k: a.constant() for k, a in kwargs.items()})
    except Exception as error:
        signal_handlers.pass_on(error)
        return error
    return None


row(Rule.RANDOM,
    _random.Random.random, random.Random.uniform, random.Random.normalvariate, random.Random.gauss,
    random.Random.lognormvariate, random.Random.expovariate, random.Random.vonmisesvariate, random.Random.gammavariate,
    random.Random.betavariate, random.Random.paretovariate, random.Random.weibullvariate, *_INTS, _CHOICE, _SEED,
    kind="rng_state", reason="Python's random numbers", calls=draw, bound=True)
row(Rule.RANDOM, *(f"numpy.random:RandomState.{name}" for name in _OF_NUMPY),
    kind="rng_state", reason="random numbers of NumPy's older generators", calls=draw_by_numpy)
