"""Control-flow instructions: jumps, loops, exceptions, ``with``, generators.

Invariant: after each handler the stack, the locals and the exception state are the same as in CPython.
"""
from __future__ import annotations

from typing import Any

from ..bytecode.facts import facts
from ..bytecode.instructions import loop_landing
from ..variables.base import ObservedException, unsupported
from ..variables.constant import ConstantVariable
from ..variables.functions.generators import GeneratorVariable
from ..variables.objects.classes import NO_ATTRIBUTE, ClassVariable, derives
from ..variables.objects.objects import ObjectVariable
from .assumptions import branch
from .registry import opcode
from .translator import StackMark, Translator, Yielded


# ---------------------------------------------------------------- jumps
@opcode("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def _jump(tx: Translator, i: Any) -> int:
    return i.target


@opcode("POP_JUMP_IF_FALSE")
def pop_jump_if_false(tx: Translator, i: Any) -> int | None:
    return None if branch(tx, tx.pop(), i.index + 1, i.target) else i.target


@opcode("POP_JUMP_IF_TRUE")
def pop_jump_if_true(tx: Translator, i: Any) -> int | None:
    return i.target if branch(tx, tx.pop(), i.target, i.index + 1) else None


@opcode("POP_JUMP_IF_NONE")
def pop_jump_if_none(tx: Translator, i: Any) -> int | None:
    return i.target if tx.pop().is_none() else None


@opcode("POP_JUMP_IF_NOT_NONE")
def pop_jump_if_not_none(tx: Translator, i: Any) -> int | None:
    return None if tx.pop().is_none() else i.target


@opcode("POP_ITER")
def _pop_iter(tx: Translator, i: Any) -> None:
    tx.pop_lazy()


@opcode("END_SEND")
def _end_send(tx: Translator, i: Any) -> None:
    result = tx.pop_lazy()
    for _ in range(facts.ITERATOR_SLOTS):
        tx.pop_lazy()
    tx.push(result)


@opcode("CLEANUP_THROW")
def _cleanup_throw(tx: Translator, i: Any) -> int:
    # Stack: the iterator of a ``yield from``, the value last sent to it, the exception that throw() or close() raised.
    error = tx.pop()
    if not issubclass(error.python_type(), StopIteration):
        raise ObservedException(error, chained=True)
    tx.pop_lazy()
    tx.push(tx.getattr(error, "value"))
    return i.index + 1


@opcode("GET_ITER")
def _get_iter(tx: Translator, i: Any) -> None:
    tx.push(tx.iteration.get_iter(tx.pop()))


@opcode("FOR_ITER")
def _for_iter(tx: Translator, i: Any) -> int | None:
    value = tx.wrap_top().next(tx)
    if value is None:
        index = behind_loop(tx, i)
        if tx.decoded.instructions[index].opname != "POP_ITER":
            tx.pop_lazy()
        return index
    tx.push(value)
    return None


def behind_loop(tx: Translator, i: Any) -> int:
    """Index of the instruction that follows a loop when its iterator is exhausted."""
    return i.target + len(loop_landing(tx.decoded.instructions, i))


# ---------------------------------------------------------------- exceptions
@opcode("RAISE_VARARGS")
def _raise_varargs(tx: Translator, i: Any) -> None:
    if i.arg == 0:
        current = tx.errors.current_exception()
        if current is None:
            tx.raise_error(RuntimeError, "No active exception to reraise")
        raise ObservedException(current, chained=True)
    cause = tx.pop() if i.arg == 2 else None
    error = tx.errors.exception_to_raise([tx.pop()])
    if cause is not None:
        if not cause.is_none():
            if not issubclass(cause.value if isinstance(cause, ClassVariable) else cause.python_type(), BaseException):
                tx.raise_error(TypeError, "exception causes must derive from BaseException")
            cause = tx.errors.exception_to_raise([cause]).value
        tx.output.effects.store_attr(error.value, "__cause__", cause)
        tx.output.effects.store_attr(error.value, "__suppress_context__", ConstantVariable(True))
    raise error


@opcode("PUSH_EXC_INFO")
def _push_exc_info(tx: Translator, i: Any) -> None:
    error = tx.pop()
    previous = tx.exceptions[-1] if tx.exceptions else None
    tx.push(StackMark("previous exception", previous))
    tx.push(error)
    tx.exceptions.append(error)


@opcode("POP_EXCEPT")
def _pop_except(tx: Translator, i: Any) -> None:
    tx.pop_lazy()
    tx.exceptions.pop()


@opcode("CHECK_EXC_MATCH")
def _check_exc_match(tx: Translator, i: Any) -> None:
    classes = tx.pop()
    error = tx.wrap_top()
    plain = tx.values.as_plain(classes)
    wanted = plain if isinstance(plain, tuple) else (plain,)
    for cls in wanted:
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            tx.raise_error(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    tx.push(ConstantVariable(derives(tx, error.python_type(), *wanted)))


@opcode("RERAISE")
def _reraise(tx: Translator, i: Any) -> None:
    raise ObservedException(tx.pop(), chained=True)


# ---------------------------------------------------------------- with
@opcode("BEFORE_WITH")
def _before_with(tx: Translator, i: Any) -> None:
    manager = tx.pop()
    if not isinstance(manager, ObjectVariable):
        tx.push(tx.leave_of_native_context(manager))
        tx.push(tx.call(tx.enter_of_native_context(manager, tx.stack[-1]), [], {}))
        return
    for name in ("__enter__", "__exit__"):
        if tx.classes.lookup(manager.cls, name, NO_ATTRIBUTE) is NO_ATTRIBUTE:
            tx.raise_error(
                TypeError, f"{manager.cls.__name__!r} object does not support the context manager protocol"
                + (" (missed __exit__ method)" if name == "__exit__" else ""),
            )
    methods = [(name, tx.classes.lookup(manager.cls, name)) for name in ("__exit__", "__enter__")]
    leave, enter = [manager.read_descriptor(tx, name, method) for name, method in methods]
    if leave is None or enter is None:
        unsupported("unsupported_context_manager", f"{manager.describe()}, a method of which is an empty slot")
    tx.push(leave)
    tx.push(tx.call(enter, [], {}))


@opcode("WITH_EXCEPT_START")
def _with_except_start(tx: Translator, i: Any) -> None:
    # Stack: exit_func, lasti, previous exception, exception.
    error = tx.wrap_top()
    leave = tx.peek(4)
    arguments = [tx.values.from_result(error.python_type(), "class"), error, ConstantVariable(None)]
    tx.push(tx.call(leave, arguments, {}))


# ---------------------------------------------------------------- generators
@opcode("RETURN_GENERATOR")
def _return_generator(tx: Translator, i: Any) -> None:
    # The call makes the generator's frame. The next instruction pops the generator that CPython leaves on the stack.
    tx.push(ConstantVariable(None))


@opcode("YIELD_VALUE")
def _yield_value(tx: Translator, i: Any) -> None:
    if tx.parent is None:
        unsupported("generator_frame", "yield in the captured frame")
    value = tx.pop()
    tx.index = i.index + 1
    raise Yielded(value)


@opcode("GET_YIELD_FROM_ITER")
def _get_yield_from_iter(tx: Translator, i: Any) -> None:
    value = tx.pop()
    tx.push(value if isinstance(value, GeneratorVariable) else tx.iteration.get_iter(value))


@opcode("SEND")
def _send(tx: Translator, i: Any) -> int | None:
    sent = tx.pop()
    receiver = tx.peek(facts.ITERATOR_SLOTS)
    try:
        if isinstance(receiver, GeneratorVariable):
            value = receiver.resume(tx, sent)
            result = receiver.returned
        elif sent.is_none():
            # A user-defined iterator may return a value with StopIteration, as generators do.
            value, result = tx.iteration.next_of(receiver), ConstantVariable(None)
        else:
            value, result = tx.call_method(receiver, "send", [sent]), ConstantVariable(None)
    except ObservedException as error:
        if not issubclass(error.value.python_type(), StopIteration):
            raise
        value, result = None, tx.getattr(error.value, "value")
    if value is None:
        return tx.end_delegation(result, i.target)
    tx.push(value)
    return None


