// A product or a convolution without an epilogue, for the measurements of library_times.py, whose `numbers_of` fills `n` in this order.

// The result. The epilogue only copies each tile to the result: rows of `line` elements, and `batch` elements from one matrix of a batch to the next.
struct Result {
    float* p;
    i64 line, batch;
};
LIBRARY ALONE(const i64* n, const float* left, const float* right, float* result, float* workspace) {
    Contraction c{};
    c.rows = n[0], c.columns = n[1], c.depth = n[2];
    c.left.p = left, c.left.line = n[3], c.left.depth = n[4];
    c.right.p = right, c.right.line = n[5], c.right.depth = n[6];
    c.transposed = n[7], c.by_rows = n[8], c.direct = n[9], c.decided = true;
    c.threads = (int)n[10], c.slots = (int)n[10], c.slot = n[11], c.kept = n[12], c.group = n[13], c.chunk = n[14], c.piece = n[15];
    for (int d = 0; d < 3; ++d) c.batches[d] = n[16 + d], c.left.batch[d] = n[19 + d], c.right.batch[d] = n[22 + d];
    const i64* const w = n + 25;
    c.windows = {w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13]};
    c.windows.strip = w[14], c.windows.copies = w[15], c.row_parts = w[16], c.block_parts = w[17];
    c.windows.set_tiles(w[18], w[19], w[20], w[21]), c.tile_lines = w[22], c.tile_groups = w[23], c.tile_rows = w[24], c.taps = w[25], c.far_left = w[26];
    c.workspace = workspace, c.work = c.batches[0] * c.batches[1] * c.batches[2] * c.rows * c.columns * c.depth;
    const Result to{result, c.transposed ? c.rows : c.columns, c.rows * c.columns};
    c.touched[0] = result, c.touched_line = to.line, c.touched_batch = to.batch;
    // Records of its own, so that what other loops have seen of their threads has no effect on a measurement.
    Seen seen{};
    Pause pause{};
    c.seen = &seen, c.pause = &pause;
    WHOLE(&c, [](const void* context, i64 batch, i64 l0, i64 l1, i64 begin, i64 end, const float* tile, i64 pitch) {
        const Result& r = *(const Result*)context;
        for (i64 line = l0; line < l1; ++line)
            for_lanes<CL>(begin, end, [&](i64 i, auto m) INLINE_LAMBDA {
                store<CL>(r.p + batch * r.batch + line * r.line + i, load<CL>(tile + (line - l0) * pitch + (i - begin), m), m);
            });
    }, &to);
}
