"""While the frame hook is installed, the interpreter goes on specializing the instructions of frames."""
import dis
import types

from frame_hooks import Hook

from dynamo_lite import _eval_frame as E


def hot(n):
    total = 0
    for i in range(n):
        total = total + i
    return total


def specialized(function):
    return {i.opname for i in dis.get_instructions(function, adaptive=True) if i.opname.startswith("BINARY_OP_")}


def test_instructions_are_specialized_under_the_hook():
    function = types.FunctionType(hot.__code__.replace(co_name="hot"), {"range": range})
    assert not specialized(function)
    h = Hook()
    with h.active():
        for _ in range(100):
            function(100)
    assert "hot" in h.asked and specialized(function)


def test_it_is_as_before_when_the_hook_has_gone():
    with Hook().active():
        hot(1)
    assert E.active_hook() is None
    function = types.FunctionType(hot.__code__.replace(co_name="hot"), {"range": range})
    for _ in range(100):
        function(100)
    assert specialized(function)
