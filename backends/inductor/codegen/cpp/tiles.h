// What contraction.cpp and depthwise.cpp have in common: the widest vector, places in batches.
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
