// Building blocks of the measurements of the machine (probe.cpp, cores.cpp).

// The shortest time, in nanoseconds, of `samples` calls of work(), after one call that is not counted.
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
// Products as the loops of contraction.cpp compute them, ROWS rows at a time: `rows` x `panel` sums of `depth` products of the left operand (strides
// `line` and `step`, see tile_product in panels.h) and a packed panel. The results go to `tile`, of `block` rows, and overwrite each other.
template <Operands OPERANDS> static void multiply(const float* left, i64 line, i64 step, i64 rows, i64 depth, const float* packed, float* tile) {
    for (i64 r = 0; r + ROWS <= rows; r += ROWS)
        tile_product<ROWS, CV, false, OPERANDS>(left + r * (is_packed(OPERANDS) ? depth : line), line, step, ROWS * line, ROWS, packed, packed_places.at, 0, depth, tile + r % block * panel, panel, false, one_strip);
}
