// The loops of a product whose operands are both packed: first the right operand's panels, then block after block of the left operand's rows, each for all
// panels that are packed side by side. A convolution's windows are such a matrix, too, whose columns are packed from the image. A panel's results are written
// to memory while the next one's products are computed.

// Packs steps [k, k + depth) of `columns` windows from number `first` on into a panel, for windows that see no padding: a vector holds
// neighboring pixels of one window, and a tile of windows is transposed.
template <int L> static void pack_windows(const Windows& w, const float* image, i64 first, i64 k, i64 depth, int columns, float* to) {
    const i64 end = k + depth;
    const float* const last = image + w.channels * w.height * w.width - L;  // the last position from which a whole vector can be loaded
    i64 at[panel];
    for (int c = 0; c < panel; ++c) {
        const i64 column = first + (c < columns ? c : columns - 1);
        at[c] = column / w.out_width * w.stride_h * w.width + column % w.out_width * w.stride_w;
    }
    // Line n of the image that the windows see. Lines are too far apart for the hardware prefetcher.
    const auto line_of = [=, &w](i64 n) { return image + (n / w.kernel_h * w.height + n % w.kernel_h * w.dilation_h) * w.width; };
    const int apart = (int)(fetched / least(w.stride_w, fetched));
    vec<float, L> tile[L];
    for (i64 some; k < end; k += some, to += some * panel) {
        const i64 number = k / w.kernel_w, x = k % w.kernel_w;
        const float* const line = line_of(number) + x;
        some = least(w.kernel_w - x, end - k);
        if ((number + ahead) * w.kernel_w < end) {
            const float* const next = line_of(number + ahead);
            for (int c = 0; c < columns; c += apart) __builtin_prefetch(next + at[c]);
        }
        for (i64 i = 0; i < some; i += L) {
            const int own = (int)least(some - i, L);
            for (int c = 0; c < columns; c += L) {
                const float* const from = line + i;
                if (own == L || from + at[c + L - 1] <= last)
#pragma GCC unroll 16
                    for (int j = 0; j < L; ++j) tile[j] = load<L>(from + at[c + j], full());
                else
                    for (int j = 0; j < L; ++j) tile[j] = load<L>(from + at[c + j], own);
                swap_blocks<L, 1>(tile);
#pragma GCC unroll 16
                for (int j = 0; j < L; ++j)
                    if (j < own) store<L>(to + (i + j) * panel + c, tile[j], full());
            }
        }
    }
}
// Windows [begin, end) of a panel that stand in one line; the pixel that the first tap of the first of them sees, which may be padding.
struct Run {
    i64 y, x;
    int begin, end;
};
// Lists the runs of `columns` windows from number `first` on. Returns their number.
static int runs_of(const Windows& w, i64 first, int columns, Run* runs) {
    int count = 0;
    for (int c = 0; c < columns; c = runs[count++].end) {
        const i64 y = (first + c) / w.out_width, x = (first + c) % w.out_width;
        runs[count] = {y * w.stride_h - w.pad_h, x * w.stride_w - w.pad_w, c, (int)least(c + w.out_width - x, columns)};
    }
    return count;
}
// Whether windows are packed by pack_shifted (_is_shifted in scheduler/threads.py).
static bool is_shifted(const Windows& w) { return w.stride_w == 1 && (w.pad_h || w.pad_w || w.dilation_w > 1 || w.out_width > w.kernel_w); }
// The same for windows that are neighbors in the image (a horizontal stride of 1), with padding: what a tap sees for windows of one line is contiguous, so
// that their lines are copied one behind the other. A whole vector reaches into the next line's windows, which are stored later; behind the panel there is
// slack.
static void pack_shifted(const Windows& w, const float* image, i64 first, i64 k, i64 depth, int columns, float* to) {
    Run runs[panel];
    const int count = runs_of(w, first, columns, runs);
    i64 kw = k % w.kernel_w, kh = k / w.kernel_w % w.kernel_h;
    const float* channel = image + k / (w.kernel_w * w.kernel_h) * w.height * w.width;
    for (i64 end = k + depth; k < end; ++k, to += panel) {
        for (int i = 0; i < count; ++i) {
            const i64 y = runs[i].y + kh * w.dilation_h;
            i64 x = runs[i].x + kw * w.dilation_w;
            const bool seen = y >= 0 && y < w.height;
            for (int c = runs[i].begin; c < runs[i].end; c += CL, x += CL)
                store<CL>(to + c, seen ? load_within<CL>(channel + y * w.width + x, Lanes(-x, w.width - x).mask()) : fvec{}, full());
        }
        if (++kw < w.kernel_w) continue;
        kw = 0;
        if (++kh < w.kernel_h) continue;
        kh = 0, channel += w.height * w.width;
    }
}
// The same for kernels of one tap with a horizontal stride of 2, for up to `wide` windows of several panels, `apart` elements apart: every other lane of whole
// vectors of pixels. Lines of some channels are put together first, as a vector of a panel may hold windows of several lines.
static void pack_halved(const Windows& w, const float* image, i64 first, i64 k, i64 depth, int columns, float* to, i64 apart) {
    constexpr int many = 8;
    constexpr i64 pitch = wide + CL;
    alignas(64) float lines[many * pitch];
    const i64 channel = w.height * w.width;
    const float* const last = image + w.channels * channel - (2 * CL - 1);  // the last position from which whole vectors can be loaded
    Run runs[wide];
    const int count = runs_of(w, first, columns, runs);
    for (const i64 end = k + depth; k < end; k += many, to += many * panel) {
        const int some = (int)least(many, end - k);
        for (int n = 0; n < some; ++n)
            for (int i = 0; i < count; ++i) {
                const float* p = image + (k + n) * channel + runs[i].y * w.width + runs[i].x;
                for (int c = runs[i].begin; c < runs[i].end; c += CL, p += 2 * CL) {
                    const float* const next = p + many * channel;
                    for (int x = 0; x < 2 * CL; x += fetched) __builtin_prefetch(next + x);
                    float* const line = lines + n * pitch + c;
                    if (p <= last) store<CL>(line, load_every<CL, 2>(p, full()), full());
                    else store<CL>(line, load_every<CL, 2>(p, runs[i].end - c < CL ? runs[i].end - c : CL), full());
                }
            }
        pack_lines(lines, pitch, some, columns, to, apart);
    }
}
// Packs steps [k, k + depth) of panels [p, end) of one batch of the right operand, `apart` elements apart in `to`; panels of all batches are numbered, `across`
// in each. Lines are read for all panels at a time, as a prefetcher follows them.
static void pack_panels(const Contraction& c, i64 across, i64 p, i64 end, i64 k, i64 depth, float* to, i64 apart) {
    const Windows& w = c.windows;
    const bool windows = w.channels > 0, lines = !windows && c.right.line == 1, halved = windows && w.kernel_h == 1 && w.kernel_w == 1 && w.stride_w == 2;
    const float* const base = c.right.p + at_batch(c, c.right, p / across);
    for (i64 next; p < end; to += (next - p) * apart, p = next) {
        next = lines ? end : halved ? least(p + wide / panel, end) : p + 1;
        const i64 first = p % across * panel;
        const int columns = (int)least((next - p) * panel, c.columns - first);
        const float* const from = base + first * c.right.line + k * c.right.depth;
        if (lines) pack_lines(from, c.right.depth, depth, columns, to, apart);
        else if (!windows && c.right.depth == 1) pack_columns(from, c.right.line, depth, columns, to);
        else if (!windows) pack_elements(from, c.right.line, c.right.depth, depth, columns, to);
        else if (halved) pack_halved(w, base, first, k, depth, columns, to, apart);
        else if (is_shifted(w)) pack_shifted(w, base, first, k, depth, columns, to);
        else if (CL > 8 && w.kernel_w > 8) pack_windows<CL>(w, base, first, k, depth, columns, to);
        else if (CL > 4 && w.kernel_w > 4) pack_windows<(CL > 4 ? 8 : 4)>(w, base, first, k, depth, columns, to);
        else pack_windows<4>(w, base, first, k, depth, columns, to);
    }
}
struct PackedProduct {
    const Contraction& c;
    Epilogue* const epilogue;
    const void* const context;
    const i64 across, piece;  // panels of a batch; depth to which the right operand is packed at a time
    const Lines lines;        // columns of the result, and those in between that are computed and dropped
    const i64 places;         // number of both together, of a batch

    // A thread's part of the workspace: packed panels, (partial) sums of `kept` rows of each panel, a packed block of the left operand. For the planes of
    // im2col `right` is the position that column 0 would have in them, and `steps` has the offset of each step of the depth.
    struct Room {
        float *right, *sums, *left;
        i64 kept;
        const i32* steps = nullptr;
        bool far = false;  // whether the left operand's rows are read for the first time, from beyond the L2 cache, and are to be prefetched
    };
    Room room_of(int thread) const {
        float* const right = c.workspace + thread * c.slot;
        const i64 kept = piece < c.depth ? c.kept : block;
        float* const sums = right + c.group * piece * panel + CL;
        return {right, sums, sums + c.group * kept * panel, kept};
    }
    // Number of columns that are computed in panels [p, end) of one batch.
    int columns_of(i64 p, i64 end) const { return (int)least((end - p) * panel, places - p % across * panel); }
    // The products of a packed block and one panel, into lines `pitch` apart, of which the last `alone` columns are dot products with the rows at `from`.
    void strips(const float* from, const float* left, const float* right, const i32* steps, int rows, int columns, int alone, i64 depth, float* tile, i64 pitch, bool add,
                Ahead& ahead, Stream* stream) const {
        float column[few][chunk_depth];
        const i32* const at = steps ? steps : packed_places.at;
        Strips own_strips = ahead.strips(1, 0);
        own_strips.stream = stream;
        for (int j = 0; j < alone; ++j)
            for (i64 i = 0; i < depth; ++i) column[j][i] = right[at[i] + columns - alone + j];
        // Rows whose dot products are computed, too, are read from a near cache then.
        const int some = alone ? ROWS : rows;
        for (int r = 0; r < rows; r += some) {
            const int own = rows - r < some ? rows - r : some;
            if (columns > alone)
                (steps ? products_of_strips<PACKED_LEFT> : products_of_strips<PACKED_BOTH>)(left + r / ROWS * strip_of(depth), right, at, own, columns - alone, depth, tile + r * pitch, pitch,
                                                                                            add, own_strips);
            else ahead.fetch();
            if (alone) columns_for[alone - 1](from + r * c.left.line, c.left.line, own, column, depth, tile + r * pitch + columns - alone, pitch, add);
        }
    }
    // Hands the finished results of rows [r0, r1) and `columns` places from `place` on to the epilogue, transposed if lines are columns.
    void finish(i64 batch, i64 r0, i64 r1, i64 place, int columns, float* tile, i64 pitch) const {
        const i64 c0 = lines.before(place), c1 = lines.before(place + columns);
        lines.close_up(place, columns, (int)(r1 - r0), tile, pitch);
        if (!c.transposed) return epilogue(context, batch, r0, r1, c0, c1, tile, pitch);
        alignas(64) float turned[panel * block];
        transpose_tile(tile, pitch, (int)(r1 - r0), (int)(c1 - c0), turned);
        epilogue(context, batch, c0, c1, r0, r1, turned, block);
    }
    // Packs the block of rows from r0 on and computes steps [k, k + depth) of its products with panels [p, end); `first`: the first row whose sums are kept;
    // `stop`: the end of the rows that are computed one block after the other.
    void rows_of(i64 p, i64 end, i64 r0, i64 stop, i64 first, i64 k, i64 depth, const Room& room, Stream* stream = nullptr) const {
        alignas(64) float whole[block * wide];
        const bool kept = c.depth > c.chunk || piece < c.depth;
        const i64 batch = p / across, side = c.transposed || kept ? 1 : wide / panel, pitch = side * panel;
        const i64 r1 = least(r0 + block, stop);
        const int rows = (int)(r1 - r0);
        const float* const left = c.left.p + at_batch(c, c.left, batch);
        const float* const from = left + r0 * c.left.line;
        for (i64 done = 0; done < depth; done += c.chunk) {
            const i64 now = least(c.chunk, depth - done), at = k + done;
            const bool last = at + now >= c.depth;
            if (c.taps) pack_left_taps(from, c.left.line, c.taps, c.windows.channels, at, now, rows, room.left);
            else pack_left(from + at * c.left.depth, c.left.line, c.left.depth, now, rows, room.left);
            const bool below = done + now >= depth;
            const i64 r = below ? r1 : r0, k_next = below ? k : at + now;
            // Rows that are in the L2 cache are not prefetched: that takes a tenth of the time of few columns.
            const i64 many = room.far || (double)c.rows * c.depth * 4 >= c.far_left ? least(block, stop - r) : 0;
            NextRows<2> next(c, left, r, many, k_next, least(c.chunk, k + depth - k_next), (end - p) * units(rows, ROWS));
            for (i64 q = p, beyond; q < end; q = beyond) {
                beyond = least(q + side, end);
                float* const tile = kept ? room.sums + ((q - p) * room.kept + r0 - first) * panel : whole;
                const i64 place = q % across * panel, c0 = lines.before(place);
                Ahead ahead(c, last, batch, r0, rows, c0, lines.before(place + columns_of(q, beyond)) - c0, (beyond - q) * units(rows, ROWS), &next);
                for (i64 own = q; own < beyond; ++own) {
                    const i64 begin = own % across * panel;
                    const int columns = columns_of(own, own + 1);
                    const int alone = lines.pitch == lines.width && columns % CL <= few && c.left.depth == 1 && c.depth >= 4 * CL ? columns % CL : 0;
                    const float* const right = room.right + (room.steps ? begin : ((own - p) * piece + done) * panel);
                    strips(from + at * c.left.depth, room.left, right, room.steps ? room.steps + at : nullptr, rows, columns, alone, now, tile + (own - q) * panel, pitch, at > 0, ahead, stream);
                }
                if (last) finish(batch, r0, r1, place, columns_of(q, beyond), tile, pitch);
            }
        }
    }
    // Prefetches the piece of the right operand that is packed behind one of panels [p, end), of which `last` is the end: steps from k on, of the next panels if k
    // is 0; with each of `times` parts of the products. Nothing if the operand may be in the core's own cache, or is no matrix in order.
    Stream next_piece(i64 p, i64 end, i64 k, i64 last, double times) const {
        const bool lines = c.right.line == 1, none = c.windows.channels > 0 || !(lines || c.right.depth == 1);
        if (k == 0) p = end, end = least(least(last, p + c.group), (p / across + 1) * across);
        if (none || p >= end || !c.right_comes_from_far()) return {nullptr, 0, 0, 0, 0};
        const i64 first = p % across * panel, columns = least((end - p) * panel, c.columns - first), depth = least(piece, c.depth - k);
        const i64 length = lines ? columns : depth, rows = lines ? depth : columns, each = (i64)(rows * units(length, fetched) / times) + 1;
        return {c.right.p + at_batch(c, c.right, p / across) + first * c.right.line + k * c.right.depth, length, lines ? c.right.depth : c.right.line, rows, each};
    }
    // Computes rows [r0, r1) of panels [p, last).
    void compute(i64 p, i64 last, i64 r0, i64 r1, int thread) const {
        Room room = room_of(thread);
        const i64 many = piece < c.depth ? room.kept : c.rows, start = p;
        for (i64 end; p < last; p = end) {
            end = least(least(last, p + c.group), (p / across + 1) * across);
            // Where results are prefetched as well, these prefetches are what a core can wait for.
            room.far = c.left_is_far && p == start && !c.touched[0];
            for (i64 begin = r0; begin < r1; begin += many)
                for (i64 k = 0; k < c.depth; k += piece) {
                    const i64 depth = least(piece, c.depth - k), stop = least(begin + many, r1);
                    pack_panels(c, across, p, end, k, depth, room.right, piece * panel);
                    Stream beyond = next_piece(p, end, k + depth < c.depth ? k + depth : 0, last, (double)((end - p) * units(stop - begin, ROWS)) * units(depth, fetched));
                    for (i64 r = begin; r < stop; r += block) rows_of(p, end, r, stop, piece < c.depth ? begin : r, k, depth, room, beyond.rows ? &beyond : nullptr);
                }
        }
    }
};
