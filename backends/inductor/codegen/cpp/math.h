// Functions of float vectors, in line: a call would cost the caller all its vector registers. Polynomials are minimax fits
// (Lawson's iteration in double, coefficients rounded to float). tests/backends/inductor/test_cpp.py holds them to 2 ulp.
#define F(x) bc<L>((float)(x))

// 2**n * x for an integral n.
template <int L> INLINE vec<float, L> scale_(vec<float, L> x, vec<float, L> n) {
#if defined(__AVX512VL__) && !defined(__clang__)
    if constexpr (L == 16) return __builtin_ia32_scalefps512_mask(x, n, x, 0xffff, 4);
    if constexpr (L == 8) return __builtin_ia32_scalefps256_mask(x, n, x, 0xff);
#endif
    // In two steps, so that a result below the normal numbers is rounded once.
    const vec<i32, L> i = convert<i32>(n), half = i >> 1;
    return x * bits<vec<float, L>>((half + 127) << 23) * bits<vec<float, L>>((i - half + 127) << 23);
}

// exp(x - n ln 2) - 1, for the nearest n.
template <int L> INLINE vec<float, L> reduced_expm1(vec<float, L> x, vec<float, L> n) {
    vec<float, L> r = fma_(n, F(-0x1.62e430p-1), x);
    r = fma_(n, F(0x1.05c610p-29), r);
    vec<float, L> p = F(0x1.6a2256p-10);
    p = fma_(p, r, F(0x1.123b02p-7));
    p = fma_(p, r, F(0x1.5558f8p-5));
    p = fma_(p, r, F(0x1.555490p-3));
    p = fma_(p, r, F(0x1.fffffcp-2));
    return fma_(p * r, r, r);
}

// exp for -104 <= x <= 89.
template <int L> INLINE vec<float, L> bounded_exp(vec<float, L> x) {
    const vec<float, L> n = round_(x * F(1.44269502f));
    return scale_<L>(reduced_expm1<L>(x, n) + F(1.0f), n);
}

// 1.02 ulp.
template <int L> INLINE vec<float, L> fast_exp(vec<float, L> x) {
    return bounded_exp<L>(greater(F(-104.0f), lesser(F(89.0f), x)));
}

// 1.34 ulp.
template <int L> INLINE vec<float, L> fast_tanh(vec<float, L> x) {
    const vec<float, L> t = lesser(F(10.0f), abs_(x)), s = t * t;
    const vec<float, L> far = F(1.0f) - F(2.0f) / (bounded_exp<L>(t + t) + F(1.0f));
    vec<float, L> p = F(-0x1.75e1ccp-8);
    p = fma_(p, s, F(0x1.52269ap-6));
    p = fma_(p, s, F(-0x1.b83c5ap-5));
    p = fma_(p, s, F(0x1.110726p-3));
    p = fma_(p, s, F(-0x1.555532p-2));
    return copysign_(t < F(0.625f) ? fma_(p * s, t, t) : far, x);
}

// 1.28 ulp.
template <int L> INLINE vec<float, L> fast_erf(vec<float, L> x) {
    const vec<float, L> t = lesser(F(4.0f), abs_(x)), s = t * t;
    vec<float, L> q = F(0x1.5d71d4p-16);
    q = fma_(q, t, F(-0x1.c4590ep-12));
    q = fma_(q, t, F(0x1.10624ep-8));
    q = fma_(q, t, F(-0x1.9aebaep-6));
    q = fma_(q, t, F(0x1.bb4548p-4));
    q = fma_(q, t, F(0x1.444d1ep-1));
    q = fma_(q, t, F(0x1.212626p+0));
    q = fma_(q, t, F(-0x1.62d8a2p-13));
    const vec<float, L> far = F(1.0f) - bounded_exp<L>(-q);
    vec<float, L> p = F(-0x1.3a8aa2p-11);
    p = fma_(p, s, F(0x1.475756p-8));
    p = fma_(p, s, F(-0x1.b68ff4p-6));
    p = fma_(p, s, F(0x1.ce1abap-4));
    p = fma_(p, s, F(-0x1.8126e8p-2));
    p = fma_(p, s, F(0x1.06eba6p-3));
    return t < F(0.92f) ? fma_(p, x, x) : copysign_(far, x);
}

// 1 + erf(x), for gelu: without the cancellation that the sum has for negative x. 1e-7 of the larger of itself and 0.1.
template <int L> INLINE vec<float, L> fast_erf_plus_one(vec<float, L> x) {
    const vec<float, L> t = lesser(F(5.0f), abs_(x));
    vec<float, L> q = F(-0x1.e05a86p-19);
    q = fma_(q, t, F(0x1.e3aa48p-15));
    q = fma_(q, t, F(-0x1.886da8p-12));
    q = fma_(q, t, F(0x1.1b022ep-10));
    q = fma_(q, t, F(0x1.3922b0p-11));
    q = fma_(q, t, F(-0x1.42eb92p-6));
    q = fma_(q, t, F(0x1.a5e18ap-4));
    q = fma_(q, t, F(0x1.45ed96p-1));
    q = fma_(q, t, F(0x1.20dda0p+0));
    const vec<float, L> e = bounded_exp<L>(-(q * t));  // erfc(t)
    const vec<float, L> low = x > F(-5.0f) ? e : vec<float, L>{};  // not to be multiplied by a large number
    return x < F(0.0f) ? low : F(2.0f) - e;
}

// 0.89 ulp.
template <int L> INLINE vec<float, L> fast_log(vec<float, L> x) {
    typedef vec<float, L> V;
    typedef vec<i32, L> I;
    const I tiny = x < F(0x1p-126f);
    const V y = tiny ? x * F(0x1p+25f) : x;
    const I i = bits<I>(y) - 0x3f3504f3;  // so that the mantissa is in [sqrt(1/2), sqrt(2))
    const V e = convert<float>(i >> 23) - (tiny ? F(25.0f) : V{});
    const V f = bits<V>((i & 0x7fffff) + 0x3f3504f3) - F(1.0f), s = f * f;
    V p = F(-0x1.38b580p-4);
    p = fma_(p, f, F(0x1.055b6ap-3));
    p = fma_(p, f, F(-0x1.0d8542p-3));
    p = fma_(p, f, F(0x1.22da1cp-3));
    p = fma_(p, f, F(-0x1.547244p-3));
    p = fma_(p, f, F(0x1.99a008p-3));
    p = fma_(p, f, F(-0x1.000226p-2));
    p = fma_(p, f, F(0x1.555554p-2));
    p = fma_(p * f, s, fma_(e, F(-0x1.05c610p-29), s * F(-0.5f)));
    const V r = fma_(e, F(0x1.62e430p-1), f + p);
    const V special = x == V{} ? F(-__builtin_inff()) : x < V{} ? F(__builtin_nanf("")) : x;
    return (x > V{}) & (x < F(__builtin_inff())) ? r : special;
}

// 1.44 ulp.
template <int L> INLINE vec<float, L> fast_expm1(vec<float, L> x) {
    const vec<float, L> y = greater(F(-104.0f), lesser(F(80.0f), x));
    const vec<float, L> n = round_(y * F(1.44269502f)), p = reduced_expm1<L>(y, n);
    const vec<float, L> s = scale_<L>(F(1.0f), n);
    const vec<float, L> near = x == F(0.0f) ? x : n == F(0.0f) ? p : fma_(s, p, s - F(1.0f));
    return x > F(80.0f) ? fast_exp<L>(x) : near;
}

// 1.44 ulp.
template <int L> INLINE vec<float, L> fast_log1p(vec<float, L> x) {
    typedef vec<float, L> V;
    const V u = x + F(1.0f), l = fast_log<L>(u);
    // What rounding 1 + x lost.
    const V c = (x - (u - F(1.0f))) / u;
    const V r = (u > V{}) & (u < F(__builtin_inff())) ? l + c : l;
    return x == V{} ? x : r;
}

// 1.57 ulp for |x| < 2**15; beyond, what `beyond` gives (Sleef's).
template <int L, int quarter, class G> INLINE vec<float, L> fast_sin_cos(vec<float, L> x, G beyond) {
    typedef vec<float, L> V;
    typedef vec<i32, L> I;
    const V n = round_(x * F(0x1.45f306p-1));
    V r = fma_(n, F(-0x1.921fb6p+0), x);
    r = fma_(n, F(0x1.777a5cp-25), r);
    r = fma_(n, F(0x1.ee59dap-50), r);
    const I q = convert<i32>(n) + quarter;
    const V s = r * r;
    V sine = F(0x1.6ccf5ep-19);
    sine = fma_(sine, s, F(-0x1.a00f74p-13));
    sine = fma_(sine, s, F(0x1.111108p-7));
    sine = fma_(sine, s, F(-0x1.555556p-3));
    sine = fma_(sine * s, r, r);
    V cosine = F(0x1.99e86ap-16);
    cosine = fma_(cosine, s, F(-0x1.6c0c28p-10));
    cosine = fma_(cosine, s, F(0x1.55554ap-5));
    cosine = fma_(cosine * s, s, fma_(s, F(-0.5f), F(1.0f)));
    V y = (q & 1) != 0 ? cosine : sine;
    y = bits<V>(bits<I>(y) ^ ((q & 2) << 30));
    if constexpr (quarter == 0) y = x == V{} ? x : y;  // -0.0
    const I far = ~(abs_(x) < F(32768.0f));
    return any_lane(far) ? sel(far, beyond(x), y) : y;
}
#undef F
