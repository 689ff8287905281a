// What pieces of work cost on this processor: the measurements of inductor/machine_costs.py, milliseconds together. Each is the least of several
// short samples, which no other process has interrupted.
//
// `room`: so many floats, at least 1 << 19. `out`: nanoseconds of a product (one of the tile's, both operands packed), of an element that is packed
// from lines, packed from columns, copied by im2col, of an element of the left operand that is packed from lines and from columns, of a product
// whose left operand is read where its depth is strided, and where it is not.
// Of a left operand that is neither packed nor small: lines of `line` elements, as of a layer with so many.
static void probe_left(float* source, i64 elements, float* packed, double* out) {
    alignas(64) float tile[block * panel];
    const i64 line = 768, rows = elements / line < 8 * block ? elements / line / block * block : 8 * block, depth = chunk_depth;
    out[0] = least_time(4, [&] { for (i64 r = 0; r < rows; r += block) for (i64 k = 0; k < depth; k += chain) pack_left(source + r + k * line, 1, line, chain, block, packed); }) / (rows * depth);
    out[1] = least_time(4, [&] { for (i64 r = 0; r < rows; r += block) for (i64 k = 0; k < depth; k += chain) pack_left(source + r * line + k, line, 1, chain, block, packed); }) / (rows * depth);
    out[2] = least_time(3, [&] { multiply<STREAMED>(source, 1, line, rows, depth, packed, tile); }) / (rows * depth * panel);
    out[3] = least_time(3, [&] { multiply<STREAMED>(source, line, 1, rows, depth, packed, tile); }) / (rows * depth * panel);
}
LIBRARY PROBE(float* room, i64 elements, double* out) {
    alignas(64) float tile[block * panel];
    for (i64 i = 0; i < elements; ++i) room[i] = 1.0f;
    float* const packed = room;                          // chunk_depth lines of a panel
    float* const source = room + chunk_depth * 64;       // what is packed from: about a core's own cache
    const i64 many = elements - chunk_depth * 64;
    const i64 rows = 8 * ROWS;
    out[0] = least_time(8, [&] { multiply<PACKED_BOTH>(source, 1, ROWS, rows, chain, packed, tile); }) / (rows * chain * panel);
    // Panel after panel of lines of 28 x 28 pixels, and of 768 values a line.
    const i64 line = 784, panels_ = 6, deep = 768, lines = 256;
    const double by_lines = least_time(6, [&] { for (i64 p = 0; p < panels_; ++p) pack_lines(source + p * panel, line, many / line < chunk_depth ? many / line - 1 : chunk_depth, panel, packed); });
    out[1] = by_lines / (panels_ * (many / line < chunk_depth ? many / line - 1 : chunk_depth) * panel);
    const double by_columns = least_time(6, [&] { for (i64 p = 0; p + panel <= lines; p += panel) pack_columns(source + p * deep, deep, chunk_depth, panel, packed); });
    out[2] = by_columns / (lines / panel * panel * chunk_depth);
    // Channels of 28 x 28 pixels, as a kernel of 3 x 3 sees them.
    Windows w{};
    w.channels = 16, w.height = w.width = w.out_height = w.out_width = 28, w.kernel_h = w.kernel_w = 3;
    w.stride_h = w.stride_w = w.pad_h = w.pad_w = w.dilation_h = w.dilation_w = 1, w.strip = 832, w.copies = true;
    const Planes planes = planes_of(w);
    float* const to = source + w.channels * 28 * 28;
    const double windows = least_time(6, [&] { for (i64 c = 0; c < w.channels; ++c) im2col(w, planes, source + c * 28 * 28, 0, planes.height, 0, to + c * planes.channel); });
    out[3] = windows / (w.channels * planes.channel);
    probe_left(source, many, packed, out + 4);
}
