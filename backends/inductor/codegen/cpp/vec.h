// Vectors for generated kernels: GCC's vector types, loads and stores with tails, casts, functions.
//
// vec<T, L> is L lanes of T. Every load and store takes the number of active lanes: full{} for all, an int for a tail, some{n} for either. 16-bit floats
// are held as float and rounded where the program rounds; a bool is a mask, a vector of 0 and -1 of any integer width.
// Functions have one name for scalars and vectors. No system header is included: that would be most of the compile time.
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long i64;
typedef unsigned long u64;
struct b8 { u8 v; };
struct bf16 { u16 v; };
struct f16 { u16 v; };

#define INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))  // a function with several callers is compiled once
#define NOINLINE_ONCE __attribute__((noinline, noclone))
#define KERNEL extern "C" __attribute__((visibility("default"))) void
#define INF __builtin_inf()
#define NAN __builtin_nan("")

// Constants are inline: those of a template are external in GCC 16, and a library may be made of several parts.
template <class T> inline constexpr bool is_lane = !__is_class(T);
template <> inline constexpr bool is_lane<bool> = false;
template <class T, int L, bool = is_lane<T>> struct vec_of {};
template <class T, int L> struct vec_of<T, L, true> { typedef T type __attribute__((vector_size(sizeof(T) * L))); };
template <class T, int L> using vec = typename vec_of<T, L>::type;
template <class T> struct strip { typedef T type; };
template <class T> struct strip<T&> { typedef T type; };
template <class T> struct strip<const T> { typedef T type; };
template <class T> struct strip<const T&> { typedef T type; };
template <class V> using elem = typename strip<decltype(V{}[0])>::type;
#define LANES(V) (int)(sizeof(V) / sizeof(V{}[0]))  // no constexpr variable: as a template's default it excludes scalars (SFINAE)
template <class V> inline constexpr int lanes = LANES(V);
template <int bytes> struct int_of;
template <> struct int_of<1> { typedef i8 type; };
template <> struct int_of<2> { typedef i16 type; };
template <> struct int_of<4> { typedef i32 type; };
template <> struct int_of<8> { typedef i64 type; };
template <class V> using mask_of = vec<typename int_of<sizeof(elem<V>)>::type, lanes<V>>;
constexpr int REGISTER_BYTES =
#if defined(WIDEST_REGISTER)  // where the tests emulate wider ones
    WIDEST_REGISTER;
#elif defined(__AVX512F__)
    64;
#elif defined(__AVX__)
    32;
#else
    16;
#endif
struct full {};
struct some { int n; };  // all lanes or fewer, known at run time

// Vectors are not copied by __builtin_memcpy: g++ turns that into a move of one integer of 256 or 512 bits, whose constants are wrong in
// versions up to 12 at least (the rows of a triangle of ones, test_cpp.py).
template <class To, class From> union Both { From from; To to; };
template <class To, class From> INLINE To bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "");
    const Both<To, From> both = {x};
    return both.to;
}
template <class V> struct __attribute__((packed, may_alias)) Anywhere { V v; };
// A vector of twice as many lanes, as its two halves.
template <class V> struct Halves { V low, high; };
template <int L, class T> INLINE vec<T, L> bc(T x) { return vec<T, L>{} + x; }
template <int L> INLINE vec<float, L> bc(float x) { return x - vec<float, L>{}; }  // keeps -0.0
template <int L> INLINE vec<double, L> bc(double x) { return x - vec<double, L>{}; }
template <int L> INLINE vec<i32, L> bc(bool x) { return vec<i32, L>{} - (i32)x; }
template <class T, int L> INLINE vec<T, L> iota() {
    vec<T, L> v{};
#pragma GCC unroll 64
    for (int k = 0; k < L; ++k) v[k] = k;
    return v;
}

// ------------------------------------------------------------------ casts
template <class T> inline constexpr bool is_float = false;
template <> inline constexpr bool is_float<float> = true;
template <> inline constexpr bool is_float<double> = true;
template <class T, class V> INLINE vec<T, lanes<V>> convert(V x) {
    typedef elem<V> S;
#if defined(__AVX512BW__) && !defined(__clang__)
    // GCC 12 would convert these in two halves.
    if constexpr (lanes<V> == 16 && !is_float<S> && !is_float<T>) {
        typedef vec<T, 16> R;
        typedef vec<i32, 16> Words;
        constexpr bool from_unsigned = (S)-1 > 0;
        if constexpr (sizeof(S) == 2 && sizeof(T) == 4) {
            auto bytes = bits<vec<i16, 16>>(x);
            if constexpr (from_unsigned) return bits<R>(__builtin_ia32_pmovzxwd512_mask(bytes, Words{}, 0xffff));
            else return bits<R>(__builtin_ia32_pmovsxwd512_mask(bytes, Words{}, 0xffff));
        } else if constexpr (sizeof(S) == 1 && sizeof(T) == 4) {
            auto bytes = bits<vec<char, 16>>(x);
            if constexpr (from_unsigned) return bits<R>(__builtin_ia32_pmovzxbd512_mask(bytes, Words{}, 0xffff));
            else return bits<R>(__builtin_ia32_pmovsxbd512_mask(bytes, Words{}, 0xffff));
        } else if constexpr (sizeof(S) == 4 && sizeof(T) == 2) {
            return bits<R>(__builtin_ia32_pmovdw512_mask(bits<Words>(x), vec<i16, 16>{}, 0xffff));
        } else if constexpr (sizeof(S) == 4 && sizeof(T) == 1) {
            return bits<R>(__builtin_ia32_pmovdb512_mask(bits<Words>(x), vec<char, 16>{}, 0xffff));
        }
    }
#endif
    return __builtin_convertvector(x, vec<T, lanes<V>>);
}
template <class V, class M> INLINE mask_of<V> mask_for(M m) {
    if constexpr (sizeof(M) == sizeof(V)) return bits<mask_of<V>>(m);
    else return convert<elem<mask_of<V>>>(m);
}
template <class T> INLINE T sel(bool m, T a, T b) { return m ? a : b; }
template <class M, class V, int = LANES(V)> INLINE V sel(M m, V a, V b) {
    if constexpr (sizeof(V) > REGISTER_BYTES) {
        typedef Halves<vec<elem<V>, lanes<V> / 2>> parts;
        const auto ms = bits<Halves<vec<elem<mask_of<V>>, lanes<V> / 2>>>(mask_for<V>(m));
        const parts as = bits<parts>(a), bs = bits<parts>(b);
        return bits<V>(parts{sel(ms.low, as.low, bs.low), sel(ms.high, as.high, bs.high)});
    } else {
        return mask_for<V>(m) ? a : b;
    }
}

// An optimization barrier: the compiler knows nothing of the value that it returns. Conversions of floats to integers are
// between two, so that the processor's instruction decides the results of NaN and of numbers out of range, as in eager.
// Without them GCC folds (float)(int)x to trunc(x) under -fno-trapping-math, and the integer of a constant NaN to 0.
#if defined(__aarch64__)
#define VECTOR_REGISTER "+w"
#else
#define VECTOR_REGISTER "+x"
#endif
template <class V, int = LANES(V)> constexpr bool has_lanes(int) { return true; }
template <class V> constexpr bool has_lanes(long) { return false; }
template <class V> INLINE V opaque(V x) {
    if constexpr (!has_lanes<V>(0)) {
        if constexpr (is_float<V>) asm("" : VECTOR_REGISTER(x));
        else asm("" : "+r"(x));
    } else if constexpr (sizeof(V) < 16) {
#pragma GCC unroll 4
        for (int k = 0; k < LANES(V); ++k) x[k] = opaque((elem<V>)x[k]);
    } else {
        typedef vec<elem<V>, (sizeof(V) < REGISTER_BYTES ? sizeof(V) : REGISTER_BYTES) / sizeof(elem<V>)> part;
        constexpr int count = sizeof(V) / sizeof(part);
        struct Parts { part of[count]; } parts = bits<Parts>(x);
#pragma GCC unroll 16
        for (int k = 0; k < count; ++k) asm("" : VECTOR_REGISTER(parts.of[k]));
        x = bits<V>(parts);
    }
    return x;
}

// The integer type through which a float becomes a narrower integer. For a byte it is eager's of 64 bits, but on x86 32 bits give the same for a float: one
// beyond 32 bits is a multiple of 256, and a number that doesn't fit becomes an integer whose last byte is 0, too.
template <class T, class S> struct wide_int { typedef i32 type; };
template <> struct wide_int<u8, double> { typedef i64 type; };
#if !defined(__x86_64__)
template <> struct wide_int<u8, float> { typedef i64 type; };
#endif
template <class T, class S> struct cast_one {
    static INLINE T of(S x) {
        if constexpr (!is_float<S> || is_float<T>) return (T)x;
        // As in c10::convert, a negative float becomes an unsigned integer through a signed one.
        else if constexpr (sizeof(T) < 4) return (T)(typename wide_int<T, S>::type)opaque(x);
        else return opaque((T)opaque(x));
    }
};
template <class T, class V> INLINE auto to(V x) {
    if constexpr (!has_lanes<V>(0)) {
        return cast_one<T, V>::of(x);
    } else {
        typedef elem<V> S;
        if constexpr (is_float<S> && sizeof(T) < 4) {
            return convert<T>(convert<typename wide_int<T, S>::type>(opaque(x)));
        } else if constexpr (is_float<T> && sizeof(S) < 4) {
            return convert<T>(convert<i32>(x));
        } else if constexpr (is_float<S> && !is_float<T>) {
            return opaque(convert<T>(opaque(x)));
        } else {
            return convert<T>(x);
        }
    }
}
template <class T> INLINE T from_mask(bool m) { return (T)m; }
template <class T, class M, int L = LANES(M)> INLINE vec<T, L> from_mask(M m) { return sel(m, bc<L>((T)1), vec<T, L>{}); }

// 16-bit floats: a float rounded to a value of the type.
INLINE float round_bf16(float x) {
    u32 u = bits<u32>(x);
    u32 r = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    return x != x ? bits<float>(0x7fc00000u) : bits<float>(r);
}
template <class V, int L = LANES(V)> INLINE V round_bf16(V x) {
    vec<u32, L> u = bits<vec<u32, L>>(x);
    vec<u32, L> r = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    return x != x ? bits<V>(vec<u32, L>{} + 0x7fc00000u) : bits<V>(r);
}
template <int L> INLINE vec<u16, L> pack_f16(vec<float, L> x) {
#if defined(__AVX512F__) && !defined(__clang__)
    if constexpr (L == 16) return bits<vec<u16, L>>(__builtin_ia32_vcvtps2ph512_mask(x, 8, vec<i16, 16>{}, 0xffff));
#endif
#if defined(__F16C__) && !defined(__clang__)
    if constexpr (L == 8) return bits<vec<u16, L>>(__builtin_ia32_vcvtps2ph256(x, 8));
#endif
    vec<u16, L> r;
    for (int k = 0; k < L; ++k) r[k] = bits<u16>((_Float16)x[k]);
    return r;
}
template <int L> INLINE vec<float, L> unpack_f16(vec<u16, L> x) {
#if defined(__AVX512F__) && !defined(__clang__)
    if constexpr (L == 16) return __builtin_ia32_vcvtph2ps512_mask(bits<vec<i16, 16>>(x), vec<float, 16>{}, 0xffff, 4);
#endif
#if defined(__F16C__) && !defined(__clang__)
    if constexpr (L == 8) return __builtin_ia32_vcvtph2ps256(bits<vec<i16, 8>>(x));
#endif
    vec<float, L> r;
    for (int k = 0; k < L; ++k) r[k] = (float)bits<_Float16>((u16)x[k]);
    return r;
}
INLINE float round_f16(float x) { return (float)(_Float16)x; }
template <class V, int L = LANES(V)> INLINE V round_f16(V x) { return unpack_f16<L>(pack_f16<L>(x)); }

// ------------------------------------------------------------------ memory
// Sanitizers do not see masked loads and stores of x86, so these report the accesses.
#ifdef __SANITIZE_ADDRESS__
extern "C" void __asan_loadN(const void* p, u64 bytes);
extern "C" void __asan_storeN(const void* p, u64 bytes);
template <class T> INLINE void reads(const T* p, int n) { __asan_loadN(p, n * sizeof(T)); }
template <class T> INLINE void writes(const T* p, int n) { __asan_storeN(p, n * sizeof(T)); }
#else
template <class T> INLINE void reads(const T*, int) {}
template <class T> INLINE void writes(const T*, int) {}
#endif
template <int L, class T> INLINE vec<T, L> load(const T* p, full) { return ((const Anywhere<vec<T, L>>*)p)->v; }
template <int L, class T> INLINE vec<T, L> load(const T* p, int n) {
    reads(p, n);
#if defined(__AVX512VL__) && !defined(__clang__)
    typedef vec<T, L> V;
    if constexpr (sizeof(T) == 4 && L == 16) return bits<V>(__builtin_ia32_loaddqusi512_mask((const i32*)p, vec<i32, 16>{}, (u16)((1u << n) - 1)));
    if constexpr (sizeof(T) == 4 && L == 8) return bits<V>(__builtin_ia32_loaddqusi256_mask((const i32*)p, vec<i32, 8>{}, (u8)((1u << n) - 1)));
    if constexpr (sizeof(T) == 8 && L == 8)
        return bits<V>(__builtin_ia32_loaddqudi512_mask((const long long*)p, vec<long long, 8>{}, (u8)((1u << n) - 1)));
#ifdef __AVX512BW__
    if constexpr (sizeof(T) == 2 && L == 16) return bits<V>(__builtin_ia32_loaddquhi256_mask((const i16*)p, vec<i16, 16>{}, (u16)((1u << n) - 1)));
    if constexpr (sizeof(T) == 2 && L == 8) return bits<V>(__builtin_ia32_loaddquhi128_mask((const i16*)p, vec<i16, 8>{}, (u8)((1u << n) - 1)));
    if constexpr (sizeof(T) == 1 && L == 16) return bits<V>(__builtin_ia32_loaddquqi128_mask((const char*)p, vec<char, 16>{}, (u16)((1u << n) - 1)));
#endif
#endif
    vec<T, L> v{};
    for (int k = 0; k < L; ++k)
        if (k < n) v[k] = p[k];
    return v;
}
// A vector wider than a register is stored by halves: g++ would copy it on the stack, as integers of 512 bits.
template <int L, class T> INLINE void store(T* p, vec<T, L> v, full) {
    if constexpr (sizeof v > REGISTER_BYTES) {
        const auto halves = bits<Halves<vec<T, L / 2>>>(v);
        store<L / 2>(p, halves.low, full());
        store<L / 2>(p + L / 2, halves.high, full());
    } else {
        ((Anywhere<vec<T, L>>*)p)->v = v;
    }
}
template <int L, class T> INLINE void store(T* p, vec<T, L> v, int n) {
    if constexpr (sizeof v > REGISTER_BYTES) {
        const auto halves = bits<Halves<vec<T, L / 2>>>(v);
        store<L / 2>(p, halves.low, n < L / 2 ? n : L / 2);
        return store<L / 2>(p + L / 2, halves.high, n < L / 2 ? 0 : n - L / 2);
    }
    writes(p, n);
#if defined(__AVX512VL__) && !defined(__clang__)
    if constexpr (sizeof(T) == 4 && L == 16)
        return __builtin_ia32_storedqusi512_mask((i32*)p, bits<vec<i32, 16>>(v), (u16)((1u << n) - 1));
    if constexpr (sizeof(T) == 4 && L == 8) return __builtin_ia32_storedqusi256_mask((i32*)p, bits<vec<i32, 8>>(v), (u8)((1u << n) - 1));
    if constexpr (sizeof(T) == 8 && L == 8)
        return __builtin_ia32_storedqudi512_mask((long long*)p, bits<vec<long long, 8>>(v), (u8)((1u << n) - 1));
#ifdef __AVX512BW__
    if constexpr (sizeof(T) == 2 && L == 16) return __builtin_ia32_storedquhi256_mask((i16*)p, bits<vec<i16, 16>>(v), (u16)((1u << n) - 1));
    if constexpr (sizeof(T) == 2 && L == 8) return __builtin_ia32_storedquhi128_mask((i16*)p, bits<vec<i16, 8>>(v), (u8)((1u << n) - 1));
    if constexpr (sizeof(T) == 1 && L == 16) return __builtin_ia32_storedquqi128_mask((char*)p, bits<vec<char, 16>>(v), (u16)((1u << n) - 1));
#endif
#endif
    for (int k = 0; k < L; ++k)
        if (k < n) p[k] = v[k];
}

template <int L, class T> INLINE vec<T, L> load(const T* p, some m) { return m.n == L ? load<L>(p, full()) : load<L>(p, m.n); }
template <int L, class T> INLINE void store(T* p, vec<T, L> v, some m) {
    if (m.n == L) return store<L>(p, v, full());
    store<L>(p, v, m.n);
}

INLINE float from_bf16(u16 x) { return bits<float>((u32)x << 16); }
template <int L, class M> INLINE vec<float, L> load(const bf16* p, M m) {
    return bits<vec<float, L>>(convert<u32>(load<L>((const u16*)p, m)) << 16);
}
template <int L, class M> INLINE vec<float, L> load(const f16* p, M m) { return unpack_f16<L>(load<L>((const u16*)p, m)); }
template <int L, class M> INLINE vec<i8, L> load(const b8* p, M m) { return load<L>((const i8*)p, m) != 0; }
template <int L, class M> INLINE void store(bf16* p, vec<float, L> v, M m) {
    store<L>((u16*)p, convert<u16>(bits<vec<u32, L>>(v) >> 16), m);
}
template <int L, class M> INLINE void store(f16* p, vec<float, L> v, M m) { store<L>((u16*)p, pack_f16<L>(v), m); }
// Stores that also round: they take values that are not rounded yet.
template <int L, class M> INLINE void store_rounded(bf16* p, vec<float, L> v, M m) {
    const vec<u32, L> u = bits<vec<u32, L>>(v), r = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    store<L>((u16*)p, convert<u16>(v != v ? vec<u32, L>{} + 0x7fc0 : r), m);
}
template <int L, class M> INLINE void store_rounded(f16* p, vec<float, L> v, M m) { store<L>(p, v, m); }
template <int L, class V, class M> INLINE void store(b8* p, V v, M m) { store<L>((i8*)p, mask_for<vec<i8, L>>(v) & 1, m); }

template <class T> INLINE T load1(const T* p) { return *p; }
INLINE float load1(const bf16* p) { return from_bf16(p->v); }
INLINE float load1(const f16* p) { return (float)bits<_Float16>(p->v); }
INLINE bool load1(const b8* p) { return p->v != 0; }
template <class T> INLINE void store1(T* p, T v) { *p = v; }
INLINE void store1(bf16* p, float v) { p->v = (u16)(bits<u32>(v) >> 16); }
INLINE void store1(f16* p, float v) { p->v = bits<u16>((_Float16)v); }
INLINE void store1(b8* p, bool v) { p->v = v; }

INLINE int alive(full, int L) { return L; }
INLINE int alive(int n, int) { return n; }
INLINE int alive(some m, int) { return m.n; }
// Loads and stores lane by lane: lane k is at p + at(k).
template <class T> struct value_type { typedef T type; };
template <> struct value_type<bf16> { typedef float type; };
template <> struct value_type<f16> { typedef float type; };
template <> struct value_type<b8> { typedef i8 type; };
template <int L, class T, class F, class M> INLINE vec<typename value_type<T>::type, L> load_lanes(const T* p, M m, F at) {
    vec<typename value_type<T>::type, L> v{};
    const int n = alive(m, L);
#pragma GCC unroll 16
    for (int k = 0; k < L; ++k)
        if (k < n) v[k] = sizeof(T) == sizeof(b8) && __is_same_as(T, b8) ? -(int)load1(p + at(k)) : load1(p + at(k));
    return v;
}
template <int L, class T, class V, class F, class M> INLINE void store_lanes(T* p, V v, M m, F at) {
    const int n = alive(m, L);
    for (int k = 0; k < L; ++k)
        if (k < n) store1(p + at(k), v[k]);
}
template <int L, class V, class F, class M> INLINE void store_lanes(b8* p, V v, M m, F at) {
    const int n = alive(m, L);
    for (int k = 0; k < L; ++k)
        if (k < n) store1(p + at(k), v[k] != 0);
}
// Combines lane k with the element at p + at(k), one after the other, as several lanes may have the same element.
template <int L, class T, class V, class F, class S, class M> INLINE void update_lanes(T* p, V v, M m, F at, S sum) {
    const int n = alive(m, L);
    for (int k = 0; k < L; ++k)
        if (k < n) store1(p + at(k), (elem<V>)sum(load1(p + at(k)), v[k]));
}
template <class T, int L> INLINE vec<T, L> counted(T first, T step) { return bc<L>(first) + iota<T, L>() * step; }
template <class T, int L, class F> INLINE vec<T, L> index_lanes(F at) {
    vec<T, L> v;
    for (int k = 0; k < L; ++k) v[k] = (T)at(k);
    return v;
}

// Loads L rows of L elements, transposed: lane k of tile[r] is the element at p + k * stride + r.
template <int L, int w, class V> INLINE void swap_blocks(V* rows) {
    mask_of<V> low, high;
#pragma GCC unroll 16
    for (int k = 0; k < L; ++k) low[k] = k & w ? L + k - w : k, high[k] = k & w ? L + k : k + w;
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i)
        if (!(i & w)) {
            const V a = rows[i], b = rows[i + w];
            rows[i] = __builtin_shuffle(a, b, low);
            rows[i + w] = __builtin_shuffle(a, b, high);
        }
    if constexpr (2 * w < L) swap_blocks<L, 2 * w>(rows);
}
template <int L, class T, class V, class R, class M> INLINE void load_tile(V* tile, const T* p, i64 stride, R alive_rows, M m) {
    const int n = alive(m, L);
#pragma GCC unroll 16
    for (int k = 0; k < L; ++k) tile[k] = k < n ? load<L>(p + k * stride, alive_rows) : V{};
    swap_blocks<L, 1>(tile);
}

// The inverse of load_tile: for each r < columns, lane k of tile[r] goes to p + k * stride + r.
template <int L, class T, class V, class C, class M> INLINE void store_tile(T* p, i64 stride, V* tile, C columns, M m) {
    const int n = alive(m, L);
    swap_blocks<L, 1>(tile);
#pragma GCC unroll 16
    for (int k = 0; k < L; ++k)
        if (k < n) store<L>(p + k * stride, tile[k], columns);
}

// ------------------------------------------------------------------ operations
// One instruction each on x86. The result is b if either is NaN, or if they are equal.
template <class V> INLINE V greater(V a, V b) { return a > b ? a : b; }
template <class V> INLINE V lesser(V a, V b) { return a < b ? a : b; }
#if defined(__AVX512F__) && !defined(__clang__)
INLINE vec<float, 16> greater(vec<float, 16> a, vec<float, 16> b) { return __builtin_ia32_maxps512_mask(a, b, a, 0xffff, 4); }
INLINE vec<float, 16> lesser(vec<float, 16> a, vec<float, 16> b) { return __builtin_ia32_minps512_mask(a, b, a, 0xffff, 4); }
INLINE vec<double, 8> greater(vec<double, 8> a, vec<double, 8> b) { return __builtin_ia32_maxpd512_mask(a, b, a, 0xff, 4); }
INLINE vec<double, 8> lesser(vec<double, 8> a, vec<double, 8> b) { return __builtin_ia32_minpd512_mask(a, b, a, 0xff, 4); }
#endif
#if defined(__AVX2__) && !defined(__clang__)
INLINE vec<float, 8> greater(vec<float, 8> a, vec<float, 8> b) { return __builtin_ia32_maxps256(a, b); }
INLINE vec<float, 8> lesser(vec<float, 8> a, vec<float, 8> b) { return __builtin_ia32_minps256(a, b); }
#endif
template <class V> INLINE V max_(V a, V b) { return sel(a != a, a, greater(a, b)); }
template <class V> INLINE V min_(V a, V b) { return sel(a != a, a, lesser(a, b)); }
INLINE float abs_(float x) { return __builtin_fabsf(x); }
INLINE double abs_(double x) { return __builtin_fabs(x); }
template <class T> INLINE T abs_int(T x) { return (T)(x < 0 ? -x : x); }
INLINE i8 abs_(i8 x) { return abs_int(x); }
INLINE i16 abs_(i16 x) { return abs_int(x); }
INLINE i32 abs_(i32 x) { return abs_int(x); }
INLINE i64 abs_(i64 x) { return abs_int(x); }
template <class V, int L = LANES(V)> INLINE V abs_(V x) {
    if constexpr (is_float<elem<V>>) return bits<V>(bits<mask_of<V>>(x) & (elem<mask_of<V>>)(~0ul >> (65 - 8 * sizeof(elem<V>))));
    else return x < 0 ? -x : x;
}
INLINE float copysign_(float a, float b) { return __builtin_copysignf(a, b); }
INLINE double copysign_(double a, double b) { return __builtin_copysign(a, b); }
template <class V, int L = LANES(V)> INLINE V copysign_(V a, V b) {
    typedef mask_of<V> I;
    const elem<I> low = (elem<I>)(~0ul >> (65 - 8 * sizeof(elem<V>)));
    return bits<V>((bits<I>(a) & low) | (bits<I>(b) & ~low));
}
// Operations on masks of any widths.
INLINE bool mask_and(bool a, bool b) { return a & b; }
INLINE bool mask_or(bool a, bool b) { return a | b; }
INLINE bool mask_xor(bool a, bool b) { return a ^ b; }
INLINE bool mask_not(bool a) { return !a; }
INLINE bool mask_sel(bool m, bool a, bool b) { return m ? a : b; }
template <class A, class B, int = LANES(A)> INLINE A mask_and(A a, B b) { return a & mask_for<A>(b); }
template <class A, class B, int = LANES(A)> INLINE A mask_or(A a, B b) { return a | mask_for<A>(b); }
template <class A, class B, int = LANES(A)> INLINE A mask_xor(A a, B b) { return a ^ mask_for<A>(b); }
template <class A, int = LANES(A)> INLINE A mask_not(A a) { return ~a; }
template <class M, class A, class B, int = LANES(A)> INLINE A mask_sel(M m, A a, B b) {
    A k = mask_for<A>(m);
    return (k & a) | (~k & mask_for<A>(b));
}

template <class M> INLINE bool any_lane(M m) {
    bool found = false;
    for (int k = 0; k < lanes<M>; ++k) found |= m[k] != 0;
    return found;
}
#if defined(__AVX2__) && !defined(__clang__)
INLINE bool any_lane(vec<i32, 8> m) { return __builtin_ia32_movmskps256(bits<vec<float, 8>>(m)) != 0; }
INLINE bool any_lane(vec<i64, 4> m) { return __builtin_ia32_movmskpd256(bits<vec<double, 4>>(m)) != 0; }
#endif
#if defined(__AVX512DQ__) && !defined(__clang__)
INLINE bool any_lane(vec<i32, 16> m) { return __builtin_ia32_cvtd2mask512(m) != 0; }
typedef long long words __attribute__((vector_size(64)));
INLINE bool any_lane(vec<i64, 8> m) { return __builtin_ia32_cvtq2mask512(bits<words>(m)) != 0; }
#endif

// An index from memory as one in [0, size); a negative one counts from the end if `wraps`. One out of bounds becomes 0;
// the first of these is reported in fault[0] (code), fault[1] (index) and fault[2] (1).
inline NOINLINE void report(i64* fault, i64 code, i64 index) {
    if (!__atomic_exchange_n(fault + 2, 1, __ATOMIC_RELAXED)) fault[1] = index, fault[0] = code;
}
template <bool wraps> INLINE i64 bounded(i64 x, i64 size, i64* fault, i64 code) {
    const i64 y = wraps && x < 0 ? x + size : x;
    if (__builtin_expect((u64)y < (u64)size, 1)) return y;
    report(fault, code, x);
    return 0;
}
template <bool wraps, class V, class M> INLINE V bounded(V x, i64 size, M m, i64* fault, i64 code) {
    V y = wraps ? x + (x < 0 ? V{} + size : V{}) : x;
    const V wrong = (y < 0) | (y >= size);
    if (__builtin_expect(any_lane(wrong), 0)) {
        for (int k = 0; k < alive(m, lanes<V>); ++k)
            if (wrong[k]) report(fault, code, x[k]);
        y = wrong ? V{} : y;
    }
    return y;
}

template <class V, class F> INLINE V each(V x, F f) {
    V y;
    for (int k = 0; k < lanes<V>; ++k) y[k] = f(x[k]);
    return y;
}
template <class V, class F> INLINE V each(V a, V b, F f) {
    V y;
    for (int k = 0; k < lanes<V>; ++k) y[k] = f(a[k], b[k]);
    return y;
}
INLINE float sqrt_(float x) { return __builtin_sqrtf(x); }
INLINE double sqrt_(double x) { return __builtin_sqrt(x); }
INLINE float fma_(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double fma_(double a, double b, double c) { return __builtin_fma(a, b, c); }
INLINE float floor_(float x) { return __builtin_floorf(x); }
INLINE double floor_(double x) { return __builtin_floor(x); }
INLINE float ceil_(float x) { return __builtin_ceilf(x); }
INLINE double ceil_(double x) { return __builtin_ceil(x); }
INLINE float trunc_(float x) { return __builtin_truncf(x); }
INLINE double trunc_(double x) { return __builtin_trunc(x); }
INLINE float round_(float x) { return __builtin_rintf(x); }
INLINE double round_(double x) { return __builtin_rint(x); }
#if defined(__AVX512F__) && !defined(__clang__)
#define ROUNDING_WIDE(name, mode)                                                                                                \
    INLINE vec<float, 16> name(vec<float, 16> x) { return __builtin_ia32_rndscaleps_mask(x, mode, x, 0xffff, 4); }               \
    INLINE vec<double, 8> name(vec<double, 8> x) { return __builtin_ia32_rndscalepd_mask(x, mode, x, 0xff, 4); }
INLINE vec<float, 16> sqrt_(vec<float, 16> x) { return __builtin_ia32_sqrtps512_mask(x, x, 0xffff, 4); }
INLINE vec<double, 8> sqrt_(vec<double, 8> x) { return __builtin_ia32_sqrtpd512_mask(x, x, 0xff, 4); }
INLINE vec<float, 16> fma_(vec<float, 16> a, vec<float, 16> b, vec<float, 16> c) {
    return __builtin_ia32_vfmaddps512_mask(a, b, c, 0xffff, 4);
}
INLINE vec<double, 8> fma_(vec<double, 8> a, vec<double, 8> b, vec<double, 8> c) {
    return __builtin_ia32_vfmaddpd512_mask(a, b, c, 0xff, 4);
}
#else
#define ROUNDING_WIDE(name, mode)
#endif
#if defined(__AVX2__) && !defined(__clang__)
#define ROUNDING(name, mode)                                                                                                     \
    ROUNDING_WIDE(name, mode)                                                                                                    \
    INLINE vec<float, 8> name(vec<float, 8> x) { return __builtin_ia32_roundps256(x, mode); }                                    \
    INLINE vec<double, 4> name(vec<double, 4> x) { return __builtin_ia32_roundpd256(x, mode); }                                  \
    INLINE vec<float, 4> name(vec<float, 4> x) { return __builtin_ia32_roundps(x, mode); }
ROUNDING(round_, 8)
ROUNDING(floor_, 9)
ROUNDING(ceil_, 10)
ROUNDING(trunc_, 11)
INLINE vec<float, 8> sqrt_(vec<float, 8> x) { return __builtin_ia32_sqrtps256(x); }
INLINE vec<double, 4> sqrt_(vec<double, 4> x) { return __builtin_ia32_sqrtpd256(x); }
INLINE vec<float, 8> fma_(vec<float, 8> a, vec<float, 8> b, vec<float, 8> c) { return __builtin_ia32_vfmaddps256(a, b, c); }
INLINE vec<double, 4> fma_(vec<double, 4> a, vec<double, 4> b, vec<double, 4> c) { return __builtin_ia32_vfmaddpd256(a, b, c); }
INLINE vec<float, 4> fma_(vec<float, 4> a, vec<float, 4> b, vec<float, 4> c) { return __builtin_ia32_vfmaddps(a, b, c); }
#endif
template <class V, int L = LANES(V)> INLINE V sqrt_(V x) { return each(x, [](elem<V> e) { return sqrt_(e); }); }
template <class V, int L = LANES(V)> INLINE V floor_(V x) { return each(x, [](elem<V> e) { return floor_(e); }); }
template <class V, int L = LANES(V)> INLINE V ceil_(V x) { return each(x, [](elem<V> e) { return ceil_(e); }); }
template <class V, int L = LANES(V)> INLINE V trunc_(V x) { return each(x, [](elem<V> e) { return trunc_(e); }); }
template <class V, int L = LANES(V)> INLINE V round_(V x) { return each(x, [](elem<V> e) { return round_(e); }); }
template <class V, int L = LANES(V)> INLINE V fma_(V a, V b, V c) {
    V y;
    for (int k = 0; k < L; ++k) y[k] = fma_(a[k], b[k], c[k]);
    return y;
}

// x / by, rounded as the division is, at less than half its cost: the product with the reciprocal, corrected by the remainder
// (Markstein, Computation of elementary functions on the IBM RISC System/6000, 1990). For zeros and what is not finite it is the
// product. The remainder of a very small number is not exact: if there is one, the vector is divided.
template <int by, class V> INLINE V quotient(V x) { return x / (elem<V>)by; }
#if defined(__AVX512F__) && !defined(__clang__)
template <int by> INLINE vec<float, 16> quotient(vec<float, 16> x) {
    constexpr float reciprocal = 1.0f / by;
    constexpr u32 least = 27u << 23, infinite = 255u << 23;  // least: 2^-100
    const vec<float, 16> q = x * reciprocal, rest = fma_(q, bc<16>((float)-by), x);
    const vec<u32, 16> size = bits<vec<u32, 16>>(x) & 0x7fffffffu;
    const auto below = [](vec<u32, 16> v, u32 limit) { return __builtin_ia32_ucmpd512_mask(bits<vec<i32, 16>>(v), vec<i32, 16>{} + (i32)limit, 1, 0xffff); };
    if (__builtin_expect(below(size - 1u, least - 1) != 0, 0)) return x / (float)by;
    const u16 exact = below(size - least, infinite - least);
    return __builtin_ia32_vfmaddps512_mask3(rest, bc<16>(reciprocal), q, exact, 4);
}
#endif
