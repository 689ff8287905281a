"""The phases of a compile: what one has made no other changes."""
import ast
import builtins
import pathlib
import sys

import pytest
import torch

import dynamo_lite
from dynamo_lite import _eval_frame, log
from dynamo_lite.bytecode.code_map import CodeMap
from dynamo_lite.frame import convert_frame, trace
from dynamo_lite.frame.emit import emit_code, plan_code
from dynamo_lite.frame.entry import make_entry
from dynamo_lite.frame.finish import close_graph, compile_graph, find_exit
from dynamo_lite.frame.recompiles import first_request
from dynamo_lite.frame.request import Frame, Settings, TraceRequest

OWN = pathlib.Path(dynamo_lite.__file__).parent
# The switches and counters of a trace, and the modules that set them.
SWITCHES = {"may_ask", "may_learn", "examples", "operations", "fullgraph", "value_guards", "break_visit",
            "break_before"}
OWNERS = {"output/output_graph.py", "variables/tensors/value_guards.py", "interpreter/translator.py",
          "interpreter/budget.py", "frame/trace.py"}


def test_nobody_outside_of_a_trace_sets_its_switches():
    found = []
    for path in OWN.rglob("*.py"):
        name = str(path.relative_to(OWN))
        if name in OWNERS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            targets = [t for target in targets for t in getattr(target, "elts", [target])]
            attributes = [t for t in targets if isinstance(t, ast.Attribute) and t.attr in SWITCHES]
            found += [f"{name}:{t.lineno}: {ast.unparse(t)}" for t in attributes if ast.unparse(t.value) != "self"]
    assert not found


def frame_of(settings, function, *args):
    return Frame(settings, None, function.__code__, function.__globals__, __builtins__, function.__closure__, args)


def f(x, seen):
    seen.append(1)
    return (x + 1).relu()


def branches(x, seen):
    y = x + 1
    if y.sum() > 0:
        return y * 2
    return y


@pytest.mark.parametrize("function, broken", [(f, False), (branches, True)])
def test_each_phase_is_a_function_of_those_before(function, broken):
    log.reset()
    settings = Settings(lambda graph, inputs: graph.forward)
    args = torch.ones(3), []
    frame = frame_of(settings, function, *args)
    request = first_request(settings, frame)
    with trace.opened(settings, request) as opened:
        traced = trace.run(settings, opened)
        assert isinstance(traced, trace.Traced) and (traced.break_index is not None) == broken
        end = find_exit(traced)
        assert (end.error is not None) == broken
        # Of `seen` no guard says what kind of value it is: it may have to live as long as the frame.
        assert (end.live, end.kept) == (({"y", "seen"}, {"seen"}) if broken else (set(), set()))
        plan = plan_code(end)
        graph = close_graph(end, plan)
        assert len(graph.inputs) == 1 and graph.module is not None
        compiled = compile_graph(settings, end, graph)
        entry = make_entry(settings, end, plan, graph, emit_code(end, plan, graph, compiled))
    assert isinstance(entry, _eval_frame.GuardedCode) and entry.needs_hook == broken
    assert entry.program.check(*frame.values)[0] and args[1] == []
    assert request == first_request(settings, frame)


def test_a_request_is_not_changed_by_the_next_one():
    settings = Settings(lambda graph, inputs: graph.forward)
    request = first_request(settings, frame_of(settings, f, torch.ones(3), []))
    assert request.before(3, None) == request._replace(break_visit=3)
    assert request.before(None, None).break_visit == -1 and request.break_visit is None
    with pytest.raises(AttributeError):
        request.changing = frozenset()
    assert isinstance(request, TraceRequest)


ROOMS = ["runtime", "symbols", "backends", "fake", "bytecode", "guards", "continuation", "rules", "polyfills",
         "variables", "output", "interpreter", "frame"]


class Route:
    """The way of a frame's code through a compile: which calls of our functions get it, and which climb for it."""

    def __init__(self, code):
        self.code, self.climbs, self.into_frame, self.at = code, [], [], None

    def __call__(self, frame, event, arg):
        room = self.room(frame)
        if event != "call" or room is None:
            return
        caller = frame.f_back
        while caller is not None and self.room(caller) is None:
            caller = caller.f_back
        if caller is not None and room == ROOMS.index("frame") > self.room(caller):
            self.into_frame.append(f"{caller.f_code.co_qualname} calls {frame.f_code.co_qualname}")
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
        if any(frame.f_locals.get(name) is self.code for name in names):
            if self.at is not None and room > self.at:
                self.climbs.append(frame.f_code.co_qualname)
            self.at = room

    def room(self, frame):
        path = pathlib.Path(frame.f_code.co_filename)
        name = path.relative_to(OWN).parts[0] if path.is_relative_to(OWN) else None
        return ROOMS.index(name) if name in ROOMS else None


@pytest.mark.parametrize("function, most", [(f, 5), (branches, 7)])
def test_a_frames_code_goes_down_through_the_rooms(function, most):
    """Each phase is given what the one before has found out about the code, so that few ask for it anew; and nothing
    below calls back into the phases."""
    dynamo_lite.reset()
    roots = CodeMap()
    roots.set(function.__code__, True)
    settings = Settings(lambda graph, inputs: graph.forward, roots=roots)
    code, route = function.__code__, Route(function.__code__)
    sys.setprofile(route)
    try:
        made = convert_frame.compile_frame(
            settings, lambda: None, code, function.__globals__, vars(builtins), None, (torch.ones(3), []), function)
    finally:
        sys.setprofile(None)
    assert isinstance(made, _eval_frame.GuardedCode)
    assert not route.into_frame
    assert len(route.climbs) <= most, route.climbs
