// Measures what cores cost one another, and memory beyond a core's own cache: the figures of inductor/core_costs.py, each by itself, in a few milliseconds.
//
// CORES(which, room, own_cache, samples, most, count). `which`: number of the figure; `room`: scratch memory (core_costs.py knows how much each figure needs);
// `own_cache`: bytes of the L2 cache that a core has for itself; `samples`: gets at most `most` samples, `count` their number, which is 0 for figures that
// need a second thread where the system has no futexes.
//
// That second thread sleeps on a futex, as libgomp's threads do; it does nothing between measurements, and ends with them.
#ifdef __linux__
extern "C" int pthread_create(unsigned long*, const void*, void* (*)(void*), void*) noexcept;
extern "C" int pthread_join(unsigned long, void**);
extern "C" int sched_getcpu(void) noexcept;
extern "C" int sched_yield(void) noexcept;
extern "C" long syscall(long, ...) noexcept;
#if defined(__x86_64__)
constexpr long futex = 202;
#else
constexpr long futex = 98;  // number of the system call in the generic table, which newer architectures use
#endif
constexpr int wait_private = 128, wake_private = 129;
constexpr i64 too_long = 200000;  // nanoseconds after which a thread that was to wake up is waited for without occupying the processor
struct alignas(64) Helper {
    int request;
    alignas(64) int answer;
    int cpu;
    float* at;      // memory that the thread writes when it is asked to
    i64 elements;
    static void* run(void* own) {
        Helper& h = *(Helper*)own;
        for (int seen = 0;;) {
            int now;
            while ((now = __atomic_load_n(&h.request, __ATOMIC_ACQUIRE)) == seen) syscall(futex, &h.request, wait_private, seen, 0, 0, 0);
            seen = now;
            for (i64 i = 0; i < h.elements; ++i) h.at[i] = (float)seen;
            h.cpu = sched_getcpu();
            __atomic_store_n(&h.answer, seen, __ATOMIC_RELEASE);
            if (seen < 0) return nullptr;
        }
    }
    void ask(int what) {
        __atomic_store_n(&request, what, __ATOMIC_RELEASE);
        syscall(futex, &request, wake_private, 1, 0, 0, 0);
        for (const i64 begin = nanoseconds(); __atomic_load_n(&answer, __ATOMIC_ACQUIRE) != what;)
            if (nanoseconds() - begin > too_long) sched_yield();  // the thread may be waiting for this processor
    }
};
#endif
constexpr i64 longest = 4000000;  // nanoseconds after which a measurement ends, however few samples it has
static bool is_enough(i64 begin, i64 count, i64 most) { return count >= most || nanoseconds() - begin > longest; }
static void rest(i64 how_long) {
    for (const i64 until = nanoseconds() + how_long; nanoseconds() < until;) {}
}
// The sum of n floats, to read them.
static float total(const float* p, i64 n) {
    fvec sum[4] = {};
    for (i64 i = 0; i + 4 * CL <= n; i += 4 * CL)
        for (int k = 0; k < 4; ++k) sum[k] = sum[k] + load<CL>(p + i + k * CL, full());
    const fvec all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    float lane = 0;
    for (int k = 0; k < CL; ++k) lane += all[k];
    return lane;
}
// Nanoseconds from the call that wakes a sleeping thread until its answer is seen.
static i64 waking(double* samples, i64 most) {
    i64 count = 0;
#ifdef __linux__
    Helper h{};
    unsigned long thread;
    if (pthread_create(&thread, nullptr, Helper::run, &h)) return 0;
    const i64 begin = nanoseconds();
    for (int k = 1; !is_enough(begin, count, most); ++k) {
        rest(30000);  // the thread is asleep again after that
        const i64 from = nanoseconds();
        h.ask(k);
        samples[count++] = (double)(nanoseconds() - from);
    }
    h.ask(-1);
    pthread_join(thread, nullptr);
#endif
    return count;
}
// Nanoseconds of an empty parallel loop, whose threads have just computed another one.
static i64 sharing(double* samples, i64 most) {
    i64 count = 0;
    if (omp_get_max_threads() < 2 || omp_in_parallel()) return 0;
    const i64 begin = nanoseconds();
    for (int k = 0; !is_enough(begin, count, most); ++k) {
        const i64 from = nanoseconds();
#pragma omp parallel
        asm volatile("");
        if (k) samples[count++] = (double)(nanoseconds() - from);
    }
    return count;
}
// Nanoseconds by which reading an element takes longer if another core has written it last. Samples in which both threads ran on one core do not count.
static i64 foreign(float* room, i64 own_cache, double* samples, i64 most) {
    i64 count = 0;
#ifdef __linux__
    const i64 n = own_cache / 16 / (4 * CL) * (4 * CL);  // a quarter of the cache
    volatile float sum;
    for (i64 i = 0; i < n; ++i) room[i] = 1.0f;
    sum = total(room, n);
    const double near = least_time(8, [&] { sum = total(room, n); });
    Helper h{};
    h.at = room, h.elements = n;
    unsigned long thread;
    if (pthread_create(&thread, nullptr, Helper::run, &h)) return 0;
    const i64 begin = nanoseconds();
    for (int k = 1; !is_enough(begin, count, most); ++k) {
        h.ask(k);
        const int cpu = sched_getcpu();
        const i64 from = nanoseconds();
        sum = total(room, n);
        const double took = (double)(nanoseconds() - from);
        if (h.cpu != cpu && sched_getcpu() == cpu) samples[count++] = took > near ? (took - near) / n : 0;
    }
    h.elements = 0;
    h.ask(-1);
    pthread_join(thread, nullptr);
#endif
    return count;
}
// Ratio of the time of products whose left operand is beyond a core's own cache, of which it fills four, to that of products whose left operand fills a
// quarter of it.
static i64 far(float* room, i64 own_cache, double* samples, i64 most) {
    alignas(64) float tile[block * panel];
    float* const packed = room;
    float* const left = room + chain * 64;
    const i64 all = own_cache / chain / ROWS * ROWS, some = own_cache / 4 / 4 / chain / ROWS * ROWS;
    for (i64 i = 0; i < chain * 64 + all * chain; ++i) room[i] = 1.0f;
    const double near = least_time(6, [&] { multiply<SPACED>(left, chain, 1, some, chain, packed, tile); }) / some;
    i64 count = 0;
    const i64 begin = nanoseconds();
    while (count < most && (count < 2 || nanoseconds() - begin < longest / 2)) {
        const i64 from = nanoseconds();
        multiply<SPACED>(left, chain, 1, all, chain, packed, tile);
        samples[count++] = (double)(nanoseconds() - from) / all / near;
    }
    return count;
}
// Nanoseconds of an operation on elements in the own cache, three quarters of which three arrays fill: two loads, an addition and a store count as four.
static i64 operations(float* room, i64 own_cache, double* samples, i64 most) {
    const i64 n = own_cache / 16 / CL * CL;
    for (i64 i = 0; i < 3 * n; ++i) room[i] = 1.0f;
    i64 count = 0;
    for (const i64 begin = nanoseconds(); !is_enough(begin, count, most);) {
        const i64 from = nanoseconds();
        for (i64 i = 0; i < n; i += CL) store<CL>(room + 2 * n + i, load<CL>(room + i, full()) + load<CL>(room + n + i, full()), full());
        samples[count++] = (double)(nanoseconds() - from) / (4 * n);
    }
    return count;
}
// Nanoseconds to read an element in order and to write it to a line of its own, with lines `pitch` elements apart.
static i64 scattered(float* room, i64 lines, i64 pitch, double* samples, i64 most) {
    const i64 columns = 64;
    float* const to = room + lines * columns;
    for (i64 i = 0; i < lines; ++i)
        for (i64 j = 0; j < columns; ++j) room[i * columns + j] = to[i * pitch + j] = 1.0f;
    i64 count = 0;
    for (const i64 begin = nanoseconds(); !is_enough(begin, count, most);) {
        const i64 from = nanoseconds();
        for (i64 j = 0; j < columns; ++j)
            for (i64 i = 0; i < lines; ++i) to[i * pitch + j] = room[j * lines + i];
        asm volatile("" ::"r"(to) : "memory");
        samples[count++] = (double)(nanoseconds() - from) / (lines * columns);
    }
    return count;
}
LIBRARY CORES(i64 which, float* room, i64 own_cache, double* samples, i64 most, i64* count) {
    switch (which) {
        case 0: *count = waking(samples, most); return;
        case 1: *count = sharing(samples, most); return;
        case 2: *count = operations(room, own_cache, samples, most); return;
        case 3: *count = foreign(room, own_cache, samples, most); return;
        case 4: *count = far(room, own_cache, samples, most); return;
        case 5: *count = scattered(room, 256, 64, samples, most); return;
        case 6: *count = scattered(room, 512, own_cache / 512, samples, most); return;  // each line is on a page of its own, and all span four own caches
    }
}
