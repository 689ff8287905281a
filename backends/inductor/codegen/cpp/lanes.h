// Lanes a few elements apart in memory, reductions of lanes, and loops over lanes with their tails. It follows vec.h in every file.
// ------------------------------------------------------------------ memory
// Loads lane k from p + K * k, by K vectors, of which the last ends with the last lane, so that nothing beyond is read.
template <int L, int K, class T, class M> INLINE auto load_every(const T* p, M m) {
    return load_lanes<L>(p, m, [](i64 k) { return K * k; });
}
template <int L, int K, class T> INLINE auto load_every(const T* p, full) {
    auto v = load<L>(p, full());
#pragma GCC unroll 16
    for (int j = 1; j < K; ++j) {
        const int begin = j < K - 1 ? j * L : K * (L - 1) + 1 - L;
        mask_of<decltype(v)> from;
        for (int k = 0; k < L; ++k) from[k] = K * k >= j * L ? K * k - begin + L & 2 * L - 1 : j > 1 ? k : K * k;
        v = __builtin_shuffle(v, load<L>(p + begin, full()), from);
    }
    return v;
}
template <int L, int K, class T> INLINE auto load_every(const T* p, some m) {
    return m.n == L ? load_every<L, K>(p, full()) : load_every<L, K>(p, m.n);
}
// Stores lane k of K vectors, one after the other, at p + K * k.
template <int L, class T, class V, int K, class M> INLINE void store_side_by_side(T* p, const V (&v)[K], M m) {
    const int n = alive(m, L);
    for (int k = 0; k < L; ++k)
        if (k < n)
            for (int c = 0; c < K; ++c) store1(p + K * k + c, (elem<V>)v[c][k]);
}
template <int L, class T, class V, int K> INLINE void store_side_by_side(T* p, const V (&v)[K], full) {
#pragma GCC unroll 16
    for (int j = 0; j < K; ++j) {
        V out = v[0];
#pragma GCC unroll 16
        for (int c = 1; c < K; ++c) {
            mask_of<V> from;
            for (int k = 0; k < L; ++k) {
                const int e = j * L + k;
                from[k] = e % K == c ? L + e / K : c > 1 ? k : e / K;
            }
            out = __builtin_shuffle(out, v[c], from);
        }
        store<L>(p + j * L, out, full());
    }
}
template <int L, class T, class V, int K> INLINE void store_side_by_side(T* p, const V (&v)[K], some m) {
    if (m.n == L) return store_side_by_side<L>(p, v, full());
    store_side_by_side<L>(p, v, m.n);
}

// ------------------------------------------------------------------ reductions
// a in active lanes, b in the others.
INLINE bool keep(full, bool a, bool) { return a; }
template <class V> INLINE V keep(full, V a, V) { return a; }
template <class V> INLINE V keep(int n, V a, V b) {
    typedef mask_of<V> I;
    return iota<elem<I>, lanes<V>>() < (elem<I>)n ? a : b;
}
template <class V> INLINE V keep(some m, V a, V b) { return keep(m.n, a, b); }
// A vector twice as one; the lower half of a vector.
template <class V>
INLINE auto twice(V v) {
    return bits<vec<elem<V>, 2 * lanes<V>>>(Halves<V>{v, v});
}
template <class V>
INLINE auto low_half(V v) {
    return bits<Halves<vec<elem<V>, lanes<V> / 2>>>(v).low;
}

// All lanes combined by f: the lower half with the upper half, and so on, in vectors while halves fill registers.
template <class V, class F> INLINE elem<V> fold(V v, F f) {
    if constexpr (sizeof(V) > 16) {
        const auto halves = bits<Halves<vec<elem<V>, lanes<V> / 2>>>(v);
        return fold(f(halves.low, halves.high), f);
    } else {
        struct Lanes { elem<V> of[lanes<V>]; } a = bits<Lanes>(v);
#pragma GCC unroll 4
        for (int w = lanes<V> / 2; w; w /= 2)
#pragma GCC unroll 8
            for (int k = 0; k < w; ++k) a.of[k] = f(a.of[k], a.of[k + w]);
        return a.of[0];
    }
}
// The position of the best value, which goes to `best`; better(a, b): whether a beats b.
template <class V, class P, class F> INLINE i64 fold_position(V v, P p, F better, elem<V>& best) {
    i64 at = p[0];
    best = v[0];
    for (int k = 1; k < lanes<V>; ++k)
        if (better(v[k], best) || (!better(best, v[k]) && p[k] < at)) best = v[k], at = p[k];
    return at;
}

// sum + x * x, rounded once if the processor has such an instruction.
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
template <class V> INLINE V plus_square(V sum, V x) { return fma_(x, x, sum); }
#else
template <class V> INLINE V plus_square(V sum, V x) { return sum + x * x; }
#endif

// A long sum: partial sums are added up sixteen at a time, and so are their sums.
template <class V> struct cascade {
    V low{}, middle{}, high{};
    u32 count = 0;
    INLINE void add(V part) {
        low = low + part;
        if (++count % 16 == 0) {
            middle = middle + low, low = V{};
            if (count % 256 == 0) high = high + middle, middle = V{};
        }
    }
    INLINE V total() const { return low + (middle + high); }
};

// ------------------------------------------------------------------ loops
// f(i, active lanes) for each vector.
template <int L, class F> INLINE void for_lanes(i64 begin, i64 end, F f) {
    i64 i = begin;
    for (; i + L <= end; i += L) f(i, full());
    if (i < end) f(i, (int)(end - i));
}
// Two vectors at a time.
template <int L, class F> INLINE void for_lanes2(i64 begin, i64 end, F f) {
    i64 i = begin;
    for (; i + 2 * L <= end; i += 2 * L) f(i, full(), full());
    if (i < end) f(i, (int)(end - i < L ? end - i : L), (int)(end - i < L ? 0 : end - i - L));
}
// The same for long bodies, which these compile only once.
template <int L> INLINE some up_to(i64 n) { return {(int)(n < 0 ? 0 : n < L ? n : L)}; }
template <int L, class F> INLINE void for_lanes_once(i64 begin, i64 end, F f) {
    for (i64 i = begin; i < end; i += L) f(i, up_to<L>(end - i));
}
template <int L, class F> INLINE void for_lanes2_once(i64 begin, i64 end, F f) {
    for (i64 i = begin; i < end; i += 2 * L) f(i, up_to<L>(end - i), up_to<L>(end - i - L));
}
template <int k> struct slot { static constexpr int n = k; };
// Four vectors at a time, each with its own copy of the accumulators, a slot.
template <int L, class F> INLINE void for_lanes4(i64 begin, i64 end, F f) {
    i64 i = begin;
    for (; i + 4 * L <= end; i += 4 * L) f(i, full(), slot<0>()), f(i + L, full(), slot<1>()), f(i + 2 * L, full(), slot<2>()), f(i + 3 * L, full(), slot<3>());
    for (; i + L <= end; i += L) f(i, full(), slot<0>());
    if (i < end) f(i, (int)(end - i), slot<1>());
}
// Groups of n vectors at a time; each_of calls f with a slot for each vector.
template <int size> struct group { static constexpr int n = size; };
template <int k = 0, int size, class F> INLINE void each_of(group<size> g, F f) {
    f(slot<k>());
    if constexpr (k + 1 < size) each_of<k + 1>(g, f);
}
// Groups of n rows at a time, then the rows that are left over.
template <int n, class F> INLINE void for_rows(i64 begin, i64 end, F f) {
    i64 i = begin;
    for (; i + n <= end; i += n) f(i, group<n>());
    for (; i < end; ++i) f(i, group<1>());
}
template <int L, int n, class F> INLINE void for_groups(i64 begin, i64 end, F f) {
    i64 i = begin;
    if constexpr (n > 1) for (; i + n * L <= end; i += n * L) f(i, full(), group<n>());
    for (; i + L <= end; i += L) f(i, full(), group<1>());
    if (i < end) f(i, (int)(end - i), group<1>());
}
INLINE i64 least(i64 a, i64 b) { return a < b ? a : b; }
// Adds up the sums of all parts, a line of columns for each part, into the first line: neighbors, neighboring pairs, and so on.
template <int L, class T> static void join_columns(T* sums, int parts, i64 columns) {
    for (int step = 1; step < parts; step *= 2)
        for (int t = 0; t + step < parts; t += 2 * step)
            for_lanes<L>(0, columns, [&](i64 i, auto m) __attribute__((always_inline)) {
                T* const own = sums + t * columns + i;
                store<L>(own, load<L>(own, m) + load<L>(own + step * columns, m), m);
            });
}
