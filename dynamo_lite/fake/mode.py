"""The fake tensor mode of traces: metadata without storage, and without an import of ``torch._dynamo``.

``torch._subclasses.FakeTensorMode`` is the library that knows every operator's output metadata. In current torch its
constructor, its (wrapped) dispatch entry and one line of its dispatcher import ``torch._dynamo`` for a handful of
configuration values, which costs more than a second per process. :class:`TraceFakeMode` supplies those values itself.

Invariant: using this mode never imports ``torch._dynamo`` or ``torch._inductor``, and never leaves a trace in torch's
namespace that could be taken for them.
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
    """Whether no tensor among the operands is without elements; a guard of sizes that are symbols."""
    return all(n > 0 for x in pytree.tree_leaves(operands) if isinstance(x, torch.Tensor) for n in x.shape)


# How C++ asks for sizes as numbers.
_ASKS_FOR_NUMBERS = frozenset({torch.ops.aten.size.default, torch.ops.aten.numel.default})


# What c10/core/SymIntArrayRef.h says where it does not ask, but refuses symbols.
_NO_SYMBOLS = "SymIntArrayRef expected to contain only concrete integers"


class _Converter(FakeTensorConverter):
    """Converts the tensors that a traced program makes from data (``torch.tensor(3)``); keeps their values as
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
    """A FakeTensorMode, whose tensors may have symbolic sizes if an environment is given.

    Args:
        env: what knows the symbols; None: all sizes are numbers.
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
        self.cache_enabled = env is None  # torch's cache, whose keys are sympy's expressions
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

        self._inside_rule = False  # what a metadata rule calls is not what the program has called
        # Set when an operator that changes memory or draws random numbers is dispatched; whoever asks clears it first.
        self.effects_seen = False
        # The storages that they write to, by address; whoever asks clears it first.
        self.written: set[int] = set()
        # Set when an operator is dispatched that may raise because of elements.
        self.raises_seen = False
        # The same as the first, for random numbers alone.
        self.random_seen = False
        self.casts: tuple[torch._C.DispatchKey, ...] = ()  # see ``fake.casting``
        self.known = KnownValues()
        # The sizes that the operation being run defines, see ``fake.running_sizes``; None: it may define none.
        self.defined: list[Any] | None = None
        self.calls: dict[Any, cache.Results] = {}  # see ``fake.calls``
        self._inputs: dict[int, tuple[torch.Tensor, FakeTensor]] = {}
        self._storages: dict[tuple[int, torch.dtype], FakeTensor] = {}
        self._static: TraceFakeMode | None = None  # runs operators without symbols
        self._python_dispatchers: list[Any] = []  # of the entries of this mode, see __enter__

    @contextlib.contextmanager
    def called_again(self) -> Iterator[None]:
        """A call that asks for symbolic sizes as numbers raises NumbersAsked, as it can be made again with
        decompositions in Python: not if it has had effects by then.
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
        """Inside, no decomposition in Python takes the place of one in C++."""
        env = self.symbols()
        before, env.decomposes_in_python = env.decomposes_in_python, False
        try:
            yield
        finally:
            env.decomposes_in_python = before

    def decomposes_in_python(self, operands: Any, func: Any = None) -> bool:
        """Whether torch's decompositions in Python compute with these operands: where this trace has met a function
        that asks for sizes as numbers, and for ``matmul`` where it does. They leave out what eager checks of tensors
        without elements."""
        env = self.env
        if env is None:
            return False
        asks = func is _MATMUL and bool(env.hints) and torch_versions.matmul_asks_for_numbers()
        return bool(asks or env.decomposes_in_python) and have_elements(operands)

    def taken_apart(self, run: Callable[[bool], Any], operands: Any) -> Any:
        """What a composite operation gives as C++ takes it apart or, where that asks for symbolic sizes as numbers, as
        Python does: `run` is told whether it is Python. That leaves out what eager checks of tensors without elements.
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
        """Whether a call has ended since C++ takes no symbols in a list of sizes, and can be made again as in
        :meth:`called_again`."""
        env = self.env
        if env is None or env.decomposes_in_python is not None or self.effects_seen:
            return False
        return isinstance(error, RuntimeError) and _NO_SYMBOLS in str(error)

    def for_these_sizes(self, func: Any, args: Any, kwargs: Any, error: Exception) -> Any:
        """A call of many operators that torch has failed to make with symbols; see ``symbolic.for_these_sizes``."""
        if self.env is None or self.effects_seen or self.defined is not None:
            return NotImplemented
        if self._static is None:
            self._static = TraceFakeMode()
        self._static.effects_seen = False
        return symbolic.for_these_sizes(self, self._static, func, args, kwargs, error)

    def symbols(self) -> Environment:
        """What knows the symbols of this mode's tensors, from now on."""
        if self.env is None:
            self.env = Environment()
            self.cache_enabled = False
        return self.env

    def from_tensor(self, tensor: torch.Tensor, layout: Layout | None = None, **_: Any) -> FakeTensor:
        """The fake twin of a strided tensor: same sizes, strides, offset, dtype, device, leaf state.

        Twins of tensors that share a storage share a fake storage, so that mutation through one is seen as mutation of
        the other. The same tensor gives the same twin.

        Args:
            tensor: any dense tensor; its values are not read.
            layout: its sizes and strides, if some are symbols.
        """
        if isinstance(tensor, FakeTensor):
            return tensor
        known = self._inputs.get(id(tensor))
        if known is None:
            known = self._inputs[id(tensor)] = (tensor, self._make_twin(tensor, layout))
        return known[1]

    def forget_inputs(self) -> None:
        """Lets go of the real tensors. To be called when the trace has ended; a graph keeps its mode."""
        self.calls.clear()
        self._inputs.clear()
        self._storages.clear()

    def _make_twin(self, tensor: torch.Tensor, layout: Layout | None) -> FakeTensor:
        size, strides = layout if layout is not None else (tensor.shape, tensor.stride())
        # One that was asked about may still have been given the sizes that it has.
        symbolic = layout is not None and any(isinstance(n, torch.SymInt) for n in (*size, *strides))
        storage = tensor.untyped_storage()
        elements = storage.nbytes() // tensor.itemsize
        shared = (storage._cdata, tensor.dtype)
        extent = storage_extent(tensor.shape, tensor.stride())
        whole = tensor.storage_offset() == 0 and extent == elements and shared not in self._storages
        # How much memory lies around a tensor with symbolic sizes is not known.
        whole = whole or symbolic and shared not in self._storages
        # Also one that is first met inside of an inference_mode of the program's.
        mode = tensor.is_inference()
        as_now = mode == torch.is_inference_mode_enabled()
        twin: torch.Tensor
        inside = contextlib.nullcontext() if as_now else torch._C._InferenceMode(mode)
        with inside, torch.no_grad():
            if whole:
                # Made as the mode would make it, without the dispatcher, which takes 20 times as long.
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
        """Memory that was made for the first of several tensors in it, as large as that one alone."""
        memory = first.untyped_storage()
        if hint_of(memory.nbytes()) < held:
            with no_dispatch():
                memory.resize_(held)

    @functools.cached_property
    def avoid_device_init(self) -> bool:
        """Asked each time that the mode is entered: torch asks CUDA's library for its devices then.

        A build for CUDA without a GPU avoids nothing: torch would register a guard of devices that lives as long as the
        thread that enters the mode, and use it afterwards (``c10::impl::ensureCUDADeviceGuardSet``), which ended
        processes that compiled in several threads.
        """
        return super().avoid_device_init and not torch.cuda._is_compiled()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Keeps TorchDispatchMode.__init_subclass__ from wrapping the entry below in torch._disable_dynamo.
        return False

    def __enter__(self) -> TraceFakeMode:
        # Where a decomposition in C++ takes no symbols, torch has one in Python.
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
        # An exception at any instruction (a signal's handler, MemoryError) may leave a mode behind; torch, which puts
        # this one back after the call, ends the process then.
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
        """The result of an operation within which nothing is cast."""
        if func is _DEVICE and type(args[0]) is FakeTensor and not args[0].fake_mode.in_kernel_invocation:
            return args[0].fake_device  # asked by rules in Python for each operand
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
        if not self.known:  # elements are computed by the operation itself
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
            self.raises_seen = raises  # whatever its metadata rule has called
        if key is not None:
            cache.remember(key, result, args)
        if view_key is not None:
            cache.remember_view(view_key, result, args[0])
        return result

    def _dispatch_symbolic(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """See ``fake.symbolic``."""
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
        """See ``fake.strides.is_written_out``: where ``out`` is resized, it is laid out as a new result would be."""
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
        """See ``fake.result_types`` and ``fake.layers``."""
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
        """See ``fake.layers``."""
        for at, place in enumerate(places):
            was = parts[at]
            if place is not None and place != (was.dtype, was.stride()):
                like = {"dtype": place[0], "device": was.device}
                parts[at] = torch_entry.dispatch(
                    self, torch.ops.aten.empty_strided.default, types, (tuple(was.shape), place[1]), like)
        return parts

    def _with_strides_of_eager(self, rule: Any, func: Any, types: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """See ``fake.strides``. A view stays one."""
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
    """What the mode asks of an operator each time that it is dispatched, put together once."""

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


# Operators in whose place the metadata rule of another one runs: shifts by these names, whose own rule, in Python,
# refuses operands of bools, and lets pass floats.
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


# Operators that copy a tensor without elements as it is, whatever their metadata rule gives.
_COPIES_NOTHING = frozenset({
    torch.ops.aten.pixel_unshuffle.default, torch.ops.aten._transformer_encoder_layer_fwd.default})

# Operators that raise, or do nothing.
_CHECKS = frozenset({torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg})

# Operators that update running statistics without saying so in their schema, where their argument `training` is true.
_TRAINING_ARGUMENT = 5
_STATISTICS = slice(3, 5)
_UNDECLARED_MUTATION = frozenset({
    torch.ops.aten.native_batch_norm.default, torch.ops.aten.cudnn_batch_norm.default,
    torch.ops.aten.miopen_batch_norm.default,
})
