// Convolutions whose operands exchange their roles: elements of the image are broadcast to vectors, and vectors are loaded from the left operand's rows, the
// filters, which are packed in panels. A window is an address, and its taps are at the same distances from it for all windows, so neither strides nor short
// lines cost anything. An image without padding is read in place, another one is copied with its padding, strip by strip. Filters are packed piece by piece,
// each for all windows of a strip, whose partial sums are kept meanwhile. Tiles are [window][filter], and are transposed when they are done.

// The micro-kernel: `some` <= R columns (windows) and V vectors of rows (filters). Columns beyond `some` repeat the last one, and are not written.
// `columns`: each window's offset in `source`; `steps`: the offset of each step of the depth from the window; `packed`: filters, [k][row]; `add`: whether to
// add to what the tile holds, whose lines are `panel` apart.
template <int R, int V> NOINLINE void spread_product(const float* source, const i32* columns, int some, const i32* steps, const float* packed, i64 depth, float* tile, bool add) {
    const float* at[R];
    fvec sum[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
        at[r] = source + columns[r < some ? r : some - 1];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[r][v] = fvec{};
    }
    for (i64 k = 0; k < depth; ++k, packed += panel) {
        const i64 step = steps[k];
        fvec x[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) x[v] = load<CL>(packed + v * CL, full());
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const fvec w = bc<CL>(at[r][step]);
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) sum[r][v] = fma_(w, x[v], sum[r][v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
        if (r >= some) break;
        float* const p = tile + r * panel;
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) store<CL>(p + v * CL, add ? load<CL>(p + v * CL, full()) + sum[r][v] : sum[r][v], full());
    }
}
typedef void SpreadTile(const float* source, const i32* columns, int some, const i32* steps, const float* packed, i64 depth, float* tile, bool add);
static SpreadTile* spread_tile_for(int columns, int rows) {
    switch ((rows + CL - 1) / CL) {
        case 1: return spread_product<ROWS, 1>;
        case 2: if (CV > 2) return spread_product<ROWS, 2>; break;
        case 3: if (CV > 3) return spread_product<ROWS, (CV > 3 ? 3 : 1)>; break;
    }
    if (columns <= 2) return spread_product<2, CV>;
    return columns <= 4 ? spread_product<4, CV> : spread_product<ROWS, CV>;
}

class Exchanged {
    const Contraction& c;
    const Windows& w;
    Epilogue* const epilogue;
    const void* const context;
    const bool padded;
    i64 width, channel;  // elements of a line and of a channel of the memory that is read: the image or its padded copy

    // A thread's part of the workspace: offsets of steps and of columns, the padded copy of the image, packed rows, sums of a strip.
    struct Room {
        i32 *steps, *columns;
        float *copy, *rows, *sums;
    };
    Room room_of(int thread) const {
        // In agreement with the sizes in scheduler/exchanged.py.
        float* const all = c.workspace + thread * c.slot;
        float* const columns = all + units(c.depth, widest_lanes) * widest_lanes;
        float* const rows = columns + w.strip;
        float* const sums = rows + chain * panel;
        return {(i32*)all, (i32*)columns, sums + w.strip * panel, rows, sums};
    }
    // The offset of each tap from its window's address.
    void list_steps(i32* to) const {
        for (i64 n = 0; n < w.channels; ++n)
            for (i64 y = 0; y < w.kernel_h; ++y)
                for (i64 x = 0; x < w.kernel_w; ++x) *to++ = (i32)(n * channel + y * w.dilation_h * width + x * w.dilation_w);
    }
    // Number of lines of the image that `lines` lines of windows see.
    i64 height_of(i64 lines) const { return (lines - 1) * w.stride_h + (w.kernel_h - 1) * w.dilation_h + 1; }
    // The address relative to which columns [first, last) are read; their offsets go to room.columns, and a padded copy of the image to room.copy.
    const float* source_of(i64 batch, i64 first, i64 last, const Room& room) const {
        const float* const from = c.right.p + at_batch(c, c.right, batch);
        i32* to = room.columns;
        const i64 y0 = first / w.out_width, y1 = (last - 1) / w.out_width + 1;
        for (i64 p = first; p < last;) {
            const i64 y = p / w.out_width, end = least((y + 1) * w.out_width, last), line = (y - y0) * w.stride_h * width;
            for (; p < end; ++p) *to++ = (i32)(line + (p - y * w.out_width) * w.stride_w);
        }
        if (!padded) return from + y0 * w.stride_h * width;
        const SplitLines split(w.pad_w, w.width + w.pad_w, 1, width);
        const i64 height = height_of(y1 - y0), top = y0 * w.stride_h - w.pad_h;
        for (i64 n = 0; n < w.channels; ++n) {
            float* line = room.copy + n * channel;
            for (i64 y = top; y < top + height; ++y, line += width) {
                if (y < 0 || y >= w.height) split.clear(width, line);
                else split.copy<false>(from + (n * w.height + y) * w.width - w.pad_w, line);
            }
        }
        return room.copy;
    }
    // Packs steps [k, k + depth) of the rows that begin at `from`.
    void pack_rows(const float* from, int rows, i64 k, i64 depth, float* to) const {
        if (c.taps) return pack_taps(from, c.left.line, c.taps, w.channels, k, depth, rows, to);
        from += k * c.left.depth;
        if (c.left.depth == 1) pack_columns(from, c.left.line, depth, rows, to);
        else if (c.left.line == 1) pack_lines(from, c.left.depth, depth, rows, to);
        else pack_elements(from, c.left.line, c.left.depth, depth, rows, to);
    }
    // Computes the panel of `rows` rows from r0 on for a strip, columns [first, last).
    void panel_of(i64 batch, i64 r0, int rows, i64 first, i64 last, const float* source, const Room& room) const {
        const float* const left = c.left.p + at_batch(c, c.left, batch);
        const i64 tiles = units(last - first, ROWS);
        for (i64 k = 0; k < c.depth; k += chain) {
            const i64 depth = least(chain, c.depth - k);
            const bool done = k + depth >= c.depth;
            const bool below = k + chain >= c.depth;
            const i64 r = below ? r0 + panel : r0, k_next = below ? 0 : k + chain;
            NextRows<3> next(c, left, r, least(panel, c.rows - r), k_next, least(chain, c.depth - k_next), tiles);
            pack_rows(left + r0 * c.left.line, rows, k, depth, room.rows);
            for (i64 p = first; p < last; p += block) {
                const int columns = (int)least(block, last - p), own = (columns + ROWS - 1) / ROWS;
                float* const sums = room.sums + (p - first) * panel;
                Ahead ahead(c, done, batch, r0, rows, p, columns, own);
                for (int s = 0; s < own; ++s) {
                    const i64 at = p - first + s * ROWS;
                    const int some = columns - s * ROWS < ROWS ? columns - s * ROWS : ROWS;
                    next.fetch();
                    ahead.fetch();
                    spread_tile_for(some, rows)(source, room.columns + at, some, room.steps + k, room.rows, depth, room.sums + at * panel, k > 0);
                }
                if (!done) continue;
                alignas(64) float turned[panel * block];
                transpose_tile(sums, panel, columns, rows, turned);
                epilogue(context, batch, r0, r0 + rows, p, p + columns, turned, block);
            }
        }
    }

    void strip_of_rows(i64 r0, i64 r1, i64 batch, i64 first, i64 last, const Room& room) const {
        const float* const source = source_of(batch, first, last, room);
        for (i64 r = r0; r < r1; r += panel) panel_of(batch, r, (int)least(panel, r1 - r), first, last, source, room);
    }

public:
    Exchanged(const Contraction& c, Epilogue* epilogue, const void* context)
        : c(c), w(c.windows), epilogue(epilogue), context(context), padded(w.pad_h || w.pad_w), width(w.width + 2 * w.pad_w) {
        const i64 lines = least((w.strip + w.out_width - 2) / w.out_width + 1, w.out_height);
        channel = (padded ? height_of(lines) : w.height) * width;
    }
    // Computes parts [begin, end); parts of the same windows have consecutive numbers.
    void compute(i64 begin, i64 end, int thread) const {
        const Room room = room_of(thread);
        list_steps(room.steps);
        const i64 unit = c.row_parts * panel <= c.rows ? panel : CL, all = units(c.rows, unit);
        const i64 each = units(c.columns, block), blocks = each * c.batches[0] * c.batches[1] * c.batches[2];
        for (; begin < end; ++begin) {
            const i64 i = begin % c.row_parts, j = begin / c.row_parts;
            const i64 r0 = all * i / c.row_parts * unit, r1 = least(all * (i + 1) / c.row_parts * unit, c.rows);
            for (i64 b = blocks * j / c.block_parts, b1 = blocks * (j + 1) / c.block_parts, stop; b < b1 && r0 < r1; b = stop) {
                stop = least(least(b1, b + w.strip / block), (b / each + 1) * each);
                strip_of_rows(r0, r1, b / each, b % each * block, least((b % each + stop - b) * block, c.columns), room);
            }
        }
    }
};
