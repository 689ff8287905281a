// What contraction.cpp and depthwise.cpp have in common: the widest vector, places in batches, lines of images.
#if defined(__AVX512F__)
constexpr int CL = 16;
#elif defined(__AVX2__)
constexpr int CL = 8;
#else
constexpr int CL = 4;
#endif
typedef vec<float, CL> fvec;
#define INLINE_LAMBDA __attribute__((always_inline))
#define LIBRARY extern "C" __attribute__((visibility("default"))) void

static i64 at_batch(const Contraction& c, const Matrix& operand, i64 batch) {
    const i64 last = batch % c.batches[2], rest = batch / c.batches[2];
    return rest / c.batches[1] * operand.batch[0] + rest % c.batches[1] * operand.batch[1] + last * operand.batch[2];
}
// The lanes of a vector that are inside the image; those in between are read, the others are zeros.
struct Lanes {
    int begin, end;
    Lanes() {}
    Lanes(i64 from, i64 to) : begin(from < 0 ? 0 : (int)least(from, CL)), end(to < begin ? begin : (int)least(to, CL)) {}
    INLINE u32 mask() const { return ((1u << end) - 1) & ~((1u << begin) - 1); }
};
// Whether to leave lanes out costs nothing.
#if defined(__AVX512VL__) && !defined(__clang__)
#define MASKED_LOADS 1
template <int L> INLINE vec<float, L> load_within(const float* p, u32 lanes) {
    lanes &= (1u << L) - 1;
    if (lanes != 0) reads(p + __builtin_ctz(lanes), 32 - __builtin_clz(lanes) - __builtin_ctz(lanes));
    if constexpr (L == 8) return bits<vec<float, 8>>(__builtin_ia32_loaddqusi256_mask((const i32*)p, vec<i32, 8>{}, (u8)lanes));
    else return bits<vec<float, 16>>(__builtin_ia32_loaddqusi512_mask((const i32*)p, vec<i32, 16>{}, (u16)lanes));
}
#else
#define MASKED_LOADS 0
template <int L> INLINE vec<float, L> load_within(const float* p, u32 lanes) {
#if defined(__AVX2__) && !defined(__clang__)
    if constexpr (L == 8) {
        if (lanes != 0) reads(p + __builtin_ctz(lanes), 32 - __builtin_clz(lanes) - __builtin_ctz(lanes));
        const vec<i32, 8> place = {31, 30, 29, 28, 27, 26, 25, 24};
        return bits<vec<float, 8>>(__builtin_ia32_maskloadd256((const vec<i32, 8>*)p, bc<8>((i32)lanes) << place));
    }
#endif
    if (lanes == (1u << L) - 1) return load<L>(p, full());
    vec<float, L> v{};
    for (int k = 0; k < L; ++k)
        if (lanes >> k & 1) v[k] = p[k];
    return v;
}
#endif
