"""Generates the wrapper: a Python function from the graph's inputs to its results, and the C entries that it calls.

Consecutive kernels are called by one C function, ``run0(void **pointers, const int64_t *sizes)``, which passes pointers
(a view is an offset into its base's memory) and sizes to each kernel; it is one call from Python, with one tensor per
block of memory.

Invariant: the generated function evaluates the steps in order, touches no Python state but its arguments, and leaves no
reference to a tensor behind.
"""
from __future__ import annotations

import dataclasses
import keyword
import re
from typing import Any

import torch

from dynamo_lite.backends.aot import ops
from dynamo_lite.backends.aot.call_sizes import solved
from dynamo_lite.backends.aot.graph import (
    InputOutput,
    LiteralOutput,
    OutputAlias,
    OutputRecipe,
    ValueOutput,
)
from dynamo_lite.backends.inductor import _runtime
from dynamo_lite.backends.inductor.codegen.wrapper.arena import (
    ALIGNMENT,
    Arena,
    Part,
    formula_of_bytes,
    place,
    place_by_formula,
    storage_bytes,
)
from dynamo_lite.backends.inductor.codegen.wrapper.calls import callable_of, layout_is_certain
from dynamo_lite.backends.inductor.codegen.wrapper.entries import (
    DTYPE_CODES,
    EntrySpec,
    c_text,
    label_of,
    static_layout,
)
from dynamo_lite.backends.inductor.codegen.wrapper.launches import launch_lines
from dynamo_lite.backends.inductor.codegen.wrapper.lifetimes import MemoryPlan, owners, plan_memory
from dynamo_lite.backends.inductor.codegen.wrapper.mutation import written_in_place
from dynamo_lite.backends.inductor.codegen.wrapper.values import (
    decision_text,
    empty_text,
    same_value,
    shape_text,
    size_text,
    strided_text,
    tuple_text,
    value_text,
)
from dynamo_lite.backends.inductor.program import (
    BufferSpec,
    CopyInto,
    Expr,
    ExternCall,
    KernelCall,
    Literal,
    Program,
    View,
    step_reads,
    step_writes,
)

_FAULT = "__INT64_TYPE__ *"
GIL_WORK = 100_000
"""Elements of a kernel's largest buffer from which on a call releases the GIL: such a kernel takes 5 to 20 us on any
processor with vectors, next to which the 50 ns for releasing the GIL are negligible."""


@dataclasses.dataclass(slots=True)
class WrapperSource:
    """The generated code of a program.

    Attributes:
        python: source of the module that defines ``call``.
        entries: C source to append to the program's own.
        entry_specs: descriptions of the entries in it.
        namespace: the values of global names in the Python source: operations, dtypes, constants.
        targets: for those names that stand for library operations, the operation as the program names it.
        direct: whether the first entry, called with the graph's inputs, does all that ``call`` does.
    """

    python: str
    entries: str
    entry_specs: list[EntrySpec]
    namespace: dict[str, Any]
    direct: bool = False
    targets: dict[str, Any] = dataclasses.field(default_factory=dict)


def write_wrapper(
    program: Program, recipes: tuple[OutputRecipe, ...], *, no_grad: bool = False, no_autocast: bool = False,
    inference: bool = False, allocate: bool = True, boxed: bool = False,
) -> WrapperSource:
    """Generates the wrapper's source.

    Args:
        program: the program to run.
        recipes: how results are made from the program's outputs (``AtenGraph.outputs``).
        no_grad: switch autograd off meanwhile, because some input requires grad, though no result does.
        no_autocast: switch autocast off meanwhile, because its casts are in the program already.
        inference: make results under inference mode.
        allocate: whether entries can allocate the tensors that they write.
        boxed: the function takes a list of the inputs, empties it, and frees each input after its last use.
    """
    return _Writer(written_in_place(program), recipes, allocate, boxed).write(no_grad, no_autocast, inference)


class _Writer:
    def __init__(self, program: Program, recipes: tuple[OutputRecipe, ...], allocate: bool, boxed: bool) -> None:
        self._program = program
        self._recipes = recipes
        self._boxed = boxed
        kept = {program.inputs[r.index] for recipe in recipes
                for r in (recipe.base if isinstance(recipe, OutputAlias) else recipe,) if isinstance(r, InputOutput)}
        self._plan: MemoryPlan = plan_memory(program, set(program.inputs) - kept if boxed else set())
        self._lines: list[str] = []
        self._entries: list[str] = []
        self._specs: list[EntrySpec] = []
        self._namespace: dict[str, Any] = {}
        self._targets: dict[str, Any] = {}
        self._counted: set[str] = set()  # inputs whose version counters are incremented already
        self._names: dict[str, str] = {}
        self._variables: set[str] = set()
        self._bound: set[str] = set(program.inputs) | set(program.constants)
        self._placed: set[str] = set()
        self._allocate_in_entries = allocate and not program.launches
        self._direct = False
        self._detach = False
        self._owners = owners(program)
        self._views = {step.name: step for step in program.steps if isinstance(step, View)}
        self._last_use: dict[str, int] = {}
        for index, step in enumerate(program.steps):
            for name in (*step_reads(step), *step_writes(step)):
                self._use(name, index)
        for out in program.outputs:
            if isinstance(out, str):
                self._use(out, len(program.steps))
        self._read_by_layout = {
            name for step in program.steps if isinstance(step, (KernelCall, View)) for name in step_reads(step)}
        self._results_made: dict[int, str] = {}

    def write(self, no_grad: bool, no_autocast: bool, inference: bool) -> WrapperSource:
        self._detach = no_grad  # a view of an input that requires grad requires grad, whatever the grad mode
        for name in (*self._program.inputs, *self._program.constants):
            self._variable(name)
        for name, tensor in self._program.constants.items():
            self._namespace[self._variable(name)] = tensor
        steps, index = self._program.steps, 0
        while index < len(steps):
            step = steps[index]
            if isinstance(step, KernelCall):
                end, run = index, self._plan.run_of[index]
                while end < len(steps) and self._plan.run_of[end] == run:
                    end += 1
                (self._launches if self._program.launches else self._kernels)(index, end)
                index = end
                continue
            if isinstance(step, ExternCall):
                self._extern(step)
            elif isinstance(step, CopyInto):
                copied = self._program.versions.get(step.dst, 1) > 0
                self._line(f"{self._tensor(step.dst)}{'' if copied else '.data'}.copy_({self._tensor(step.src)})")
                self._count_writes([step.dst], int(copied))
            self._drop(index, index + 1)
            index += 1
        before = len(self._lines)
        self._results()
        self._lines, results = self._lines[:before], self._lines[before:]
        sizes = self._sizes([*self._lines, *results])
        text = self._source(sizes, results, no_grad, no_autocast, inference)
        return WrapperSource(text, "\n".join(self._entries), self._specs, self._namespace,
                             self._direct and not (no_grad or no_autocast or inference or self._boxed),
                             self._targets)

    def _sizes(self, lines: list[str]) -> list[str]:
        """Definitions of the symbols that these lines use: each is an input, or computed from a size of an input."""
        places: dict[str, str] = {}
        known = [(n, self._variable(name)) for name, n in self._program.symbols.items()]
        for name in self._program.inputs:
            spec = self._program.buffers.get(name)
            if spec is not None:
                known += [(n, f"{self._variable(name)}.shape[{i}]") for i, n in enumerate(spec.size)]
                known += [(n, f"{self._variable(name)}.stride({i})") for i, n in enumerate(spec.stride)]
        for n, text in known:
            found = solved(n, text)
            if found is not None:
                places.setdefault(*found)
        words = set(re.findall(r"\w+", "\n".join(lines)))
        decided = [decision_text(decision, self._variable, self._bind) for decision in self._program.decisions]
        words.update(re.findall(r"\w+", "\n".join(decided)))
        sizes = [f"{symbol} = {place}" for symbol, place in places.items() if symbol in words and symbol != place]
        return [*sizes, *decided]

    # ------------------------------------------------------------ names
    def _use(self, name: str, index: int) -> None:
        """Records that step ``index`` uses a name, and if that is a view, also its bases."""
        self._last_use[self._slot(name)] = index
        while name in self._views:
            name = self._views[name].base
            self._last_use[self._slot(name)] = index

    def _slot(self, name: str) -> str:
        """The name whose variable holds the memory of ``name``, after reuse."""
        while name in self._plan.reuse:
            name = self._plan.reuse[name]
        return name

    def _variable(self, name: str) -> str:
        slot = self._slot(name)
        found = self._names.get(slot)
        if found is None:
            found = re.sub(r"\W", "_", slot)
            if keyword.iskeyword(found) or not found.isidentifier() or self._is_taken(found):
                found = f"v{len(self._names)}_{found}"
            self._names[slot] = found
            self._variables.add(found)
        return found

    def _is_taken(self, name: str) -> bool:
        return name in self._variables or name in self._namespace

    def _bind(self, name: str, value: Any) -> str:
        """Binds ``value`` in the namespace; returns its name there, which no other value has."""
        name = re.sub(r"\W", "_", name)
        while keyword.iskeyword(name) or not same_value(self._namespace.get(name, value), value) or (
                name in self._variables):
            name += "_"
        self._namespace[name] = value
        return name

    def _operation(self, target: Any) -> str:
        """Binds the fastest form of a library operation; returns its name in the namespace."""
        name, function = callable_of(target)
        bound = self._bind(name, function)
        self._targets[bound] = target
        return bound

    def _tensor(self, name: str) -> str:
        """The variable that holds ``name`` as a tensor. If that is a view and not made yet, it is made here."""
        variable = self._variable(name)
        view = self._views.get(name)
        if view is not None and name not in self._bound:
            spec = self._program.buffers[name]
            self._line(f"{variable} = {self._view_text(view, spec)}")
            self._bound.add(name)
        return variable

    def _view_text(self, view: View, spec: BufferSpec) -> str:
        base = self._tensor(view.base)
        if spec.dtype is self._program.buffers[view.base].dtype:
            return strided_text(base, spec.size, spec.stride, view.offset)
        reads = torch.ops.aten.view_as_complex.default if spec.dtype.is_complex else torch.ops.aten.view_as_real.default
        return f"{self._operation(reads)}({base})"

    def _line(self, text: str) -> None:
        self._lines.append(text)

    # ------------------------------------------------------------ steps
    def _extern(self, step: ExternCall) -> None:
        for read in step.reads():
            self._tensor(read)
        args = [self._value(a) for a in step.args]
        args += [f"{k}={self._value(v)}" for k, v in step.kwargs.items()]
        call = f"{self._operation(step.target)}({', '.join(args)})"
        outputs = [self._variable(n) if n is not None else None for n in step.outputs]
        self._bound.update(n for n in step.outputs if n is not None)
        if not any(outputs):
            self._line(f"{call}  # {step.origin}")
        elif not step.unpack:
            self._line(f"{outputs[0]} = {call}  # {step.origin}")
        else:
            targets = ", ".join(o or "_" for o in outputs)
            self._line(f"{targets}{',' if len(outputs) == 1 else ''} = {call}  # {step.origin}")
            if None in outputs:
                self._line("del _")
        if not layout_is_certain(step.target):
            for name in step.outputs:
                if name in self._read_by_layout:
                    self._ensure_layout(name)

    def _ensure_layout(self, name: str) -> None:
        """Makes sure of a result's dtype and strides. Kernels rely on those that fake tensors promise; a few operations
        return others, depending on their arguments."""
        spec = self._program.buffers[name]
        variable, strides, dtype = self._variable(name), shape_text(spec.stride), self._value(spec.dtype)
        has_strides = self._bind("has_strides", _runtime.has_strides)
        self._line(f"if {variable}.dtype is not {dtype} or not {has_strides}({variable}, {strides}):")
        self._line(f"    {variable} = {self._bind('as_promised', ops.as_promised)}({variable}, {strides}, {dtype})")

    def _kernels(self, start: int, end: int) -> None:
        """Writes a run of kernels, and the views between them, as one C entry."""
        program = self._program
        calls = [s for s in program.steps[start:end] if isinstance(s, KernelCall)]
        arena = self._arena(calls, end)
        parts = self._parts(calls, end)
        formulas = {variable for part in parts for variable in part.places}
        made = self._made_by_entry(calls, arena.names() | formulas)
        used = {self._variable(self._resolve(name)[0]) for call in calls for name in call.args} - formulas
        whole = start == 0 and end == len(program.steps) and program.buffers.keys() >= {*program.inputs}
        # The inputs come first and in order, so that a graph that is one run can be called through its entry directly.
        pointers = {v: i for i, v in enumerate(
            v for v in map(self._variable, program.inputs) if whole or v in used)}
        for variable in sorted(used - set(made) - arena.names(), key=lambda v: (v in pointers, v)):
            pointers.setdefault(variable, len(pointers))
        sizes: dict[str, int] = {}
        places = self._make_area(parts, pointers, sizes)
        tensors = list(pointers)
        for variable in made:
            pointers[variable] = len(pointers)
        places.update((variable, (len(pointers), str(offset))) for variable, offset in arena.places.items())
        places.update((variable, (pointers[room], str(offset))) for variable, (room, offset) in arena.in_rooms.items())
        layouts = [*made.values(), *([((arena.size,), (1,), DTYPE_CODES[torch.uint8])] if arena.places else [])]
        overwritten = [name for call in calls for name in call.outputs if name in program.inputs]
        symbol = self._entry(calls, pointers, places, sizes, len(tensors) + len(layouts))
        work = sum(call.work for call in calls)
        self._specs.append(EntrySpec(symbol, len(tensors), len(sizes), tuple(layouts), work >= GIL_WORK, len(made),
                                     program.faults if any(call.faults for call in calls) else (),
                                     label_of(symbol, calls)))
        target = f"{', '.join(made)}{',' if len(made) == 1 else ''} = " if made else ""
        self._line(f"{target}{symbol}({', '.join([*tensors, *sizes])})")
        if parts:
            self._line(f"del {tensors[-1]}")
        self._count_writes(overwritten)
        results = [program.outputs[r.index] if isinstance(r, ValueOutput) else None for r in self._recipes]
        alone = whole and not sizes and not overwritten and tensors == [self._variable(name) for name in program.inputs]
        self._direct = alone and bool(made) and list(made) == [
            self._variable(name) if isinstance(name, str) and name not in self._views else None for name in results]
        self._drop(start, end)

    def _entry(
        self, calls: list[KernelCall], pointers: dict[str, int], places: dict[str, tuple[int, str]],
        sizes: dict[str, int], count: int,
    ) -> str:
        """Writes a C entry that calls kernels in order; returns its symbol.

        Args:
            pointers: index of the pointer to each variable's memory.
            places: for buffers in an arena, index of the arena's pointer and the offset.
            sizes: index of each size by its text; sizes that kernels need are added.
            count: number of pointers to memory. The pointer after these is to three integers, in which kernels report
                an index out of bounds.
        """
        fault = f"({_FAULT})p[{count}]"
        body = []
        for call in calls:
            self._line(f"# {call.origin}" if call.origin else f"# {call.symbol}")
            arguments = []
            for name in call.args:
                base, offset = self._resolve(name)
                index, within = places.get(self._variable(base)) or (pointers[self._variable(base)], "0")
                itemsize = self._program.buffers[base].dtype.itemsize
                shift = " + ".join([within] * (within != "0") + [c_text(offset, itemsize)] * (offset != 0))
                arguments.append(f"(char *)p[{index}] + {shift}" if shift else f"p[{index}]")
            for expr in call.sizes:
                arguments.append(f"s[{sizes.setdefault(size_text(expr), len(sizes))}]")
            if call.faults:
                arguments.append(fault)
            body.append(f"    {call.symbol}({', '.join(arguments)});")
            if call.faults:
                body.append(f"    if (*{fault}) return;")
        symbol = f"run{len(self._specs)}"
        self._entries.append("\n".join([
            'extern "C" __attribute__((visibility("default")))',
            f"void {symbol}(void **p, const __INT64_TYPE__ *s)",
            "{", "    (void)s;", *body, "}", ""]))
        return symbol

    def _launches(self, start: int, end: int) -> None:
        """Writes a run of kernels that are Python functions, with one call for each."""
        calls = [s for s in self._program.steps[start:end] if isinstance(s, KernelCall)]
        self._made_by_entry(calls, set())
        given = [(call, [*map(self._tensor, call.args), *map(size_text, call.sizes)]) for call in calls]
        for line in launch_lines(self._program, given, self._bind, self._fresh):
            self._line(line)
        self._count_writes([name for call in calls for name in call.outputs if name in self._program.inputs])
        self._drop(start, end)

    def _count_writes(self, names: list[str], counted: int = 0) -> None:
        """Increments the versions of inputs that have been written, by the number of times that the program has written
        them, minus ``counted``, the increments that the write itself has made."""
        missing = [name for name in dict.fromkeys(names) if name not in self._counted
                   for _ in range(self._program.versions.get(name, 1) - counted)]
        self._counted.update(names)
        if missing:
            bump = self._bind("increment_version", torch._C._increment_version)
            self._line(f"{bump}({tuple_text([self._variable(name) for name in missing])})")

    def _arena(self, calls: list[KernelCall], end: int) -> Arena:
        """Places the buffers that live only in this run, which ends before step ``end``, in one piece of memory, or in
        the memory of results that are not written yet."""
        lives: dict[str, tuple[int, int]] = {}
        sizes: dict[str, int] = {}
        rooms: dict[str, tuple[int, int]] = {}
        read: set[str] = set()
        for at, call in enumerate(calls):
            for name in call.args:
                base = self._resolve(name)[0]
                slot = self._slot(base)
                if slot in lives:
                    lives[slot] = lives[slot][0], at
                elif base not in call.outputs:
                    read.add(self._slot(self._owners[name]))
                elif slot not in rooms and slot not in read and (slot != base or slot not in self._bound):
                    # Memory that is allocated here, or taken over from a dead buffer.
                    spec = self._program.buffers[base]
                    layout = static_layout(spec) if self._allocate_in_entries else None
                    if layout is None:
                        continue
                    size = storage_bytes(layout[0], layout[1], spec.dtype.itemsize)
                    if slot not in self._bound and self._last_use[slot] < end:
                        lives[slot], sizes[slot] = (at, at), size
                    else:
                        rooms[slot] = size, at
        if len(lives) < 2:
            return Arena({}, 0)
        arena = place(lives, sizes, rooms)
        self._bound.update(lives)
        self._placed.update(map(self._variable, lives))
        variable = self._variable
        return Arena({variable(slot): offset for slot, offset in arena.places.items()}, arena.size,
                     {variable(slot): (variable(room), at) for slot, (room, at) in arena.in_rooms.items()})

    def _parts(self, calls: list[KernelCall], end: int) -> list[Part]:
        """Places buffers of symbolic sizes that live only in this run, which ends before step ``end``."""
        lives: dict[str, tuple[int, int]] = {}
        sizes: dict[str, Expr] = {}
        for at, call in enumerate(calls):
            for name in call.args:
                slot = self._slot(self._resolve(name)[0])
                spec = self._program.buffers.get(slot)
                if slot in lives:
                    lives[slot] = lives[slot][0], at
                elif name in call.outputs and slot not in self._bound and self._last_use[slot] < end and (
                        spec is not None and spec.device.type == "cpu" and static_layout(spec) is None):
                    lives[slot] = at, at
                    sizes[slot] = formula_of_bytes(spec.size, spec.stride, spec.dtype.itemsize)
        if len(lives) < 2:
            return []
        self._bound.update(lives)
        self._placed.update(map(self._variable, lives))
        return [Part(part.unit, {self._variable(slot): at for slot, at in part.places.items()}, part.size)
                for part in place_by_formula(lives, sizes)]

    def _make_area(
        self, parts: list[Part], pointers: dict[str, int], sizes: dict[str, int]
    ) -> dict[str, tuple[int, str]]:
        """Allocates the memory for the parts, as the last of ``pointers``. Returns the pointer's index and the offset
        in C for each variable in the parts. ``sizes`` are those that the run is called with."""
        if not parts:
            return {}
        places: dict[str, tuple[int, str]] = {}
        area, before, total = self._fresh("area"), "", []
        for part in parts:
            unit, text = self._fresh("unit"), size_text(part.unit)
            if not isinstance(part.unit, int) and min(part.unit.const, *part.unit.terms.values()) < 0:
                text = f"max({text}, 0)"
            self._line(f"{unit} = ({text} + {ALIGNMENT - 1}) & -{ALIGNMENT}")
            at = f"s[{sizes.setdefault(unit, len(sizes))}]"
            for variable, offset in part.places.items():
                places[variable] = len(pointers), f"{before}{at} * {offset}" if offset or before else "0"
            before += f"{at} * {part.size} + "
            total.append(f"{unit} * {part.size}")
        pointers[area] = len(pointers)
        empty, kind = self._bind("empty_strided", torch._C._VariableFunctions.empty_strided), self._value(torch.uint8)
        device = self._value(torch.device("cpu"))
        self._line(f"{area} = {empty}(({' + '.join(total)},), (1,), dtype={kind}, device={device})")
        return places

    def _fresh(self, name: str) -> str:
        """A variable with a new name."""
        found = name
        while self._is_taken(found):
            found += "_"
        self._variables.add(found)
        return found

    def _made_by_entry(self, calls: list[KernelCall], placed: set[str]) -> dict[str, Any]:
        """The memory that the run writes first: layouts of what the entry allocates; the rest is allocated here."""
        made = {}
        for call in calls:
            for name in call.outputs:
                slot = self._slot(name)
                if slot in self._bound:
                    if slot != name and self._variable(slot) not in placed:
                        self._line(f"# {name} takes over the memory of {slot}")
                    continue
                self._bound.add(slot)
                spec = self._program.buffers[name]
                layout = static_layout(spec) if self._allocate_in_entries else None
                if layout is None:
                    self._line(f"{self._variable(name)} = {empty_text(spec, self._bind)}")
                else:
                    made[self._variable(name)] = layout
        return made

    def _resolve(self, name: str) -> tuple[str, Expr]:
        """The name of the memory, and the offset in elements into it, that a name stands for."""
        offset: Expr = 0
        while (view := self._views.get(name)) is not None:
            if name in self._bound:
                # It exists as a tensor, whose pointer includes the offset.
                break
            offset = offset + view.offset
            name = view.base
        return name, offset

    def _drop(self, start: int, end: int) -> None:
        """Frees the buffers whose live ranges end in the steps from ``start`` to ``end``."""
        dying = [n for names in self._plan.drop_after[start:end] for n in names]
        variables = []
        for name in dying:
            slot = self._slot(name)
            if name in self._views and name not in self._bound or self._last_use[slot] >= end or (
                    slot not in self._bound):
                continue
            self._bound.discard(slot)
            if self._variable(name) not in self._placed:
                variables.append(self._variable(name))
        if variables:
            self._line(f"del {', '.join(dict.fromkeys(variables))}")

    # ------------------------------------------------------------ results
    def _results(self) -> None:
        results = []
        for i, recipe in enumerate(self._recipes):
            if not isinstance(recipe, OutputAlias):
                results.append(self._result(recipe))
                continue
            # Each recipe object stands for one tensor, however often that is returned.
            made = self._results_made.get(id(recipe))
            if made is None:
                made = self._results_made[id(recipe)] = f"out{i}"
                self._line(f"{made} = {self._result(recipe)}")
            results.append(made)
        self._line(f"return {tuple_text(results)}")

    def _result(self, recipe: OutputRecipe) -> str:
        if isinstance(recipe, LiteralOutput):
            return self._value(recipe.value)
        if isinstance(recipe, InputOutput):
            return self._variable(self._program.inputs[recipe.index])
        if isinstance(recipe, ValueOutput):
            out = self._program.outputs[recipe.index]
            return self._value(out.value) if isinstance(out, Literal) else self._tensor(out)
        base = self._result(recipe.base)
        if recipe.detach == "before" or self._detach and isinstance(recipe.base, InputOutput):
            base += ".detach()"
        if recipe.chain is None:
            base = strided_text(base, recipe.size, recipe.stride, recipe.offset)
        for target, args, kwargs, item in recipe.chain or ():
            rest = [self._value(a) for a in args] + [f"{k}={self._value(v)}" for k, v in kwargs.items()]
            base = f"{self._operation(target)}({', '.join([base, *rest])})" + ("" if item is None else f"[{item}]")
        return base + ".detach()" if recipe.detach == "after" else base

    def _value(self, value: Any) -> str:
        return value_text(value, self._variable, self._bind)

    # ------------------------------------------------------------ the whole
    def _source(
        self, sizes: list[str], results: list[str], no_grad: bool, no_autocast: bool, inference: bool
    ) -> str:
        """The source of the whole function; results that are views are made in the caller's grad mode."""
        parameters = ", ".join(self._variable(name) for name in self._program.inputs)
        scopes = []
        if inference:
            scopes.append(f"{self._bind('inference_mode', torch.inference_mode)}()")
        elif no_grad:
            scopes.append(f"{self._bind('no_grad', torch.no_grad)}()")
        if no_autocast:
            scopes.append(f"{self._bind('no_autocast', torch._C._DisableAutocast)}()")
        lines = [f"def call({parameters}):"]
        indent = "    "
        if self._boxed:
            box = "inputs"
            while self._is_taken(box):
                box += "_"
            lines = [f"def call({box}):"]
            if parameters:
                lines += [f"{indent}{parameters}{',' * (len(self._program.inputs) == 1)} = {box}",
                          f"{indent}{box}.clear()"]
        lines += [indent + line for line in sizes]
        body = [*self._lines, *results] if inference else self._lines
        if scopes and body:
            lines.append(f"{indent}with {', '.join(scopes)}:")
            lines += [2 * indent + line for line in body]
        else:
            lines += [indent + line for line in body]
        if not inference:
            lines += [indent + line for line in results]
        return "\n".join([*lines, ""])
