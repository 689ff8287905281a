// Measures on this processor the costs of inductor/machine_costs.py, all of them in some milliseconds. Each figure is the shortest of several short
// samples, so that it is the time of one that no other process has interrupted.
//
// PROBE(room, elements, out). `room`: `elements` floats, at least 1 << 19, that begin with a cache line: ordinary numbers, in memory of this process; they are
// overwritten. `out`: 17 times in nanoseconds:
//   0            a product (one multiplication and addition) of a tile, both operands packed
//   1, 2         an element of the right operand that is packed from lines, from columns, in the core's own cache
//   3, 4         the same from beyond that cache, panel by panel
//   5            an element that im2col copies to a plane
//   6, 7         an element of the left operand that is packed from lines, from columns, from beyond the core's own cache
//   8, 9         the same if the operand is in that cache
//   10, 11, 12   an element of transformed pixels, of transformed taps, of sums that are transformed back (winograd.h)
//   13, 14, 15   a product whose left operand is not packed: its depth is strided; its depth is contiguous; the same with rows a page apart
//   16           a product whose right operand is read from the planes of im2col
// The numbers 13 to 16 are multiples of 0: they count in relation to the same products with packed operands, which are computed just before or after, since
// the speed of a core that others share changes from one millisecond to the next.

// The times of a left operand that does not fit the L1 cache: its lines have 768 elements, like those of a layer with 768 inputs. `product`: number 0 of the
// whole; here out[0] to [3] and [7], [8], [9] are the numbers 6 to 9 and 13, 14, 15 of it.
static void probe_left(float* source, i64 elements, float* packed, double product, double* out) {
    alignas(64) float tile[block * panel];
    // Packing reads all of the memory, more than a core's own cache holds, as weights are read that a network has not used since the last call.
    const i64 line = 768, all = elements / line / block * block, rows = least(all, 8 * block), depth = chunk_depth;
    out[0] = least_time(2, [&] { for (i64 r = 0; r < line; r += block) for (i64 k = 0; k < all; k += chain) pack_left(source + r + k * line, 1, line, least(chain, all - k), block, packed); }) / (line * all);
    out[1] = least_time(2, [&] { for (i64 r = 0; r < all; r += block) for (i64 k = 0; k < depth; k += chain) pack_left(source + r * line + k, line, 1, chain, block, packed); }) / (all * depth);
    const i64 near = least(all, 3 * block);  // of 768 elements: 432 KB
    out[2] = least_time(3, [&] { for (i64 r = 0; r < line; r += block) pack_left(source + r, 1, line, near, block, packed); }) / (line * near);
    out[3] = least_time(3, [&] { for (i64 r = 0; r < near; r += block) for (i64 k = 0; k < line; k += chain) pack_left(source + r * line + k, line, 1, chain, block, packed); }) / (near * line);
    // The time of products in relation to that of the same number of them whose left operand is a packed block.
    const auto related = [&](i64 many, const auto& work) {
        const double own = least_time(3, work);
        return product * own / least_time(3, [&] { for (i64 r = 0; r < many; r += block) multiply<PACKED_BOTH>(source, 1, ROWS, block, depth, packed, tile); });
    };
    const i64 page = 1024, fewer = elements / page < 8 * block ? elements / page / block * block : 8 * block;
    out[7] = related(rows, [&] { multiply<SPACED>(source, 1, line, rows, depth, packed, tile); });
    out[8] = related(rows, [&] { multiply<SPACED>(source, line, 1, rows, depth, packed, tile); });
    out[9] = related(fewer, [&] { multiply<SPACED>(source, page, 1, fewer, depth, packed, tile); });
}
// Packing of the right operand: matrices of 768 columns and of 768 rows. Of each element in the own cache, 128 steps deep for six panels of 64 columns; of those
// beyond it, each panel 512 steps deep. Here out[0] to [3] are the numbers 1 to 4 of the whole.
static void probe_right(float* source, i64 elements, float* packed, double* out) {
    const i64 line = 768, columns = 6 * wide, few_lines = 2 * wide, all = elements / line / chunk_depth * chunk_depth;
    float* const to = source + shallow_depth * line;
    out[0] = least_time(6, [&] { pack_lines(source, line, shallow_depth, columns, to, shallow_depth * panel); }) / (shallow_depth * columns);
    out[1] = least_time(6, [&] { for (i64 c = 0; c < few_lines; c += panel) pack_columns(source + c * line, line, chunk_depth, panel, packed); }) / (few_lines * chunk_depth);
    out[2] = least_time(2, [&] { for (i64 k = 0; k < all; k += chunk_depth) for (i64 c = 0; c < line; c += panel) pack_lines(source + k * line + c, line, chunk_depth, panel, packed); }) / (all * line);
    out[3] = least_time(2, [&] { for (i64 c = 0; c < all; c += panel) pack_columns(source + c * line, line, chunk_depth, panel, packed); }) / (all * chunk_depth);
}
// The transformations of winograd.h: the pixels of a group of 3 x 16 tiles in `channels` channels, the taps of filters, and a block of sums, with the
// fixed cost of a tile of products (its time for a depth of 0). Each sample uses other memory, because between two such steps a convolution reads and writes
// as much else as a core's own cache holds. Here out[0], [1], [2] are the numbers 10, 11 and 12 of the whole.
static void probe_transforms(const float* source, float* room, i64 elements, double* out) {
    constexpr i64 channels = 64, lines = 3, side = 16, tiles = lines * side, size = 2 * side, filters = 128, rows = 8 * ROWS;
    constexpr i64 split = units((lines + 1) * side + panel, fetched) * fetched + fetched, place = tiles * channels + fetched;
    const PixelLines pixels(-1, size, side);
    float *const odd = room + 4 * split, *const free = odd + 4 * split;
    i64 turn = 0;
    const auto elsewhere = [&](i64 own) { return free + ++turn % ((elements - (free - room)) / own) * own; };
    out[0] = least_time(8, [&] {
        float* const to = elsewhere(tile_places * channels * (tiles + panel));
        for (i64 n = 0; n < channels; ++n) {
            for (i64 y = 0; y <= lines; ++y)
                for (int k = 0; k < 2; ++k) pixels.split(source + n * size * 10 + (2 * y + k) * size, (k ? odd : room) + y * side, split);
            pack_tiles(room, odd, split, side, tiles, to + n * panel, channels * panel, place);
        }
    }) / (tile_places * tiles * channels);
    const i64 line = 9 * filters, next = rows / ROWS * strip_of(filters) + fetched;
    out[1] = least_time(6, [&] { pack_filters(source, line, filters, false, rows, room, elsewhere(tile_places * next + fetched), next); }) / (tile_places * rows * filters);
    constexpr i64 sum_place = rows * tiles + fetched;
    alignas(64) float first[2 * tiles + 2 * CL], second[2 * tiles + 2 * CL];
    const double sums = least_time(8, [&] {
        const float* const own = elsewhere(tile_places * sum_place);
        for (i64 r = 0; r < rows; ++r) {
            float* const line = room + r % 8 * 4 * tiles;
            unpack_sums(own + r * tiles, sum_place, tiles, first, second);
            for (i64 y = 0; y < 2 * lines; ++y)
                for (i64 i = 0; i < size; i += CL) store<CL>(line + y * size + i, load<CL>((y % 2 ? second : first) + y / 2 * size + i, full()), full());
            turn += all_finite(line, 4 * tiles) ? 0 : 1;
        }
    }) / (tile_places * rows * tiles);
    alignas(64) float tile[block * panel];
    const auto products = [&](i64 depth) { return least_time(16, [&] { multiply<PACKED_BOTH>(source, 1, ROWS, rows, depth, source, tile); }) / (rows * panel); };
    const double shallow = products(32), deep = products(chain), beside = shallow - (deep - shallow) / (chain - 32) * 32;
    out[2] = sums + (beside > 0 ? beside : 0);
}
LIBRARY PROBE(float* room, i64 elements, double* out) {
    alignas(64) float tile[block * panel];
    float* const packed = room;                          // a packed panel: chunk_depth lines of at most 64 elements
    float* const source = room + chunk_depth * 64;       // the memory that is packed from, about the size of a core's own cache
    const i64 many = elements - chunk_depth * 64;
    const i64 rows = 8 * ROWS;
    out[0] = least_time(8, [&] { multiply<PACKED_BOTH>(source, 1, ROWS, rows, chain, packed, tile); }) / (rows * chain * panel);
    probe_right(source, many, packed, out + 1);
    // 16 channels of 28 x 28 pixels and a kernel of 3 x 3.
    Windows w{};
    w.channels = 16, w.height = w.width = w.out_height = w.out_width = 28, w.kernel_h = w.kernel_w = 3;
    w.stride_h = w.stride_w = w.pad_h = w.pad_w = w.dilation_h = w.dilation_w = 1, w.strip = 832, w.copies = true;
    const Planes planes = planes_of(w);
    float* const to = source + w.channels * 28 * 28;
    const double windows = least_time(6, [&] { for (i64 c = 0; c < w.channels; ++c) im2col(w, planes, source + c * 28 * 28, 0, planes.height, 0, to + c * planes.channel); });
    out[5] = windows / (w.channels * planes.channel);
    i32 steps[16 * 9];
    list_taps(w, planes, steps);
    const i64 seen = w.channels * 9, columns = w.out_height * w.out_width;
    out[16] = least_time(3, [&] {
        for (i64 p = 0; p + panel <= columns; p += panel)
            for (i64 r = 0; r < rows; r += ROWS) tile_product<ROWS, CV, false, PACKED_LEFT>(packed + r * seen, 1, ROWS, 0, ROWS, to + p, steps, 0, seen, tile + r * panel, panel, false, one_strip);
    }) / (columns / panel * panel * rows * seen);
    probe_left(source, many, packed, out[0], out + 6);
    probe_transforms(source, source + 1152 * 8 * ROWS, least(many, 1 << 19) - 1152 * 8 * ROWS, out + 10);
}
