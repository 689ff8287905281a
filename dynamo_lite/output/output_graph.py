"""The result of a trace: the fx graph, its inputs, the guards and the side effects.

The nodes are the user's torch calls, each with its fake result and the user's stack. Invariant: a node that changes
memory, draws random numbers or sets torch's state is never removed or moved, and a node that may raise because of its
operands' elements (``raising``) is never removed.
"""
from __future__ import annotations

import contextlib
import linecache
import math
import operator
import types
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils import _pytree as pytree

from .. import exc, log
from ..continuation.node_lines import stack_of
from ..fake import calls, casting, torch_entry, whole_calls
from ..fake.mode import TraceFakeMode, have_elements
from ..guards import Guard, GuardSet
from ..guards.memory import overlap_on_device
from ..guards.source import Source
from ..rules.torch_marks import setting
from ..runtime import autocast, signal_handlers
from ..runtime.graph_modules import graph_module
from ..symbols.environment import NumbersAsked
from ..variables.base import VariableTracker, wrap_value
from ..variables.failures import describe_failure, frees_history, raised_in_eager, refused_in_eager, target_name
from ..variables.numbers.choices import Choices
from ..variables.numbers.dynamic_values import wrap_dynamic
from ..variables.numbers.scalars import Scalars, ScalarVariable, new_number
from ..variables.tensors.learned_elements import learn, needed
from ..variables.tensors.masked import MaskedReads
from ..variables.tensors.parameters import is_static
from ..variables.tensors.symbolic_sizes import SizesLearned, SymbolicLayout
from ..variables.tensors.tensor import TensorVariable
from ..variables.tensors.value_guards import ValueGuards, forget_alias, guard_elements, guard_mask
from ..variables.torch_api.modes import device_of_scope
from ..variables.torch_api.open_mode import OpenMode
from ..variables.torch_api.overrides import Overrides
from ..variables.torch_api.torch_functions import changes_between, set_state, state_now
from .side_effects import SideEffects
from .trace_symbols import TraceSymbols

if TYPE_CHECKING:
    from ..variables.protocols import Tracer

# Types of values that are guarded by identity or by value. A second path to such a value needs no "same object" guard.
_FREE_OF_IDENTITY = (
    int, float, bool, complex, str, bytes, type(None), type, torch.dtype, torch.device, torch.Size, tuple, range, slice,
    types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.CodeType,
)


class OutputGraph:
    """The graph under construction of one trace.

    Args:
        dynamic: paths of the values that have been seen to change from call to call.
        fits_all: whether the values at these paths may no longer be guarded by value.
        fullgraph: whether graph breaks are errors.
        value_guards: the tensors that are guarded by their elements.
        dynamic_sizes: which sizes are symbolic. True: all; False: none; None: those that have changed.
        learned: knowledge from earlier traces that predicts which sizes of tensors they have not met will change.
        captures: whether numbers and sizes that depend on elements are kept in the graph, whatever the settings.

    Attributes:
        captures_numbers: whether numbers that depend on elements are kept in the graph where they can't be guarded.
    """

    def __init__(
        self, dynamic: Collection[Any] = (), fits_all: bool = False, fullgraph: bool = False,
        value_guards: ValueGuards | None = None, dynamic_sizes: bool | None = None,
        learned: SizesLearned | None = None, captures: bool = False,
    ) -> None:
        self.graph = fx.Graph()
        self.dynamic = dynamic
        self.fits_all = fits_all
        self.numbers_ahead = True  # whether computations on numbers from outside may be moved to entry
        self.fullgraph = fullgraph
        self.dynamic_sizes = dynamic_sizes
        self.learned = learned or SizesLearned()
        self.value_guards = value_guards if value_guards is not None else ValueGuards()
        self.written_storages: set[int] = set()  # storages of fake tensors that some node may write to
        self.fake_mode = TraceFakeMode()
        self.fake_mode.known.follows = bool(self.value_guards.paths)
        self.symbols = TraceSymbols(self.fake_mode.symbols)
        self.guards = GuardSet()
        self.effects = SideEffects()
        self.scalars = Scalars()
        self.generators: dict[int, Any] = {}  # random generators of Python and NumPy that the graph uses, by id
        self.inputs: list[TensorVariable | ScalarVariable] = []
        self._numbers: dict[Any, ScalarVariable] = {}
        self._tensors: dict[int, TensorVariable] = {}
        self._last_placeholder: fx.Node | None = None
        self.state_at_entry = state_now()
        self.autocast_depth = 0  # number of open autocast contexts, relative to entry
        self.changes_autocast = False
        self.open_modes: list[OpenMode] = []
        self.overrides = Overrides()
        self.ids_are_keys = False  # whether the program has used an id() as a key of a dict or set
        self.id_numbers: set[int] = set()  # results of id() that the program has used as plain numbers
        self.choices = Choices()
        self.masked = MaskedReads()
        self.rebound: list[TensorVariable] = []  # tensors whose `.data` was assigned
        self.replaced: list[torch.Tensor] = []  # their earlier fakes, kept alive because they are known by their ids
        self.operations = 0
        self.assumed_at: int | None = None  # the first instruction of the root that relied on a tensor's value
        self.captures_numbers = captures
        self._captures_sizes = captures or bool(setting("capture_dynamic_output_shape_ops"))
        self.called_from_handler = False  # whether a caller of the frame is handling an exception
        self.parts = 0  # nesting depth of functions under evaluation that become graphs of their own
        self.examples = 0  # nesting depth of transforms that trace one example in place of a batch
        self.layout_questions = 0  # how often the program has asked for a tensor's memory layout
        self.texts_in_progress: list[VariableTracker] = []  # containers whose repr() is being computed
        # Sources of values that share another value's tracker: a compiled function has its original's tracker.
        self._wrappers_at: dict[int, Source] = {}
        self._line_texts: dict[tuple[str, int, str], str] = {}

    def all_guards(self) -> list[Guard]:
        """Every guard of the trace. Decisions that are made after this call get no guards."""
        self.symbols.guard(self.guards)
        return self.guards.all()

    # -- values from outside
    def wrap(self, tx: Tracer, value: Any, source: Source) -> VariableTracker:
        """The tracker of the value at `source`: the existing one if the value has been met, else a new one, guarded."""
        known = self.effects.tracker_of(value)
        if known is not None:
            met_at = self._wrappers_at.get(id(value), known.source)
            if met_at is not None and met_at != source and not issubclass(type(value), _FREE_OF_IDENTITY):
                self.guards.add(source, "tensor_same", met_at)
            elif known.source != source and issubclass(type(value), _FREE_OF_IDENTITY):
                return self._wrap_new(tx, value, source)
            return known
        tracker = tx.values.wrap_marked(value, source) or self._wrap_new(tx, value, source)
        if tracker.source is not None:
            self.effects.track(value, tracker)
            if tracker.source != source:
                self._wrappers_at[id(value)] = source
            if self.effects.is_kept(value):
                self.effects.take_over(tx, value, tracker)
        return tracker

    def _wrap_new(self, tx: Tracer, value: Any, source: Source) -> VariableTracker:
        changes = source.key in self.dynamic or self.learned.is_likely(source, value)
        dynamic = wrap_dynamic(tx, value, source) if changes else None
        return dynamic if dynamic is not None else wrap_value(tx, value, source)

    def add_input(self, value: torch.Tensor, source: Source, layout: SymbolicLayout | None = None) -> TensorVariable:
        """Adds a tensor from outside as a graph input. The caller adds its guards.

        Args:
            layout: the tensor's sizes and strides, if some of them are symbolic.
        """
        try:
            fake = self.fake_mode.from_tensor(value, None if layout is None else (layout.size, layout.strides))
        except (RuntimeError, NotImplementedError) as error:
            raise exc.Unsupported("unsupported_value", f"{source.name}: {error}") from error
        node = self._placeholder(source)
        node.meta["example_value"] = fake
        # The tensor's state at entry; the program may change it later.
        node.meta["layout"] = tuple(fake.shape), fake.stride()
        node.meta["at_entry"] = fake.requires_grad, fake.is_leaf
        node.meta["source"] = source.name
        node.meta["static"] = is_static(value, source)
        tensor = TensorVariable(node, fake, source, type(value))
        tensor.value = value
        if source.key in self.value_guards.paths:
            guard_elements(self, source, fake, value)
        elif self.value_guards.inputs:
            forget_alias(self, fake, value)
        self.inputs.append(tensor)
        return self.register_tensor(tensor)

    def add_number(
        self, source: Source, cls: type, fake: Any = None, origins: frozenset[Any] | None = None
    ) -> ScalarVariable:
        """Adds a number from outside as a graph input. The caller adds its guards.

        Args:
            fake: the fake value that represents it in operations on fake tensors; None: one of unknown value.
            origins: paths of the values that it is computed from; None: its own path.
        """
        known = self._numbers.get(source.key)
        if known is not None:
            return known
        node = self._placeholder(source)
        origins = origins if origins is not None else frozenset({source.key})
        fake = fake if fake is not None else new_number(self, cls, origins)
        node.meta.update(example_value=fake, source=source.name, static=False)
        number = self._numbers[source.key] = ScalarVariable(node, cls, fake, origins, source)
        self.inputs.append(number)
        return number

    def measure(self, tx: Tracer, source: Source, method: str, dim: int) -> fx.Node:
        """A node that reads an input's "size" or "stride" along `dim` as it is at entry."""
        tensor = next(t.node for t in self.inputs if t.source is not None and t.source.key == source.key)
        return self.compute_at_entry(
            tx, "call_method", method, (tensor, dim), tensor.meta["layout"][method == "stride"][dim])

    def compute_at_entry(self, tx: Tracer, op: str, target: Any, args: tuple[Any, ...], value: Any) -> fx.Node:
        """A node before all operations that computes a number from inputs and from other such numbers. It belongs to
        the whole graph, even while a part is traced that becomes a graph of its own."""
        last = self._last_placeholder
        while last is not None and "at_inputs" in last.next.meta:
            last = last.next
        with self.graph.inserting_after(last):
            node = self.create_node(tx, op, target, args, {}, value, False, counted=False)
        node.meta["at_inputs"] = True
        return node

    @contextlib.contextmanager
    def _at_inputs(self) -> Iterator[None]:
        """Inside the context, nodes are inserted behind the last placeholder, in front of all operations."""
        if self._last_placeholder is not None:
            with self.graph.inserting_after(self._last_placeholder):
                yield
        else:
            with self.graph.inserting_before(next(iter(self.graph.nodes), None)):
                yield

    def inputs_over(self, value: torch.Tensor) -> list[TensorVariable]:
        """The inputs met so far whose memory overlaps that of a tensor."""
        tensors = [t for t in self.inputs if isinstance(t, TensorVariable) and t.value is not None]
        return [t for t in tensors if overlap_on_device(t.value, value)]  # type: ignore[arg-type]

    def _placeholder(self, source: Source) -> fx.Node:
        """A new placeholder, named after its source in the program."""
        name = "".join(c if c.isalnum() else "_" for c in source.name).strip("_") or "input"
        if name == "self":  # the name is taken by the parameter of the graph module's method
            name = "l_self"
        with self._at_inputs():
            node = self.graph.placeholder(name if name[0].isalpha() else f"l_{name}")
        # The target becomes the parameter's name in the graph's Python text. Node names are unique and lower-case, but
        # fx leaves targets as given: an input `V` would be assigned to `v`, and so clash with an input named `v`.
        node.target = node.name
        self._last_placeholder = node
        return node

    def tensor_of(self, fake: torch.Tensor) -> TensorVariable | None:
        """The tracker of a fake tensor."""
        return self._tensors.get(id(fake))

    def register_tensor(self, tensor: TensorVariable) -> TensorVariable:
        """Makes the tracker findable by its fake tensor, which it keeps alive."""
        self._tensors[id(tensor.fake)] = tensor
        return tensor

    def replace_input(self, old: TensorVariable, new: TensorVariable) -> None:
        """Replaces the tracker of an input's placeholder."""
        self.inputs = [new if tensor is old else tensor for tensor in self.inputs]
        self.register_tensor(new)

    def tensors(self) -> list[TensorVariable]:
        """All tensors that the trace knows."""
        return list(self._tensors.values())

    def forget(self) -> None:
        """Drops all references to the program's objects. To be called when the trace has ended."""
        self.effects.forget()
        self.choices.forget()
        self.masked.forget()
        self.rebound.clear()
        self.replaced.clear()
        self._wrappers_at.clear()
        self._tensors.clear()
        self._numbers.clear()
        self.symbols.forget()
        self.inputs.clear()
        self.value_guards.forget()

    # -- operations
    def run_fake(
        self, tx: Tracer, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, bool]:
        """Runs an operation on fake tensors.

        Returns:
            the result, and whether the operation has side effects.

        Raises:
            exc.Unsupported: the operation needs data, or it fails.
        """
        mode = self.fake_mode
        if mode.env is None or not mode.env.decomposes_in_python:
            return self._run_fake(tx, op, target, args, kwargs)
        # Torch's Python decompositions skip checks that eager mode does. Tensors without elements get them from C++.
        if have_elements((args, kwargs)):
            made = self._run_fake(tx, op, target, args, kwargs)
            given = {fake.untyped_storage()._cdata for fake in _tensors_in((args, kwargs))}
            if given & mode.written or have_elements(made[0]):
                return made
        with mode.decompositions_in_cpp():
            return self._run_fake(tx, op, target, args, kwargs)

    def _run_fake(
        self, tx: Tracer, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, bool]:
        mode = self.fake_mode
        mode.effects_seen = mode.known.needed = False
        self.scalars.start()
        if op == "call_function":
            whole = whole_calls.call(mode, target, args, kwargs)
            if whole is not NotImplemented:
                return whole, mode.effects_seen
        key = None if self.scalars.any else calls.key_of(mode, op, target, args, kwargs)
        made = calls.remembered(mode, key) if key is not None else None
        if made is not None:
            return made, False
        try:
            with casting.as_around(mode), torch_entry.scope(), mode, mode.called_again(), log.phase("fake_tensors"):
                if op == "call_method":
                    result = getattr(args[0], target)(*args[1:], **kwargs)
                else:
                    result = target(*args, **kwargs)
        except NumbersAsked:
            return self._decomposed_in_python(tx, op, target, args, kwargs)
        except exc.Unsupported:
            raise
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            nodes = self._unknown_among(args, kwargs)
            if nodes and not mode.effects_seen and learn(tx, nodes):
                return self.run_fake(tx, op, target, args, kwargs)
            kind = "tensor_to_python" if isinstance(error, DataDependentOutputException) else "dynamic_output_shape"
            unknown = exc.Unsupported(kind, f"{error.func} inside {_name(target)}")
            raise needed(tx, unknown, nodes) from error
        except Exception as error:
            signal_handlers.pass_on(error)
            self.scalars.check(_name(target))
            if mode.asks_for_numbers(error):
                return self._decomposed_in_python(tx, op, target, args, kwargs)
            made = mode.for_these_sizes(target, args, kwargs, error) if op == "call_function" else NotImplemented
            if made is not NotImplemented:
                return made, False
            if not mode.effects_seen and not self.examples and not self._knows_elements(args, kwargs):
                raised = raised_in_eager(op, target, args, kwargs, error)
                if raised is not None:
                    tx.errors.raise_python(raised)
            raise describe_failure(target, error) from error
        if self.scalars.any:
            self.scalars.check(_name(target))
        if key is not None and not mode.defined:
            calls.remember(mode, key, result, args, kwargs)
        return result, mode.effects_seen

    def _knows_elements(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return any(self.fake_mode.known.of(fake) is not None for fake in _tensors_in((args, kwargs)))

    def _decomposed_in_python(
        self, tx: Tracer, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, bool]:
        """Runs the operation with torch's Python decompositions. Unless it fails, they stay on for the whole trace."""
        env = self.fake_mode.symbols()
        if not have_elements((args, kwargs)):
            with self.fake_mode.decompositions_in_cpp():
                return self.run_fake(tx, op, target, args, kwargs)
        env.decomposes_in_python = True
        try:
            return self.run_fake(tx, op, target, args, kwargs)
        except exc.Unsupported as error:
            if error.kind != "fake_tensor_error":
                raise
            env.decomposes_in_python = False
            return self.run_fake(tx, op, target, args, kwargs)

    @contextlib.contextmanager
    def one_example(self) -> Iterator[None]:
        """Inside the context, a transform traces one example in place of a batch."""
        self.examples += 1
        try:
            yield
        finally:
            self.examples -= 1

    @property
    def captures_sizes(self) -> bool:
        """Whether operations may define sizes that are known at run time only. They may not in parts of the trace that
        become graphs of their own."""
        return self._captures_sizes and not self.examples and not self.parts

    @contextlib.contextmanager
    def sizes_defined(self) -> Iterator[list[Any]]:
        """Inside the context, an operation may define sizes at run time. Their symbols are added to the list."""
        defined: list[Any] = []
        self.fake_mode.defined = defined if self.captures_sizes else None
        try:
            yield defined
        finally:
            self.fake_mode.defined = None

    def _unknown_among(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[fx.Node]:
        """Nodes of the tensor operands whose elements are unknown and may be needed by an operation."""
        fakes = _tensors_in((args, kwargs))
        unknown = [t for f in fakes if self.fake_mode.known.of(f) is None and (t := self.tensor_of(f)) is not None]
        # Indices and counts are integer operands. The elements of the tensor that they apply to don't matter.
        return [t.node for t in unknown if not t.fake.dtype.is_floating_point] or [t.node for t in unknown]

    def create_node(
        self, tx: Tracer, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any, impure: bool,
        counted: bool = True,
    ) -> fx.Node:
        """Adds a node with its fake value, its effects and the user's stack; `counted`: as an operation on tensors."""
        if target is operator.pow and isinstance(args[0], (int, float)) and math.copysign(1, args[0]) < 0:
            target = torch.pow  # fx would write `-2 ** x`, which is -(2 ** x)
        node = self.graph.create_node(op, target, args, kwargs)
        for argument in node.all_input_nodes:
            _refuse_foreign(argument)
        node.meta["example_value"] = value
        node.meta["impure"] = impure
        node.meta["visit"] = tx.root_visit()
        if impure:
            self.written_storages |= _storages_of(node.all_input_nodes)
        node.stack_trace = tx.stack_text()
        self.operations += counted
        self.effects.epoch += 1
        node.meta["epoch"] = self.effects.epoch
        if self.value_guards.paths:
            guard_mask(self, node)
        return node

    def item_node(self, tx: Tracer, node: fx.Node, index: int, value: Any) -> fx.Node:
        """A node that takes one item of another node's result."""
        return self.create_node(tx, "call_function", operator.getitem, (node, index), {}, value, False, counted=False)

    def line_text(self, file: str, line: int, function: str) -> str:
        """The file, line and source text of one frame, formatted as in a traceback."""
        text = self._line_texts.get((file, line, function))
        if text is None:
            source = linecache.getline(file, line).strip()
            text = f'  File "{file}", line {line}, in {function}\n'
            text += f"    {source}\n" if source else ""
            self._line_texts[file, line, function] = text
        return text

    def state_node(self, tx: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Adds a node that sets torch's state at this point of the program."""
        self.create_node(tx, "call_function", function, args, kwargs, None, True, counted=False)

    def change_autocast_depth(self, tx: Tracer, change: int) -> None:
        """Records that the program enters (positive `change`) or leaves (negative) autocast contexts."""
        self.autocast_depth += change
        self.changes_autocast = True
        for function, args in autocast.steps(change):
            function(*args)
            self.state_node(tx, function, args, {})

    def state_changes(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """The calls that take torch's state from its value at entry to its current value."""
        return changes_between(self.state_at_entry, state_now()) + autocast.steps(self.autocast_depth)

    def mode_node(self, tx: Tracer, function: Any, args: tuple[Any, ...]) -> fx.Node:
        """A node that enters or leaves a torch mode."""
        return self.create_node(tx, "call_function", function, args, {}, None, True, counted=False)

    def restore_state(self) -> None:
        """Undoes the trace's changes of torch's state in this thread."""
        while self.open_modes:
            self.open_modes.pop().leave()
        set_state(self.state_at_entry)
        for function, args in autocast.steps(-self.autocast_depth):
            function(*args)
        self.autocast_depth = 0

    def device_for(self, target: Any) -> torch.device | None:
        """The device that the program's device contexts select for a factory function; None if there is none."""
        return device_of_scope(self, target)

    def assume(self, visit: int) -> None:
        """Notes that the graph may raise from the root's n-th instruction on, in which case the frame is run again."""
        if self.assumed_at is None:
            self.assumed_at = visit

    # -- the finished graph
    def finish(
        self, outputs: list[TensorVariable | ScalarVariable]
    ) -> tuple[fx.GraphModule, list[TensorVariable | ScalarVariable]] | None:
        """The graph module that computes `outputs`, and its inputs; None if there is nothing to run."""
        if self.open_modes:
            raise self.open_modes[0].refuse_break()
        self.choices.check(self, outputs)
        if self.assumed_at is not None and self.inputs_changed_for_autograd():
            what = "a branch that raises, in a graph that writes to inputs under autograd"
            raise exc.Unsupported("data_dependent_branch", what, visit=self.assumed_at)
        if self.written_storages and not self.fullgraph:
            self._check_order_of_writes()
        undone = changes_between(state_now(), self.state_at_entry) + autocast.steps(-self.autocast_depth)
        for function, args in undone:
            node = self.graph.create_node("call_function", function, args, {})
            node.meta.update(example_value=None, impure=True)
        for tensor in outputs:
            _refuse_foreign(tensor.node)
        self.graph.output(tuple(t.node for t in outputs))
        self._remove_dead_nodes()
        if not outputs and not any(_does_something(n) for n in self.graph.nodes):
            return None
        used = []
        for tensor in self.inputs:
            if tensor.node.users:
                used.append(tensor)
            else:
                self.graph.erase_node(tensor.node)
        output = next(iter(reversed(self.graph.nodes)))
        output.meta["example_value"] = tuple(t.fake for t in outputs)
        module = graph_module(self.graph)
        module.meta["fake_mode"] = self.fake_mode
        return module, used

    def _check_order_of_writes(self) -> None:
        """Refuses an operation that may raise after a write to an input that autograd tracks: autograd's records can't
        be restored for the frame to run again. Such an operation goes into a graph of its own, behind the write."""
        kept = {t.fake.untyped_storage()._cdata for t in self.inputs_changed_for_autograd()}
        written: int | None = None
        for node in self.graph.nodes if kept else ():
            if written is not None and node.meta.get("raises"):
                what = f"{_name(node.target)}, behind a change of an input that requires gradients"
                visit = min(written + 1, node.meta["visit"])
                raise exc.Unsupported("raises_after_write", what, user_stack=stack_of(node), visit=visit)
            if node.meta.get("impure") and _written_by(node) & kept:
                written = node.meta["visit"]

    def _remove_dead_nodes(self) -> None:
        for node in reversed(list(self.graph.nodes)):
            if node.op in ("placeholder", "output") or node.users or node.meta.get("impure"):
                continue
            if node.meta.get("raises") or _takes_an_int(node) or frees_history(node):
                continue  # this node, or a node that depends on its check, may raise although the result is unused
            if node.meta.get("visit", -1) >= 0 and (raised := refused_in_eager(node)) is not None:
                what = f"{type(raised).__name__} of {target_name(node.target)}: {exc.one_line(raised)}"
                raise exc.Unsupported("python_exception_in_trace", what, visit=node.meta["visit"])
            self.graph.erase_node(node)

    def mutated_inputs(self) -> list[TensorVariable]:
        """Inputs whose memory some node may change, directly or through views."""
        return self._inputs_written_by(node for node in self.graph.nodes if node.meta.get("impure"))

    def inputs_changed_for_autograd(self) -> list[TensorVariable]:
        """Inputs whose autograd records the graph may change. Unlike elements, these records can't be restored. A write
        under ``no_grad`` or to ``x.data`` is left out: autograd notices at most that there was one."""
        nodes = (n for n in self.graph.nodes if n.meta.get("impure") and not n.meta.get("unseen_by_autograd"))
        return [t for t in self._inputs_written_by(nodes) if t.fake.requires_grad]

    def _inputs_written_by(self, nodes: Iterable[fx.Node]) -> list[TensorVariable]:
        touched: set[int] = set()
        for node in nodes:
            touched |= _written_by(node)
        tensors = [t for t in self.inputs if isinstance(t, TensorVariable)]
        return [t for t in tensors if t.fake.untyped_storage()._cdata in touched]


def _refuse_foreign(node: fx.Node) -> None:
    """Refuses a tensor from a part of the trace that has become a graph of its own, when it is used outside of it."""
    if node._erased:
        what = "a tensor that a function run by torch has made is used outside of it"
        raise exc.Unsupported("autograd_in_graph", what)


def _storages_of(nodes: Collection[fx.Node]) -> set[int]:
    values = [node.meta.get("example_value") for node in nodes]
    return {value.untyped_storage()._cdata for value in values if isinstance(value, torch.Tensor)}


def _written_by(node: fx.Node) -> frozenset[int]:
    """The storages that an impure node may write to."""
    writes: frozenset[int] | None = node.meta.get("writes")
    return writes if writes is not None else frozenset(_storages_of(node.all_input_nodes))


def _takes_an_int(node: fx.Node) -> bool:
    """Whether an operation on tensors has an int operand that is known at run time only: it may be out of bounds,
    or too large for the tensor's dtype."""
    if not isinstance(node.meta.get("example_value"), torch.Tensor):
        return False
    return any(isinstance(argument.meta.get("example_value"), torch.SymInt) for argument in node.all_input_nodes)


def _does_something(node: fx.Node) -> bool:
    """Whether a node alone justifies a call of the graph. Setting and restoring torch's state does not."""
    if node.op in ("placeholder", "output"):
        return False
    return node.meta.get("example_value") is not None or bool(node.all_input_nodes) or "draws" in node.meta


def _tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors among arguments, including those in slices."""
    leaves = pytree.tree_leaves(value, is_leaf=lambda leaf: isinstance(leaf, slice))
    parts = [p for leaf in leaves for p in ((leaf.start, leaf.stop, leaf.step) if isinstance(leaf, slice) else (leaf,))]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def _name(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))
