"""The C extensions without the package around them, which would bring torch and its frames.

Imported before anything of `dynamo_lite`, also by processes that `run_alone` starts. The tests of the frame hook run on
any Python for which the extensions are built: PYTHONPATH=tests python -m pytest --noconftest -p extensions_alone ...
"""

import importlib.util
import os
import subprocess
import sys
import textwrap
import types

if "dynamo_lite" not in sys.modules:
    package = types.ModuleType("dynamo_lite")
    package.__spec__ = importlib.util.find_spec("dynamo_lite")
    if package.__spec__ is None:  # neither installed nor in the working folder: it is beside the tests
        sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        package.__spec__ = importlib.util.find_spec("dynamo_lite")
    package.__path__ = package.__spec__.submodule_search_locations
    sys.modules["dynamo_lite"] = package


def run_alone(code, *args, timeout=120):
    """The code in a new process, where `E` and `G` are the two extensions."""
    head = f"""\
        import sys
        sys.path[:0] = {[os.path.dirname(os.path.abspath(__file__)), *sys.path]!r}
        import extensions_alone
        from dynamo_lite import _eval_frame as E, _guards as G
    """
    source = textwrap.dedent(head) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", source, *args], capture_output=True, text=True, timeout=timeout)
