"""Operators on fake tensors with symbolic sizes.

An operator runs twice: with the sizes of the traced call, as any operator does, and with symbols, by torch's rules for
these. The first run raises eager's exceptions and determines eager's layout. The second determines how the layout
depends on the symbols. If the two disagree, or torch has no rule for symbols, the operands' symbols are specialized.

Invariant: with the symbols' values of the traced call, a symbolic result has the sizes, strides, dtypes and devices of
the result that the same operator has without symbols. For sizes that are 1 in some calls and larger in others, this
holds for both cases.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, no_dispatch
from torch.utils import _pytree as pytree

from dynamo_lite import log
from dynamo_lite.fake import dense_results, own_rules, plain_results, plain_views, symbolic_cache
from dynamo_lite.fake import strides as stride_rules
from dynamo_lite.fake.symbolic_rules import RULES
from dynamo_lite.runtime import signal_handlers
from dynamo_lite.runtime.storage_extent import storage_extent
from dynamo_lite.symbols import integers as ints
from dynamo_lite.symbols import torch_questions
from dynamo_lite.symbols.environment import Environment, Frozen, NumbersAsked, Undecidable
from dynamo_lite.symbols.nodes import FloatNode, IntNode, Node, hint_of, is_symbolic
from dynamo_lite.symbols.relations import compare

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_PLACE_IN_TORCH = r"^\S+\.(cpp|h):\d+: "


def has_symbols(args: Any, kwargs: Any) -> bool:
    """Whether symbolic numbers, or tensors with symbolic sizes, are among the arguments of an operator."""
    return any(map(_is_symbolic, args)) or bool(kwargs) and any(map(_is_symbolic, kwargs.values()))


_INTERNAL_ASSERT = "INTERNAL ASSERT FAILED"  # start of torch's messages about its internal errors


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return bool(value._has_symbolic_sizes_strides)
    if isinstance(value, (list, tuple)):
        return any(map(_is_symbolic, value))
    return isinstance(value, _NUMBERS)


def dispatch(mode: Any, static: Any, run: Callable[[], Any], func: Any, args: Any, kwargs: Any) -> Any:
    """Runs an operator with symbolic operands.

    Args:
        mode: the mode of the operands.
        static: a mode without symbols.
        run: runs the operator by torch's rules for symbols.

    Raises:
        Exception: the exception of eager mode for the sizes of the traced call.
    """
    key = symbolic_cache.key_of(mode, func, args, kwargs)
    made = symbolic_cache.remembered(mode, key, args) if key is not None else None
    if made is not None:
        return made
    expected = _without_symbols(static, func, args, kwargs)
    env = mode.env
    fixed, outer, env.operator = len(env.fixed), env.operator, env.operator or str(func)
    try:
        result = _with_symbols(mode, static, expected, run, func, args, kwargs)
        _check_ones(mode, static, result, func, args, kwargs)
        if key is not None:
            symbolic_cache.remember(mode, key, func, args, result)
        return result
    finally:
        env.operator = outer
        if len(env.fixed) > fixed and not outer and not isinstance(expected, Exception):
            log.artifact("fallbacks").info("the graph is for these sizes alone, because of %s", env.fixed[-1])


def _with_symbols(
    mode: Any, static: Any, expected: Any, run: Callable[[], Any], func: Any, args: Any, kwargs: Any
) -> Any:
    """The operator's symbolic result, given its result or exception without symbols."""
    try:
        with torch_questions.scope(symbols=True):
            result = _by_rule(mode, expected, func, args, kwargs)
            result = run() if result is NotImplemented else result
        result = _with_dtypes(mode, func, result, expected)
    except (Frozen, NumbersAsked, Undecidable):
        raise
    except Exception as error:
        signal_handlers.pass_on(error)
        result, reason = None, f"for sizes that change, torch raises {_first_line(error)}"
    else:
        if isinstance(expected, Exception) or not _agree(result, expected):
            laid_out = _laid_out(mode, static, func, args, kwargs, result, expected)
            if laid_out is not None:
                return laid_out
            reason = "for sizes that change, torch says something else of its result"
        else:
            return result
    if isinstance(expected, Exception) and any(map(_is_unknown, pytree.tree_leaves((args, kwargs)))):
        raise expected  # the operator asked for a number that no symbol represents
    if isinstance(expected, Exception):
        fix(mode.env, args, kwargs, f"it raises {_first_line(expected)}")
        raise expected
    fix(mode.env, args, kwargs, reason)
    return _as_without(mode, func, args, expected, result)


def _by_rule(mode: Any, expected: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """The result by dynamo_lite's own rules; ``NotImplemented`` if no rule applies."""
    for rules in (plain_results, plain_views):
        result = rules.result(mode, expected, func, args, kwargs)
        if result is not NotImplemented:
            return result
    if func in RULES:
        return RULES[func](mode, *args, **kwargs)
    with mode:
        result = own_rules.result(func, args, kwargs, lambda f, a, k: f(*a, **k))
    if result is not NotImplemented:
        return result
    return dense_results.result(mode, expected, func, args, kwargs)


def _is_unknown(value: Any) -> bool:
    """Whether `value` is a number that is known at run time only, and about which nothing is known."""
    return isinstance(value, _NUMBERS) and not is_symbolic(value) and not isinstance(value.node, Node)


def _check_ones(mode: Any, static: Any, result: Any, func: Any, args: Any, kwargs: Any) -> None:
    """Compares a result with the operator's result in a call where sizes that may be 1 are 1, or are not, unlike in
    this call. If the results disagree, these sizes are specialized."""
    env: Environment = mode.env
    symbols = env.from_one()
    if symbols:
        exprs = [n.node.expr for n in _numbers((args, kwargs)) if is_symbolic(n) and isinstance(n.node, IntNode)]
        symbols &= frozenset(symbol for x in exprs for symbol in ints.symbols_of(x))
    if not symbols:
        return
    values = env.elsewhere(symbols)
    if values is not None:
        with env.instead(values):
            expected = _without_symbols(static, func, args, kwargs)
            if not isinstance(expected, Exception) and _agree(result, expected):
                return
    for symbol in symbols:
        if env.hints[symbol] == 1:
            env.fix(ints.atom(symbol), f"{func} (it is laid out otherwise for one row)")
        else:
            env.decide(compare(">", ints.atom(symbol), 1), f"{func} (it is laid out otherwise for one row)")


def _first_line(error: Exception) -> str:
    line = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {re.sub(_PLACE_IN_TORCH, '', line)}"


def for_these_sizes(mode: Any, static: Any, func: Any, args: Any, kwargs: Any, error: Exception) -> Any:
    """Repeats a call of many operators (a transform) that torch can't make with symbols, for the sizes of the traced
    call, to which the symbols are specialized.

    Returns:
        new fake tensors of the mode; ``NotImplemented`` if the error may be the program's, or if a result is not a new
        tensor without gradient.
    """
    numbers = [n for n in _numbers((args, kwargs)) if is_symbolic(n)]
    if not numbers or _INTERNAL_ASSERT not in str(error) or static.effects_seen:
        return NotImplemented
    twins: dict[int, FakeTensor] = {}
    expected = _without_symbols(static, func, args, kwargs, twins)
    tensors = [t for t in pytree.tree_leaves(expected) if isinstance(t, torch.Tensor)]
    storages = [t.untyped_storage()._cdata for t in (*twins.values(), *tensors)]
    new = len(set(storages)) - len({t.untyped_storage()._cdata for t in twins.values()}) == len(tensors)
    if isinstance(expected, Exception) or static.effects_seen or not new or any(
            t.requires_grad or t.layout is not torch.strided for t in (*tensors, *twins.values())):
        return NotImplemented
    fixed, outer, mode.env.operator = len(mode.env.fixed), mode.env.operator, getattr(func, "__name__", str(func))
    try:
        fix(mode.env, args, kwargs, f"for sizes that change, torch raises {_first_line(error)}")
    finally:
        mode.env.operator = outer
    if len(mode.env.fixed) > fixed:
        log.artifact("fallbacks").info("the graph is for these sizes alone, because of %s", mode.env.fixed[-1])
    with mode:
        return pytree.tree_map_only(torch.Tensor, lambda t: torch.empty_strided(
            tuple(t.shape), t.stride(), dtype=t.dtype, device=t.device), expected)


def _without_symbols(
    static: Any, func: Any, args: Any, kwargs: Any, twins: dict[int, FakeTensor] | None = None
) -> Any:
    """The operator's result or exception for the sizes of the traced call; `twins` maps operands' ids to twins."""
    made: dict[int, FakeTensor] = {} if twins is None else twins

    def twin(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value.node.guard_bool() if isinstance(value, torch.SymBool) else hint_of(value)
        if id(value) not in made:
            made[id(value)] = _twin(static, value)
        return made[id(value)]

    twin_args, twin_kwargs = pytree.tree_map_only((torch.Tensor, *_NUMBERS), twin, (tuple(args), kwargs))
    try:
        # Torch's Python rules describe how results depend on sizes; eager runs the C++ ones.
        with torch._C._DisablePythonDispatcher(), static:
            return func(*twin_args, **twin_kwargs)
    except Exception as error:
        signal_handlers.pass_on(error)
        return error.with_traceback(None)


def _twin(static: Any, value: torch.Tensor) -> FakeTensor:
    """A fake tensor with the sizes of the traced call, in memory of the same size."""
    size, strides = tuple(map(hint_of, value.shape)), tuple(map(hint_of, value.stride()))
    offset, held = hint_of(value.storage_offset()), hint_of(value.untyped_storage().nbytes()) // value.itemsize
    with no_dispatch():
        if not offset and held == storage_extent(size, strides):
            meta = torch.empty_strided(size, strides, dtype=value.dtype, device="meta")
        else:
            meta = torch.empty(held, dtype=value.dtype, device="meta").as_strided(size, strides, offset)
        return FakeTensor(static, meta, value.device)


def _leaves(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else pytree.tree_leaves(value)


def _agree(result: Any, expected: Any) -> bool:
    a, b = _leaves(result), _leaves(expected)
    return len(a) == len(b) and all(map(_is_same, a, b))


def _with_dtypes(mode: Any, func: Any, result: Any, expected: Any) -> Any:
    """The symbolic result with the dtypes that it has without symbols (``fake.result_types``), if it is new."""
    new = not func._schema.is_mutable and all(r.alias_info is None for r in func._schema.returns)
    parts, wanted = ([x] if isinstance(x, torch.Tensor) else x for x in (result, expected))
    if not new or type(wanted) not in (tuple, list) or not isinstance(parts, (tuple, list)) or (
            len(parts) != len(wanted)):
        return result

    def made(part: Any, like: Any) -> Any:
        if not isinstance(part, torch.Tensor) or not isinstance(like, torch.Tensor) or part.dtype is like.dtype:
            return part
        return torch.empty_strided(tuple(part.shape), part.stride(), dtype=like.dtype, device=part.device)

    with mode:
        made_parts = [made(part, like) for part, like in zip(parts, wanted)]
    return made_parts[0] if isinstance(result, torch.Tensor) else type(expected)(made_parts)


def _is_same(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return bool(hint_of(a) == b)
    return (
        a.dtype is b.dtype and a.device == b.device and a.dim() == b.dim() and a.layout is b.layout
        and all(hint_of(n) == m for n, m in zip(a.shape, b.shape))
        and (a.layout is not torch.strided or _has_offset_of(a, b) and all(
            hint_of(n) == m for n, m in zip(a.stride(), b.stride()))))


def _has_offset_of(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether both tensors begin at the same offset. In eager, a view without elements begins where its base does
    (``diagonal`` outside the matrix); in some of torch's symbolic rules it does not."""
    return bool(hint_of(a.storage_offset()) == b.storage_offset())


def _laid_out(mode: Any, static: Any, func: Any, args: Any, kwargs: Any, result: Any, expected: Any) -> Any:
    """The symbolic result with eager's strides, where torch's rule has others for dimensions of one element. None:
    there are other differences, or it is not known how the strides depend on the symbols."""
    if _gives_operands(func):
        return None
    if isinstance(result, torch.Tensor) and isinstance(expected, torch.Tensor):
        return _one_laid_out(mode, static, func, args, kwargs, result, expected, None)
    if not isinstance(result, (tuple, list)) or type(expected) not in (tuple, list) or len(result) != len(expected):
        return None
    if any(r.alias_info is not None for r in func._schema.returns):
        return None
    parts = []
    for at, (part, wanted) in enumerate(zip(result, expected)):
        if not _agree(part, wanted):
            if not isinstance(part, torch.Tensor) or not isinstance(wanted, torch.Tensor):
                return None
            part = _one_laid_out(mode, static, func, args, kwargs, part, wanted, at)
            if part is None:
                return None
        parts.append(part)
    return type(expected)(parts)


def _one_laid_out(
    mode: Any, static: Any, func: Any, args: Any, kwargs: Any, result: torch.Tensor, expected: torch.Tensor,
    at: int | None,
) -> Any:
    """:func:`_laid_out` for one tensor; `at`: its index among the results, None if it is the only one."""
    if tuple(map(hint_of, result.shape)) != tuple(expected.shape) or (
            result.dtype, result.device) != (expected.dtype, expected.device) or not _has_offset_of(result, expected):
        return None
    strides = _strides(result, expected)
    if strides is None and func in stride_rules.VIEWS:
        strides = stride_rules.view_strides(args[0].shape, args[0].stride(), result.shape)
    if strides is None:
        strides = _in_order(mode, static, func, args, kwargs, result, expected, at)
    if strides is None or tuple(map(hint_of, strides)) != expected.stride():
        return None
    with mode:
        if func._schema.returns[0].alias_info is not None:
            return torch.as_strided(args[0], tuple(result.shape), strides, result.storage_offset())
        return torch.empty_strided(tuple(result.shape), strides, dtype=result.dtype, device=result.device)


def _strides(result: torch.Tensor, expected: torch.Tensor) -> Sequence[Any] | None:
    found: list[Any] = []
    dense: Any = 1
    for size, stride, wanted in reversed([*zip(result.shape, result.stride(), expected.stride())]):
        if hint_of(stride) == wanted:
            found.append(stride)
        elif type(size) is int and size == 1 and (wanted in (0, 1) or hint_of(dense) == wanted):
            found.append(wanted if wanted in (0, 1) else dense)
        else:
            return None
        dense = dense * size
    return tuple(reversed(found))


def _in_order(
    mode: Any, static: Any, func: Any, args: Any, kwargs: Any, result: torch.Tensor, expected: torch.Tensor,
    at: int | None,
) -> Sequence[Any] | None:
    """The strides of a dense result whose dimensions are in the order of eager's strides, provided they are for other
    values of the symbols as well. The position of a dimension of size 1 may depend on the operands' strides."""
    strides: list[Any] = [1] * result.dim()
    dense: Any = 1
    for dim in sorted(range(result.dim()), key=lambda d: (expected.stride(d), expected.shape[d] != 1)):
        strides[dim] = dense
        dense = dense * result.shape[dim]
    if tuple(map(hint_of, strides)) != expected.stride():
        return None
    env: Environment = mode.env
    exprs = [n.node.expr for n in _numbers((args, kwargs)) if is_symbolic(n) and isinstance(n.node, IntNode)]
    values = env.another_call({symbol for x in exprs for symbol in ints.symbols_of(x)})
    if values is None:
        return None
    with env.instead(values):
        other = _without_symbols(static, func, args, kwargs)
        other = other[at] if at is not None and isinstance(other, (tuple, list)) else other
        same = isinstance(other, torch.Tensor) and (
            tuple(map(hint_of, result.shape)), tuple(map(hint_of, strides))) == (tuple(other.shape), other.stride())
    return strides if same else None


def _numbers(value: Any) -> Iterator[Any]:
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            yield from (*leaf.shape, *leaf.stride(), leaf.storage_offset())
        else:
            yield leaf


def fix(env: Environment, args: Any, kwargs: Any, reason: str) -> None:
    """Specializes the symbols among the arguments to their values in the traced call."""
    place = env.place()
    why = f"{env.operator}{f', in {place}' if place else ''} ({reason})"
    for number in _numbers((args, kwargs)):
        if is_symbolic(number) and isinstance(number.node, (IntNode, FloatNode)):
            number.node.fix(why)


def _gives_operands(func: Any) -> bool:
    """Whether an operator writes to operands and returns them. Batch norm writes to some, but returns new tensors."""
    schema = func._schema
    return schema.is_mutable and (not schema.returns or any(r.alias_info is not None for r in schema.returns))


def _as_without(mode: Any, func: Any, args: Any, expected: Any, result: Any) -> Any:
    """The result for the sizes of the traced call, as fake tensors of the mode. Views stay views."""
    if _gives_operands(func):
        return result if result is not None else args[0]
    aliases = [r.alias_info is not None for r in func._schema.returns]

    def made(value: torch.Tensor, is_view: bool) -> Any:
        with mode:
            if is_view:
                return torch.as_strided(args[0], value.shape, value.stride(), value.storage_offset())
            return torch.empty_strided(tuple(value.shape), value.stride(), dtype=value.dtype, device=value.device)

    if isinstance(expected, torch.Tensor):
        return made(expected, aliases[0])
    if isinstance(expected, (tuple, list)):
        views = aliases if len(aliases) == len(expected) else [aliases[0]] * len(expected)
        return type(expected)(
            made(v, view) if isinstance(v, torch.Tensor) else v for v, view in zip(expected, views))
    return expected
