"""The fake tensor mode of traces: metadata without storage, and without an import of ``torch._dynamo``.

``torch._subclasses.FakeTensorMode`` is the library that computes every operator's output metadata. In current torch,
its constructor, its (wrapped) dispatch entry and one line of its dispatcher import ``torch._dynamo`` for a handful of
configuration values, which costs more than a second per process. :class:`TraceFakeMode` supplies these values itself.

Invariant: using this mode never imports ``torch._dynamo`` or ``torch._inductor``, and leaves nothing in torch's
namespace that could be taken for these modules.
"""
from __future__ import annotations

import contextlib
import functools
import traceback
from typing import Any, Callable, Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConverter, FakeTensorMode, no_dispatch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from dynamo_lite import torch_versions
from dynamo_lite.fake import (
    cache,
    casting,
    layers,
    overlap,
    own_rules,
    quiet,
    refusals,
    result_types,
    running_sizes,
    symbolic,
    torch_entry,
    writes_alone,
)
from dynamo_lite.fake import strides as stride_rules
from dynamo_lite.fake.elements import KnownValues
from dynamo_lite.runtime import raising
from dynamo_lite.runtime.storage_extent import storage_extent
from dynamo_lite.symbols.environment import Environment, NumbersAsked
from dynamo_lite.symbols.nodes import hint_of

__all__ = ["FakeTensor", "TraceFakeMode", "have_elements"]

# Sizes and strides.
Layout = tuple[tuple[Any, ...], tuple[Any, ...]]


def have_elements(operands: Any) -> bool:
    """Whether every tensor among the operands has elements; adds a guard if a size is symbolic."""
    return all(n > 0 for x in pytree.tree_leaves(operands) if isinstance(x, torch.Tensor) for n in x.shape)


# Operators by which C++ code asks for sizes as numbers.
_ASKS_FOR_NUMBERS = frozenset({torch.ops.aten.size.default, torch.ops.aten.numel.default})


# Error text of c10/core/SymIntArrayRef.h for code that can't take symbolic sizes and has not asked for numbers.
_NO_SYMBOLS = "SymIntArrayRef expected to contain only concrete integers"


class _Converter(FakeTensorConverter):
    """Converts tensors that a traced program makes from data (``torch.tensor(3)``), and keeps their values as
    constants."""

    def from_real_tensor(  # type: ignore[override]
        self, fake_mode: FakeTensorMode, t: torch.Tensor, make_constant: bool = False, **_: Any
    ) -> FakeTensor:
        with no_dispatch():
            meta = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
            out = FakeTensor(fake_mode, meta, t.device, constant=t if make_constant else None)
        if make_constant:
            self.add_constant_storage_mapping(out)
        return out


class TraceFakeMode(FakeTensorMode):
    """A FakeTensorMode whose tensors may have symbolic sizes if an environment is given.

    Args:
        env: the environment of the symbols; None: all sizes are numbers.
    """

    def __init__(self, env: Environment | None = None) -> None:
        torch_entry.unwrap_reference_functions()
        TorchDispatchMode.__init__(self)
        self.allow_fallback_kernels = False
        self.propagate_real_tensors = False
        self.fake_tensor_converter = _Converter(copy_data=False, export=False)
        self.env = env
        self.static_shapes = True
        self.allow_scalar_outputs = False
        self._allow_unsafe_data_ptr_access = False
        self.allow_meta = True
        self.cache_enabled = env is None  # torch's own cache, whose keys are expressions of sympy
        self.cache_crosscheck_enabled = False
        self.allow_non_fake_inputs = False
        self.in_kernel_invocation = False
        self.enter_stack = []
        self.shape_env = None
        self._stack_trace = traceback.StackSummary()
        self._stack = None
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE
        self.nt_tensor_id_initial_count = 0
        self.nt_tensor_id_counter = 0

        self._inside_rule = False  # operators called by a metadata rule are not the program's calls
        # Set when an operator that changes memory or draws random numbers is dispatched. Readers clear it beforehand.
        self.effects_seen = False
        # The storages that such operators write to, by address. Readers clear it beforehand.
        self.written: set[int] = set()
        # Set when an operator is dispatched that may raise because of its operands' elements.
        self.raises_seen = False
        # Like `effects_seen`, for random numbers only.
        self.random_seen = False
        self.casts: tuple[torch._C.DispatchKey, ...] = ()  # see ``fake.casting``
        self.known = KnownValues()
        # The sizes that the current operation defines, see ``fake.running_sizes``; None: it may not define any.
        self.defined: list[Any] | None = None
        self.calls: dict[Any, cache.Results] = {}  # see ``fake.calls``
        self._inputs: dict[int, tuple[torch.Tensor, FakeTensor]] = {}
        self._storages: dict[tuple[int, torch.dtype], FakeTensor] = {}
        self._static: TraceFakeMode | None = None  # a mode that runs operators without symbols
        self._python_dispatchers: list[Any] = []  # one for each entry of this mode, see __enter__

    @contextlib.contextmanager
    def called_again(self) -> Iterator[None]:
        """Inside the context, a call that asks for symbolic sizes as numbers raises NumbersAsked if it can be repeated
        with Python decompositions, which requires that it has had no effects so far.
        """
        env = self.env
        if env is None or env.decomposes_in_python is not None:
            yield
            return
        before, env.may_call_again = env.may_call_again, lambda: not self.effects_seen
        try:
            yield
        finally:
            env.may_call_again = before

    @contextlib.contextmanager
    def decompositions_in_cpp(self) -> Iterator[None]:
        """Inside the context, C++ decompositions are not replaced by Python decompositions."""
        env = self.symbols()
        before, env.decomposes_in_python = env.decomposes_in_python, False
        try:
            yield
        finally:
            env.decomposes_in_python = before

    def decomposes_in_python(self, operands: Any, func: Any = None) -> bool:
        """Whether torch's Python decompositions are used for these operands: if this trace has met a function that asks
        for sizes as numbers, and for ``matmul`` in torch versions where it does. Not for tensors without elements,
        since the Python decompositions omit eager's checks of these."""
        env = self.env
        if env is None:
            return False
        asks = func is _MATMUL and bool(env.hints) and torch_versions.matmul_asks_for_numbers()
        return bool(asks or env.decomposes_in_python) and have_elements(operands)

    def taken_apart(self, run: Callable[[bool], Any], operands: Any) -> Any:
        """The result of a composite operation from its C++ decomposition or, if that asks for symbolic sizes as
        numbers, from its Python decomposition, which omits eager's checks of tensors without elements. `run` is told
        whether to use Python.
        """
        before, self.effects_seen = self.effects_seen, False
        try:
            with self.called_again():
                return run(False)
        except NumbersAsked:
            made = run(True) if have_elements(operands) else None
            return made if made is not None and have_elements(made) else run(False)
        finally:
            self.effects_seen |= before

    def asks_for_numbers(self, error: Exception) -> bool:
        """Whether a call has failed because C++ code takes no symbols in a list of sizes, and can be repeated as in
        :meth:`called_again`."""
        env = self.env
        if env is None or env.decomposes_in_python is not None or self.effects_seen:
            return False
        return isinstance(error, RuntimeError) and _NO_SYMBOLS in str(error)

    def for_these_sizes(self, func: Any, args: Any, kwargs: Any, error: Exception) -> Any:
        """Repeats a call of many operators that torch can't make with symbols; see ``symbolic.for_these_sizes``."""
        if self.env is None or self.effects_seen or self.defined is not None:
            return NotImplemented
        if self._static is None:
            self._static = TraceFakeMode()
        self._static.effects_seen = False
        return symbolic.for_these_sizes(self, self._static, func, args, kwargs, error)

    def symbols(self) -> Environment:
        """The environment of this mode's symbols, which is made if need be."""
        if self.env is None:
            self.env = Environment()
            self.cache_enabled = False
        return self.env

    def from_tensor(self, tensor: torch.Tensor, layout: Layout | None = None, **_: Any) -> FakeTensor:
        """The fake twin of a strided tensor: same sizes, strides, offset, dtype, device, leaf state.

        Twins of tensors that share a storage share a fake storage, so that mutation through one is seen as mutation of
        the other. The same tensor always gives the same twin.

        Args:
            tensor: any dense tensor; its values are not read.
            layout: its sizes and strides, if some of them are symbolic.
        """
        if isinstance(tensor, FakeTensor):
            return tensor
        known = self._inputs.get(id(tensor))
        if known is None:
            known = self._inputs[id(tensor)] = (tensor, self._make_twin(tensor, layout))
        return known[1]

    def lies_in_input(self, fake: torch.Tensor) -> bool:
        """Whether a fake tensor lies in memory of a real tensor's twin."""
        storage = fake.untyped_storage()._cdata
        return any(twin.untyped_storage()._cdata == storage for twin in self._storages.values())

    def forget_inputs(self) -> None:
        """Drops the real tensors. To be called when the trace has ended, since a graph keeps its mode alive."""
        self.calls.clear()
        self._inputs.clear()
        self._storages.clear()

    def _make_twin(self, tensor: torch.Tensor, layout: Layout | None) -> FakeTensor:
        size, strides = layout if layout is not None else (tensor.shape, tensor.stride())
        # Even with a layout, all sizes and strides may be numbers.
        symbolic = layout is not None and any(isinstance(n, torch.SymInt) for n in (*size, *strides))
        storage = tensor.untyped_storage()
        elements = storage.nbytes() // tensor.itemsize
        shared = (storage._cdata, tensor.dtype)
        extent = storage_extent(tensor.shape, tensor.stride())
        whole = tensor.storage_offset() == 0 and extent == elements and shared not in self._storages
        # The size of the memory around a tensor with symbolic sizes is unknown.
        whole = whole or symbolic and shared not in self._storages
        # Needed if the tensor is first met while the program is inside inference_mode.
        mode = tensor.is_inference()
        as_now = mode == torch.is_inference_mode_enabled()
        twin: torch.Tensor
        inside = contextlib.nullcontext() if as_now else torch._C._InferenceMode(mode)
        with inside, torch.no_grad():
            if whole:
                # Made as the mode would make it, but without the dispatcher, which would take 20 times as long.
                with no_dispatch():
                    meta = torch.empty_strided(size, strides, dtype=tensor.dtype, device="meta")
                    twin = self._storages[shared] = FakeTensor(self, meta, tensor.device)
            else:
                if shared not in self._storages:
                    with no_dispatch():
                        meta = torch.empty(elements, dtype=tensor.dtype, device="meta")
                        self._storages[shared] = FakeTensor(self, meta, tensor.device)
                self._make_room(self._storages[shared], storage.nbytes())
                with self:
                    twin = self._storages[shared].as_strided(size, strides, tensor.storage_offset())
            if not whole or tensor.is_conj() or tensor.is_neg():
                with self:
                    if tensor.is_conj():
                        twin = twin.conj()
                    if tensor.is_neg():
                        twin = twin._neg_view()
                    twin = twin.detach()
        if tensor.requires_grad:
            twin.requires_grad_()
            if not tensor.is_leaf:
                with self, torch.enable_grad():
                    twin = torch._C._functions.DelayedError("backward of a fake tensor", 1)(twin)
        assert isinstance(twin, FakeTensor)
        return twin

    @staticmethod
    def _make_room(first: FakeTensor, held: int) -> None:
        """Enlarges fake memory that was made for the first of several tensors that share it, and only for that one."""
        memory = first.untyped_storage()
        if hint_of(memory.nbytes()) < held:
            with no_dispatch():
                memory.resize_(held)

    @functools.cached_property
    def avoid_device_init(self) -> bool:
        """Read each time the mode is entered. The base class then queries CUDA's library for devices.

        A CUDA build without a GPU avoids nothing: torch would register a device guard that lives only as long as the
        thread that enters the mode, but use it afterwards (``c10::impl::ensureCUDADeviceGuardSet``). This crashed
        processes that compiled in several threads.
        """
        return super().avoid_device_init and not torch.cuda._is_compiled()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Keeps TorchDispatchMode.__init_subclass__ from wrapping the entry below in torch._disable_dynamo.
        return False

    def __enter__(self) -> TraceFakeMode:
        # Some C++ decompositions take no symbols; torch has Python decompositions in their place.
        dispatcher = None
        env = self.env
        if env is not None and env.hints:
            torch_versions.mend_sizes_of_pooling()
            if env.decomposes_in_python or torch_versions.matmul_asks_for_numbers():
                dispatcher = torch._C._EnablePythonDispatcher()
                dispatcher.__enter__()
        self._python_dispatchers.append(dispatcher)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        dispatcher = self._python_dispatchers.pop()
        if dispatcher is not None:
            dispatcher.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # An exception at any instruction (from a signal handler, or MemoryError) may leave a mode on the stack. Torch
        # pushes this mode again after the call, and would then abort the process.
        depth = torch._C._len_torch_dispatch_stack()
        try:
            if func is _FFT and torch_versions.spectra_take_sorted_dims():
                args = (args[0], sorted(args[1]), *args[2:])
            elif func is _NORM and len(args) > 2 and torch_versions.norms_take_dims_from_the_front():
                args = (*args[:2], _from_the_front(args[2], args[0].dim()), *args[3:])
            if self.casts and func.namespace == "aten":
                return casting.dispatch(self, func, types, args, kwargs or {}, _traits_of(func).is_composite)
            return self.dispatch_here(func, types, args, kwargs)
        finally:
            while torch._C._len_torch_dispatch_stack() > depth:
                torch._C._pop_torch_dispatch_stack(None)

    def dispatch_here(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """The result of an operation, without autocasting inside it."""
        if func is _DEVICE and type(args[0]) is FakeTensor and not args[0].fake_mode.in_kernel_invocation:
            return args[0].fake_device  # metadata rules in Python ask for each operand's device
        traits = _traits_of(func)
        if traits.draws_random:
            self.random_seen = True
        if not self.raises_seen and traits.may_raise:
            self.raises_seen = raising.may_raise(func, args, kwargs or {})
        if traits.writes_statistics and args[_TRAINING_ARGUMENT]:
            self.effects_seen = True
            self.written |= {t.untyped_storage()._cdata for t in args[_STATISTICS] if t is not None}
        if traits.is_mutable:
            return self._dispatch_write(func if self.known else traits.same_metadata, types, args, kwargs or {})
        if traits.has_effects:
            self.effects_seen = True
        if not self.known:  # with known elements, the operation itself computes them
            func = traits.same_metadata
        if traits.copies_nothing and not args[0].numel():
            func, args = torch.ops.aten.clone.default, args[:1]
            traits = _traits_of(func)
        if self.defined is not None and running_sizes.defines_size(self, func, args):
            made = running_sizes.run(self, func, args, kwargs or {})
            if made is not NotImplemented:
                return made
        if self.env is not None and symbolic.has_symbols(args, kwargs):
            return self._dispatch_symbolic(func, types, args, kwargs or {})
        key = None
        if (self.cache_enabled or self.env is not None) and traits.is_remembered:
            key = cache.key_of(self, func, args, kwargs or {})
            made = cache.remembered(self, key) if key is not None else None
            if made is not None:
                return made
        view_key = None
        if self.cache_enabled and self.static_shapes and traits.is_remembered_view:
            view_key = cache.key_of_view(self, func, args, kwargs or {})
            view = cache.view_again(self, view_key, args[0]) if view_key is not None else None
            if view is not None:
                return view
        raises = self.raises_seen
        inside = self._inside_rule
        if not inside:
            if traits.is_lenient:
                asked = key if key is not None else cache.key_of(self, func, args, kwargs or {})
                refusals.check_rule(func, args, kwargs or {}, asked)
            refusals.check_types(func, args, kwargs or {})
        self._inside_rule = inside or not traits.is_composite
        try:
            result = self._dispatch_new(func, types, args, kwargs)
        finally:
            self._inside_rule = inside
        if not traits.is_composite:
            self.raises_seen = raises  # ignores operators called by its metadata rule
        if key is not None:
            cache.remember(key, result, args)
        if view_key is not None:
            cache.remember_view(view_key, result, args[0])
        return result

    def _dispatch_symbolic(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Dispatches an operator with symbolic operands, see ``fake.symbolic``."""
        if func in _ASKS_FOR_NUMBERS and self.env is not None and self.env.may_call_again():
            raise NumbersAsked(str(func))
        if self._static is None:
            self._static = TraceFakeMode()

        def run() -> Any:
            with torch_entry.scope():
                return torch_entry.dispatch(self, func, types, args, kwargs)

        self.known.forget(list(overlap.written_by(func, args, kwargs)))
        return symbolic.dispatch(self, self._static, run, func, args, kwargs)

    def _dispatch_write(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        written_to = writes_alone.results(func, args, kwargs)
        if written_to is not NotImplemented:
            self.effects_seen = True
            written_tensors = list(overlap.written_by(func, args, kwargs))
            self.written |= {t.untyped_storage()._cdata for t in written_tensors}
            self.known.forget(written_tensors)
            return written_to
        if self.env is not None and symbolic.has_symbols(args, kwargs):
            if not overlap.check(func, args, kwargs):
                symbolic.fix(self.env, args, kwargs, "whether it reads what it writes depends on these sizes")
            self.effects_seen = True
            self.written |= {t.untyped_storage()._cdata for t in overlap.written_by(func, args, kwargs)}
            written = refusals.sizes_written(func, args, kwargs)
            result = self._dispatch_symbolic(func, types, args, kwargs)
            refusals.compare_sizes(func, written)
            return result
        overlap.check(func, args, kwargs)
        refusals.check(func, args, kwargs, cache.key_of(self, func, args, kwargs))
        self.effects_seen = True
        self.written |= {t.untyped_storage()._cdata for t in overlap.written_by(func, args, kwargs)}
        if kwargs and stride_rules.is_written_out(func):
            return self._dispatch_out(func, types, args, kwargs)
        written = refusals.sizes_written(func, args, kwargs)
        result = self._dispatch_new(func, types, args, kwargs)
        refusals.compare_sizes(func, written)
        return result

    def _dispatch_new(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result: Any
        with torch_entry.scope():
            result = own_rules.result(
                func, args, kwargs or {}, lambda f, a, k: torch_entry.dispatch(self, f, types, a, k))
            if result is not NotImplemented:
                return result
            if self.known:
                result = self.known.dispatch(self, torch_entry.dispatch, func, types, args, kwargs or {})
            else:
                result = torch_entry.dispatch(self, func, types, args, kwargs or {})
            result = self._with_types_and_places(func, types, args, kwargs or {}, result)
            rule = stride_rules.rule_of(func)
            if rule is not None:
                result = self._with_strides_of_eager(rule, func, types, args, kwargs or {}, result)
            return result

    def _dispatch_out(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Dispatches an operator with ``out``: a resized ``out`` gets the layout of a new result, see
        ``fake.strides.is_written_out``."""
        out = kwargs.get("out")
        if not isinstance(out, FakeTensor):
            return self._dispatch_new(func, types, args, kwargs)
        before = out.shape
        result = self._dispatch_new(func, types, args, kwargs)
        if before != out.shape:
            strides = stride_rules.resized_strides(func, args, kwargs, out)
            if strides is not None and tuple(strides) != out.stride():
                place = (out, tuple(out.shape), tuple(strides))
                with torch_entry.scope():
                    torch_entry.dispatch(self, torch.ops.aten.as_strided_.default, types, place, {})
        return result

    def _with_types_and_places(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
        """Corrects a result's dtypes and strides, see ``fake.result_types`` and ``fake.layers``."""
        places = layers.rule_of(func)
        dtypes = None if _traits_of(func).is_composite else result_types.of_eager(func, args, kwargs)
        if places is None and dtypes is None:
            return result
        several = isinstance(result, (tuple, list))
        parts = list(result) if several else [result]
        if dtypes is not None and len(dtypes) == len(parts):
            parts = self._with_places([
                (dtype, part.stride()) if dtype is not None and isinstance(part, FakeTensor) else None
                for dtype, part in zip(dtypes, parts)], types, parts)
        if places is not None:
            parts = self._with_places(places(args, parts), types, parts)
        if isinstance(result, list):
            return parts
        return tuple(parts) if several else parts[0]

    def _with_places(self, places: list[layers.Place | None], types: Any, parts: list[Any]) -> list[Any]:
        """Corrects the parts of a result, see ``fake.layers``."""
        for at, place in enumerate(places):
            was = parts[at]
            if place is not None and place != (was.dtype, was.stride()):
                like = {"dtype": place[0], "device": was.device}
                parts[at] = torch_entry.dispatch(
                    self, torch.ops.aten.empty_strided.default, types, (tuple(was.shape), place[1]), like)
        return parts

    def _with_strides_of_eager(self, rule: Any, func: Any, types: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """Corrects a result's strides to those of eager mode, see ``fake.strides``. A view stays a view."""
        first = result[0] if isinstance(result, tuple) else result
        if not isinstance(first, FakeTensor) or not stride_rules.is_concerned(func, args, first):
            return result
        strides = rule(func, args, kwargs, first)
        if strides is None or tuple(strides) == first.stride():
            return result
        size = tuple(first.shape)
        if func in stride_rules.VIEWS:
            place = (args[0], size, tuple(strides), args[0].storage_offset())
            return torch_entry.dispatch(self, torch.ops.aten.as_strided.default, types, place, {})

        def made(part: FakeTensor) -> Any:
            if tuple(part.shape) != size:
                return part
            like = {"dtype": part.dtype, "device": part.device}
            return torch_entry.dispatch(self, torch.ops.aten.empty_strided.default, types, (size, tuple(strides)), like)

        if isinstance(result, tuple):
            every = func in stride_rules.EVERY_RESULT
            return tuple(made(part) if every or part is first else part for part in result)
        return made(first)


quiet.drop_records_of(TraceFakeMode)


class _Traits:
    """The facts about an operator that the mode needs at each dispatch, computed once."""

    __slots__ = ("copies_nothing", "draws_random", "has_effects", "is_composite", "is_lenient", "is_mutable",
                 "is_remembered", "is_remembered_view", "may_raise", "same_metadata", "writes_statistics")

    def __init__(self, func: Any) -> None:
        self.is_mutable = bool(func._schema.is_mutable)
        self.is_composite = func.namespace == "prim" or _has_composite_kernel(func)
        self.draws_random = torch.Tag.nondeterministic_seeded in func.tags
        self.has_effects = self.is_mutable or self.draws_random or func in _CHECKS
        self.may_raise = raising.may_ever_raise(func)
        self.writes_statistics = func in _UNDECLARED_MUTATION
        self.same_metadata = _SAME_METADATA.get(func, func)
        self.copies_nothing = func in _COPIES_NOTHING
        self.is_remembered = cache.is_remembered(self.same_metadata)
        self.is_remembered_view = cache.is_remembered_view(self.same_metadata)
        self.is_lenient = refusals.is_lenient(self.same_metadata)


_traits_of = functools.cache(_Traits)


def _has_composite_kernel(func: Any) -> bool:
    if func in cache.NOT_DISPATCHED:
        return False
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


# Operators that use another operator's metadata rule. These are shifts whose own rule, a Python function, refuses bool
# operands and accepts floats.
_SAME_METADATA: dict[Any, Any] = {}
for _in_place in ("", "i"):
    for _name, _side in (("lshift", "left"), ("rshift", "right")):
        _shift = getattr(torch.ops.aten, f"bitwise_{_side}_shift{_in_place and '_'}")
        _python = getattr(torch.ops.aten, f"__{_in_place}{_name}__")
        _SAME_METADATA |= {_python.Tensor: _shift.Tensor, _python.Scalar: _shift.Tensor_Scalar}

_MATMUL = torch.ops.aten.matmul.default
_FFT = torch.ops.aten._fft_c2c.default
_NORM = torch.ops.aten.linalg_vector_norm.default
_DEVICE = torch.ops.prim.device.default


def _from_the_front(dims: list[int] | None, rank: int) -> list[int] | None:
    return [d + rank if -rank <= d < 0 else d for d in dims] if isinstance(dims, (list, tuple)) else dims


# Operators that return a copy of a tensor without elements, whatever their metadata rule computes.
_COPIES_NOTHING = frozenset({
    torch.ops.aten.pixel_unshuffle.default, torch.ops.aten._transformer_encoder_layer_fwd.default})

# Operators that raise or do nothing.
_CHECKS = frozenset({torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg})

# Operators that update running statistics if their argument `training` is true, which their schemas do not declare.
_TRAINING_ARGUMENT = 5
_STATISTICS = slice(3, 5)
_UNDECLARED_MUTATION = frozenset({
    torch.ops.aten.native_batch_norm.default, torch.ops.aten.cudnn_batch_norm.default,
    torch.ops.aten.miopen_batch_norm.default,
})
