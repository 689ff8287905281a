// Blocks of rows, see scheduler/row_blocks.py. It follows contraction.h where a kernel has them.
// Number of rows of a block, a multiple of 16: as many as have `near` bytes, within the limits, and no more than leave this number of blocks.
INLINE i64 rows_at_once(i64 batches, i64 rows, i64 row_bytes, i64 near, i64 fewest, i64 most, i64 blocks) {
    const auto up = [](i64 n) { return (n + 15) / 16 * 16; };
    i64 many = least(near / (row_bytes > 0 ? row_bytes : 1) / 16 * 16, most);
    many = least(many, up(batches * rows / blocks));
    if (many < fewest) many = fewest;
    const i64 own = (rows + many - 1) / many;  // blocks of one element of the batch, as equal as can be
    return own > 0 ? up((rows + own - 1) / own) : many;
}
// Whether all elements of a matrix are smaller than a limit in magnitude.
static NOINLINE bool all_below(float limit, const float* p, i64 depth, i64 step, i64 lines, i64 line) {
    const bool along = step == 1;  // the inner loop runs along contiguous elements
    const i64 outer = along ? lines : depth, inner = along ? depth : lines, far = along ? line : step, near = along ? 1 : line;
    i32 found = 0;
    for (i64 i = 0; i < outer; ++i) {
        const float* const at = p + i * far;
        if (near == 1)
            for (i64 j = 0; j < inner; ++j) found |= !(__builtin_fabsf(at[j]) < limit);
        else
            for (i64 j = 0; j < inner; ++j) found |= !(__builtin_fabsf(at[j * near]) < limit);
    }
    return !found;
}
// The range of a block's columns outside of which counts(from, to) is false, in steps of `step`; not empty.
struct Columns {
    i64 from, to;
};
template <class F> static inline Columns columns_that_count(i64 columns, i64 step, const F& counts) {
    i64 from = 0, to = columns;
    while (to > step) {
        const i64 before = (to - 1) / step * step;
        if (counts(before, to)) break;
        to = before;
    }
    while (from + step < to && !counts(from, from + step)) from += step;
    return {from, to};
}
// As share_loop, but in at most `slots` threads, each of which has a part of a workspace.
static NOINLINE void share_blocks(const void* body, void (*run)(const void*, i64, i64, int), i64 n, i64 work, i64 grain, int slots, SeenByWork& places) {
    const int most = threads_for(work, grain), threads = most < slots ? most : slots;
    if (threads <= 1) run(body, 0, n, 0);
    else share_out(body, run, n, 1, threads, threads, work, places.of(work), *dynamo_lite_pause);
}
