// A product of two matrices with nothing behind it, for product_times.py, which knows the order of the numbers.
struct Result {
    float* p;
    i64 line;
};
LIBRARY PRODUCTS_ALONE(const i64* n, const float* left, const float* right, float* result, float* workspace) {
    Contraction c{};
    c.batches[0] = c.batches[1] = c.batches[2] = 1;
    c.rows = n[0], c.columns = n[1], c.depth = n[2];
    c.left.p = left, c.left.line = n[3], c.left.depth = n[4];
    c.right.p = right, c.right.line = n[5], c.right.depth = n[6];
    c.transposed = n[7], c.by_rows = n[8], c.direct = n[9], c.decided = true;
    c.threads = (int)n[10], c.slots = (int)n[10], c.slot = n[11], c.kept = n[12], c.group = n[13], c.chunk = n[14];
    c.workspace = workspace, c.work = c.rows * c.columns * c.depth;
    const Result to{result, c.transposed ? c.rows : c.columns};
    c.result = result, c.result_line = to.line;
    // Threads that have to wait elsewhere are none of its business.
    Seen seen{};
    Pause pause{};
    c.seen = &seen, c.pause = &pause;
    PRODUCTS(&c, [](const void* context, i64, i64 l0, i64 l1, i64 begin, i64 end, const float* tile, i64 pitch) {
        const Result& r = *(const Result*)context;
        for (i64 line = l0; line < l1; ++line)
            for_lanes<CL>(begin, end, [&](i64 i, auto m) INLINE_LAMBDA { store<CL>(r.p + line * r.line + i, load<CL>(tile + (line - l0) * pitch + (i - begin), m), m); });
    }, &to);
}
