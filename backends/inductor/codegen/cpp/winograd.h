// Convolutions of 3 x 3 taps, side by side, without a stride, by Winograd's minimal filtering F(2 x 2, 3 x 3) (Lavin and Gray, Fast Algorithms for
// Convolutional Neural Networks, 2016, section 4.1): a tile of 2 x 2 results takes 16 products of a channel in place of 36. The 4 x 4 pixels that a tile
// sees and the 9 taps of a filter are transformed; for each of the 16 places, sums over channels are a product of two packed matrices, whose columns are
// tiles; what these give is transformed to results. A result depends on the pixels of its own window alone. Its rounding error is bounded by the largest pixel
// times the largest tap of each channel's window, that of a plain sum by the products themselves. Infinities may cancel to NaN: a row with a result that isn't
// finite is computed again as plain sums. No result depends on how many threads there are.
constexpr int tile_places = 16;  // of a transformed one
// Of vectors of the elements of a 4 x 4 tile: B'dB, with B' = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1].
template <class V> INLINE void transform_pixels(const V (&d)[4][4], V (&to)[4][4]) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) to[0][j] = d[0][j] - d[2][j], to[1][j] = d[1][j] + d[2][j], to[2][j] = d[2][j] - d[1][j], to[3][j] = d[1][j] - d[3][j];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const V a = to[i][0] - to[i][2], b = to[i][1] + to[i][2], c = to[i][2] - to[i][1], e = to[i][1] - to[i][3];
        to[i][0] = a, to[i][1] = b, to[i][2] = c, to[i][3] = e;
    }
}
// Of vectors of the 9 taps: GgG', with G = [1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1].
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
// Of vectors of the 16 sums: A'mA, with A' = [1 1 1 0; 0 1 -1 -1].
template <class V> INLINE void transform_sums(const V (&m)[4][4], V (&to)[2][2]) {
    V lines[2][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) lines[0][j] = m[0][j] + m[1][j] + m[2][j], lines[1][j] = m[1][j] - m[2][j] - m[3][j];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) to[i][0] = lines[i][0] + lines[i][1] + lines[i][2], to[i][1] = lines[i][1] - lines[i][2] - lines[i][3];
}
// Rows of filters: strip after strip, [channel][row], for each of the places, which are `apart`. Side by side lie a channel's taps, or, if `last`, a tap's channels.
static void pack_filters(const float* p, i64 line, i64 channels, bool last, i64 rows, float* taps, float* to, i64 apart) {
    constexpr int L = strip_lanes;
    constexpr i64 some = 32;  // channels, whose taps stay in the first cache
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
// What pixels of tiles side by side are split into: the even and the odd columns of a line, from the first one of a tile on and from the third one on.
struct PixelLines {
    const SplitLines near, far;
    PixelLines(i64 x, i64 width, i64 tiles) : near(-x, width - x, 2, tiles), far(-x - 2, width - x - 2, 2, tiles) {}
    // Four arrays, `apart`; `line`: where its column x is.
    INLINE void split(const float* line, float* to, i64 apart) const {
        near.split_in_two(line, to, to + apart);
        far.split_in_two(line + 2, to + 2 * apart, to + 3 * apart);
    }
    INLINE void clear(i64 tiles, float* to, i64 apart) const {
        for (int k = 0; k < 4; ++k) near.clear(tiles, to + k * apart);
    }
};
// One channel's tiles, line after line: panel after panel, for each of the places, which are `apart`, as are panels. `even`, `odd`: the lines of pixels that
// begin with a tile's first and second line, of which the next ones are `tiles` behind.
static void pack_tiles(const float* even, const float* odd, i64 lines, i64 tiles, i64 count, float* to, i64 next, i64 apart) {
    for (i64 t = 0; t < count; t += CL) {
        fvec d[4][4], v[4][4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            // Even columns 0 and 2 are the first and the third array, odd ones 1 and 3 the second and the fourth.
            const float *const e = even + j * lines + t, *const o = odd + j * lines + t;
            d[0][j] = load<CL>(e, full()), d[1][j] = load<CL>(o, full()), d[2][j] = load<CL>(e + tiles, full()), d[3][j] = load<CL>(o + tiles, full());
        }
        transform_pixels(d, v);
        float* const own = to + t / panel * next + t % panel;
#pragma GCC unroll 16
        for (int k = 0; k < tile_places; ++k) store<CL>(own + k * apart, v[k / 4][k % 4], full());
    }
}
// One row of sums: lines of results, all first ones of the tiles, and all second ones.
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
// Line y of one row's results from column x on, as plain sums.
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
    // Tiles of an image. A group has some lines of them, or a part of one line. So many tiles side by side, so many parts of a line, groups of an image, panels of a
    // group; where the next panel of the image is, the next place of the image, of filters and of sums, a row of sums, the next array of pixels, a row of results.
    const i64 down, across, side, parts, groups, panels, image_panel, image_place, filter_place, sum_line, sum_place, split, pitch;

    // What a thread works with.
    struct Room {
        float *images, *filters, *taps, *sums, *results, *lines;
    };
    Room room_of(int thread) const {
        // As scheduler/winograd.py counts them.
        float* const images = c.workspace + thread * c.slot;
        float* const filters = images + c.tile_groups * tile_places * image_place;
        float* const taps = filters + tile_places * filter_place;
        float* const sums = taps + strip_of(9 * 32);
        float* const results = sums + tile_places * sum_place;
        return {images, filters, taps, sums, results, results + block * pitch};
    }
    // Of an image.
    static i64 groups_of(const Contraction& c) {
        const i64 across = units(c.windows.out_width, 2), parts = units(across, wide);
        return units(units(c.windows.out_height, 2), c.tile_lines) * units(across, units(across, parts));
    }
    struct Group {
        i64 batch, y0, y1, x0, x1;  // tiles
        i64 tiles() const { return (y1 - y0) * (x1 - x0); }
    };
    Group group_of(i64 g) const {
        const i64 own = g % groups, y = own / parts * c.tile_lines, x = own % parts * side;
        return {g / groups, y, least(y + c.tile_lines, down), x, least(x + side, across)};
    }
    // A group's pixels, transformed. Lines and columns beyond the image are padding, so tiles that the border of the results cuts are computed whole.
    void pack_image(const Group& g, const Room& room, float* to) const {
        const i64 tiles = g.x1 - g.x0, x = 2 * g.x0 - w.pad_w;
        const float* const image = c.right.p + at_batch(c, c.right, g.batch);
        const PixelLines lines(x, w.width, tiles);
        // Vectors are read across those that were written: of the channel before, whose writes have left the core's queue.
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
    // Rows [first, first + rows) of those whose filters are there.
    void multiply(const Group& g, const float* image, i64 first, int rows, const Room& room) const {
        const i64 tiles = g.tiles();
        for (int k = 0; k < tile_places; ++k)
            for (i64 p = 0; p * panel < tiles; ++p) {
                const float *const right = image + k * image_place + p * image_panel, *const left = room.filters + k * filter_place + first / ROWS * strip_of(w.channels);
                for (int r = 0; r < rows; r += ROWS) {
                    const int own = rows - r < ROWS ? rows - r : ROWS;
                    tile_for<PACKED_BOTH>(own, (int)least(panel, tiles - p * panel))(left + r / ROWS * strip_of(w.channels), 1, ROWS, 0, own, right, packed_places.at, 0, w.channels,
                                                                                     room.sums + k * sum_place + r * sum_line + p * panel, sum_line, false);
                }
            }
    }
    // Rows [r0, r1) of a group's results, line after line, as eager's memory has them; what is fused behind.
    void finish(const Group& g, i64 r0, i64 r1, const Room& room) const {
        alignas(64) float first[2 * wide + CL], second[2 * wide + CL];
        const i64 tiles = g.x1 - g.x0, x = 2 * g.x0, y = 2 * g.y0, width = least(2 * tiles, w.out_width - x), height = least(2 * (g.y1 - g.y0), w.out_height - y);
        for (i64 r = r0; r < r1; ++r) {
            float* const to = room.results + (r - r0) * pitch;
            unpack_sums(room.sums + (r - r0) * sum_line, sum_place, g.tiles(), first, second);
            // Whole vectors: the next line overwrites what is beyond one, and behind the last one is slack.
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
    // Rows [r0, r1) of groups [g0, g1), whose filters are the same: either all filters stay transformed, or the pixels of some groups, while pieces of the
    // others pass by.
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
    // Of a call whose number of images no compile knew: the parts of which the largest is least (filtering_parts in scheduler/winograd.py).
    static void share_out(Contraction& c) {
        const i64 strips = units(c.rows, ROWS), all = groups_of(c) * c.batches[0] * c.batches[1] * c.batches[2];
        i64 least_work = 0;
        for (i64 rows = 1; rows <= least(c.slots, strips); ++rows) {
            const i64 blocks = least(c.slots / rows, all), work = units(strips, rows) * units(all, blocks);
            if (rows == 1 || work <= least_work) least_work = work, c.row_parts = rows, c.block_parts = blocks;
        }
    }
    // Lines of the cache are added between places, whose distance would be a multiple of a way's size else.
    Winograd(const Contraction& c, Epilogue* epilogue, const void* context)
        : c(c), w(c.windows), epilogue(epilogue), context(context), down(units(w.out_height, 2)), across(units(w.out_width, 2)), side(units(across, units(across, wide))),
          parts(units(across, side)), groups(groups_of(c)), panels(units(c.tile_lines * side, panel)), image_panel(w.channels * panel),
          image_place(panels * image_panel + fetched), filter_place(c.tile_rows / ROWS * strip_of(w.channels) + fetched),
          sum_line(panels * panel), sum_place(block * sum_line + fetched), split(units((c.tile_lines + 1) * side + panel, fetched) * fetched + fetched),
          pitch(units(4 * c.tile_lines * side, fetched) * fetched + fetched) {}
    // Parts [begin, end): those of the same tiles stand side by side.
    void compute(i64 begin, i64 end, int thread) const {
        const Room room = room_of(thread);
        for (i64 i = 0; i < 16 * split; ++i) room.lines[i] = 0;  // what is beyond the tiles of a panel is computed, and dropped
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
