"""What `make sanitize` relies on: an access one element beyond an array's end is seen, in a vector's tail too."""

import os
import subprocess

import pytest

from dynamo_lite.backends.inductor import codecache, toolchain
from dynamo_lite.backends.inductor.codegen.cpp.text import header

# As in generated code, neither the sizes nor the accesses are known to the compiler.
PROGRAM = """
extern "C" void* malloc(u64);
template <class T, int L> void access(const char* which, int n, int size) {
    T* p = (T*)malloc(size * sizeof(T));
    for (int k = 0; k < size; ++k) p[k] = T{};
    if (*which == 'r') {
        auto v = load<L>(p, n);
        asm volatile("" : : "m"(v));
    } else {
        store<L>(p, decltype(load<L>(p, n)){}, n);
    }
}
int main(int argc, char** argv) {
    const int n = argv[3][0] - '0', size = argv[4][0] - '0';
    const char *what = argv[1], *which = argv[2];
    if (*what == 'f') access<float, LANES_HERE>(which, n, size);
    if (*what == 'd') access<double, LANES_HERE / 2>(which, n, size);
    if (*what == 'l') access<i64, LANES_HERE / 2>(which, n, size);
    if (*what == 'h') access<bf16, LANES_HERE>(which, n, size);
    if (*what == 'b') access<b8, LANES_HERE>(which, n, size);
}
"""
LANES = {"avx512": 16, "avx2": 8, "scalar": 4}


@pytest.fixture(scope="module", params=sorted(LANES))
def program(request, tmp_path_factory):
    if request.param != "scalar" and codecache.simd() not in ("avx512", request.param):
        pytest.skip("the processor does not run it")
    folder = tmp_path_factory.mktemp("sanitized")
    (folder / "program.cpp").write_text(header() + PROGRAM)
    flags = [flag for flag in codecache.build_flags(request.param) if flag != "-shared"]
    command = [toolchain.find()[0][0], *flags, f"-DLANES_HERE={LANES[request.param]}", "-O1",
               "-fsanitize=address", "-o", "program", "program.cpp"]  # fmt: skip
    without = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=without)
    if "asan" in done.stderr:
        pytest.skip("the compiler has no AddressSanitizer")
    assert done.returncode == 0, done.stderr
    return folder / "program"


@pytest.mark.parametrize("what", "fdlhb")
@pytest.mark.parametrize("which", ["read", "write"])
def test_access_beyond_the_end_is_reported(program, what, which):
    def run(n, size):
        command = [program, what, which, str(n), str(size)]
        return subprocess.run(command, capture_output=True, text=True, env={"ASAN_OPTIONS": "detect_leaks=0"})

    assert run(2, 2).returncode == 0
    done = run(3, 2)
    assert done.returncode != 0 and f"{which.upper()} of size" in done.stderr
