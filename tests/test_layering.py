"""The layers, read from the imports: a layer imports only what stands above it, and nothing is hidden in a function."""
import ast
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Top first. An entry is a module or a package below dynamo_lite; a package counts as one layer.
LAYERS = [
    "break_kinds", "exc", "config", "clock", "log",
    "runtime",
    "torch_versions",
    "symbols",
    "backends",
    "fake",
    "bytecode",
    "guards",
    "continuation",
    "rules",
    "polyfills",
    "variables",
    "output",
    "interpreter",
    "frame",
    "debug",
    "__init__",
    "__main__",
]
BACKEND_LAYERS = [
    "metrics", "registry", "eager",
    "aot",
    "inductor.random",
    "inductor.program",
    "inductor.prebuilt", "inductor.private_files", "inductor.toolchain",
    "inductor.source_parts",
    "inductor.folders", "inductor.kept_files", "inductor.kept_choices",
    "inductor.processor", "inductor.codegen.cpp.libraries", "inductor.machine_costs", "inductor.core_costs",
    "inductor.target_info",
    "inductor.gpu_info",
    "inductor.images_in_planes",
    "inductor.ir", "inductor.device_random",
    "inductor.lowering_registry",
    "inductor.lowering", "inductor.complex_rules", "inductor.complex_pairs",
    "inductor.scheduler",
    "inductor.late_decisions",
    "inductor.convolution_gradients",
    "inductor.target",
    "inductor.codecache",
    "inductor.recurrent", "inductor.serialize",
    "inductor.codegen",
    "inductor.pipeline",
    "inductor.device_graphs", "inductor.replay_plan", "inductor.replay",
    "inductor.kept_memory", "inductor.artifact",
    "inductor.graph_key",
    "inductor.graph_cache",
    "inductor.scalar_split",
    "inductor.route",
    "inductor.training",
    "inductor.compile",
    "aot_eager",
    "inductor.__init__",
    "__init__",
]
# What the back end may import of the front end.
FOR_BACKENDS = {"clock", "config", "exc", "log", "torch_versions", "runtime.array_operator", "runtime.autocast",
                "runtime.casts_inside",
                "runtime.neutral_state", "runtime.raising",
                "runtime.running_sizes", "runtime.saved_tensor_hooks", "runtime.signal_handlers",
                "runtime.sized_operators", "runtime.storage_extent", "runtime.tensor_layouts",
                "runtime.whole_calls",
                "symbols.environment", "symbols.integers", "symbols.nodes", "symbols.records",
                "symbols.torch_questions"}
# What the front end may import of the back end.
FOR_FRONT_END = {"dynamo_lite.backends", "dynamo_lite.backends.metrics", "dynamo_lite.backends.registry"}
# (importer, imported): imports made when first needed, each for the time that an import or a first call may take.
LAZY: set[tuple[str, str]] = {
    ("dynamo_lite.backends.inductor", "dynamo_lite.backends.inductor.lowering"),
    ("dynamo_lite.backends.inductor.artifact", "dynamo_lite.backends.inductor.codegen.triton.loading"),
    ("dynamo_lite.backends.inductor.artifact", "dynamo_lite.backends.inductor.codegen.triton.launch"),
    ("dynamo_lite.backends.inductor.compile", "dynamo_lite.backends.inductor.codegen.triton.launch"),
    ("dynamo_lite.backends.inductor.compile", "dynamo_lite.backends.inductor.codegen.triton.loading"),
    ("dynamo_lite.backends.inductor.compile", "dynamo_lite.backends.inductor.pipeline"),
    ("dynamo_lite.backends.inductor.compile", "dynamo_lite.backends.inductor.training"),
    ("dynamo_lite.backends.inductor.convolution_gradients", "dynamo_lite.backends.inductor.scheduler.image_gradients"),
    ("dynamo_lite.backends.inductor.late_decisions", "dynamo_lite.backends.inductor.scheduler.late_sharing"),
    ("dynamo_lite.backends.inductor.pipeline", "dynamo_lite.backends.inductor.codegen.triton.target"),
}

FORBIDDEN = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "torch._functorch.compilers",
             "functorch.compile")
FORBIDDEN_NAMES = {"make_fx"}
VERSIONED = ("bytecode", "interpreter")
MAX_LINES = 600
MAX_FUNCTION_LINES = 60
# How many branches of a function may ask what class a value has, or which object it is. More are a table, in which
# the classes register, or a method of theirs.
MAX_KINDS_ASKED = 5
# Likewise for branches that compare a name with names that stand in the function.
MAX_NAMES_ASKED = 7
# The one module that others may import, for type checking alone, although it imports them.
PROTOCOLS = "dynamo_lite.variables.protocols"


def _last_name(node: ast.AST) -> str | None:
    """What a name, plain or dotted, ends with. Writing out whole expressions takes most of such a search's time."""
    return getattr(node, "attr", None) or getattr(node, "id", None)


class Module:
    """A source file with its name and its imports. What is read of it is read when it is asked for: every process of a
    test run imports this file.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.shown = str(path.relative_to(ROOT))
        parts = list(path.relative_to(ROOT).with_suffix("").parts)
        if parts[0] == "backends":
            parts.insert(0, "dynamo_lite")
        self.is_package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.is_package else parts)

    @functools.cached_property
    def text(self):
        return self.path.read_text()

    @functools.cached_property
    def tree(self):
        return ast.parse(self.text)

    @functools.cached_property
    def imports(self):
        """(line, target, in a function, only for type checking)"""
        return list(self._imports(self.tree, False, False))

    def _imports(self, node, in_function, typing_only):
        for child in ast.iter_child_nodes(node):
            inside = in_function or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield child.lineno, alias.name, in_function, typing_only
            elif isinstance(child, ast.ImportFrom):
                base = self._absolute(child)
                for alias in child.names:
                    yield child.lineno, f"{base}.{alias.name}", in_function, typing_only
            elif isinstance(child, ast.Call) and child.args and isinstance(child.args[0], ast.Constant):
                name = child.args[0].value
                if isinstance(name, str) and "import" in ast.unparse(child.func):
                    if name.startswith("."):
                        name = self._resolve(name)
                    yield child.lineno, name, True, typing_only
            if isinstance(child, ast.If) and _last_name(child.test) == "TYPE_CHECKING":
                for part in child.body:
                    yield from self._imports(ast.Module([part], []), inside, True)
                for part in child.orelse:
                    yield from self._imports(ast.Module([part], []), inside, typing_only)
            else:
                yield from self._imports(child, inside, typing_only)

    def _resolve(self, dotted: str) -> str:
        level = len(dotted) - len(dotted.lstrip("."))
        base = self.name.split(".")
        base = base[: len(base) - (level - 1 if self.is_package else level)]
        return ".".join(base + ([dotted.lstrip(".")] if dotted.lstrip(".") else []))

    def _absolute(self, node: ast.ImportFrom) -> str:
        return self._resolve("." * node.level + (node.module or "")) if node.level else node.module or ""


def sources():
    return [path for top in ("dynamo_lite", "backends") for path in sorted((ROOT / top).rglob("*.py"))]


MODULES = [Module(path) for path in sources()]
# C extensions are known by their stubs. They import nothing of ours, so any layer of their side may use them.
EXTENSIONS = {Module(path).name for top in ("dynamo_lite", "backends") for path in (ROOT / top).rglob("*.pyi")}
NAMES = {m.name for m in MODULES} | EXTENSIONS


def own_module(target: str) -> str | None:
    """The longest prefix of an imported name that is a module of ours."""
    parts = target.split(".")
    if parts[0] != "dynamo_lite":
        return None
    while parts and ".".join(parts) not in NAMES:
        parts.pop()
    return ".".join(parts)


def layer(name: str, layers: list[str], prefix: str) -> str:
    """Which entry of a layer list a module belongs to."""
    inner = name.removeprefix(prefix).lstrip(".") or "__init__"
    if f"{inner}.__init__" in layers:
        return f"{inner}.__init__"
    for entry in layers:
        if inner == entry or inner.startswith(entry + "."):
            return entry
    raise AssertionError(f"{name} is in no layer: name it in {pathlib.Path(__file__).name} and docs/design/layers.md")


def own_imports(m: Module, typing: bool = False):
    """Where a module imports another of ours, which, and whether in a function.

    Args:
        typing: imports for type checking as well.
    """
    for line, target, in_function, typing_only in m.imports:
        name = own_module(target)
        if name is not None and (typing or not typing_only):
            yield f"{m.shown}:{line}", name, in_function


def check(problems: list[str]) -> None:
    assert not problems, "\n" + "\n".join(problems)


def test_every_module_is_in_a_layer():
    for m in MODULES:
        if m.name.startswith("dynamo_lite.backends"):
            layer(m.name, BACKEND_LAYERS, "dynamo_lite.backends")
        else:
            layer(m.name, LAYERS, "dynamo_lite")


def _upward(m: Module):
    backend = m.name.startswith("dynamo_lite.backends")
    layers, prefix = (BACKEND_LAYERS, "dynamo_lite.backends") if backend else (LAYERS, "dynamo_lite")
    mine = layer(m.name, layers, prefix)
    for at, name, _ in own_imports(m):
        if backend and not name.startswith("dynamo_lite.backends"):
            if name.removeprefix("dynamo_lite.") not in FOR_BACKENDS and name != "dynamo_lite":
                yield f"{at}: a backend imports {name} of the front end"
            elif name == "dynamo_lite":
                yield f"{at}: a backend imports the package itself; name the module (from dynamo_lite import config)"
        elif not backend and name.startswith("dynamo_lite.backends"):
            if name not in FOR_FRONT_END:
                yield f"{at}: the front end imports {name}; it goes through the registry"
        elif name not in EXTENSIONS:
            theirs = layer(name, layers, prefix)
            if (m.name, name) not in LAZY and layers.index(theirs) > layers.index(mine):
                yield f"{at}: {mine} imports {theirs}, which stands below it"


def test_no_upward_import():
    check([problem for m in MODULES for problem in _upward(m)])


def _allowed(text: str, layers: list[str], mine: str, top: set[str]) -> set[str]:
    """What a package's docstring lets it import: the layers that it names, with "above" those above them."""
    claim = re.search(r"May import ([^.;]*)", text)
    assert claim, f"{mine} does not say what it may import"
    named = set(re.findall(r"`(\w+)`", claim[1]))
    if "everything" in claim[1] or "all of" in claim[1]:
        return set(layers[:layers.index(mine)])
    if "above" in claim[1]:
        return set(layers[:1 + max(layers.index(name) for name in named)])
    return named | (top if "at the top" in claim[1] else set())


@pytest.mark.parametrize("room", [entry for entry in LAYERS if (ROOT / "dynamo_lite" / entry / "__init__.py").exists()])
def test_rooms_import_what_their_docstrings_say(room):
    text = (ROOT / "dynamo_lite" / room / "__init__.py").read_text()
    allowed = _allowed(text, LAYERS, room, {"break_kinds", "exc", "config", "log"}) | {room}
    check([f"{at}: {name}" for m in MODULES if m.name.startswith(f"dynamo_lite.{room}")
           for at, name, _ in own_imports(m) if name not in EXTENSIONS and name not in FOR_FRONT_END
           and layer(name, LAYERS, "dynamo_lite") not in allowed])


@pytest.mark.parametrize("part", ["ir", "lowering", "scheduler", "codegen"])
def test_parts_of_the_back_end_import_what_their_docstrings_say(part):
    prefix = "dynamo_lite.backends."
    text = (ROOT / "backends" / "inductor" / part / "__init__.py").read_text()
    named = _allowed(text, BACKEND_LAYERS, part, set()) | {part}
    allowed = {"aot" if name == "aot" else f"inductor.{name}" for name in named}
    check([f"{at}: {name}" for m in MODULES if m.name.startswith(f"{prefix}inductor.{part}")
           for at, name, _ in own_imports(m) if name.startswith(prefix) and name not in EXTENSIONS
           and not layer(name, BACKEND_LAYERS, prefix.rstrip(".")).startswith(tuple(allowed))])


def test_no_own_import_hidden_in_a_function():
    check([f"{at}: {name} is imported inside a function" for m in MODULES for at, name, hidden in own_imports(m)
           if hidden and (m.name, name) not in LAZY])


def test_lazy_imports_are_real():
    made = {(m.name, name) for m in MODULES for _, name, hidden in own_imports(m) if hidden}
    assert LAZY <= made, f"no longer made: {LAZY - made}"


def test_competitors_are_not_imported():
    problems = [f"{m.shown}:{line}: imports {target}" for m in MODULES for line, target, _, typing_only in m.imports
                if not typing_only and any(target == f or target.startswith(f + ".") for f in FORBIDDEN)]
    ends = {name.rpartition(".")[2] for name in (*FORBIDDEN, "torch.compile")}
    for m in MODULES:
        for node in ast.walk(m.tree):
            if isinstance(node, ast.Attribute) and node.attr in ends:
                dotted = ast.unparse(node)
                if dotted in FORBIDDEN or dotted == "torch.compile":
                    problems.append(f"{m.shown}:{node.lineno}: uses {dotted}")
            name = _last_name(node)
            if name in FORBIDDEN_NAMES:
                problems.append(f"{m.shown}:{node.lineno}: uses {name}, which loads torch._inductor")
    check(problems)


def test_python_versions_are_told_apart_in_their_own_modules():
    problems = []
    for m in MODULES:
        if m.name.removeprefix("dynamo_lite.").split(".")[0] in VERSIONED:
            continue
        for node in ast.walk(m.tree):
            if _last_name(node) in ("version_info", "hexversion") and ast.unparse(node) in (
                    "sys.version_info", "sys.hexversion"):
                problems.append(f"{m.shown}:{node.lineno}: {ast.unparse(node)}")
    check(problems)


@pytest.mark.parametrize("m", MODULES, ids=lambda m: m.shown)
def test_files_are_small_and_say_what_they_hold(m):
    lines = m.text.count("\n")
    assert lines <= MAX_LINES, f"{m.shown} has {lines} lines: look for the seam"
    assert "utils" not in m.path.stem, "a module is named for what it holds"
    assert ast.get_docstring(m.tree) or not m.tree.body, f"{m.shown} has no docstring"


def test_files_of_c_are_small():
    files = [path for top in ("dynamo_lite", "backends") for path in (ROOT / top).rglob("*.[ch]")]
    assert files
    check([f"{path.relative_to(ROOT)} has {lines} lines" for path in files
           if (lines := path.read_text().count("\n")) > MAX_LINES])


def test_functions_are_short():
    check([f"{name} has {lines} lines" for name, lines in _functions()
           if lines > MAX_FUNCTION_LINES])


def _functions():
    for m in MODULES:
        for node in ast.walk(m.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield f"{m.shown} {node.name}", node.end_lineno - node.lineno + 1


def _asks_for_a_kind(test: ast.expr) -> bool:
    """Whether a condition asks for a value's class, or whether it is some object but None, True, ..."""
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in (
                "isinstance", "issubclass"):
            return True
        if isinstance(node, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops) and not any(
                isinstance(operand, ast.Constant) for operand in node.comparators):
            return True
    return False


def _asks_for_a_name(test: ast.expr) -> bool:
    """Whether a condition compares with a text, or asks whether something is one of some texts."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.In)):
            texts = getattr(node.comparators[0], "elts", node.comparators)
            if texts and all(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in texts):
                return True
    return False


@pytest.mark.parametrize("asks, most", [(_asks_for_a_kind, MAX_KINDS_ASKED), (_asks_for_a_name, MAX_NAMES_ASKED)])
def test_no_function_is_a_ladder(asks, most):
    long = []
    for m in MODULES:
        for function in ast.walk(m.tree):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                asked = sum(asks(node.test) for node in ast.walk(function)
                            if isinstance(node, (ast.If, ast.IfExp)))
                if asked > most:
                    long.append(f"{m.shown} {function.name} asks {asked} times which of several things it has")
    check(long)


def test_no_import_cycle():
    """Imports for type checking counted."""
    graph = {m.name: {name for _, name, _ in own_imports(m, typing=True)} - {m.name, PROTOCOLS} for m in MODULES}
    check([f"import each other: {', '.join(sorted(cycle))}" for cycle in cycles(graph)])


def cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of more than one node (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    out: list[set[str]] = []

    def visit(node):
        number[node] = lowest[node] = len(number)
        path.append(node)
        for other in sorted(graph[node] & graph.keys()):
            if other not in number:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in path:
                lowest[node] = min(lowest[node], number[other])
        if lowest[node] == number[node]:
            component = set(path[path.index(node):])
            del path[path.index(node):]
            if len(component) > 1:
                out.append(component)

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return out


@pytest.mark.parametrize("edges,found", [
    ("ab bc", []), ("ab ba", ["ab"]), ("ab bc ca cd de ed", ["abc", "de"]), ("ab ac bd cd", []),
    ("ab bc cb cd da", ["abcd"]),
])
def test_the_search_for_cycles_itself(edges, found):
    graph: dict[str, set[str]] = {node: set() for node in edges if node != " "}
    for a, b in edges.split():
        graph[a].add(b)
    assert sorted("".join(sorted(c)) for c in cycles(graph)) == found


@pytest.mark.parametrize("code,target,in_function", [
    ("from . import config", "dynamo_lite.config", False),
    ("from .guards.tree import x", "dynamo_lite.guards.tree.x", False),
    ("def f():\n    from . import exc", "dynamo_lite.exc", True),
    ("import importlib\nimportlib.import_module('.exc', __package__)", "dynamo_lite.exc", True),
    ("class A:\n    import dynamo_lite.log", "dynamo_lite.log", False),
])
def test_the_reader_itself(code, target, in_function):
    m = Module.__new__(Module)
    m.name, m.is_package = "dynamo_lite.source", False
    found = [(t, hidden) for _, t, hidden, _ in m._imports(ast.parse(code), False, False)]
    assert (target, in_function) in found
