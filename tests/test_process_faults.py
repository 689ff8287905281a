"""Faults of a running process: it must neither die nor hang nor be left in another state, and the next call works.

Each program runs in a process of its own.
"""
import textwrap

import new_process
import pytest

HEAD = """
import gc, os, random, signal, sys, threading, time, faulthandler
faulthandler.dump_traceback_later(100, exit=True)
import torch, dynamo_lite
from dynamo_lite.runtime import in_flight
backend = sys.argv[1]
sys.path.insert(0, sys.argv[2])

def f(x):
    y = x * 2
    print(end="")
    return y.sin() + 1

def check(compiled=None, n=5):
    compiled = compiled or dynamo_lite.compile(f, backend=backend)
    x = torch.ones(n)
    assert torch.allclose(compiled(x), f(x))
    assert gc.isenabled() and torch.is_grad_enabled()
    assert torch._C._len_torch_dispatch_stack() == torch._C._len_torch_function_stack() == 0
"""


def run(program, backend, folder=""):
    code = textwrap.dedent(HEAD) + textwrap.dedent(program) + '\nprint("done", flush=True)\n'
    p = new_process.run(code, backend, folder, timeout=110)
    assert p.returncode == 0 and "done\n" in p.stdout, p.stdout[-2000:] + p.stderr[-4000:]
    return p


both = pytest.mark.parametrize("backend", ["eager", "inductor_lite"])


@both
def test_interrupts_at_any_moment_of_a_compile(backend):
    run("""
        def interrupt(*args):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        random.seed(0)
        hits = 0
        check()
        dynamo_lite.reset()
        start = time.perf_counter()
        check()
        longest = time.perf_counter() - start
        for k in range(25):
            dynamo_lite.reset()
            compiled, x = dynamo_lite.compile(lambda x: f(x) * 2, backend=backend), torch.ones(3)
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, max(random.random() * longest, 1e-4))
                    compiled(x)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                hits += 1
            assert torch.allclose(compiled(x), f(x) * 2), k
            check()
        assert hits
    """, backend)


@both
def test_a_memory_error_in_any_call_of_a_compile(backend):
    run("""
        # MemoryError out of the n-th allocation-ish: raise from a profile-like place: settrace in the compiler
        hit = 0
        for k in range(1, 6000, 331):
            dynamo_lite.reset()
            c = dynamo_lite.compile(f, backend=backend)
            n = [0]
            def prof(frame, event, arg):
                n[0] += 1
                if n[0] == k: raise MemoryError("injected")
            sys.setprofile(prof)
            try: r = c(torch.ones(3))
            except MemoryError: hit += 1
            except dynamo_lite.exc.BackendCompilerFailed: hit += 1
            finally: sys.setprofile(None)
            check(c)
            assert gc.isenabled()
            assert torch._C._len_torch_dispatch_stack() == 0 and torch._C._len_torch_function_stack() == 0, k
    """, backend)


@both
def test_recursion_to_the_limit(backend):
    run("""
        def deep(n):
            try:
                return c(torch.ones(3))
            finally: pass
        for left in list(range(10, 200, 7)):
            dynamo_lite.reset()
            c = dynamo_lite.compile(f, backend=backend)
            def down(n):
                if n == 0: return c(torch.ones(3))
                return down(n - 1)
            lim = sys.getrecursionlimit()
            depth = lim - left
            try: r = down(depth); assert torch.allclose(r, f(torch.ones(3)))
            except RecursionError: pass
            check(c)
        @dynamo_lite.compile(backend=backend)
        def inf(x):
            y = x + 1
            print(end="")
            return inf(y)
        try: inf(torch.ones(2)); assert 0
        except RecursionError: pass
        check()
    """, backend)


@both
def test_forks_during_a_compile(backend):
    run("""
        def forked(work):
            pid = os.fork()
            if not pid:
                try:
                    torch.set_num_threads(1)
                    work()
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(pid, 0)[1] == 0
        in_flight.LONGEST_WAIT = 0.5
        started, go = threading.Event(), threading.Event()
        def slow(graph, inputs):
            started.set()
            go.wait(20)
            return graph.forward
        thread = threading.Thread(target=lambda: dynamo_lite.compile(f, backend=slow)(torch.ones(3)))
        thread.start()
        started.wait()
        for _ in range(2):
            forked(lambda: [check(), check(dynamo_lite.compile(f, backend=lambda graph, inputs: graph.forward))])
            assert in_flight._given_up == {thread.ident}  # the second does not wait again
        go.set()
        thread.join()
        check()
        def forks(graph, inputs):
            forked(lambda: dynamo_lite.compile(f, backend=backend)(torch.ones(3)))
            return graph.forward
        check(dynamo_lite.compile(f, backend=forks))
    """, backend)


def test_a_fork_waits_for_modules_that_another_thread_imports(tmp_path):
    # The child would find their locks held, by a thread that it does not have.
    (tmp_path / "slowly_imported.py").write_text("import time\ntime.sleep(1)\n")
    run("""
        def slow(graph, inputs):
            started.set()
            import slowly_imported
            return graph.forward
        started = threading.Event()
        def compiles():
            for _ in range(3):
                dynamo_lite.compile(lambda x: f(x) + 1, backend=slow)(torch.ones(3))
        threads = [threading.Thread(target=compiles) for _ in range(2)]
        for thread in threads:
            thread.start()
        started.wait()
        pid = os.fork()
        if not pid:
            signal.alarm(20)
            import slowly_imported
            check(dynamo_lite.compile(f, backend=slow))
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        for thread in threads:
            thread.join()
        check()
    """, "eager", tmp_path)


def test_daemon_threads_that_compile_when_the_process_ends():
    # What they run afterwards is plain Python: the process aborts in torch's own operations, too, compiled or not.
    # 150 lines: compiles go on for over a second, and end within in_flight.LONGEST_WAIT on a loaded machine, too.
    run("""
        def waits(graph, inputs):
            return lambda *args: time.sleep(100)
        begun = threading.Semaphore(0)
        def work(k):
            names = {}
            lines = "".join(f"    x = (x * {i + k}).sin()\\n" for i in range(150))
            exec("def g(x):\\n" + lines + "    return x", names)
            begun.release()
            dynamo_lite.compile(names["g"], backend=waits)(torch.ones(3))
        for k in range(3):
            threading.Thread(target=work, args=(k,), daemon=True).start()
        for k in range(3):
            begun.acquire()
        time.sleep(0.1)
    """, "eager")


@both
def test_calls_while_the_process_ends(backend):
    p = run("""
        import atexit
        c = dynamo_lite.compile(f, backend=backend)
        class D:
            def __del__(self):
                try: print("del", c(torch.ones(2)).tolist())
                except Exception as e: print("err", type(e))
        d = D();
        def times(k):
            return dynamo_lite.compile(lambda x: x * k, backend=backend)(torch.ones(1)).tolist()
        atexit.register(lambda: print("atexit", times(5)))
        def last():
            time.sleep(0.3)
            print("thread", times(6))
        threading.Thread(target=last).start()
    """, backend)
    assert "thread [6.0]" in p.stdout and "atexit [5.0]" in p.stdout and "del [1.9" in p.stdout and not p.stderr


@both
def test_signal_handlers_that_run_compiled_code(backend):
    run("""
        c2 = dynamo_lite.compile(lambda x: f(x) + 1, backend=backend); n = [0]; busy = []
        def handler(*a):
            if busy: return
            busy.append(1); k = n[0] % 5 + 1
            n[0] += 1
            assert torch.allclose(c2(torch.ones(k)), f(torch.ones(k)) + 1)
            y = torch.ones(3) * 2; assert type(y) is torch.Tensor and y.tolist() == [2, 2, 2]; busy.clear()
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
        for k in range(15):
            dynamo_lite.reset(); check(n=k + 2)
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert n[0]
    """, backend)


@both
def test_finalizers_that_run_compiled_code_during_a_compile(backend):
    run("""
        c2 = dynamo_lite.compile(lambda x: f(x) + 1, backend=backend); seen = []
        class D:
            def __init__(s): s.me = s
            def __del__(s):
                r = c2(torch.ones(3)); seen.append((type(r), r.tolist(), torch.is_grad_enabled()))
        def be(g, inputs):
            D(); gc.collect(); return g.forward
        check(dynamo_lite.compile(f, backend=be))
        gc.set_threshold(50)
        for k in range(10):
            for _ in range(30): D()
            dynamo_lite.reset(); check()
        gc.collect()
        want = (f(torch.ones(3)) + 1).tolist()
        assert seen and all(s == (torch.Tensor, want, True) for s in seen), [s for s in seen if s[1] != want][:3]
    """, backend)


@both
def test_exceptions_of_a_backend(backend):
    run("""
        for E in (ValueError, MemoryError, KeyboardInterrupt, SystemExit, RecursionError, RuntimeError):
            def bad(g, inputs): raise E("boom")
            c = dynamo_lite.compile(f, backend=bad)
            for _ in range(2):
                try: c(torch.ones(3)); print("no error", E)
                except BaseException as e: print(E.__name__, "->", type(e).__name__)
            check()
        with dynamo_lite.config.patch(suppress_errors=True):
            def bad(g, inputs): raise ValueError("boom")
            check(dynamo_lite.compile(f, backend=bad))
        def raises_at_run(g, inputs):
            def run(*a): raise ValueError("at run")
            return run
        check(dynamo_lite.compile(f, backend=raises_at_run))
    """, backend)


@both
def test_exceptions_and_effects_of_code_that_guards_run(backend):
    run("""
        dynamo_lite.config.raise_internal_errors = False  # guards that change what is guarded are reported as a fault
        class Key:
            raises = False; n = 0
            def __hash__(s): return 1
            def __eq__(s, o):
                Key.n += 1
                if Key.raises: raise ValueError("eq")
                return s is o
        k1, k2 = Key(), Key()
        def h(x, d, k): return x * d[k]
        c = dynamo_lite.compile(h, backend=backend)
        d = {k1: 2, k2: 3}
        assert c(torch.ones(2), d, k2).tolist() == h(torch.ones(2), d, k2).tolist()
        Key.raises = True
        for _ in range(2):
            try: got = c(torch.ones(2), d, k2).tolist()
            except Exception as e: got = type(e), str(e)
            try: want = h(torch.ones(2), d, k2).tolist()
            except Exception as e: want = type(e), str(e)
            assert got == want, (got, want)
        Key.raises = False
        assert c(torch.ones(2), d, k2).tolist() == h(torch.ones(2), d, k2).tolist()
        class P:
            raises = False
            @property
            def v(self):
                if P.raises: raise ValueError("v")
                return 3
            def __getattr__(self, n):
                if P.raises: raise ValueError("ga")
                return 4
            def __bool__(self):
                if P.raises: raise ValueError("b")
                return True
            def __len__(self):
                if P.raises: raise ValueError("b")
                return 2
        def q(x, p): return x * p.v + p.w + (1 if p else 0) + len(p)
        c = dynamo_lite.compile(q, backend=backend); p = P()
        for r in (False, True, False):
            P.raises = r
            for _ in range(2):
                try: got = c(torch.ones(2), p).tolist()
                except Exception as e: got = type(e), str(e)
                try: want = q(torch.ones(2), p).tolist()
                except Exception as e: want = type(e), str(e)
                assert got == want, (got, want)
    """, backend)
