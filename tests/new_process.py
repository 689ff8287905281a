"""Programs in processes of their own that have torch already: forks of one that has imported it and done nothing.

An import of torch takes seconds of a processor, which every program in a process of its own would pay. So would the end
of one, if Python looked through all that torch has made for what is garbage: in forks that is frozen (``gc.freeze``).

Invariant: a program sees what it would see as ``python -c``: a ``__main__`` of its own, its environment, arguments and
folder, no thread, and of modules those that importing torch brings, or the ones that it names. Programs whose
environments differ in what is read before (``_EARLY``) are forks of processes that began with it.
"""
from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# Variables that Python, its libraries or torch read when they are loaded.
_EARLY = ("PYTHON", "LD_", "OMP_", "GOMP_", "MKL_", "MALLOC_", "GLIBC_", "TORCH", "ATEN_", "LC_", "LANG", "PATH")

# Those of them that are not: torch reads its compiler's when that is imported.
_LATER = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
_OF_TESTS = ("PYTEST_CURRENT_TEST",)
_TORCH = ("torch",)
KERNELS = ("torch", "dynamo_lite.backends.inductor.compile", "dynamo_lite.backends.inductor.codegen.triton.launch")
"""The modules of programs that are about kernels in Triton, and do not ask when what is imported."""
TORCH_COMPILE = ("torch", "torch._dynamo", "functorch.compile")
"""Those of programs that use torch.compile and are not about its first use, which imports for 10 s otherwise."""
# So many processes stand ready to be forked; each has a copy of what torch takes in memory.
_TEMPLATES = 3

_TEMPLATE = """
import gc, importlib, json, os, sys, types, warnings
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.collect()
gc.freeze()
def served():
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            return request
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    os._exit(0)
as_bytes = lambda text: text.encode("latin-1")
request = served()
nothing = os.open(os.devnull, os.O_RDONLY)
for path, number in ((request["out"], 1), (request["err"], 2)):
    os.dup2(os.open(as_bytes(path), os.O_WRONLY), number)
os.dup2(nothing, 0)
if request["user"] is not None:
    os.setgroups([])
    os.setresgid(*[request["user"]] * 3)
    os.setresuid(*[request["user"]] * 3)
os.environ.clear()
os.environb.update({as_bytes(name): as_bytes(value) for name, value in request["environment"].items()})
os.chdir(as_bytes(request["folder"]))
sys.argv[:] = ["-c", *[os.fsdecode(as_bytes(argument)) for argument in request["arguments"]]]
for action in request["warnings"]:
    warnings.simplefilter(action)
# Nothing that is frozen refers to it: it goes when the process ends, while what it uses is still there.
sys.modules["__main__"] = types.ModuleType("__main__")
exec(compile(request["code"], "<string>", "exec"), sys.modules["__main__"].__dict__)
"""


class _Template:
    """The process that is forked; it has one fork at a time."""

    def __init__(self, environment: Mapping[str, str], modules: Sequence[str]) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", _TEMPLATE, *modules], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def answer(self, timeout: float) -> int | None:
        """Its next number, or None if it takes longer."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            return None
        line = self.process.stdout.readline()
        assert line, "the process that is forked has ended"
        return int(line)

    def run(self, request: dict[str, object], timeout: float) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        pid = self.answer(280)
        assert pid is not None, "the process that is forked does not answer"
        status = self.answer(timeout)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            self.answer(60)
            raise subprocess.TimeoutExpired("a fork", timeout)
        return status


_templates: dict[tuple[object, ...], _Template] = {}
"""The last that were asked for, by what of an environment they began with and the modules that they have imported."""


@atexit.register
def _end() -> None:
    while _templates:
        _templates.popitem()[1].end()


def _template(environment: Mapping[str, str], modules: Sequence[str]) -> _Template:
    # Any other module reads what it likes of the environment.
    early = {name: value for name, value in environment.items() if name not in _OF_TESTS and (
        modules != _TORCH or name.startswith(_EARLY) and name not in _LATER)}
    key = (*sorted(early.items()), *modules)
    found = _templates.pop(key, None) or _Template(environment, modules)
    _templates[key] = found
    if len(_templates) > _TEMPLATES:
        _templates.pop(next(iter(_templates))).end()
    return found


def _as_text(value: object) -> str:
    """The bytes of a name or value, each as one character: what they are in its locale the fork finds out."""
    return os.fsencode(str(value)).decode("latin-1")


def run(code: str, *arguments: object, env: Mapping[str, str] | None = None, timeout: float = 280, cwd: object = None,
        warnings: Sequence[str] = (), modules: Sequence[str] = _TORCH, user: int | None = None,
        ) -> subprocess.CompletedProcess[str]:
    """The program's exit status and what it wrote.

    Args:
        code: the program.
        arguments: behind ``-c`` in its ``sys.argv``.
        env: its whole environment; this process's, if there is none.
        timeout: seconds, after which it is killed.
        cwd: its folder.
        warnings: filters for all warnings, such as "ignore".
        modules: what has been imported when it begins.
        user: the number of the user and of the group that it runs as; it may open what it writes to all the same.

    Raises:
        subprocess.TimeoutExpired: after that time.
    """
    environment = dict(os.environ if env is None else env)
    given = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        for path in (out, err):
            path.touch()
        status = _template(environment, modules).run({
            "code": code, "arguments": [*map(_as_text, given)], "folder": _as_text(cwd or os.getcwd()),
            "environment": {_as_text(name): _as_text(value) for name, value in environment.items()},
            "out": _as_text(out), "err": _as_text(err), "warnings": warnings, "user": user}, timeout)
        return subprocess.CompletedProcess(["-c", *given], status, out.read_text(), err.read_text())
