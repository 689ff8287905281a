// AVX-512 for a compiler and a processor that have AVX2: the macros that announce it, and each of GCC's builtins that the kernels' headers use,
// written out. Included before a kernel file (emulated_avx512.py), so that code of 16 lanes runs anywhere; how fast says nothing.
//
// Invariant: a builtin that is missing here does not compile, as GCC has it for -mavx512f alone.
#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512DQ__ 1
#define __AVX512VL__ 1
#define WIDEST_REGISTER 32

namespace emulated {
// Names of vectors: floats, doubles, ints, 64-bit ints (q), 16-bit ints (h), bytes; and how many lanes they have.
template <class T, int L> struct wide { typedef T type __attribute__((vector_size(sizeof(T) * L))); };
typedef wide<float, 4>::type f4;
typedef wide<double, 4>::type d4;
typedef wide<float, 8>::type f8;
typedef wide<float, 16>::type f16;
typedef wide<double, 8>::type d8;
typedef wide<int, 8>::type i8;
typedef wide<int, 16>::type i16;
typedef wide<long long, 8>::type q8;
typedef wide<short, 8>::type h8;
typedef wide<short, 16>::type h16;
typedef wide<char, 16>::type b16;
#define EMULATED static inline __attribute__((always_inline))

template <class V, class F> EMULATED V each(V x, F f) {
    for (unsigned k = 0; k < sizeof x / sizeof x[0]; ++k) x[k] = f(x[k]);
    return x;
}
// Of each half what an instruction of AVX2 makes of it.
template <class H, class V, class F> EMULATED V halves(V a, V b, V c, F f) {
    H x[2], y[2], z[2];
    __builtin_memcpy(x, &a, sizeof a);
    __builtin_memcpy(y, &b, sizeof b);
    __builtin_memcpy(z, &c, sizeof c);
    for (int k = 0; k < 2; ++k) x[k] = f(x[k], y[k], z[k]);
    __builtin_memcpy(&a, x, sizeof a);
    return a;
}
// Elements that the mask leaves out are the other vector's; they are neither read nor written.
template <class V, class T> EMULATED V load(const T* p, V other, unsigned mask) {
    for (unsigned k = 0; k < sizeof other / sizeof other[0]; ++k)
        if (mask >> k & 1) other[k] = p[k];
    return other;
}
template <class V, class T> EMULATED void store(T* p, V v, unsigned mask) {
    for (unsigned k = 0; k < sizeof v / sizeof v[0]; ++k)
        if (mask >> k & 1) p[k] = v[k];
}
template <class V> EMULATED unsigned signs(V v) {
    unsigned mask = 0;
    for (unsigned k = 0; k < sizeof v / sizeof v[0]; ++k) mask |= (unsigned)(v[k] < 0) << k;
    return mask;
}
// x * 2**floor(n), rounded once: a double has room for what no float has.
EMULATED float scaled(float x, float n) {
    if (x != x || n != n) return x + n;
    if (n > 1e9f) return x * __builtin_inff();
    if (n < -1e9f) return x - x != 0 ? __builtin_nanf("") : __builtin_copysignf(0, x);
    const double floor = __builtin_floor(n);
    return (float)__builtin_ldexp((double)x, floor > 900 ? 900 : floor < -900 ? -900 : (int)floor);
}
template <class V> EMULATED V scale(V x, V n) {
    for (unsigned k = 0; k < sizeof x / sizeof x[0]; ++k) x[k] = scaled(x[k], n[k]);
    return x;
}
template <class T> EMULATED T rounded(T x, int mode) {
    return (T)(mode == 8 ? __builtin_rint(x) : mode == 9 ? __builtin_floor(x) : mode == 10 ? __builtin_ceil(x) : __builtin_trunc(x));
}
template <class V> EMULATED V rounded_all(V x, int mode) {
    return each(x, [mode](auto e) { return rounded(e, mode); });
}
EMULATED h16 half_floats(f16 x) {
    f8 part[2];
    h16 r;
    __builtin_memcpy(part, &x, sizeof x);
    const h8 packed[2] = {__builtin_ia32_vcvtps2ph256(part[0], 8), __builtin_ia32_vcvtps2ph256(part[1], 8)};
    __builtin_memcpy(&r, packed, sizeof r);
    return r;
}
EMULATED f16 floats(h16 x) {
    h8 part[2];
    f16 r;
    __builtin_memcpy(part, &x, sizeof x);
    const f8 wide[2] = {__builtin_ia32_vcvtph2ps256(part[0]), __builtin_ia32_vcvtph2ps256(part[1])};
    __builtin_memcpy(&r, wide, sizeof r);
    return r;
}
// The builtins: their last arguments are vectors that a mask would take elements of, masks of all lanes, and how to round.
typedef wide<unsigned short, 16>::type uh16;
typedef wide<unsigned char, 16>::type ub16;
typedef wide<signed char, 16>::type sb16;
EMULATED f16 scalefps512_mask(f16 x, f16 n, f16, int, int) { return scale(x, n); }
EMULATED f8 scalefps256_mask(f8 x, f8 n, f8, int) { return scale(x, n); }
EMULATED i16 pmovzxwd512_mask(h16 x, i16, int) { return __builtin_convertvector((uh16)x, i16); }
EMULATED i16 pmovsxwd512_mask(h16 x, i16, int) { return __builtin_convertvector(x, i16); }
EMULATED i16 pmovzxbd512_mask(b16 x, i16, int) { return __builtin_convertvector((ub16)x, i16); }
EMULATED i16 pmovsxbd512_mask(b16 x, i16, int) { return __builtin_convertvector((sb16)x, i16); }
EMULATED h16 pmovdw512_mask(i16 x, h16, int) { return __builtin_convertvector(x, h16); }
EMULATED b16 pmovdb512_mask(i16 x, b16, int) { return __builtin_convertvector(x, b16); }
EMULATED h16 vcvtps2ph512_mask(f16 x, int, h16, int) { return half_floats(x); }
EMULATED f16 vcvtph2ps512_mask(h16 x, f16, int, int) { return floats(x); }
EMULATED i16 loaddqusi512_mask(const int* p, i16 other, unsigned mask) { return load(p, other, mask); }
EMULATED i8 loaddqusi256_mask(const int* p, i8 other, unsigned mask) { return load(p, other, mask); }
EMULATED q8 loaddqudi512_mask(const long long* p, q8 other, unsigned mask) { return load(p, other, mask); }
EMULATED void storedqusi512_mask(int* p, i16 v, unsigned mask) { store(p, v, mask); }
EMULATED void storedqusi256_mask(int* p, i8 v, unsigned mask) { store(p, v, mask); }
EMULATED void storedqudi512_mask(long long* p, q8 v, unsigned mask) { store(p, v, mask); }
EMULATED h16 loaddquhi256_mask(const short* p, h16 other, unsigned mask) { return load(p, other, mask); }
EMULATED void storedquhi256_mask(short* p, h16 v, unsigned mask) { store(p, v, mask); }
EMULATED h8 loaddquhi128_mask(const short* p, h8 other, unsigned mask) { return load(p, other, mask); }
EMULATED void storedquhi128_mask(short* p, h8 v, unsigned mask) { store(p, v, mask); }
EMULATED b16 loaddquqi128_mask(const char* p, b16 other, unsigned mask) { return load(p, other, mask); }
EMULATED void storedquqi128_mask(char* p, b16 v, unsigned mask) { store(p, v, mask); }
EMULATED unsigned cvtd2mask512(i16 v) { return signs(v); }
EMULATED unsigned cvtq2mask512(q8 v) { return signs(v); }
// The second one, if either is NaN or both are zeros.
EMULATED f16 maxps512_mask(f16 a, f16 b, f16, int, int) { return a > b ? a : b; }
EMULATED f16 minps512_mask(f16 a, f16 b, f16, int, int) { return a < b ? a : b; }
EMULATED d8 maxpd512_mask(d8 a, d8 b, d8, int, int) { return a > b ? a : b; }
EMULATED d8 minpd512_mask(d8 a, d8 b, d8, int, int) { return a < b ? a : b; }
EMULATED f16 rndscaleps_mask(f16 x, int mode, f16, int, int) { return rounded_all(x, mode); }
EMULATED d8 rndscalepd_mask(d8 x, int mode, d8, int, int) { return rounded_all(x, mode); }
EMULATED f16 sqrtps512_mask(f16 x, f16, int, int) {
    return halves<f8>(x, x, x, [](f8 a, f8, f8) { return __builtin_ia32_sqrtps256(a); });
}
EMULATED d8 sqrtpd512_mask(d8 x, d8, int, int) {
    return halves<d4>(x, x, x, [](d4 a, d4, d4) { return __builtin_ia32_sqrtpd256(a); });
}
EMULATED f16 vfmaddps512_mask(f16 a, f16 b, f16 c, int, int) {
    return halves<f8>(a, b, c, [](f8 x, f8 y, f8 z) { return __builtin_ia32_vfmaddps256(x, y, z); });
}
EMULATED d8 vfmaddpd512_mask(d8 a, d8 b, d8 c, int, int) {
    return halves<d4>(a, b, c, [](d4 x, d4 y, d4 z) { return __builtin_ia32_vfmaddpd256(x, y, z); });
}
// Where the mask has a lane, else the third operand.
EMULATED f16 vfmaddps512_mask3(f16 a, f16 b, f16 c, unsigned mask, int) {
    const f16 all = vfmaddps512_mask(a, b, c, 0xffff, 4);
    for (int k = 0; k < 16; ++k)
        if (mask >> k & 1) c[k] = all[k];
    return c;
}
// Comparison 1: less, of numbers without a sign.
EMULATED unsigned ucmpd512_mask(i16 a, i16 b, int, unsigned) {
    unsigned mask = 0;
    for (int k = 0; k < 16; ++k) mask |= (unsigned)((unsigned)a[k] < (unsigned)b[k]) << k;
    return mask;
}
#undef EMULATED
}  // namespace emulated

#define __builtin_ia32_scalefps512_mask emulated::scalefps512_mask
#define __builtin_ia32_scalefps256_mask emulated::scalefps256_mask
#define __builtin_ia32_pmovzxwd512_mask emulated::pmovzxwd512_mask
#define __builtin_ia32_pmovsxwd512_mask emulated::pmovsxwd512_mask
#define __builtin_ia32_pmovzxbd512_mask emulated::pmovzxbd512_mask
#define __builtin_ia32_pmovsxbd512_mask emulated::pmovsxbd512_mask
#define __builtin_ia32_pmovdw512_mask emulated::pmovdw512_mask
#define __builtin_ia32_pmovdb512_mask emulated::pmovdb512_mask
#define __builtin_ia32_vcvtps2ph512_mask emulated::vcvtps2ph512_mask
#define __builtin_ia32_vcvtph2ps512_mask emulated::vcvtph2ps512_mask
#define __builtin_ia32_loaddqusi512_mask emulated::loaddqusi512_mask
#define __builtin_ia32_loaddqusi256_mask emulated::loaddqusi256_mask
#define __builtin_ia32_loaddqudi512_mask emulated::loaddqudi512_mask
#define __builtin_ia32_storedqusi512_mask emulated::storedqusi512_mask
#define __builtin_ia32_storedqusi256_mask emulated::storedqusi256_mask
#define __builtin_ia32_storedqudi512_mask emulated::storedqudi512_mask
#define __builtin_ia32_loaddquhi256_mask emulated::loaddquhi256_mask
#define __builtin_ia32_storedquhi256_mask emulated::storedquhi256_mask
#define __builtin_ia32_loaddquhi128_mask emulated::loaddquhi128_mask
#define __builtin_ia32_storedquhi128_mask emulated::storedquhi128_mask
#define __builtin_ia32_loaddquqi128_mask emulated::loaddquqi128_mask
#define __builtin_ia32_storedquqi128_mask emulated::storedquqi128_mask
#define __builtin_ia32_cvtd2mask512 emulated::cvtd2mask512
#define __builtin_ia32_cvtq2mask512 emulated::cvtq2mask512
#define __builtin_ia32_maxps512_mask emulated::maxps512_mask
#define __builtin_ia32_minps512_mask emulated::minps512_mask
#define __builtin_ia32_maxpd512_mask emulated::maxpd512_mask
#define __builtin_ia32_minpd512_mask emulated::minpd512_mask
#define __builtin_ia32_rndscaleps_mask emulated::rndscaleps_mask
#define __builtin_ia32_rndscalepd_mask emulated::rndscalepd_mask
#define __builtin_ia32_sqrtps512_mask emulated::sqrtps512_mask
#define __builtin_ia32_sqrtpd512_mask emulated::sqrtpd512_mask
#define __builtin_ia32_vfmaddps512_mask emulated::vfmaddps512_mask
#define __builtin_ia32_vfmaddpd512_mask emulated::vfmaddpd512_mask
#define __builtin_ia32_vfmaddps512_mask3 emulated::vfmaddps512_mask3
#define __builtin_ia32_ucmpd512_mask emulated::ucmpd512_mask
