// What measurements of the machine are made of (probe.cpp, cores.cpp).
template <class F> static double least_time(int samples, const F& work) {
    work();
    i64 best = (i64)1 << 62;
    for (int k = 0; k < samples; ++k) {
        const i64 begin = nanoseconds();
        work();
        const i64 took = nanoseconds() - begin;
        if (took < best) best = took;
    }
    return (double)best;
}
template <Operands PACKED> static void multiply(const float* left, i64 line, i64 step, i64 rows, i64 depth, const float* packed, float* tile) {
    for (i64 r = 0; r + ROWS <= rows; r += ROWS)
        tile_product<ROWS, CV, false, PACKED>(left + (PACKED ? r * depth : r * line), line, step, ROWS * line, ROWS, packed, packed_places.at, 0, depth, tile + r % block * panel, panel, false);
}
