"""The kinds of graph break: for each a stable identifier, its name, its cause, and advice for the user.

The identifiers are part of the public interface: users filter logs by them, and `docs/graph_breaks.md` is written from
this table. Invariant: a row may be reworded; an identifier, once released, is neither renamed nor reused.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class BreakKind:
    """`what` names the construct, `why` says what prevents its capture, `hint` what the user can change."""

    id: str
    what: str
    why: str
    hint: str


BREAK_KINDS: dict[str, BreakKind] = {}


def _kind(id: str, what: str, why: str, hint: str) -> None:
    assert id not in BREAK_KINDS, f"break kind {id!r} is registered twice"
    BREAK_KINDS[id] = BreakKind(id, what, why, hint)


# ---------------------------------------------------------------- tensor data that Python wants to see
_kind("data_dependent_branch", "data-dependent control flow",
      "which way the program goes depends on a tensor's values, and these are not known before it runs",
      "compute both sides and choose with torch.where, or branch on a shape or a Python value instead")
_kind("tensor_to_python", "a tensor's value as a Python value",
      ".item(), .tolist(), int(), float() and bool() hand a tensor's data to Python, which is known only when it runs",
      "keep the value in a tensor; config.capture_scalar_outputs = True keeps .item() in the graph where nothing "
      "branches on the value")
_kind("numpy_conversion", "a conversion to NumPy",
      "a NumPy array shares the tensor's memory, and code that is not torch's reads and writes it",
      "use the torch function of the same name, or convert outside the compiled function")
_kind("data_ptr", "a tensor's memory address",
      "a tensor has no address while its program is being captured",
      "take data_ptr() or the storage outside the compiled function")
_kind("dynamic_output_shape", "an operation whose output shape depends on data",
      "the shape of the result (nonzero, unique, boolean masks, ...) is known only when it runs",
      "use a form of fixed size: torch.where with three arguments, masked_fill, multiplication by the mask, topk; "
      "config.capture_dynamic_output_shape_ops = True keeps it in the graph where nothing branches on the size")
_kind("data_dependent_guard", "a data-dependent size in a decision",
      "a size or number that came out of a tensor decides about shapes, strides or control flow",
      "pass the size as an argument, or state what is known of it with torch._check")

# ---------------------------------------------------------------- calls
_kind("call_skipped", "a call of a function that is not captured",
      "the function is written in C, or stands in a module whose functions are called rather than captured",
      "call it outside the compiled function; if it is Python and only does tensor work, name its module in "
      "config.extra_inline_modules; if it is safe inside a graph, mark it with dynamo_lite.allow_in_graph")
_kind("disabled_function", "a call of a function under dynamo_lite.disable",
      "the function was asked to run in plain Python",
      "remove dynamo_lite.disable from it, or call it before or after the compiled part")
_kind("disallowed_function", "a call of a disallowed function",
      "the function was marked with dynamo_lite.disallow_in_graph",
      "remove the mark, or call the function before or after the compiled part")
_kind("explicit_break", "dynamo_lite.graph_break()",
      "the program asks for a break here",
      "remove the call of graph_break()")
_kind("print_or_log", "printing, logging or a warning",
      "the text has to come out between the operations before it and those after it",
      "print after the compiled function, or guard the call with `if not dynamo_lite.is_compiling():`")
_kind("tensor_formatting", "a tensor turned into text",
      "str(), repr() and format() of a tensor show its data, which is known only when it runs",
      "show the shape or dtype instead, or format outside the compiled function")
_kind("input_output", "input or output",
      "files, sockets, the console and the clock are read and written as the program runs",
      "do it outside the compiled function and pass the result in")
_kind("process_control", "threads, processes, signals or frames",
      "the call reaches beyond the function that is captured",
      "make the call outside the compiled function")
_kind("inline_depth", "a chain of calls that is too deep",
      "inlined calls nest deeper than config.inline_depth_limit",
      "turn the recursion into a loop, or raise config.inline_depth_limit")
_kind("trace_too_long", "a trace of too many instructions",
      "loops are unrolled while they are captured; one that does not end soon is left to Python",
      "compile the body of the loop, or raise config.max_trace_instructions")
_kind("recursive_compile", "a compiled function with other settings inside a compiled function",
      "the inner function asks for a backend or options of its own",
      "compile the outer function only, or give both the same backend and options")

_kind("changing_value", "a number or list that changes from call to call",
      "its value decides about the graph, and config.recompile_limit is too low for a graph for each value",
      "pass a number that changes as a tensor, or raise config.recompile_limit")

_kind("internal_error", "a fault of dynamo_lite's own",
      "the evaluator failed on this statement, which runs in plain Python instead",
      "please report it, with the text of the exception")

# ---------------------------------------------------------------- Python that is not captured
_kind("unsupported_opcode", "a bytecode instruction that is not captured",
      "the evaluator has no rule for this instruction",
      "write the statement another way")
_kind("unsupported_builtin", "a builtin or standard library call that is not captured",
      "the evaluator has no rule for this function with these arguments",
      "write it as plain Python over lists, dicts and tensors, or call it outside the compiled function")
_kind("unsupported_method", "a method that is not captured",
      "the evaluator has no rule for this method of this kind of value",
      "write it with operations of lists, dicts and tensors, or call it outside the compiled function")
_kind("unsupported_attribute", "an attribute that is not captured",
      "reading or writing it runs code that can't be followed, or its value can't be guarded",
      "read it outside the compiled function and pass the value in")
_kind("unsupported_value", "a value that is not captured",
      "the evaluator can't follow, guard or rebuild an object of this type",
      "pass what you need of it as a number, string, list, dict or tensor")
_kind("unsupported_context_manager", "a context manager that is not captured",
      "entering and leaving it has effects that a graph can't hold",
      "enter it outside the compiled function")
_kind("unsupported_operator", "an operator on values that are not captured",
      "the evaluator has no rule for this operator between these kinds of value",
      "convert the operands to numbers or tensors first")
_kind("unsupported_iteration", "iteration over a value that is not captured",
      "the evaluator can't follow this iterator step by step",
      "turn it into a list or a tuple before the compiled function")
_kind("side_effect_unsupported", "a side effect that can't be replayed",
      "the change is made to an object outside the function in a way that can't be repeated after the graph",
      "return the new value and store it outside the compiled function")
_kind("end_of_life", "the end of an object whose end is felt",
      "a finalizer, a generator's clean-up or a weak reference's callback runs when the program lets go of the object, "
      "between what it does before and what it does after",
      "let go of the object after the compiled function, or close it explicitly before the tensor work")
_kind("generator_frame", "a generator, coroutine or async generator",
      "its frame is suspended and resumed by its caller",
      "consume the generator inside the compiled function, or compile the functions that it calls")
_kind("class_definition", "a class defined inside the function",
      "its metaclass, a base's __init_subclass__, __slots__ or a finalizer acts on the class while it is made",
      "define the class at module level")
_kind("import_statement", "an import of a module that is not loaded yet",
      "an import runs the module's code",
      "import at the top of the file")
_kind("dynamic_code", "code made while running",
      "what exec, eval and compile run, and changes to locals() or frames, can't be followed",
      "write the code out, or run it outside the compiled function")
_kind("frame_access", "a frame object of the interpreter",
      "what sys._getframe gives shows the frames that run, and in them locals that go on changing",
      "pass what is looked up in the frames as an argument")
_kind("python_exception_in_trace", "an exception that the function raises itself",
      "the function raises whenever it is called like this; plain Python raises it with the right effects before it",
      "nothing to do if the exception is meant; otherwise the message names the statement at fault")
_kind("exception_handling", "exception handling that is not captured",
      "the handler, the exception's type or its traceback can't be followed",
      "raise and catch exceptions of ordinary classes, or handle the error outside the compiled function")

# ---------------------------------------------------------------- torch that is not captured
_kind("tensor_subclass", "a tensor subclass",
      "the class has a __torch_dispatch__, slots, or special methods that can't be followed, or its __torch_function__ "
      "meets a mode or a call that can't be",
      "define __torch_function__ instead, pass plain tensors, or unwrap the subclass outside the compiled function")
_kind("sparse_or_quantized", "a sparse, quantized or nested tensor",
      "it has no plain strided memory, which graphs are made of",
      "convert it with to_dense() or dequantize() first")
_kind("functorch", "a functorch transform",
      "transforms (vmap, grad, jvp, ...) run their function under interpreter levels of functorch's",
      "compile the function inside, or call the transform outside the compiled function")
_kind("autograd_in_graph", "autograd inside the function",
      "backward() runs the autograd engine, and so does autograd.grad where histories or hooks from outside of the "
      "graph take part; a hook on a tensor whose history changes behind it, or in a function that torch calls by "
      "itself; a custom autograd function or a checkpoint whose function has effects, or reads what may have changed, "
      "can't run later as it was captured",
      "compile the forward part and call backward() outside; detach what torch.autograd.grad need not go through")
_kind("grad_mode_mismatch", "gradients that a graph can't reproduce",
      "requires_grad changes, or an input is changed in place while it needs a gradient",
      "set requires_grad outside the compiled function, and change copies in place")
_kind("fake_tensor_error", "an operation that can't be run without data",
      "the operation fails, or has no rule, on tensors that have a shape and no data",
      "check its arguments in plain Python; for an operator of your own, register a fake implementation "
      "(torch.library.register_fake)")
_kind("input_mutation", "a change of an input that can't be replayed",
      "an input tensor's size, storage or data is exchanged (resize_, set_, .data = ...)",
      "return a new tensor, or make the change outside the compiled function")
_kind("raises_after_write", "an operation that may raise, behind a change of an input under autograd",
      "where a graph raises, the frame runs again in plain Python, for which what it has changed is put back; what "
      "autograd knows of an input can't be, so the graph ends behind the change",
      "change a copy of the input, or do without in-place operations there")
_kind("backend_mutation", "a change that the backend can't reproduce",
      "the graph changes memory that several tensors share in a way that the backend does not model",
      "clone the tensor before it is changed")
_kind("distributed", "a call of torch.distributed",
      "processes have to meet at this call",
      "make the call outside the compiled function")
_kind("torch_state", "a change of torch's global state",
      "the call changes a setting of torch that the graph can't hold",
      "change the setting outside the compiled function")
_kind("rng_state", "the state of a random number generator",
      "seeds and generator objects are read or set while the program runs, or Python decides by a number that it draws",
      "seed outside the compiled function, draw from the default generator, and choose with torch.where")
_kind("unsupported_torch_call", "a torch function that is not captured",
      "the function has effects on Python or on torch that a graph can't hold, or arguments that a graph can't hold",
      "call it outside the compiled function")
