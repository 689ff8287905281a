"""Each run of the tests has a kernel cache of its own; each test starts with nothing compiled."""
import gc
import itertools
import os
import random
import tempfile
import zlib

# Set before dynamo_lite is imported; processes that tests start inherit it, xdist's workers too.
if "DYNAMO_LITE_TEST_CACHE" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="dynamo_lite_tests_")
    os.environ["DYNAMO_LITE_TEST_CACHE"] = _folder.name
os.environ["DYNAMO_LITE_CACHE_DIR"] = os.environ["DYNAMO_LITE_TEST_CACHE"]
os.environ["DYNAMO_LITE_CACHE_SECRET"] = os.path.join(os.environ["DYNAMO_LITE_TEST_CACHE"], "secret")
# A fault of ours is to fail a test, not to break a graph.
os.environ["DYNAMO_LITE_RAISE_INTERNAL_ERRORS"] = "1"
# What one test has compiled is not to spare another the compile that it is about.
os.environ.setdefault("DYNAMO_LITE_CACHE_GRAPHS", "0")
os.environ.setdefault("DYNAMO_LITE_CACHE_SIZES", "0")
# Which products are the library's is not to depend on how busy the machine is.
os.environ.setdefault("DYNAMO_LITE_MEASURED_PRODUCTS", "0")
# Small graphs of one operation are to test our gradients, not torch's.
os.environ.setdefault("DYNAMO_LITE_TORCH_FOR_SINGLE_OPERATIONS", "0")
# Processes that share the processors are not to spin for each other: libgomp reads this when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
for _name in ("DYNAMO_LITE_LOGS", "TORCH_LOGS"):
    os.environ.pop(_name, None)

import process_state  # noqa: E402
import pytest  # noqa: E402
import thorough  # noqa: E402
import torch  # noqa: E402

import dynamo_lite  # noqa: E402

if os.environ.get("DYNAMO_LITE_TEST_PROCESSOR") == "avx512":
    import emulated_avx512

    emulated_avx512.install()

_tests_begun = itertools.count()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leaves out what ``thorough`` does not try by default; a case that is named on the command line is tried."""
    if not any("[" in argument for argument in config.args):
        left_out = thorough.left_out(items)
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def _numbers_of_its_own(request):
    """A test draws the same numbers in each run, whichever tests share its process: one that fails does so again."""
    seed = zlib.crc32(request.node.nodeid.encode())
    if torch.cuda.is_available():
        torch.manual_seed(seed)
    else:
        # torch.manual_seed would keep the seed and the call's stack for each kind of device that might come to be used.
        torch.default_generator.manual_seed(seed)
    random.seed(seed)


@pytest.fixture(autouse=True)
def _nothing_compiled():
    if next(_tests_begun) % 50 == 0:
        # What stands by now stays: the collections that many tests ask for need not go through it, half a second each.
        gc.collect()
        gc.freeze()
    # Parts can be tested while the API above them is not there yet.
    reset = getattr(dynamo_lite, "reset", None)
    if reset is not None:
        reset()
    before = process_state.taken()
    yield
    if reset is not None:
        reset()
    # Which tests share a process changes from run to run: what one leaves behind would fail another now and then.
    changed = process_state.changes(before, process_state.taken())
    assert not changed, f"the test has changed what later tests see: {'; '.join(changed)}"


@pytest.fixture
def guards_alone():
    """With fullgraph, what guards can't hold is an error."""
    with dynamo_lite.config.patch(capture_with_fullgraph=False):
        yield
