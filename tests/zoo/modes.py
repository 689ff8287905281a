"""torch's modes and settings: entered, left, nested, switched by calls, left by exceptions."""

from __future__ import annotations

import contextlib

import torch

from zoo.support import Manager, case, fail, generator_manager, note


def state(x=None):
    print("state", torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
          torch.get_autocast_dtype("cpu"), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(),
          torch.get_default_device())
    return x


@case((0,), (1,))
def no_grad_left_by_exception(x):
    state()
    try:
        with torch.no_grad():
            state()
            if x == 1:
                fail()
            y = x * 2
    except ValueError:
        y = state(x - 1)
    state()
    return y


@case((1,))
def grad_modes_nested(x):
    with torch.no_grad():
        y = state(x + 1)
        with torch.enable_grad():
            y = state(y + 1)
            with torch.set_grad_enabled(False):
                y = state(y * 3)
            state()
        state()
    return state(y)


@case((0,), (1,))
def grad_mode_switched_by_calls(x):
    before = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(False)
        y = state(x + 1)
        if x == 1:
            fail(KeyError, "switched")
        torch.set_grad_enabled(True)
        return state(y * 2)
    except KeyError:
        return state(x)
    finally:
        torch.set_grad_enabled(before)


@case((0,), (1,))
def inference_mode_around(x):
    try:
        with torch.inference_mode():
            y = state(x + 1)
            with torch.inference_mode(False):
                state()
            if x == 1:
                fail(RuntimeError, "inside")
    except RuntimeError as error:
        print(error)
        return state(x)
    return state(y + 1)


@case((0,), (1,))
def autocast_around(x):
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            state()
            with torch.autocast("cpu", enabled=False):
                y = state(x + 2)
            state()
            if x == 1:
                fail()
    except ValueError:
        return state(x)
    return state(y)


@case((0,), (1,))
def default_dtype_changed(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        y = state(torch.ones(1))
        if x == 1:
            fail()
        print(y.dtype, torch.tensor(1.5).dtype)
        return y * 2 + x
    except ValueError:
        state()
        raise
    finally:
        torch.set_default_dtype(before)
        state()


@case((0,), (1,))
def deterministic_changed(x):
    torch.use_deterministic_algorithms(True)
    try:
        y = state(x + 1)
        if x == 1:
            return state("early")
        return y
    finally:
        torch.use_deterministic_algorithms(False)
        state()


@case((0,), (1,))
def device_mode(x):
    try:
        with torch.device("meta"):
            print(torch.ones(2).device)
            with torch.device("cpu"):
                print(state(torch.zeros(1)).device)
            if x == 1:
                fail()
    except ValueError:
        state()
    return torch.ones(1).device, x


@case((2,))
def modes_in_a_loop(n):
    seen = []
    for i in range(3):
        with torch.no_grad() if i % 2 else contextlib.nullcontext():
            if i == 2:
                continue
            seen.append(torch.is_grad_enabled())
            state()
    while len(seen) < 4:
        with torch.no_grad(), torch.autocast("cpu"):
            state()
            seen.append(torch.is_autocast_enabled("cpu"))
            if len(seen) == 3:
                break
    return seen, n + 1


@case((0,), (1,), (2,))
def several_at_once(x):
    try:
        with Manager("a"), torch.no_grad(), generator_manager("b") as b, torch.autocast("cpu"), Manager("c", True):
            print(b)
            state()
            if x == 1:
                fail()
            if x == 2:
                return state("returned")
            x = x + 1
    except ValueError:
        print("not reached")
    return state(x)


@case((0,), (1,))
def stack_of_modes(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.callback(note, "callback")
        manager = stack.enter_context(Manager("m", suppress=True))
        stack.push(lambda *exc: state() and False)
        state()
        stack.enter_context(torch.autocast("cpu"))
        if x == 1:
            fail(KeyError, manager.name)
        saved = stack.pop_all()
        state()
        saved.close()
    return state(x + 1)


@torch.no_grad()
def decorated(x):
    return state(x + 1)


@torch.inference_mode()
def decorated_too(x):
    return state(x + 2)


@case((1,))
def decorated_functions(x):
    return decorated(x), state(), decorated_too(x), state()


@case((3,))
def random_numbers_in_order(x):
    torch.manual_seed(3)
    first = torch.rand(2)
    note("between")
    with torch.random.fork_rng():
        torch.manual_seed(5)
        inner = torch.rand(1)
    second = torch.randn(2)
    try:
        torch.rand(1)
        fail()
    except ValueError:
        third = torch.rand(1)
    return first, inner, second, third, x


@case((1,))
def gradients_across_breaks(x):
    w = torch.ones(2, requires_grad=True)
    y = w * 3
    note("between")
    with torch.no_grad():
        z = y + 1
        print(z.requires_grad)
    total = (y * 2).sum() + z.sum()
    print(total.requires_grad, x)
    total.backward()
    return w.grad


def mode_generator(x):
    with torch.no_grad():
        yield state(x)
        yield state(x + 1)
    yield state(x + 2)


@case((1,))
def generator_with_a_mode(x):
    seen = []
    for value in mode_generator(x):
        seen.append(value)
        state()
    early = mode_generator(x)
    next(early)
    state()
    early.close()
    state()
    return seen
