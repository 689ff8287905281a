// Building blocks of the loops of contraction.cpp: the micro-kernels of a tile's products, packing, the planes of im2col. probe.cpp measures them.
//
// Columns of the right operand are packed in panels, [k][column], so that the innermost loop reads them in order. One element of the left operand at a
// time is broadcast to a vector. A tile of ROWS x panel results is held in registers while k runs. This is the scheme of Goto and van de Geijn (Anatomy of
// High-Performance Matrix Multiplication, 2008). The left operand is packed, too, in strips of ROWS rows, [k][row], where that costs less than it saves;
// otherwise its rows are read in place, as streams, once. No result depends on the number of threads.
//
// CV: vectors of a panel's line; ROWS: rows of a tile.
#if defined(__AVX512F__)
constexpr int CV = 4, ROWS = 6;
#elif defined(__AVX2__)
constexpr int CV = 2, ROWS = 6;
#else
constexpr int CV = 2, ROWS = 4;
#endif
constexpr int panel = CL * CV;
// Packed strips of rows are this far apart, and stored in vectors of so many lanes.
constexpr int strip_lanes = ROWS <= 4 ? 4 : 8;
constexpr i64 strip_of(i64 depth) { return ROWS * depth + strip_lanes; }
constexpr i64 block = 48;          // rows of a block: a multiple of ROWS and of CL
constexpr i64 chunk_depth = 512;  // depth of a piece of a panel that stays in the L2 cache (as in ir/contraction.py)
constexpr i64 shallow_depth = 128;  // depth of the pieces of which the sums of few rows are kept (PIECE_DEPTH in ir/contraction.py)
constexpr i64 chain = 256;         // number of products that are added up one after the other: longer sums are sums of such sums
constexpr int few = 4;             // largest number of columns beyond whole vectors that are computed as dot products (column_products)
constexpr i64 wide = 64;           // results of a row for one call of the epilogue, from several panels, as each row is on a page of its own
constexpr i64 widest_lanes = 16;   // lanes of the widest vector of any processor, by which workspaces are laid out
constexpr i64 fetched = 16;        // elements of a cache line
constexpr int ahead = 8;           // number of lines to prefetch while packing, each of which is on a page of its own

// n / unit, rounded up.
static constexpr i64 units(i64 n, i64 unit) { return (n + unit - 1) / unit; }

// The offset of each step of the depth in a packed panel.
struct PackedPlaces {
    i32 at[chunk_depth];
    constexpr PackedPlaces() : at{} {
        for (int k = 0; k < chunk_depth; ++k) at[k] = k * panel;
    }
};
static constexpr PackedPlaces packed_places;

// Prefetches rows of memory into the L2 cache while products are computed: `each` cache lines at a time, row after row, because neighboring lines are on one
// page, and a hardware prefetcher follows them.
struct Stream {
    const float* row;
    i64 length, apart, rows;  // elements of a row; distance between rows; number of rows that are left
    i64 each, in_row = 0;
    void fetch() {
        for (i64 n = 0; n < each && rows > 0; ++n) {
            __builtin_prefetch(row + in_row, 0, 2);
            if ((in_row += fetched) >= length) in_row = 0, row += apart, --rows;
        }
    }
};
// Strips of rows that one call of the micro-kernel computes, one below the other: number; distance of the left operand's strips; what is called before
// each, or null; distance of the right operand's lines if these are evenly spaced; what is prefetched with every few steps if both operands are packed, or
// null.
struct Strips {
    int count;
    i64 hop;
    void (*before)(void*);
    void* context;
    i64 apart = panel;
    Stream* stream = nullptr;
};
static constexpr Strips one_strip{1, 0, nullptr, nullptr};
// A number that is known at compile time, as an argument.
template <int N> struct number_of {
    static constexpr int value = N;
};
// The micro-kernel: the products of `rows` <= R rows and V vectors of columns, the last of which is half a vector if HALF. Rows beyond `rows` repeat the
// last one, and are not written.
// OPERANDS: which ones are packed; SPACED: the right one is packed, or its lines are evenly spaced as those of a packed panel are. `left`: the first row,
// or a packed strip; `line`, `step`: its strides from row to row and along the depth; `next`: distance of the rows that are read next, which are prefetched. `right`: the first column; `places`: the offset in `right` of each step of the depth;
// `beside`: distance of the columns that are read next, which are prefetched, or 0. `tile`: results, with lines `pitch` apart; `add`:
// whether to add to what it holds. `strips`: how many times R rows are computed. `line`, `step` and `next` are ignored if the left operand is packed, `beside`
// if both are; `places` is read by STREAMED and PACKED_LEFT alone.
enum Operands { STREAMED, PACKED_LEFT, SPACED, PACKED_BOTH };
// Whether the left operand is packed.
constexpr bool is_packed(Operands operands) { return operands == PACKED_LEFT || operands == PACKED_BOTH; }
template <int R, int V, bool HALF = false, Operands OPERANDS = STREAMED> NOINLINE void tile_product(const float* left, i64 line, i64 step, i64 next, int rows, const float* right, const i32* places, i64 beside, i64 depth, float* tile, i64 pitch, bool add, const Strips& strips) {
    typedef vec<float, CL / 2> hvec;
    constexpr bool PACKED = is_packed(OPERANDS), PLACED = OPERANDS == STREAMED || OPERANDS == PACKED_LEFT;
    constexpr int WHOLE = HALF ? V - 1 : V, some = WHOLE ? WHOLE : 1;
    if (PACKED) step = ROWS;
    const i64 apart = PACKED ? panel : strips.apart;
    for (int strip = 0; strip < strips.count; ++strip, left += strips.hop, tile += ROWS * pitch, beside = PLACED ? 0 : beside) {
        if (strips.before) strips.before(strips.context);
        const float* at[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) at[r] = PACKED ? left + r : left + (r < rows ? r : rows - 1) * line;
        for (i64 from = 0; from < depth; from += chain) {
            const i64 to = least(from + chain, depth);
            fvec sum[R][some];
            hvec half[R];
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                half[r] = hvec{};
#pragma GCC unroll 4
                for (int v = 0; v < WHOLE; ++v) sum[r][v] = fvec{};
            }
            for (i64 k = from, i = from * step; k < to;) {
                if (!PACKED)
#pragma GCC unroll 8
                    for (int r = 0; r < R; ++r) __builtin_prefetch(at[r] + i + next);
                // Each strip prefetches an equal share, as all of them in a burst would wait for memory.
                if (OPERANDS == SPACED && beside)
                    for (i64 j = k + fetched * strip / strips.count; j < least(k + fetched * (strip + 1) / strips.count, to); ++j)
#pragma GCC unroll 4
                        for (int v = 0; v < V * CL; v += fetched) __builtin_prefetch(right + j * apart + beside + v);
                const bool streams = OPERANDS == PACKED_BOTH && strips.stream;
                if (streams) strips.stream->fetch();
                const i64 stop = PACKED && !streams ? to : least(k + fetched, to);
                // Four steps are unrolled: instructions beside the products limit a processor that begins two products of vectors in a cycle. g++ 12 does not
                // unroll this loop by a pragma that stands on it; it does unroll one with a constant number of steps.
                const auto steps = [&](auto count) INLINE_LAMBDA {
#pragma GCC unroll 4
                    for (int n = 0; n < count.value; ++n, ++k, i += step) {
                        const float* const line = right + (PLACED ? places[k] : k * apart);
                        fvec x[some];
                        hvec y{};
#pragma GCC unroll 4
                        for (int v = 0; v < WHOLE; ++v) x[v] = load<CL>(line + v * CL, full());
                        if constexpr (HALF) y = load<CL / 2>(line + WHOLE * CL, full());
                        if (PLACED && beside)
#pragma GCC unroll 4
                            for (int v = 0; v < V * CL; v += fetched) __builtin_prefetch(line + beside + v);
#pragma GCC unroll 8
                        for (int r = 0; r < R; ++r) {
                            const float element = PACKED ? left[i + r] : at[r][i];
                            const fvec w = bc<CL>(element);
#pragma GCC unroll 4
                            for (int v = 0; v < WHOLE; ++v) sum[r][v] = fma_(w, x[v], sum[r][v]);
                            if constexpr (HALF) half[r] = fma_(bc<CL / 2>(element), y, half[r]);
                        }
                    }
                };
                while (k + 4 <= stop) steps(number_of<4>());
                while (k < stop) steps(number_of<1>());
            }
            const bool more = add || from > 0;
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                if (r >= rows) break;
                float* const p = tile + r * pitch;
#pragma GCC unroll 4
                for (int v = 0; v < WHOLE; ++v) store<CL>(p + v * CL, more ? load<CL>(p + v * CL, full()) + sum[r][v] : sum[r][v], full());
                if constexpr (HALF) store<CL / 2>(p + WHOLE * CL, more ? load<CL / 2>(p + WHOLE * CL, full()) + half[r] : half[r], full());
            }
        }
    }
}
// For each pair of lanes i and i + D (bit D of i is 0): the sum of both lanes of `a` in lane i, the sum of both lanes of `b` in lane i + D.
template <int D> INLINE fvec merge(fvec a, fvec b) {
    vec<i32, CL> own, other;
#pragma GCC unroll 16
    for (int i = 0; i < CL; ++i) own[i] = i & D ? CL + i : i, other[i] = own[i] ^ D;
    return __builtin_shuffle(a, b, own) + __builtin_shuffle(a, b, other);
}
// The micro-kernel for N columns that would leave most of a vector idle: dot products along the left operand's rows, which have to be contiguous.
// `columns`: copies of the columns. The results go to tile[r * pitch + n].
template <int N> NOINLINE void column_products(const float* left, i64 line, int rows, const float (*columns)[chunk_depth], i64 depth, float* tile, i64 pitch, bool add) {
    static_assert(ROWS <= 8 && (CL >= 8 || ROWS <= CL));
    fvec sum[N][8];
    const float* at[ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < 8; ++r)
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) sum[n][r] = fvec{};
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) at[r] = left + (r < rows ? r : rows - 1) * line;
    for_lanes<CL>(0, depth, [&](i64 k, auto m) INLINE_LAMBDA {
        fvec x[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) x[n] = load<CL>(columns[n] + k, m);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) {
            const fvec w = load<CL>(at[r] + k, m);
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) sum[n][r] = fma_(w, x[n], sum[n][r]);
        }
    });
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
        // Adds up the lanes of each sum: lane r becomes the sum of row r.
        fvec* const s = sum[n];
#pragma GCC unroll 4
        for (int r = 0; r < 8; r += 2) s[r] = merge<1>(s[r], s[r + 1]);
        s[0] = merge<2>(s[0], s[2]);
        if constexpr (CL > 4) s[0] = merge<4>(s[0], merge<2>(s[4], s[6]));
        if constexpr (CL > 8) s[0] = merge<8>(s[0], s[0]);
        for (int r = 0; r < rows; ++r) tile[r * pitch + n] = add ? tile[r * pitch + n] + s[0][r] : s[0][r];
    }
}
typedef void Columns(const float* left, i64 line, int rows, const float (*columns)[chunk_depth], i64 depth, float* tile, i64 pitch, bool add);
static constexpr Columns* columns_for[few] = {column_products<1>, column_products<2>, column_products<3>, column_products<4>};
typedef void Tile(const float* left, i64 line, i64 step, i64 next, int rows, const float* right, const i32* places, i64 beside, i64 depth, float* tile, i64 pitch, bool add, const Strips& strips);
// The micro-kernel for these numbers of rows and columns.
template <Operands PACKED> static Tile* tile_for(int rows, int columns) {
    if (columns > panel - CL / 2) {
        if (rows <= 2) return tile_product<2, CV, false, PACKED>;
        return rows <= 4 ? tile_product<4, CV, false, PACKED> : tile_product<ROWS, CV, false, PACKED>;
    }
    const int halves = (columns + CL / 2 - 1) / (CL / 2);
    switch (halves) {
        case 1: return tile_product<ROWS, 1, true, PACKED>;
        case 2: return tile_product<ROWS, 1, false, PACKED>;
        case 3: return tile_product<ROWS, 2, true, PACKED>;
    }
    if constexpr (CV == 4)
        switch (halves) {
            case 4: return tile_product<ROWS, 2, false, PACKED>;
            case 5: return tile_product<ROWS, 3, true, PACKED>;
            case 6: return tile_product<ROWS, 3, false, PACKED>;
            case 7: return tile_product<ROWS, 4, true, PACKED>;
        }
    return tile_product<ROWS, CV, false, PACKED>;
}

// The products of `rows` packed rows and one panel, in as few calls of the micro-kernel as possible; `like`: what is called
// before each strip.
template <Operands PACKED> static void products_of_strips(const float* left, const float* right, const i32* places, int rows, int columns, i64 depth, float* tile, i64 pitch, bool add,
                                                          const Strips& like) {
    const int whole = rows / ROWS, rest = rows % ROWS;
    const i64 hop = strip_of(depth);
    if (whole) tile_for<PACKED>(ROWS, columns)(left, 1, ROWS, 0, ROWS, right, places, 0, depth, tile, pitch, add, {whole, hop, like.before, like.context, panel, like.stream});
    if (rest) tile_for<PACKED>(rest, columns)(left + whole * hop, 1, ROWS, 0, rest, right, places, 0, depth, tile + whole * ROWS * pitch, pitch, add, {1, hop, like.before, like.context, panel, like.stream});
}

// ------------------------------------------------------------------ packing
// Each function packs `depth` steps of `columns` columns into a panel at `to`, [k][column].
//
// Columns that are contiguous with each other; `step`: stride along the depth. More columns than a panel's go to several panels, `apart` elements apart.
static void pack_lines(const float* p, i64 step, i64 depth, int columns, float* to, i64 apart = 0) {
    for (i64 k = 0; k < depth; ++k, p += step, to += panel) {
        if (k + ahead < depth)
            for (int c = 0; c < columns; c += fetched) __builtin_prefetch(p + ahead * step + c);
        float* line = to;
        int c = 0;
        for (; c + panel <= columns; c += panel, line += apart)
#pragma GCC unroll 4
            for (int v = 0; v < panel; v += CL) store<CL>(line + v, load<CL>(p + c + v, full()), full());
        for_lanes<CL>(c, columns, [&](i64 i, auto m) INLINE_LAMBDA { store<CL>(line + i - c, load<CL>(p + i, m), full()); });
    }
}
// Columns whose depth is contiguous; `line`: stride from column to column; `apart`: distance in `to` from one step of the depth to the next.
static void pack_columns(const float* p, i64 line, i64 depth, int columns, float* to, i64 apart = panel) {
    fvec tile[CL];
    for_lanes<CL>(0, columns, [&](i64 c, auto alive_columns) INLINE_LAMBDA {
        for_lanes<CL>(0, depth, [&](i64 k, auto alive_depth) INLINE_LAMBDA {
            load_tile<CL>(tile, p + c * line + k, line, alive_depth, alive_columns);
            for (int j = 0; j < alive(alive_depth, CL); ++j) store<CL>(to + (k + j) * apart + c, tile[j], full());
        });
    });
}
// Columns that have all channels of each tap side by side (channels-last filters), for a depth in the order [channel][tap]: its steps [k, k + depth).
static void pack_taps(const float* p, i64 line, i64 taps, i64 channels, i64 k, i64 depth, int columns, float* to) {
    for (i64 t = 0; t < taps; ++t) {
        const i64 first = k > t ? units(k - t, taps) : 0, last = k + depth > t ? units(k + depth - t, taps) : 0;
        if (first < last) pack_columns(p + t * channels + first, line, last - first, columns, to + (first * taps + t - k) * panel, taps * panel);
    }
}
// Columns of any strides; `line`: from column to column, `step`: along the depth.
static void pack_elements(const float* p, i64 line, i64 step, i64 depth, int columns, float* to) {
    for (i64 k = 0; k < depth; ++k, to += panel)
        for (int c = 0; c < panel; ++c) to[c] = c < columns ? p[c * line + k * step] : 0.0f;
}
// Packs `rows` rows of the left operand in strips of ROWS rows, [k][row], strip_of(depth) elements apart; `line`: stride from row to row, `step`: along the
// depth. Rows of the last strip beyond the last row are arbitrary. Whole vectors are stored, each of which the next one overwrites in part, so behind each
// strip there is slack.
static void pack_left(const float* p, i64 line, i64 step, i64 depth, int rows, float* to) {
    constexpr int L = strip_lanes;
    const i64 strip = strip_of(depth);
    if (line == 1) {
        // Neighboring rows are contiguous: all rows are packed at once, so that each cache line is read once.
        const int whole = rows < L ? 0 : (rows - L) / ROWS * ROWS + ROWS;
        for (i64 k = 0; k < depth; ++k, p += step, to += ROWS) {
            if (k + ahead < depth)
                for (int r = 0; r < rows; r += fetched) __builtin_prefetch(p + ahead * step + r);
            float* at = to;
            int r = 0;
            for (; r < whole; r += ROWS, at += strip) store<L>(at, load<L>(p + r, full()), full());
            for (; r < rows; r += ROWS, at += strip) store<L>(at, load<L>(p + r, rows - r < L ? rows - r : L), full());
        }
        return;
    }
    for (int r = 0; r < rows; r += ROWS, p += ROWS * line, to += strip) {
        const int own = rows - r < ROWS ? rows - r : ROWS;
        vec<float, L> tile[L];
        if (step == 1)
            for_lanes<L>(0, depth, [&](i64 k, auto alive_depth) INLINE_LAMBDA {
                load_tile<L>(tile, p + k, line, alive_depth, own);
                for (int j = 0; j < alive(alive_depth, L); ++j) store<L>(to + (k + j) * ROWS, tile[j], full());
            });
        else
            for (i64 k = 0; k < depth; ++k)
                for (int i = 0; i < ROWS; ++i) to[k * ROWS + i] = p[(i < own ? i : 0) * line + k * step];
    }
}
// The same for rows that have all channels of each tap side by side (channels-last filters), for a depth in the order [channel][tap]: its steps [k, k + depth).
static void pack_left_taps(const float* p, i64 line, i64 taps, i64 channels, i64 k, i64 depth, int rows, float* to) {
    constexpr int L = strip_lanes;
    const i64 strip = strip_of(depth), end = k + depth;
    for (int r = 0; r < rows; r += ROWS, p += ROWS * line, to += strip) {
        const int own = rows - r < ROWS ? rows - r : ROWS;
        vec<float, L> tile[L];
        for (i64 c = k / taps; c * taps < end; c += L) {
            const int some = (int)least(L, channels - c);
            for (i64 t = 0; t < taps; ++t) {
                load_tile<L>(tile, p + t * channels + c, line, some, own);
                for (int j = 0; j < some; ++j) {
                    const i64 at = (c + j) * taps + t;
                    if (at < k || at >= end) continue;
                    // A whole vector reaches into the next tap's place, which is written later; but behind the last tap there is a place that is packed already.
                    if (t + 1 < taps) store<L>(to + (at - k) * ROWS, tile[j], full());
                    else __builtin_memcpy(to + (at - k) * ROWS, &tile[j], ROWS * sizeof(float));
                }
            }
        }
    }
}
// Transposes a tile with lines `pitch` apart; `to` has lines of `block` elements.
static void transpose_tile(const float* from, i64 pitch, int rows, int columns, float* to) {
    fvec tile[CL];
    for (int r = 0; r < rows; r += CL)
        for (int c = 0; c < columns; c += CL) {
            load_tile<CL>(tile, from + r * pitch + c, pitch, full(), full());
#pragma GCC unroll 16
            for (int j = 0; j < CL; ++j) store<CL>(to + (c + j) * block + r, tile[j], full());
        }
}

// ------------------------------------------------------------------ windows
// im2col of a strip of one channel of an image: the image is padded and split into planes, one for each class of rows modulo the stride, and for each
// class of columns modulo the stride or (copies) for each of the kernel's columns. So the elements that one tap reads for neighboring windows are
// contiguous; with copies, also from one line of windows to the next.
struct Planes {
    i64 across, down;   // number of planes for columns and for rows
    i64 height, width;  // size of a plane
    i64 each, channel;  // elements of one plane, of all planes of a channel
    i64 shown;          // number of lines of windows that see the planes
};
static Planes planes_of(const Windows& w) {
    // A strip is a part of the line if the result has only one; otherwise it is some lines, the first and the last of which may be incomplete.
    const bool line = w.out_height == 1;
    const i64 lines = line ? 1 : least((w.strip + w.out_width - 2) / w.out_width + 1, w.out_height);
    const i64 height = lines + (w.kernel_h - 1) * w.dilation_h / w.stride_h, columns = line ? least(w.strip, w.out_width) : w.out_width;
    const i64 width = columns + (w.copies ? 0 : (w.kernel_w - 1) * w.dilation_w / w.stride_w), across = w.copies ? w.kernel_w : w.stride_w;
    return {across, w.stride_h, height, width, height * width, height * width * across * w.stride_h, lines};
}
// Whether any of a kernel's taps reads class `which` of the rows or columns modulo the stride.
static bool visited(i64 which, i64 taps, i64 stride, i64 dilation) {
    for (i64 k = 0; k < least(taps, stride); ++k)
        if (k * dilation % stride == which) return true;
    return false;
}
// Copies one line of `windows` >= L windows, `stride` apart, each of which sees `columns` neighboring columns; each column goes to a plane of its own, and
// these are `apart`. Tiles of L windows are transposed; nothing is stored beyond the windows.
template <int L> static void split_windows(const float* from, i64 stride, i64 columns, i64 windows, i64 apart, float* to) {
    vec<float, L> tile[L];
    for (i64 k = 0; k < columns; k += L) {
        const int own = (int)least(columns - k, L);
        for (i64 x = 0; x < windows; x += L) {
            const i64 at = least(x, windows - L);  // the last ones, some of them a second time
            if (own == L) load_tile<L>(tile, from + at * stride + k, stride, full(), full());
            else load_tile<L>(tile, from + at * stride + k, stride, own, full());
#pragma GCC unroll 16
            for (int j = 0; j < L; ++j)
                if (j < own) store<L>(to + (k + j) * apart + at, tile[j], full());
        }
    }
}
// Fills the planes of one class of rows (`down`) where the stride is wide and the kernel's columns are neighbors: all columns of a window at once. The other
// arguments are those of im2col.
constexpr i64 wide_stride = 3;
static void split_far(const Windows& w, const Planes& planes, const float* image, i64 y0, i64 lines, i64 x0, i64 down, float* to) {
    const i64 columns = least(planes.across, w.kernel_w), left = x0 * w.stride_w - w.pad_w, apart = planes.each;
    // Windows [first, last) see no padding.
    const i64 first = left < 0 ? least((w.stride_w - 1 - left) / w.stride_w, planes.width) : 0, room = w.width - left - columns;
    const i64 last = room < 0 ? first : least(room / w.stride_w + 1, planes.width), some = last - first;
    for (i64 y = y0; y < y0 + lines; ++y, to += planes.width) {
        const i64 in_y = y * w.stride_h + down - w.pad_h;
        const bool seen = in_y >= 0 && in_y < w.height;
        const float* const from = image + in_y * w.width + left;
        const bool tiles = seen && some >= 4;
        if (tiles) {
            const float* const at = from + first * w.stride_w;
            if (CL > 8 && columns > 8 && some >= CL) split_windows<CL>(at, w.stride_w, columns, some, apart, to + first);
            else if (CL > 4 && columns > 4 && some >= 8) split_windows<(CL > 4 ? 8 : 4)>(at, w.stride_w, columns, some, apart, to + first);
            else split_windows<4>(at, w.stride_w, columns, some, apart, to + first);
        }
        for (i64 k = 0; k < columns; ++k)
            for (i64 x = 0; x < planes.width; ++x) {
                if (tiles && x == first) x = last;
                if (x >= planes.width) break;
                const i64 column = left + x * w.stride_w + k;
                to[k * apart + x] = seen && column >= 0 && column < w.width ? from[x * w.stride_w + k] : 0;
            }
    }
}
// Fills lines [y0, y0 + lines) of the planes of one channel of the image, from column x0 on; behind the last plane there is slack for whole vectors.
static void im2col(const Windows& w, const Planes& planes, const float* image, i64 y0, i64 lines, i64 x0, float* to) {
    const bool far = w.stride_w >= wide_stride && w.dilation_w == 1 && least(planes.across, w.kernel_w) >= wide_stride;
    for (i64 down = 0; down < planes.down; ++down) {
        const bool seen = visited(down, w.kernel_h, w.stride_h, w.dilation_h);
        if (seen && far) split_far(w, planes, image, y0, lines, x0, down, to);
        for (i64 across = 0; across < planes.across; ++across, to += planes.each) {
            if (!seen || far || !w.copies && !visited(across, w.kernel_w, w.stride_w, w.dilation_w)) continue;
            // The image's column at which the plane's column 0 is.
            const i64 left = x0 * w.stride_w + across * (w.copies ? w.dilation_w : 1) - w.pad_w;
            const SplitLines split(-left, w.width - left, w.stride_w, planes.width);
            float* line = to;
            for (i64 y = y0; y < y0 + lines; ++y, line += planes.width) {
                const i64 in_y = y * w.stride_h + down - w.pad_h;
                if (in_y < 0 || in_y >= w.height) split.clear(planes.width, line);
                else split.copy<false>(image + in_y * w.width + left, line);
            }
        }
    }
}
// The position of a tap in one direction: the number of the plane, and the offset in it. Steps leads from one tap to the next.
struct Place {
    i64 plane, at;
};
struct Steps {
    i64 count, planes, places;  // number of planes; increments to the next tap
    Steps(i64 dilation, i64 stride) : count(stride), planes(dilation % stride), places(dilation / stride) {}
    Place next(Place p) const {
        const bool over = p.plane + planes >= count;
        return {p.plane + planes - (over ? count : 0), p.at + places + over};
    }
};
// Lists, for each channel and tap, the offset in the planes at which the tap reads for the first window.
static void list_taps(const Windows& w, const Planes& planes, i32* to) {
    const Steps down(w.dilation_h, w.stride_h), across(w.copies ? 1 : w.dilation_w, planes.across);
    for (i64 channel = 0; channel < w.channels; ++channel) {
        Place y{0, 0};
        for (i64 kh = 0; kh < w.kernel_h; ++kh, y = down.next(y)) {
            Place x{0, 0};
            for (i64 kw = 0; kw < w.kernel_w; ++kw, x = across.next(x))
                *to++ = (i32)(channel * planes.channel + (y.plane * planes.across + x.plane) * planes.each + y.at * planes.width + x.at);
        }
    }
}
// Prefetches rows of the left operand that are packed next while products of others are computed: an equal share of their cache lines with each tile. Weights
// come from memory, and hardware prefetchers do not follow short rows. Only rows whose depth is contiguous, or contiguous within each tap, are prefetched.
// CACHE: 3 for the L1 cache, 2 for the L2 cache.
template <int CACHE> class NextRows {
    const float *row, *tap;
    const i64 line, apart, taps, each, tiles;  // strides from row to row and from tap to tap; number of taps; cache lines of a tap; number of tiles
    const i64 lines;                           // cache lines of all rows
    i64 tile = 0, done = 0, in_tap = 0, in_row = 0;

public:
    // Steps [k, k + depth) of `rows` rows (none if it is negative) from r0 on, of the matrix at `left`, in `tiles` shares.
    NextRows(const Contraction& c, const float* left, i64 r0, i64 rows, i64 k, i64 depth, i64 tiles)
        : line(c.left.line), apart(c.windows.channels), taps(c.taps ? c.taps : 1), each(units(units(k + depth, taps) - k / taps, fetched)), tiles(tiles),
          lines(rows > 0 && (c.left.depth == 1 || c.taps) ? rows * each * taps : 0) {
        row = tap = left + r0 * line + k / taps;
    }
    // Prefetches the share of the next tile.
    void fetch() {
        for (const i64 to = lines * ++tile / tiles; done < to; ++done) {
            __builtin_prefetch(tap + in_tap * fetched, 0, CACHE);
            if (++in_tap < each) continue;
            in_tap = 0, tap += apart;
            if (++in_row < taps) continue;
            in_row = 0, tap = row += line;
        }
    }
};
// Prefetches the memory that the epilogue touches for rows [r0, r0 + rows) and columns [c0, c0 + columns) while their last products are computed: an equal
// share of the lines with each of `tiles` tiles. Prefetches go to the L2 cache: in the L1 cache, rows whose distance contains high powers of two would cause
// conflict misses.
class Ahead {
    const Contraction& c;
    const i64 batch, r0, c0;
    const int rows, columns, all;
    NextRows<2>* const next;  // what is prefetched as well, or null
    int tile = 0;

public:
    Ahead(const Contraction& c, bool wanted, i64 batch, i64 r0, int rows, i64 c0, i64 columns, i64 tiles, NextRows<2>* next = nullptr)
        : c(c), batch(batch), r0(r0), c0(c0), rows(rows), columns((int)columns), all(wanted ? (int)tiles : 0), next(next) {}
    // Prefetches the share of the next tile.
    void fetch() {
        if (next) next->fetch();
        if (!c.touched[0] || tile >= all) return;
        const int lines = c.transposed ? columns : rows, length = c.transposed ? rows : columns, from = lines * tile / all;
        i64 at = batch * c.touched_batch + (c.transposed ? c0 * c.touched_line + r0 : r0 * c.touched_line + c0) + from * c.touched_line;
        for (int n = lines * ++tile / all - from; n > 0; --n, at += c.touched_line)
            for (i64 i = 0; i < length; i += fetched)
                for (const float* const* p = c.touched; *p; ++p) __builtin_prefetch(*p + at + i, 0, 2);
    }
    // The strips of a call of the micro-kernel, with a share each.
    Strips strips(int count, i64 hop) { return {count, hop, [](void* own) { ((Ahead*)own)->fetch(); }, this}; }
};
// Lines of an image in which only the first `width` of every `pitch` elements are results; before(place) is the number of results before a place.
struct Lines {
    i64 pitch, width;
    i64 before(i64 place) const { return place / pitch * width + least(place % pitch, width); }
    // Moves the results among `columns` places from `place` on together, in each row of a tile; rows are `apart`.
    void close_up(i64 place, int columns, int rows, float* tile, i64 apart) const {
        if (pitch == width) return;
        i64 to = 0;
        for (i64 from = 0; from < columns;) {
            const i64 x = (place + from) % pitch, some = least(width - x, columns - from);
            if (some > 0 && to < from)
                for (int r = 0; r < rows; ++r)
                    for_lanes<CL>(0, some, [&](i64 k, auto m) INLINE_LAMBDA {
                        float* const line = tile + r * apart + k;
                        store<CL>(line + to, load<CL>(line + from, m), m);
                    });
            to += some > 0 ? some : 0;
            from += least(pitch - x, columns - from);
        }
    }
};
