// Convolutions of 3 x 3 taps with stride and dilation 1 by Winograd's minimal filtering F(2 x 2, 3 x 3) (Lavin and Gray, Fast Algorithms for Convolutional
// Neural Networks, 2016, section 4.1): a tile of 2 x 2 results takes 16 products for each channel in place of 36. The 4 x 4 pixels that a tile sees and the 9
// taps of a filter are transformed to 16 places. For each place, the sums over channels are a product of two packed matrices, whose rows are filters and whose
// columns are tiles; these sums are transformed to results. A result depends only on the pixels of its own window. Its rounding error is bounded by the largest
// pixel times the largest tap of each channel's window, where that of a plain sum is bounded by the products themselves. Infinities may cancel to NaN, so a row
// with a result that is not finite is computed again as plain sums. No result depends on the number of threads.
constexpr int tile_places = 16;  // places of a transformed tile
// Transforms the pixels d of 4 x 4 tiles, one tile per lane: B'dB, with B' = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1].
template <class V> INLINE void transform_pixels(const V (&d)[4][4], V (&to)[4][4]) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) to[0][j] = d[0][j] - d[2][j], to[1][j] = d[1][j] + d[2][j], to[2][j] = d[2][j] - d[1][j], to[3][j] = d[1][j] - d[3][j];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const V a = to[i][0] - to[i][2], b = to[i][1] + to[i][2], c = to[i][2] - to[i][1], e = to[i][1] - to[i][3];
        to[i][0] = a, to[i][1] = b, to[i][2] = c, to[i][3] = e;
    }
}
// Transforms the taps g of 3 x 3 filters, one filter per lane: GgG', with G = [1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1].
template <class V> INLINE void transform_taps(const V (&g)[9], V (&to)[4][4]) {
    V rows[4][3];
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
        const V ends = (g[j] + g[6 + j]) * 0.5f, middle = g[3 + j] * 0.5f;
        rows[0][j] = g[j], rows[1][j] = ends + middle, rows[2][j] = ends - middle, rows[3][j] = g[6 + j];
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const V ends = (rows[i][0] + rows[i][2]) * 0.5f, middle = rows[i][1] * 0.5f;
        to[i][0] = rows[i][0], to[i][1] = ends + middle, to[i][2] = ends - middle, to[i][3] = rows[i][2];
    }
}
// Transforms the sums m of 4 x 4 places to 2 x 2 results, one tile per lane: A'mA, with A' = [1 1 1 0; 0 1 -1 -1].
template <class V> INLINE void transform_sums(const V (&m)[4][4], V (&to)[2][2]) {
    V lines[2][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) lines[0][j] = m[0][j] + m[1][j] + m[2][j], lines[1][j] = m[1][j] - m[2][j] - m[3][j];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) to[i][0] = lines[i][0] + lines[i][1] + lines[i][2], to[i][1] = lines[i][1] - lines[i][2] - lines[i][3];
}
// Transforms and packs `rows` rows of filters, `line` elements apart: for each place, `apart` elements from one to the next, strip after strip,
// [channel][row]. In memory a channel's taps are contiguous, or, if `last` (channels-last), a tap's channels. `taps`: scratch memory for packed taps.
static void pack_filters(const float* p, i64 line, i64 channels, bool last, i64 rows, float* taps, float* to, i64 apart) {
    constexpr int L = strip_lanes;
    constexpr i64 some = 32;  // number of channels whose packed taps stay in the L1 cache
    for (i64 r = 0; r < rows; r += ROWS, to += strip_of(channels))
        for (i64 from = 0; from < channels; from += some) {
            const i64 own = least(some, channels - from), channel = last ? ROWS : 9 * ROWS, tap = last ? own * ROWS : ROWS;
            const int alive_rows = (int)least(rows - r, ROWS);
            if (last)
                for (int k = 0; k < 9; ++k) pack_left(p + r * line + k * channels + from, line, 1, own, alive_rows, taps + k * tap);
            else pack_left(p + r * line + from * 9, line, 1, own * 9, alive_rows, taps);
            for (i64 c = 0; c < own; ++c) {
                vec<float, L> g[9], u[4][4];
#pragma GCC unroll 9
                for (int k = 0; k < 9; ++k) g[k] = load<L>(taps + c * channel + k * tap, full());
                transform_taps(g, u);
#pragma GCC unroll 16
                for (int k = 0; k < tile_places; ++k) store<L>(to + k * apart + (from + c) * ROWS, u[k / 4][k % 4], full());
            }
        }
}
// Splits a line of pixels for tiles side by side into four arrays: its even and odd columns, from the first column of the first tile on and from the third
// one on. Tile t reads element t of each.
struct PixelLines {
    const SplitLines near, far;
    PixelLines(i64 x, i64 width, i64 tiles) : near(-x, width - x, 2, tiles), far(-x - 2, width - x - 2, 2, tiles) {}
    // Stores the four arrays `apart` elements apart; `line`: the address of column x.
    INLINE void split(const float* line, float* to, i64 apart) const {
        near.split_in_two(line, to, to + apart);
        far.split_in_two(line + 2, to + 2 * apart, to + 3 * apart);
    }
    INLINE void clear(i64 tiles, float* to, i64 apart) const {
        for (int k = 0; k < 4; ++k) near.clear(tiles, to + k * apart);
    }
};
// Transforms and packs the pixels of one channel in `count` tiles, which follow each other line by line: panels `next` elements apart, for each place, `apart`
// elements from one to the next. `even`, `odd`: the split pixels (PixelLines) of each tile's first and second line, in arrays `lines` elements apart; those of
// its third and fourth line are `tiles` elements further on, the number of tiles in a line.
static void pack_tiles(const float* even, const float* odd, i64 lines, i64 tiles, i64 count, float* to, i64 next, i64 apart) {
    for (i64 t = 0; t < count; t += CL) {
        fvec d[4][4], v[4][4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            // Column j of the tiles is array j: even columns 0 and 2 are arrays 0 and 2, odd columns 1 and 3 are arrays 1 and 3.
            const float *const e = even + j * lines + t, *const o = odd + j * lines + t;
            d[0][j] = load<CL>(e, full()), d[1][j] = load<CL>(o, full()), d[2][j] = load<CL>(e + tiles, full()), d[3][j] = load<CL>(o + tiles, full());
        }
        transform_pixels(d, v);
        float* const own = to + t / panel * next + t % panel;
#pragma GCC unroll 16
        for (int k = 0; k < tile_places; ++k) store<CL>(own + k * apart, v[k / 4][k % 4], full());
    }
}
// Transforms one row of sums of `count` tiles (places `apart` elements apart) to results: `first` gets the upper line of all tiles, `second` the lower line.
static void unpack_sums(const float* sums, i64 apart, i64 count, float* first, float* second) {
    vec<i32, CL> low, high;
#pragma GCC unroll 16
    for (int i = 0; i < CL; ++i) low[i] = i / 2 + i % 2 * CL, high[i] = low[i] + CL / 2;
    for (i64 t = 0; t < count; t += CL) {
        fvec m[4][4], y[2][2];
#pragma GCC unroll 16
        for (int k = 0; k < tile_places; ++k) m[k / 4][k % 4] = load<CL>(sums + k * apart + t, full());
        transform_sums(m, y);
        store<CL>(first + 2 * t, __builtin_shuffle(y[0][0], y[0][1], low), full()), store<CL>(first + 2 * t + CL, __builtin_shuffle(y[0][0], y[0][1], high), full());
        store<CL>(second + 2 * t, __builtin_shuffle(y[1][0], y[1][1], low), full()), store<CL>(second + 2 * t + CL, __builtin_shuffle(y[1][0], y[1][1], high), full());
    }
}
static bool all_finite(const float* p, i64 count) {
    fvec none{};
    for_lanes<CL>(0, count, [&](i64 i, auto m) INLINE_LAMBDA { none += load<CL>(p + i, m) * 0.0f; });
    for (int k = 0; k < CL; ++k)
        if (none[k] != 0) return false;  // NaN is unequal to zero
    return true;
}
// Computes `count` results of one row (filter) in line y, from column x on, as plain sums.
static void plain_sums(const Windows& w, const float* image, const float* filter, bool channels_last, i64 y, i64 x, i64 count, float* to) {
    for (i64 i = 0; i < count; i += CL) {
        fvec all{}, sum{};
        for (i64 n = 0, done = 0; n < w.channels; ++n) {
            for (int k = 0; k < 9; ++k, ++done) {
                const i64 line = y - w.pad_h + k / 3, from = x + i - w.pad_w + k % 3;
                if (line < 0 || line >= w.height) continue;
                const Lanes lanes(-from, w.width - from);
                sum = fma_(bc<CL>(filter[channels_last ? k * w.channels + n : n * 9 + k]), load_within<CL>(image + (n * w.height + line) * w.width + from, lanes.mask()), sum);
            }
            if (done >= chain) all += sum, sum = fvec{}, done = 0;
        }
        all += sum;
        store<CL>(to + i, all, (int)least(CL, count - i));
    }
}

class Winograd {
    const Contraction& c;
    const Windows& w;
    Epilogue* const epilogue;
    const void* const context;
    // A group of tiles consists of some lines of them, or of a part of one line. down, across: lines of tiles of an image, and tiles of a line; side: tiles of
    // a group's line; parts: of a line; groups: of an image; panels: of a group. Distances, in elements: image_panel, image_place: from panel to panel and
    // from place to place of transformed pixels; filter_place: of transformed filters; sum_line, sum_place: from row to row and from place to place of sums;
    // split: between arrays of split pixels; pitch: from row to row of results.
    const i64 down, across, side, parts, groups, panels, image_panel, image_place, filter_place, sum_line, sum_place, split, pitch;

    // A thread's part of the workspace: transformed pixels, transformed filters, packed taps, sums, results, split lines of pixels.
    struct Room {
        float *images, *filters, *taps, *sums, *results, *lines;
    };
    Room room_of(int thread) const {
        // In agreement with the sizes in scheduler/winograd.py.
        float* const images = c.workspace + thread * c.slot;
        float* const filters = images + c.tile_groups * tile_places * image_place;
        float* const taps = filters + tile_places * filter_place;
        float* const sums = taps + strip_of(9 * 32);
        float* const results = sums + tile_places * sum_place;
        return {images, filters, taps, sums, results, results + block * pitch};
    }
    // Number of groups of an image.
    static i64 groups_of(const Contraction& c) {
        const i64 across = units(c.windows.out_width, 2), parts = units(across, wide);
        return units(units(c.windows.out_height, 2), c.tile_lines) * units(across, units(across, parts));
    }
    struct Group {
        i64 batch, y0, y1, x0, x1;  // lines [y0, y1) and columns [x0, x1) of tiles
        i64 tiles() const { return (y1 - y0) * (x1 - x0); }
    };
    Group group_of(i64 g) const {
        const i64 own = g % groups, y = own / parts * c.tile_lines, x = own % parts * side;
        return {g / groups, y, least(y + c.tile_lines, down), x, least(x + side, across)};
    }
    // Transforms a group's pixels. Lines and columns beyond the image are padding, so tiles that cross the border of the results are computed completely.
    void pack_image(const Group& g, const Room& room, float* to) const {
        const i64 tiles = g.x1 - g.x0, x = 2 * g.x0 - w.pad_w;
        const float* const image = c.right.p + at_batch(c, c.right, g.batch);
        const PixelLines lines(x, w.width, tiles);
        // Vectors that are read overlap several that were written, which store forwarding can't serve. So the previous channel's pixels are read, whose
        // writes have left the store queue.
        for (i64 n = 0; n <= w.channels; ++n) {
            const float* const own = image + n * w.height * w.width;
            float *const even = room.lines + n % 2 * 8 * split, *const odd = even + 4 * split;
            if (n) {
                const float* const before = room.lines + (n - 1) % 2 * 8 * split;
                pack_tiles(before, before + 4 * split, split, tiles, g.tiles(), to + (n - 1) * panel, image_panel, image_place);
            }
            if (n == w.channels) break;
            for (i64 y = g.y0; y <= g.y1; ++y)
                for (int k = 0; k < 2; ++k) {
                    const i64 line = 2 * y + k - w.pad_h;
                    float* const at = (k ? odd : even) + (y - g.y0) * tiles;
                    if (line < 0 || line >= w.height) lines.clear(tiles, at, split);
                    else lines.split(own + line * w.width + x, at, split);
                }
        }
    }
    // Computes the sums of rows [first, first + rows), counted from the first one whose filters are transformed.
    void multiply(const Group& g, const float* image, i64 first, int rows, const Room& room) const {
        const i64 tiles = g.tiles();
        for (int k = 0; k < tile_places; ++k)
            for (i64 p = 0; p * panel < tiles; ++p) {
                const float *const right = image + k * image_place + p * image_panel, *const left = room.filters + k * filter_place + first / ROWS * strip_of(w.channels);
                products_of_strips<PACKED_BOTH>(left, right, packed_places.at, rows, (int)least(panel, tiles - p * panel), w.channels, room.sums + k * sum_place + p * panel, sum_line, false, one_strip);
            }
    }
    // Transforms rows [r0, r1) of a group's sums to results, line by line as in the result's memory, and calls the epilogue.
    void finish(const Group& g, i64 r0, i64 r1, const Room& room) const {
        alignas(64) float first[2 * wide + CL], second[2 * wide + CL];
        const i64 tiles = g.x1 - g.x0, x = 2 * g.x0, y = 2 * g.y0, width = least(2 * tiles, w.out_width - x), height = least(2 * (g.y1 - g.y0), w.out_height - y);
        for (i64 r = r0; r < r1; ++r) {
            float* const to = room.results + (r - r0) * pitch;
            unpack_sums(room.sums + (r - r0) * sum_line, sum_place, g.tiles(), first, second);
            // Whole vectors are stored: what exceeds a line is overwritten by the next one, and behind the last line there is slack.
            for (i64 line = 0; line < height; ++line) {
                const float* const from = (line % 2 ? second : first) + line / 2 * 2 * tiles;
                for (i64 i = 0; i < width; i += CL) store<CL>(to + line * width + i, load<CL>(from + i, full()), full());
            }
            if (all_finite(to, height * width)) continue;
            const float* const image = c.right.p + at_batch(c, c.right, g.batch);
            const float* const filter = c.left.p + at_batch(c, c.left, g.batch) + r * c.left.line;
            for (i64 line = 0; line < height; ++line) plain_sums(w, image, filter, c.taps > 0, y + line, x, width, to + line * width);
        }
        if (parts == 1) return epilogue(context, g.batch, r0, r1, y * width, (y + height) * width, room.results, pitch);
        for (i64 line = 0; line < height; ++line) {
            const i64 at = (y + line) * w.out_width + x;
            epilogue(context, g.batch, r0, r1, at, at + width, room.results + line * width, pitch);
        }
    }
    // Computes rows [r0, r1) of groups [g0, g1), whose filters are the same. Either all filters stay transformed while groups follow each other, or the pixels
    // of tile_groups groups do while pieces of tile_rows filters follow each other.
    void compute(i64 r0, i64 r1, i64 g0, i64 g1, const Room& room) const {
        const float* const filters = c.left.p + at_batch(c, c.left, g0 / groups);
        for (i64 first = g0, last; first < g1; first = last) {
            last = least(first + c.tile_groups, g1);
            for (i64 own = r0, stop; own < r1; own = stop) {
                stop = least(own + c.tile_rows, r1);
                if (first == g0 || stop - own < r1 - r0)
                    pack_filters(filters + own * c.left.line, c.left.line, w.channels, c.taps > 0, stop - own, room.taps, room.filters, filter_place);
                for (i64 g = first; g < last; ++g) {
                    const Group group = group_of(g);
                    float* const image = room.images + (g - first) * tile_places * image_place;
                    if (own == r0) pack_image(group, room, image);
                    for (i64 r = own, end; r < stop; r = end) {
                        end = least(r + block, stop);
                        multiply(group, image, r - own, (int)(end - r), room);
                        finish(group, r, end, room);
                    }
                }
            }
        }
    }

public:
    // For a number of images that is unknown at compile time: chooses the parts of which the largest is the smallest (filtering_parts in
    // scheduler/winograd.py).
    static void share_out(Contraction& c) {
        const i64 strips = units(c.rows, ROWS), all = groups_of(c) * c.batches[0] * c.batches[1] * c.batches[2];
        i64 least_work = 0;
        for (i64 rows = 1; rows <= least(c.slots, strips); ++rows) {
            const i64 blocks = least(c.slots / rows, all), work = units(strips, rows) * units(all, blocks);
            if (rows == 1 || work <= least_work) least_work = work, c.row_parts = rows, c.block_parts = blocks;
        }
    }
    // A cache line is added between places, as their distance would otherwise be a multiple of the size of a cache's way, which causes conflict misses.
    Winograd(const Contraction& c, Epilogue* epilogue, const void* context)
        : c(c), w(c.windows), epilogue(epilogue), context(context), down(units(w.out_height, 2)), across(units(w.out_width, 2)), side(units(across, units(across, wide))),
          parts(units(across, side)), groups(groups_of(c)), panels(units(c.tile_lines * side, panel)), image_panel(w.channels * panel),
          image_place(panels * image_panel + fetched), filter_place(c.tile_rows / ROWS * strip_of(w.channels) + fetched),
          sum_line(panels * panel), sum_place(block * sum_line + fetched), split(units((c.tile_lines + 1) * side + panel, fetched) * fetched + fetched),
          pitch(units(4 * c.tile_lines * side, fetched) * fetched + fetched) {}
    // Computes parts [begin, end); parts of the same tiles have consecutive numbers.
    void compute(i64 begin, i64 end, int thread) const {
        const Room room = room_of(thread);
        for (i64 i = 0; i < 16 * split; ++i) room.lines[i] = 0;  // what a panel has beyond its tiles is computed, too, and dropped
        const bool same = !(c.left.batch[0] || c.left.batch[1] || c.left.batch[2]);
        const i64 strips = units(c.rows, ROWS), all = groups * c.batches[0] * c.batches[1] * c.batches[2];
        for (; begin < end; ++begin) {
            const i64 i = begin % c.row_parts, j = begin / c.row_parts, r0 = strips * i / c.row_parts * ROWS, r1 = least(strips * (i + 1) / c.row_parts * ROWS, c.rows);
            for (i64 g = all * j / c.block_parts, last = all * (j + 1) / c.block_parts, stop; g < last && r0 < r1; g = stop) {
                stop = same ? last : least(last, (g / groups + 1) * groups);
                compute(r0, r1, g, stop, room);
            }
        }
    }
};
