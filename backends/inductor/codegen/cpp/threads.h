// Loops of kernels that threads share. It follows vec.h in every file.
extern "C" int omp_get_max_threads(void) noexcept;
extern "C" int omp_get_thread_num(void) noexcept;
extern "C" int omp_get_num_threads(void) noexcept;
extern "C" int omp_in_parallel(void) noexcept;
// Number of threads for a loop; `grain`: least work of a thread.
INLINE int threads_for(i64 work, i64 grain) {
    const i64 most = work / grain;
    if (most < 2 || omp_in_parallel()) return 1;
    const int have = omp_get_max_threads();
    return most < have ? (int)most : have;
}
// Number of parts of a reduction, which decides the order of its additions. It depends on the work alone, so that results are the same for any number of
// threads and any cost of waking them. It is a power of two, which most numbers of threads divide evenly.
INLINE int parts_for(i64 work) {
    constexpr i64 least_work = 1 << 15;  // of one part: combining it with others costs a thousandth of that
    int parts = 1;
    while (parts < 64 && work >= 2 * parts * least_work) parts *= 2;
    return parts;
}
struct timespec {
    long tv_sec, tv_nsec;
};
extern "C" int clock_gettime(int, timespec*) noexcept;
INLINE i64 nanoseconds() {
    timespec t;
    clock_gettime(1, &t);  // CLOCK_MONOTONIC
    return (i64)t.tv_sec * 1000000000 + t.tv_nsec;
}
// Times of one loop with this `work`, in nanoseconds. If other processes keep a thread from running, the others wait for it, milliseconds for a loop
// of microseconds; one thread alone is faster then. After a call in several threads that took longer than one thread would have, the calling thread
// runs all parts for as long as that call lost, and twice as long after each further failure: retries cost a sixteenth at most. Several threads may
// write at once, so a value may be an older one; results do not depend on it.
struct Seen {
    i64 work, shared, alone;    // shortest call in several threads and in one (least_seen)
    i64 until, tries;           // one thread runs all parts until then; number of retries in a row that failed
};
// Times by work: one call site may compute many sizes, as equal kernels share a function and sizes may be symbols. The times of one amount of
// work say nothing about another.
struct SeenByWork {
    Seen seen[8];
    INLINE Seen& of(i64 work) { return seen[(unsigned long long)work * 0x9E3779B97F4A7C15ull >> 61]; }  // Fibonacci hashing (Knuth, 6.4)
};
// The same for all loops of the process, each of which would else have to fail by itself. A pause begins after a call that took more than twice the
// time of one thread, as one does that waits for a thread. Pauses get longer until several threads have saved as much time as the last such call lost.
struct Pause {
    i64 until, tries, lost, saved;
};
// The loader lets all libraries of the process share one. In a library that is compiled in parts, the first part defines it.
#ifdef LATER_PART
extern "C" __attribute__((visibility("protected"))) Pause* dynamo_lite_pause;
#else
static Pause own_pause;
extern "C" {
__attribute__((visibility("protected"), used)) Pause* dynamo_lite_pause = &own_pause;
}
#endif
INLINE i64 seen(const i64& x) { return __atomic_load_n(&x, __ATOMIC_RELAXED); }
INLINE void see(i64& x, i64 value) { __atomic_store_n(&x, value, __ATOMIC_RELAXED); }
// The shortest time so far; it rises by a sixteenth if a call takes longer than that, as conditions change.
INLINE i64 least_seen(i64 before, i64 took) { return before && before + before / 16 < took ? before + before / 16 : took; }
static bool is_alone(const Seen& s, const Pause& p, i64 work, i64 now) {
    return now < seen(p.until) || now < seen(s.until) && seen(s.work) == work;
}
static void set_work(Seen& s, i64 work) {
    if (seen(s.work) != work) see(s.work, work), see(s.shared, 0), see(s.alone, 0), see(s.until, 0), see(s.tries, 0);
}
static void was_alone(Seen& s, i64 work, i64 took) {
    set_work(s, work);
    see(s.alone, least_seen(seen(s.alone), took));
}
static i64 once_more(i64 tries) { return tries < 4 ? tries + 1 : 4; }
static void was_shared(Seen& s, Pause& p, i64 work, int threads, i64 begin, i64 end) {
    set_work(s, work);
    const i64 took = end - begin, shared = seen(s.shared), tries = seen(s.tries);
    // Until one thread has been tried: the most that it would take, twice, as any single call may be slow.
    const i64 alone = seen(s.alone) ? seen(s.alone) : 2 * threads * shared;
    see(s.shared, least_seen(shared, took));
    if (!alone) return;
    if (took <= alone) {
        see(s.tries, 0);
        if (!seen(p.lost)) return;
        if (seen(s.alone)) see(p.saved, seen(p.saved) + alone - took);
        if (seen(p.saved) >= seen(p.lost)) see(p.lost, 0), see(p.tries, 0);
        return;
    }
    see(s.tries, once_more(tries));
    see(s.until, end + ((took - alone) << tries));
    if (took <= 2 * alone) return;
    see(p.until, end + ((took - alone) << seen(p.tries)));
    see(p.tries, once_more(seen(p.tries))), see(p.lost, took - alone), see(p.saved, 0);
}
// Runs the parts of a loop in threads, each of which gets neighboring parts. The loop's body is called through a pointer, so that a file has this
// function once: a copy for each loop takes a third of a small file's compile time.
static NOINLINE void share_out(const void* body, void (*run)(const void*, i64, i64, int), i64 n, i64 unit, int parts, int threads, i64 work,
                               Seen& seen, Pause& pause) {
    const i64 units = (n + unit - 1) / unit, begin = nanoseconds();
    const auto part = [=](int t) { run(body, least(units * t / parts * unit, n), least(units * (t + 1) / parts * unit, n), t); };
    const bool alone = threads <= 1;
    if (alone || is_alone(seen, pause, work, begin)) {
        for (int t = 0; t < parts; ++t) part(t);
        if (!alone) was_alone(seen, work, nanoseconds() - begin);
        return;
    }
#pragma omp parallel num_threads(threads)
    for (int own = omp_get_thread_num(), k = omp_get_num_threads(), t = parts * own / k; t < parts * (own + 1) / k; ++t) part(t);
    was_shared(seen, pause, work, threads, begin, nanoseconds());
}
// The same for a kernel that is one loop, with one part for each thread.
static NOINLINE void share_loop(const void* body, void (*run)(const void*, i64, i64, int), i64 n, i64 work, i64 grain, SeenByWork& places) {
    const int threads = threads_for(work, grain);
    if (threads <= 1) run(body, 0, n, 0);
    else share_out(body, run, n, 1, threads, threads, work, places.of(work), *dynamo_lite_pause);
}
// f(begin, end, part) for each of `parts` parts of range(n), whose bounds are multiples of `unit`, in at most `threads` threads. `work`: of the whole
// kernel, as given to threads_for.
template <class F> static inline void in_parts(i64 n, i64 unit, int parts, int threads, i64 work, const F& f, Seen& seen, Pause& pause) {
    if (parts <= 1) f((i64)0, n, 0);
    else share_out(&f, [](const void* f, i64 begin, i64 end, int part) { (*(const F*)f)(begin, end, part); }, n, unit, parts, threads, work,
                   seen, pause);
}
// The same with one part for each thread.
template <class F> static inline void parallel(i64 n, i64 unit, int threads, i64 work, const F& f, Seen& seen, Pause& pause) {
    in_parts(n, unit, threads, threads, work, f, seen, pause);
}
// Each call site of these has its own times.
template <class F> static inline void in_parts(i64 n, i64 unit, int parts, int threads, i64 work, const F& f) {
    static SeenByWork places;
    in_parts(n, unit, parts, threads, work, f, places.of(work), *dynamo_lite_pause);
}
template <class F> static inline void parallel(i64 n, i64 unit, int threads, i64 work, const F& f) {
    static SeenByWork places;
    in_parts(n, unit, threads, threads, work, f, places.of(work), *dynamo_lite_pause);
}
