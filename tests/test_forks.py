"""Programs that fork: a child compiles and calls as its parent does."""
import os
import textwrap

import new_process
import pytest

PROGRAM = """
import os, torch, dynamo_lite

torch.set_num_threads(1)  # eager's own threads do not survive a fork either

@dynamo_lite.compile
def f(x, w):
    return torch.nn.functional.layer_norm(torch.relu(x @ w), (8,)).sum(0)

def check(n):
    x, w = torch.randn(n, 64), torch.randn(64, 8)
    torch.testing.assert_close(f(x, w), f.__wrapped__(x, w), rtol=1e-4, atol=1e-5)

check(16)
{}
child = os.fork()
if not child:
    check(16)
    check(48)
    print("child:", dynamo_lite.metrics().get("graphs"), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
check(48)
print("done")
"""

LOCKED = """
import threading
from dynamo_lite import log
from dynamo_lite.frame import changed_values, request
from dynamo_lite.backends.inductor import codecache
codecache._pool()
locks = [changed_values._lock, request._numbers_lock, log._lock, codecache._lock]
held, forked = threading.Event(), threading.Event()
def hold():
    with locks[0], locks[1], locks[2], locks[3]:
        held.set()
        forked.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
os.register_at_fork(after_in_parent=forked.set)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
@pytest.mark.parametrize("before", ["", LOCKED], ids=["free", "locks held by another thread"])
def test_a_child_compiles_on(before, tmp_path):
    # Libraries of products are built beside the graph's kernels, by threads that the child does not have.
    env = {**os.environ, "DYNAMO_LITE_CACHE_DIR": str(tmp_path), "DYNAMO_LITE_CACHE_GRAPHS": "0"}
    program = textwrap.dedent(PROGRAM).format(before)
    run = new_process.run(program, env=env)
    assert run.returncode == 0 and run.stdout.splitlines()[-1] == "done", run.stdout + run.stderr
