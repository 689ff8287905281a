// Inlined functions of float vectors: around a call the caller would have to spill all its vector registers. Polynomials are minimax
// fits (Lawson's iteration in double, coefficients rounded to float). The figure above a function is its largest error;
// tests/backends/inductor/test_cpp.py holds them to 2 ulp.
#define F(x) bc<L>((float)(x))

// 2**n * x for integers n.
template <int L> INLINE vec<float, L> scale_(vec<float, L> x, vec<float, L> n) {
#if defined(__AVX512VL__) && !defined(__clang__)
    if constexpr (L == 16) return __builtin_ia32_scalefps512_mask(x, n, x, 0xffff, 4);
    if constexpr (L == 8) return __builtin_ia32_scalefps256_mask(x, n, x, 0xff);
#endif
    // In two steps, so that a subnormal result is rounded once.
    const vec<i32, L> i = convert<i32>(n), half = i >> 1;
    return x * bits<vec<float, L>>((half + 127) << 23) * bits<vec<float, L>>((i - half + 127) << 23);
}

// exp(x - n ln 2) - 1, for the integer n nearest to x / ln 2.
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

#if defined(__AVX512F__)
// The polynomial of the part that each lane's `place` is nearest to, an integer from 0 to 31, at the distance from it. parts[k] has the coefficients of power
// k; one instruction selects a coefficient for each lane, as two registers hold those of all parts.
INLINE vec<float, 16> polynomial_by_parts(const float (&parts)[6][32], vec<float, 16> place) {
    constexpr int L = 16;
    const vec<float, L> far = F(0x1.8p+23f);  // adding it rounds to an integer, which is in the last bits of the sum
    const vec<float, L> n = place + far, d = place - (n - far);
    const vec<i32, L> part = bits<vec<i32, L>>(n);
    const auto coefficient = [&](int k) __attribute__((always_inline)) { return __builtin_shuffle(load<L>(parts[k], full()), load<L>(parts[k] + L, full()), part); };
    vec<float, L> e = coefficient(5);
#pragma GCC unroll 5
    for (int k = 4; k >= 0; --k) e = fma_(e, d, coefficient(k));
    return e;
}
// tanh(t) / t in the first 3 of 32 parts of [0, 9.14), 1 - tanh(t) in the others: for each part a polynomial of the distance from its middle, in units of a
// part's width, interpolated at Chebyshev nodes in double. Without an exponential and a division this takes 0.6 of the time.
alignas(64) static const float tanh_parts[6][32] = {
    {0x1.fc8b92p-1f, 0x1.e2cbf8p-1f, 0x1.b7a78cp-1f, 0x1.e84152p-3f, 0x1.22d0eap-3f, 0x1.52eed6p-4f, 0x1.85d2d6p-5f, 0x1.bce37p-6f, 0x1.f975d4p-7f,
     0x1.1e6772p-7f, 0x1.441778p-8f, 0x1.6e6f6ep-9f, 0x1.9e1e04p-10f, 0x1.d3e14p-11f, 0x1.084586p-11f, 0x1.2a82bap-12f, 0x1.512b6ep-13f, 0x1.7cd32ep-14f,
     0x1.ae204p-15f, 0x1.e5ce28p-16f, 0x1.125844p-16f, 0x1.35db26p-17f, 0x1.5df69ep-18f, 0x1.8b4302p-19f, 0x1.be6c58p-20f, 0x1.f834eep-21f, 0x1.1cbc18p-21f,
     0x1.4196fcp-22f, 0x1.6b3716p-23f, 0x1.9a3a78p-24f, 0x1.cf53acp-25f, 0x1.05a628p-25f},
    {-0x1.b6a232p-6f, -0x1.2237acp-4f, -0x1.80df42p-4f, -0x1.eb7d6ep-4f, -0x1.34c37ap-4f, -0x1.735366p-5f, -0x1.b2e9ap-6f, -0x1.f58a72p-7f, -0x1.1e9b54p-7f,
     -0x1.45e376p-8f, -0x1.717982p-9f, -0x1.a232ap-10f, -0x1.d8e72cp-11f, -0x1.0b3d9ap-11f, -0x1.2df2d4p-12f, -0x1.551b4p-13f, -0x1.814e46p-14f,
     -0x1.b3357p-15f, -0x1.eb8f58p-16f, -0x1.159958p-16f, -0x1.3988cap-17f, -0x1.621e9ap-18f, -0x1.8ff502p-19f, -0x1.c3ba1ep-20f, -0x1.fe3292p-21f,
     -0x1.201e36p-21f, -0x1.45693ap-22f, -0x1.6f87f8p-23f, -0x1.9f1a6p-24f, -0x1.d4d51ap-25f, -0x1.08c218p-25f, -0x1.2b070ap-26f},
    {-0x1.a86afap-6f, -0x1.194c9ep-6f, -0x1.928534p-8f, 0x1.abcba2p-6f, 0x1.2ec4e4p-6f, 0x1.85428ep-7f, 0x1.d9644ap-8f, 0x1.16cfd6p-8f, 0x1.427efep-9f,
     0x1.712f94p-10f, 0x1.a42a32p-11f, 0x1.dc997ep-12f, 0x1.0dccfcp-12f, 0x1.312468p-13f, 0x1.58e814p-14f, 0x1.85b89p-15f, 0x1.b84628p-16f, 0x1.f154cp-17f,
     0x1.18dfc2p-17f, 0x1.3d3e56p-18f, 0x1.6650bap-19f, 0x1.94b33ap-20f, 0x1.c9162ep-21f, 0x1.022054p-21f, 0x1.2389b6p-22f, 0x1.494622p-23f, 0x1.73e4eep-24f,
     0x1.a407f2p-25f, 0x1.da65fep-26f, 0x1.0be6c4p-26f, 0x1.2e93dep-27f, 0x1.55bdfcp-28f},
    {0x1.bf018cp-10f, 0x1.e58bc4p-9f, 0x1.b4748p-9f, -0x1.3cb97ap-9f, -0x1.44e9b6p-9f, -0x1.ecc7c2p-10f, -0x1.45ecep-10f, -0x1.919fc2p-11f, -0x1.dc3474p-12f,
     -0x1.145bacp-12f, -0x1.3cf51p-13f, -0x1.691804p-14f, -0x1.99d3fp-15f, -0x1.d026bap-16f, -0x1.0685c6p-16f, -0x1.28c35p-17f, -0x1.4f574ep-18f,
     -0x1.7ada34p-19f, -0x1.abf50ep-20f, -0x1.e364cp-21f, -0x1.10febp-21f, -0x1.3456cep-22f, -0x1.5c4142p-23f, -0x1.8955d6p-24f, -0x1.bc3fdap-25f,
     -0x1.f5c0bcp-26f, -0x1.1b5972p-26f, -0x1.40067ep-27f, -0x1.6972cep-28f, -0x1.983bacp-29f, -0x1.cd12c6p-30f, -0x1.046062p-30f},
    {0x1.95cfeap-11f, 0x1.779aa6p-13f, -0x1.2f9c3ep-12f, -0x1.8b4f5ap-13f, 0x1.abc052p-14f, 0x1.60fde6p-13f, 0x1.28f8c2p-13f, 0x1.9807b6p-14f, 0x1.ff55dep-15f,
     0x1.31a9fep-15f, 0x1.644f1p-16f, 0x1.999b1p-17f, 0x1.d33ddcp-18f, 0x1.0957p-18f, 0x1.2ca18ap-19f, 0x1.5425f6p-20f, 0x1.808fd4p-21f, 0x1.b2959cp-22f,
     0x1.eafe18p-23f, 0x1.15529p-23f, 0x1.394004p-24f, 0x1.61d0fep-25f, 0x1.8fa046p-26f, 0x1.c35c46p-27f, 0x1.fdc9c4p-28f, 0x1.1fe366p-28f, 0x1.45270ep-29f,
     0x1.6f3d6p-30f, 0x1.9ec63ap-31f, 0x1.d4762p-32f, 0x1.088c7cp-32f, 0x1.2aca8p-33f},
    {-0x1.509974p-14f, -0x1.0e2d56p-13f, -0x1.a945eap-15f, 0x1.713058p-14f, 0x1.02f44p-15f, 0x1.01811p-22f, -0x1.20acd2p-17f, -0x1.1a4506p-17f,
     -0x1.95a774p-18f, -0x1.02e4d4p-18f, -0x1.383856p-19f, -0x1.6d915cp-20f, -0x1.a53e7ep-21f, -0x1.e12394p-22f, -0x1.116d8p-22f, -0x1.35eb32p-23f,
     -0x1.5ebc54p-24f, -0x1.8c94fp-25f, -0x1.c03328p-26f, -0x1.fa6546p-27f, -0x1.1e076ap-27f, -0x1.4316aep-28f, -0x1.6cee8p-29f, -0x1.9c2eap-30f,
     -0x1.d18b06p-31f, -0x1.06e758p-31f, -0x1.28ef56p-32f, -0x1.4f5eccp-33f, -0x1.7ac7b8p-34f, -0x1.abcefep-35f, -0x1.e32eccp-36f, -0x1.10dcb8p-36f},
};
// 1.41 ulp.
INLINE vec<float, 16> tanh_by_parts(vec<float, 16> x) {
    constexpr int L = 16;
    const vec<float, L> t = lesser(F(9.1f), abs_(x)), e = polynomial_by_parts(tanh_parts, fma_(t, F(3.5f), F(-0.5f)));
    const auto low = t < F(3 / 3.5f);
    return copysign_(fma_(low ? t : F(-1.0f), e, low ? F(0.0f) : F(1.0f)), x);
}
#endif
// 1.34 ulp.
template <int L> INLINE vec<float, L> fast_tanh(vec<float, L> x) {
#if defined(__AVX512F__)
    if constexpr (L == 16) return tanh_by_parts(x);
#endif
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

#if defined(__AVX512F__)
// erfc in 32 parts of [0, 5): for each part a polynomial of the distance from its middle, in units of a part's width, interpolated at Chebyshev nodes in
// double.
alignas(64) static const float erfc_parts[6][32] = {
    {0x1.d2f4dcp-1f, 0x1.7b0894p-1f, 0x1.294bb4p-1f, 0x1.c1d46ap-2f, 0x1.47b96ep-2f, 0x1.cb3c86p-3f, 0x1.351262p-3f, 0x1.8f34eap-4f, 0x1.ee5c18p-5f,
     0x1.254038p-5f, 0x1.4d17cap-6f, 0x1.6a088p-7f, 0x1.785674p-8f, 0x1.75ffb4p-9f, 0x1.6331ccp-10f, 0x1.424644p-11f, 0x1.17457ap-12f, 0x1.ce283ep-14f,
     0x1.6d0e74p-15f, 0x1.1338bcp-16f, 0x1.8c03dcp-18f, 0x1.0fd82p-19f, 0x1.640c08p-21f, 0x1.bcd32cp-23f, 0x1.090658p-24f, 0x1.2d2c2ep-26f, 0x1.465ddep-28f,
     0x1.5139eap-30f, 0x1.4c38fp-32f, 0x1.38080ep-34f, 0x1.176266p-36f, 0x1.dceb4ep-39f},
    {-0x1.66e25ap-3f, -0x1.55c81p-3f, -0x1.35fb7ap-3f, -0x1.0bbe7p-3f, -0x1.b87af2p-4f, -0x1.590ff4p-4f, -0x1.016ea2p-4f, -0x1.6dcea8p-5f, -0x1.ef09p-6f,
     -0x1.3efebcp-6f, -0x1.87859ep-7f, -0x1.c9a36ep-8f, -0x1.fd6da2p-9f, -0x1.0e0704p-9f, -0x1.109e94p-10f, -0x1.061eb4p-11f, -0x1.e0076cp-13f,
     -0x1.a29994p-14f, -0x1.5ba2dep-15f, -0x1.12f1ccp-16f, -0x1.9e2e24p-18f, -0x1.2918c4p-19f, -0x1.95e92ap-21f, -0x1.08133ep-22f, -0x1.473a08p-24f,
     -0x1.82283cp-26f, -0x1.b1fbe6p-28f, -0x1.d07dc2p-30f, -0x1.d9739cp-32f, -0x1.cb964ep-34f, -0x1.a8de4ap-36f, -0x1.760dfep-38f},
    {0x1.186096p-9f, 0x1.90861ep-8f, 0x1.2eb75ep-7f, 0x1.6e0e2ap-7f, 0x1.8323ecp-7f, 0x1.72ac16p-7f, 0x1.46d17cp-7f, 0x1.0becfp-7f, 0x1.9aeb28p-8f,
     0x1.27f18p-8f, 0x1.9176bep-9f, 0x1.00f9a4p-9f, 0x1.36ee3ap-10f, 0x1.63fe24p-11f, 0x1.820824p-12f, 0x1.8cc2a4p-13f, 0x1.82bcap-14f, 0x1.65aed4p-15f,
     0x1.3a047cp-16f, 0x1.05c702p-17f, 0x1.9e8ff6p-19f, 0x1.37df2cp-20f, 0x1.bde84ap-22f, 0x1.2efb7ep-23f, 0x1.876788p-25f, 0x1.e0bb3ap-27f, 0x1.18b84ap-28f,
     0x1.37c77ep-30f, 0x1.4955ecp-32f, 0x1.4ae486p-34f, 0x1.3c3f84p-36f, 0x1.1f895ep-38f},
    {0x1.714612p-10f, 0x1.3ce882p-10f, 0x1.c0b704p-11f, 0x1.c04f82p-12f, 0x1.49d536p-17f, -0x1.56f0ccp-12f, -0x1.1d0c7ap-11f, -0x1.4cc43ep-11f,
     -0x1.45e06p-11f, -0x1.1b00e4p-11f, -0x1.beeab2p-12f, -0x1.45347ap-12f, -0x1.b7bd8ap-13f, -0x1.15b9a2p-13f, -0x1.48ec24p-14f, -0x1.6e3fdep-15f,
     -0x1.80316p-16f, -0x1.7c453cp-17f, -0x1.63964ep-18f, -0x1.3a71cp-19f, -0x1.072c44p-20f, -0x1.a137d4p-22f, -0x1.396612p-23f, -0x1.be639ep-25f,
     -0x1.2d88p-26f, -0x1.82846cp-28f, -0x1.d63ff4p-30f, -0x1.0f94d6p-31f, -0x1.29e25cp-33f, -0x1.365648p-35f, -0x1.3324a2p-37f, -0x1.20d48cp-39f},
    {-0x1.b2fc1p-16f, -0x1.2c912p-14f, -0x1.a7b912p-14f, -0x1.c8d59p-14f, -0x1.94c98ep-14f, -0x1.25bbeap-14f, -0x1.3f46acp-15f, -0x1.1e4028p-17f,
     0x1.bfc78p-17f, 0x1.afd8bcp-16f, 0x1.f11468p-16f, 0x1.ce1d22p-16f, 0x1.76b1fap-16f, 0x1.1194bp-16f, 0x1.6dc5b4p-17f, 0x1.c42b8ep-18f, 0x1.0413bep-18f,
     0x1.17a1bep-19f, 0x1.19e926p-20f, 0x1.0b20ap-21f, 0x1.dcb272p-23f, 0x1.911bap-24f, 0x1.3ea784p-25f, 0x1.de7dp-27f, 0x1.53c9b4p-28f, 0x1.c8c236p-30f,
     0x1.22bcc6p-31f, 0x1.5eb19ep-33f, 0x1.90fbfp-35f, 0x1.b2c604p-37f, 0x1.bf2dacp-39f, 0x1.b46c96p-41f},
    {-0x1.5532dap-17f, -0x1.054792p-17f, -0x1.fcf07cp-19f, 0x1.3e26f2p-21f, 0x1.17536ep-18f, 0x1.9c5a16p-18f, 0x1.ac63fcp-18f, 0x1.60fd92p-18f,
     0x1.ccf314p-19f, 0x1.a28f4ap-20f, 0x1.5cf9cep-24f, -0x1.b8e726p-21f, -0x1.3ef5e8p-20f, -0x1.3bf0c8p-20f, -0x1.036d94p-20f, -0x1.76ab4ap-21f,
     -0x1.e8b0cep-22f, -0x1.240d4ap-22f, -0x1.42bfb6p-23f, -0x1.4bbdc2p-24f, -0x1.3e7b68p-25f, -0x1.1e758cp-26f, -0x1.e3eef8p-28f, -0x1.80966cp-29f,
     -0x1.1ffb1ep-30f, -0x1.96dc38p-32f, -0x1.0f672p-33f, -0x1.563676p-35f, -0x1.981aaap-37f, -0x1.cc9484p-39f, -0x1.ec2faep-41f, -0x1.f23f5cp-43f},
};
// 1 + erf(x) by these polynomials. Largest error: 1e-7 times the larger of the result and 0.1.
INLINE vec<float, 16> erf_plus_one_by_parts(vec<float, 16> x) {
    constexpr int L = 16;
    const vec<float, L> e = polynomial_by_parts(erfc_parts, lesser(F(31.49f), fma_(abs_(x), F(6.4f), F(-0.5f))));
    const vec<float, L> low = x > F(-5.0f) ? e : vec<float, L>{};  // exactly 0, as gelu multiplies it by a large x
    return x < F(0.0f) ? low : F(2.0f) - e;
}
#endif
// 1 + erf(x), for gelu, without the cancellation of the sum for negative x. Largest error: 1e-7 times the larger of the result and 0.1.
template <int L> INLINE vec<float, L> fast_erf_plus_one(vec<float, L> x) {
#if defined(__AVX512F__)
    if constexpr (L == 16) return erf_plus_one_by_parts(x);
#endif
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
    const vec<float, L> low = x > F(-5.0f) ? e : vec<float, L>{};  // exactly 0, as gelu multiplies it by a large x
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
    // The correction for the rounding of 1 + x.
    const V c = (x - (u - F(1.0f))) / u;
    const V r = (u > V{}) & (u < F(__builtin_inff())) ? l + c : l;
    return x == V{} ? x : r;
}

// sin (quarter = 0) or cos (quarter = 1). 1.57 ulp for |x| < 2**15; for other x, the result of `beyond` (Sleef's).
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
    if constexpr (quarter == 0) y = x == V{} ? x : y;  // keeps -0.0
    const I far = ~(abs_(x) < F(32768.0f));
    return any_lane(far) ? sel(far, beyond(x), y) : y;
}
#undef F
