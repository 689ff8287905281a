// Loops of kernels shared out to threads. It stands behind vec.h in every file.
extern "C" int omp_get_max_threads(void) noexcept;
extern "C" int omp_get_thread_num(void) noexcept;
extern "C" int omp_get_num_threads(void) noexcept;
extern "C" int omp_in_parallel(void) noexcept;
INLINE int threads_for(i64 work, i64 grain) {
    const i64 most = work / grain;
    if (most < 2 || omp_in_parallel()) return 1;
    const int have = omp_get_max_threads();
    return most < have ? (int)most : have;
}
// In so many parts a reduction is made, whatever threads there are: the order of its additions follows from them. Of the work alone, so that results
// are the same for any threads and any costs of waking them; a power of two, which most numbers of threads share out evenly.
INLINE int parts_for(i64 work) {
    constexpr i64 least_work = 1 << 15;  // what one part is at least: joining it costs a thousandth of that
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
// What one loop of so much `work` has seen of its threads, in nanoseconds. Where other processes keep a thread from running, the
// others wait for it, milliseconds for a loop of microseconds; one thread alone is then the faster choice. After a call in several threads that
// took longer than one thread would have, this thread runs all parts, for as long as that call has lost, and twice as long each further time:
// what trying again costs is at most the sixteenth part. Several threads may write at once, so that a value may be an earlier one; results do
// not depend on it.
struct Seen {
    i64 work, shared, alone;    // the least that a call took, in several threads and in one; later calls outdate it by and by
    i64 until, tries;           // one thread until then; so many times in a row was it tried again in vain
};
// One place computes results of many sizes: kernels that are alike share a function, and sizes may be symbols. Loops of different work have
// nothing to tell one another, what the smallest takes in one thread least of all.
struct SeenByWork {
    Seen seen[8];
    INLINE Seen& of(i64 work) { return seen[(unsigned long long)work * 0x9E3779B97F4A7C15ull >> 61]; }  // Fibonacci hashing (Knuth, 6.4)
};
// The same for all loops of the process, of which each would try for itself: after a call that took more than twice what one thread takes, as
// loops do that wait for a thread. Several threads have proved themselves when they have saved as much, since the last such call, as that
// lost: a pause gets longer only while they don't.
struct Pause {
    i64 until, tries, lost, saved;
};
// The loader has all libraries of the process share one. A library that is compiled in parts has it in the first.
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
// The least time so far; it rises by a sixteenth where a call takes longer than that, as machines change.
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
    // Until one thread was tried: what it would take at most, and as much again for what else may be slow once.
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
// The parts of a loop, shared out to threads, neighbouring ones to the same. A loop's body stands behind a pointer, so that each file has one
// such function: a copy for each loop is a third of a small file's compile time.
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
// f(begin, end, part) over so many parts of range(n), whose bounds are multiples of `unit`, computed by `threads` of them, or by fewer. `work` is
// all that the kernel has to do, as threads_for was told.
template <class F> static inline void in_parts(i64 n, i64 unit, int parts, int threads, i64 work, const F& f, Seen& seen, Pause& pause) {
    if (parts <= 1) f((i64)0, n, 0);
    else share_out(&f, [](const void* f, i64 begin, i64 end, int part) { (*(const F*)f)(begin, end, part); }, n, unit, parts, threads, work,
                   seen, pause);
}
// One part for each thread.
template <class F> static inline void parallel(i64 n, i64 unit, int threads, i64 work, const F& f, Seen& seen, Pause& pause) {
    in_parts(n, unit, threads, threads, work, f, seen, pause);
}
// Each place where one of these stands has seen what its own calls took.
template <class F> static inline void in_parts(i64 n, i64 unit, int parts, int threads, i64 work, const F& f) {
    static SeenByWork places;
    in_parts(n, unit, parts, threads, work, f, places.of(work), *dynamo_lite_pause);
}
template <class F> static inline void parallel(i64 n, i64 unit, int threads, i64 work, const F& f) {
    static SeenByWork places;
    in_parts(n, unit, threads, threads, work, f, places.of(work), *dynamo_lite_pause);
}
