// Definitions that contraction.cpp and depthwise.cpp share: the widest vector, the offsets of batches, lines of images.
// CL: number of float lanes of the widest vector.
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

// The offset, in elements, of an operand's matrix in batch element `batch` of the flattened batch dimensions.
static i64 at_batch(const Contraction& c, const Matrix& operand, i64 batch) {
    const i64 last = batch % c.batches[2], rest = batch / c.batches[2];
    return rest / c.batches[1] * operand.batch[0] + rest % c.batches[1] * operand.batch[1] + last * operand.batch[2];
}
// The lanes [begin, end) of a vector that are inside an image; these are loaded, the others are zeros (padding).
struct Lanes {
    int begin, end;
    Lanes() {}
    Lanes(i64 from, i64 to) : begin(from < 0 ? 0 : (int)least(from, CL)), end(to < begin ? begin : (int)least(to, CL)) {}
    INLINE u32 mask() const { return ((1u << end) - 1) & ~((1u << begin) - 1); }
};
// MASKED_LOADS: whether leaving lanes out of a load costs nothing. load_within loads the lanes of a bit mask; the others are zeros.
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
// Splits the lines of a padded image by the stride: element x of class k is column x * stride + k. Columns in [begin, end) are in the image, the others
// are padding. `width`: elements of a class. Whole vectors are stored: what exceeds a line is overwritten by the next one, and behind the last line there
// is slack.
class SplitLines {
    static constexpr i64 MAX_MASKS = 256;  // number of vectors of a line whose masks are computed once
    u32 inside[MAX_MASKS];
    const i64 begin, end, stride, width, all;
    vec<i32, CL> even, odd;
    INLINE u32 lanes(i64 x) const { return Lanes(begin - x, end - x).mask(); }
    INLINE fvec within(const float* p, i64 x) const { return load_within<CL>(p + x, x < MAX_MASKS * CL ? inside[x / CL] : lanes(x)); }

public:
    SplitLines(i64 begin, i64 end, i64 stride, i64 width) : begin(begin), end(end), stride(stride), width(width), all(width * stride) {
        for (int k = 0; k < CL; ++k) even[k] = 2 * k, odd[k] = 2 * k + 1;
        for (i64 x = 0; stride <= 2 && x < all && x < MAX_MASKS * CL; x += CL) inside[x / CL] = lanes(x);
    }
    // Copies the first class, or with ALL (`width` is a multiple of CL then) all classes, of the line whose column 0 is at `from`; each class is stored
    // `width` elements behind the one before.
    template <bool ALL> INLINE void copy(const float* from, float* to) const {
        if (stride == 1)
            for (i64 x = 0; x < width; x += CL) store<CL>(to + x, within(from, x), full());
        else if (stride == 2)
            for (i64 x = 0; x < width; x += CL) {
                const fvec a = within(from, 2 * x), b = ALL || 2 * x + CL < all ? within(from, 2 * x + CL) : fvec{};
                store<CL>(to + x, __builtin_shuffle(a, b, even), full());
                if (ALL) store<CL>(to + width + x, __builtin_shuffle(a, b, odd), full());
            }
        else
            for (i64 k = 0; k < (ALL ? stride : 1); ++k)
                for (i64 x = 0; x < width; ++x) {
                    const i64 at = x * stride + k;
                    to[k * width + x] = at >= begin && at < end ? from[at] : 0;
                }
    }
    // For a stride of 2: stores the elements 2x to `even_` and 2x + 1 to `odd_`, for x in [0, width), in whole vectors.
    INLINE void split_in_two(const float* from, float* even_, float* odd_) const {
        for (i64 x = 0; x < width; x += CL) {
            const fvec a = within(from, 2 * x), b = 2 * x + CL < all ? within(from, 2 * x + CL) : fvec{};
            store<CL>(even_ + x, __builtin_shuffle(a, b, even), full()), store<CL>(odd_ + x, __builtin_shuffle(a, b, odd), full());
        }
    }
    // Stores `count` zeros, for a line that is all padding.
    INLINE void clear(i64 count, float* to) const {
        for (i64 x = 0; x < count; x += CL) store<CL>(to + x, fvec{}, full());
    }
};
