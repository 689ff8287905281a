// The loops of contraction.h.
//
// Columns of the right operand are packed in panels, [k][column], so that the innermost loop reads them in order; the left
// operand stays where it is, one element at a time spread over a vector. A tile of ROWS x panel results is held in registers
// while k runs. This is the scheme of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, 2008) with the
// left operand unpacked: its rows are read as streams, once. No result depends on how many threads there are.
#if defined(__AVX512F__)
constexpr int CV = 4, ROWS = 6;
#elif defined(__AVX2__)
constexpr int CV = 2, ROWS = 6;
#else
constexpr int CV = 2, ROWS = 4;
#endif
constexpr int panel = CL * CV;
constexpr i64 block = 48;          // rows of a block: a multiple of ROWS and of CL
constexpr i64 chunk_depth = 512;  // so much of a panel stays in the second cache (as in ir/contraction.py)
constexpr i64 chain = 256;         // so many products are added up one after the other: longer sums are sums of sums
constexpr i64 MAX_LISTED = 8192;   // so many taps of a convolution have room where its panels would be packed
constexpr int few = 4;             // so many columns beyond whole vectors are sums of their own
constexpr i64 fetched = 16;        // elements of a line of the first cache
constexpr int ahead = 8;           // lines to fetch ahead while packing: each is on a page of its own

// Where the lines of a packed panel are.
struct PackedPlaces {
    i32 at[chunk_depth];
    constexpr PackedPlaces() : at{} {
        for (int k = 0; k < chunk_depth; ++k) at[k] = k * panel;
    }
};
static constexpr PackedPlaces packed_places;

// V vectors of columns, the last of which is a half one if HALF. rows <= R; those beyond are computed again from the last. `add`: to
// what the tile holds, of which only the `rows` are written. `places`: where in `right` each step of the depth is. `next`: how far the left operand's next rows are, to be fetched meanwhile.
template <int R, int V, bool HALF = false> NOINLINE void tile_product(const float* left, i64 line, i64 step, i64 next, int rows, const float* right, const i32* places, i64 depth, float* tile, bool add) {
    typedef vec<float, CL / 2> hvec;
    constexpr int WHOLE = HALF ? V - 1 : V, some = WHOLE ? WHOLE : 1;
    const float* at[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) at[r] = left + (r < rows ? r : rows - 1) * line;
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
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) __builtin_prefetch(at[r] + i + next);
            for (const i64 stop = least(k + fetched, to); k < stop; ++k, i += step) {
                const float* const line = right + places[k];
                fvec x[some];
                hvec y{};
#pragma GCC unroll 4
                for (int v = 0; v < WHOLE; ++v) x[v] = load<CL>(line + v * CL, full());
                if constexpr (HALF) y = load<CL / 2>(line + WHOLE * CL, full());
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r) {
                    const fvec w = bc<CL>(at[r][i]);
#pragma GCC unroll 4
                    for (int v = 0; v < WHOLE; ++v) sum[r][v] = fma_(w, x[v], sum[r][v]);
                    if constexpr (HALF) half[r] = fma_(bc<CL / 2>(at[r][i]), y, half[r]);
                }
            }
        }
        const bool more = add || from > 0;
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            if (r >= rows) break;
            float* const p = tile + r * panel;
#pragma GCC unroll 4
            for (int v = 0; v < WHOLE; ++v) store<CL>(p + v * CL, more ? load<CL>(p + v * CL, full()) + sum[r][v] : sum[r][v], full());
            if constexpr (HALF) store<CL / 2>(p + WHOLE * CL, more ? load<CL / 2>(p + WHOLE * CL, full()) + half[r] : half[r], full());
        }
    }
}
// Of each pair of lanes whose numbers differ by D: its sum in `a` at the first, its sum in `b` at the second.
template <int D> INLINE fvec merge(fvec a, fvec b) {
    vec<i32, CL> own, other;
#pragma GCC unroll 16
    for (int i = 0; i < CL; ++i) own[i] = i & D ? CL + i : i, other[i] = own[i] ^ D;
    return __builtin_shuffle(a, b, own) + __builtin_shuffle(a, b, other);
}
// N columns, which would leave most of a vector idle: sums along the left operand's rows, which have to be contiguous.
template <int N> NOINLINE void column_products(const float* left, i64 line, int rows, const float (*columns)[chunk_depth], i64 depth, float* tile, bool add) {
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
        // Lane r: row r.
        fvec* const s = sum[n];
#pragma GCC unroll 4
        for (int r = 0; r < 8; r += 2) s[r] = merge<1>(s[r], s[r + 1]);
        s[0] = merge<2>(s[0], s[2]);
        if constexpr (CL > 4) s[0] = merge<4>(s[0], merge<2>(s[4], s[6]));
        if constexpr (CL > 8) s[0] = merge<8>(s[0], s[0]);
        for (int r = 0; r < rows; ++r) tile[r * panel + n] = add ? tile[r * panel + n] + s[0][r] : s[0][r];
    }
}
typedef void Columns(const float* left, i64 line, int rows, const float (*columns)[chunk_depth], i64 depth, float* tile, bool add);
static constexpr Columns* columns_for[few] = {column_products<1>, column_products<2>, column_products<3>, column_products<4>};
typedef void Tile(const float* left, i64 line, i64 step, i64 next, int rows, const float* right, const i32* places, i64 depth, float* tile, bool add);
static Tile* tile_for(int rows, int columns) {
    if (columns > panel - CL / 2) {
        if (rows <= 2) return tile_product<2, CV>;
        return rows <= 4 ? tile_product<4, CV> : tile_product<ROWS, CV>;
    }
    const int halves = (columns + CL / 2 - 1) / (CL / 2);
    switch (halves) {
        case 1: return tile_product<ROWS, 1, true>;
        case 2: return tile_product<ROWS, 1>;
        case 3: return tile_product<ROWS, 2, true>;
    }
    if constexpr (CV == 4)
        switch (halves) {
            case 4: return tile_product<ROWS, 2>;
            case 5: return tile_product<ROWS, 3, true>;
            case 6: return tile_product<ROWS, 3>;
            case 7: return tile_product<ROWS, 4, true>;
        }
    return tile_product<ROWS, CV>;
}

// ------------------------------------------------------------------ packing
// Neighbouring columns are neighbours in memory.
static void pack_lines(const float* p, i64 step, i64 depth, int columns, float* to) {
    for (i64 k = 0; k < depth; ++k, p += step, to += panel) {
        if (k + ahead < depth)
            for (int c = 0; c < columns; c += 16) __builtin_prefetch(p + ahead * step + c);
        for_lanes<CL>(0, columns, [&](i64 c, auto m) INLINE_LAMBDA { store<CL>(to + c, load<CL>(p + c, m), full()); });
    }
}
// Neighbouring elements of a column are.
static void pack_columns(const float* p, i64 line, i64 depth, int columns, float* to) {
    fvec tile[CL];
    for_lanes<CL>(0, columns, [&](i64 c, auto alive_columns) INLINE_LAMBDA {
        for_lanes<CL>(0, depth, [&](i64 k, auto alive_depth) INLINE_LAMBDA {
            load_tile<CL>(tile, p + c * line + k, line, alive_depth, alive_columns);
            for (int j = 0; j < alive(alive_depth, CL); ++j) store<CL>(to + (k + j) * panel + c, tile[j], full());
        });
    });
}
// Nothing is.
static void pack_elements(const float* p, i64 line, i64 step, i64 depth, int columns, float* to) {
    for (i64 k = 0; k < depth; ++k, to += panel)
        for (int c = 0; c < panel; ++c) to[c] = c < columns ? p[c * line + k * step] : 0.0f;
}
// The tile with rows and columns exchanged; `from` has lines of `panel`, `to` of `block`.
static void transpose_tile(const float* from, int rows, int columns, float* to) {
    fvec tile[CL];
    for (int r = 0; r < rows; r += CL)
        for (int c = 0; c < columns; c += CL) {
            load_tile<CL>(tile, from + r * panel + c, panel, full(), full());
#pragma GCC unroll 16
            for (int j = 0; j < CL; ++j) store<CL>(to + (c + j) * block + r, tile[j], full());
        }
}

// ------------------------------------------------------------------ windows
// One channel of an image as planes: padded, and its rows and columns dealt out by their classes modulo the stride, so that
// neighbouring windows see neighbours.
struct Planes {
    i64 height, width, each, channel;  // of a plane; its elements; those of all planes of a channel
};
static Planes planes_of(const Windows& w) {
    const i64 height = w.out_height + (w.kernel_h - 1) * w.dilation_h / w.stride_h;
    const i64 width = w.out_width + (w.kernel_w - 1) * w.dilation_w / w.stride_w;
    return {height, width, height * width, height * width * w.stride_h * w.stride_w};
}
// Whether a kernel's taps see that class of rows or columns.
static bool seen(i64 which, i64 taps, i64 stride, i64 dilation) {
    for (i64 k = 0; k < least(taps, stride); ++k)
        if (k * dilation % stride == which) return true;
    return false;
}
static void deal_planes(const Windows& w, const Planes& planes, const float* p, float* to) {
    for (i64 class_h = 0; class_h < w.stride_h; ++class_h)
        for (i64 class_w = 0; class_w < w.stride_w; ++class_w, to += planes.each) {
            if (!seen(class_h, w.kernel_h, w.stride_h, w.dilation_h) || !seen(class_w, w.kernel_w, w.stride_w, w.dilation_w)) continue;
            const i64 shift = class_w - w.pad_w, width = planes.width;
            const i64 first = least(shift >= 0 ? 0 : (-shift + w.stride_w - 1) / w.stride_w, width);
            const i64 last = least(width, (w.width - shift + w.stride_w - 1) / w.stride_w);
            for (i64 y = 0; y < planes.height; ++y) {
                const i64 in_y = y * w.stride_h + class_h - w.pad_h;
                const bool inside = in_y >= 0 && in_y < w.height && first < last;
                const i64 begin = inside ? first : width, end = inside ? last : width;
                float* const line = to + y * width;
                const float* const from = p + in_y * w.width + shift;
                for_lanes<CL>(0, begin, [&](i64 x, auto m) INLINE_LAMBDA { store<CL>(line + x, fvec{}, m); });
                if (w.stride_w == 1)
                    for_lanes<CL>(begin, end, [&](i64 x, auto m) INLINE_LAMBDA { store<CL>(line + x, load<CL>(from + x, m), m); });
                else if (w.stride_w == 2)
                    for_lanes<CL>(begin, end, [&](i64 x, auto m) INLINE_LAMBDA { store<CL>(line + x, load_every_other<CL>(from + 2 * x, m), m); });
                else
                    for (i64 x = begin; x < end; ++x) line[x] = from[x * w.stride_w];
                for_lanes<CL>(end, width, [&](i64 x, auto m) INLINE_LAMBDA { store<CL>(line + x, fvec{}, m); });
            }
        }
}
// Where a tap is in one direction, from one tap to the next: to divide for each would take longer than to copy what it sees.
struct Place {
    i64 plane, at;
};
struct Steps {
    i64 stride, planes, places;
    Steps(i64 dilation, i64 stride) : stride(stride), planes(dilation % stride), places(dilation / stride) {}
    Place next(Place p) const {
        const bool over = p.plane + planes >= stride;
        return {p.plane + planes - (over ? stride : 0), p.at + places + over};
    }
};
// Columns [begin, begin + columns): what the window sees at those places. Whole vectors are copied: what goes beyond a piece of
// a line is overwritten by the next copy, what goes beyond the panel is slack.
static void pack_windows(const Windows& w, const Planes& planes, i64 channels, const float* p, i64 begin, int columns, float* to) {
    int copies = 0, at[panel];
    i64 from[panel];
    for (int c = 0; c < columns;) {
        const i64 y = (begin + c) / w.out_width, x = (begin + c) % w.out_width;
        const int piece = (int)least(w.out_width - x, columns - c);
        for (int j = 0; j < piece; j += CL) at[copies] = c + j, from[copies++] = y * planes.width + x + j;
        c += piece;
    }
    const Steps down(w.dilation_h, w.stride_h), across(w.dilation_w, w.stride_w);
    for (i64 channel = 0; channel < channels; ++channel, p += planes.channel) {
        Place y{0, 0};
        for (i64 kh = 0; kh < w.kernel_h; ++kh, y = down.next(y)) {
            const float* const line = p + y.plane * w.stride_w * planes.each + y.at * planes.width;
            Place x{0, 0};
            for (i64 kw = 0; kw < w.kernel_w; ++kw, x = across.next(x), to += panel) {
                const float* const here = line + x.plane * planes.each + x.at;
                for (int i = 0; i < copies; ++i) store<CL>(to + at[i], load<CL>(here + from[i], full()), full());
            }
        }
    }
}

// Where the taps see the first window, for each channel.
static void list_taps(const Windows& w, const Planes& planes, i32* to) {
    const Steps down(w.dilation_h, w.stride_h), across(w.dilation_w, w.stride_w);
    for (i64 channel = 0; channel < w.channels; ++channel) {
        Place y{0, 0};
        for (i64 kh = 0; kh < w.kernel_h; ++kh, y = down.next(y)) {
            Place x{0, 0};
            for (i64 kw = 0; kw < w.kernel_w; ++kw, x = across.next(x))
                *to++ = (i32)(channel * planes.channel + (y.plane * w.stride_w + x.plane) * planes.each + y.at * planes.width + x.at);
        }
    }
}
// Lines of an image of which `width` of every `pitch` elements count.
struct Lines {
    i64 pitch, width;
    i64 before(i64 place) const { return place / pitch * width + least(place % pitch, width); }
    // Moves what counts of the places from `place` on together, in each row of a tile.
    void close_up(i64 place, int columns, int rows, float* tile) const {
        i64 to = 0;
        for (i64 from = 0; from < columns;) {
            const i64 x = (place + from) % pitch, some = least(width - x, columns - from);
            if (some > 0 && to < from)
                for (int r = 0; r < rows; ++r)
                    for_lanes<CL>(0, some, [&](i64 k, auto m) INLINE_LAMBDA {
                        float* const line = tile + r * panel + k;
                        store<CL>(line + to, load<CL>(line + from, m), m);
                    });
            to += some > 0 ? some : 0;
            from += least(pitch - x, columns - from);
        }
    }
};
// Whether windows are read where they are, those between the end of a line and the next too, whose sums are dropped. To pack
// takes as long as the products of some five rows.
static bool reads_planes(const Contraction& c, const Planes& planes) {
    const i64 idle = planes.width - c.windows.out_width;
    return idle * (2 * c.rows + 2) < 9 * c.windows.out_width && c.depth <= MAX_LISTED && c.windows.channels * planes.channel < 1l << 31;
}

// ------------------------------------------------------------------ the loops
LIBRARY PRODUCTS(const Contraction* contraction, Finish* finish, const void* context) {
    const Contraction& c = *contraction;
    const i64 batches = c.batches[0] * c.batches[1] * c.batches[2];
    const bool windows = c.right.depth == 0;
    const Planes planes = windows ? planes_of(c.windows) : Planes{};
    const bool direct = windows && reads_planes(c, planes);
    // Of results, and of dropped ones, side by side.
    const i64 places = direct ? c.windows.out_height * planes.width - planes.width + c.windows.out_width : c.columns;
    const i64 across = (places + panel - 1) / panel, panels = batches * across;
    // Deep operands are packed and used up piece by piece, if the sums that are kept meanwhile take less. Windows are cut between channels.
    const i64 taps = windows ? c.windows.kernel_h * c.windows.kernel_w : 1, chunk = chunk_depth < taps ? taps : chunk_depth / taps * taps;
    const i64 piece = chunk + c.rows <= c.depth && !direct ? chunk : c.depth;
    const i64 packed = piece * panel + CL, one = packed + (piece < c.depth ? c.rows * panel : 0);
    float* workspace = c.workspace;
    const float* const images = workspace;
    if (windows) {
        const i64 channels = c.windows.channels, total = batches * channels;
        parallel(total, 1, c.threads, [=, &c](i64 begin, i64 end, int) {
            for (i64 k = begin; k < end; ++k)
                deal_planes(c.windows, planes, c.right.p + at_batch(c, c.right, k / channels) + k % channels * c.windows.height * c.windows.width,
                            (float*)images + k * planes.channel);
        });
        workspace += total * planes.channel + 16;
    }
    const i32* const taps_at = direct ? (const i32*)workspace : packed_places.at;
    if (direct) list_taps(c.windows, planes, (i32*)workspace);
    const auto columns_of = [=](i64 p) { return (int)least(panel, places - p % across * panel); };
    const auto pack = [=, &c](i64 p, i64 k, i64 depth, float* to) {
        if (direct) return;
        const i64 batch = p / across, first = p % across * panel;
        const int columns = columns_of(p);
        if (windows)
            return pack_windows(c.windows, planes, depth / taps, images + (batch * c.windows.channels + k / taps) * planes.channel, first, columns, to);
        const float* from = c.right.p + at_batch(c, c.right, batch) + first * c.right.line + k * c.right.depth;
        if (c.right.line == 1) pack_lines(from, c.right.depth, depth, columns, to);
        else if (c.right.depth == 1) pack_columns(from, c.right.line, depth, columns, to);
        else pack_elements(from, c.right.line, c.right.depth, depth, columns, to);
    };
    // Rows [r0, r1) of a panel's products from k on; `right` is the packed panel, behind which sums that are not done yet are kept.
    const auto rows_of = [=, &c](i64 p, i64 r0, i64 r1, float* right, i64 k, i64 depth) {
        alignas(64) float whole[block * panel], turned[panel * block], column[few][chunk_depth];
        float* const tile = piece < c.depth ? right + packed + r0 * panel : whole;
        const i64 batch = p / across, place = p % across * panel;
        const int columns = columns_of(p), rows = (int)(r1 - r0);
        const Lines lines{planes.width, c.windows.out_width};
        const i64 c0 = direct ? lines.before(place) : place, c1 = direct ? lines.before(place + columns) : place + columns;
        const float* const image = images + batch * c.windows.channels * planes.channel + place;
        const float* const from = c.left.p + at_batch(c, c.left, batch) + r0 * c.left.line + k * c.left.depth;
        const int alone = !direct && columns % CL <= few && c.left.depth == 1 && c.depth >= 4 * CL ? columns % CL : 0;
        for (i64 done = 0; done < depth; done += chunk_depth) {
            const i64 now = least(chunk_depth, depth - done);
            const bool more = k + done > 0;
            for (int j = 0; j < alone; ++j)
                for (i64 i = 0; i < now; ++i) column[j][i] = right[(done + i) * panel + columns - alone + j];
            for (int r = 0; r < rows; r += ROWS) {
                const int alive_rows = rows - r < ROWS ? rows - r : ROWS;
                const float* const at = from + r * c.left.line + done * c.left.depth;
                if (c.result && !c.transposed && k + done + now >= c.depth)
                    for (int i = 0; i < alive_rows; ++i)
                        for (i64 j = c0; j < c1; j += fetched) __builtin_prefetch(c.result + batch * c.result_batch + (r0 + r + i) * c.result_line + j);
                // What this block reads next, or else the block that follows.
                const i64 next = r + ROWS < rows || done + now >= depth ? ROWS * c.left.line - (r + ROWS < rows ? 0 : done * c.left.depth) : now * c.left.depth - r * c.left.line;
                if (columns > alone) tile_for(alive_rows, columns - alone)(at, c.left.line, c.left.depth, next, alive_rows, direct ? image : right + done * panel, direct ? taps_at + done : taps_at, now, tile + r * panel, more);
                if (alone) columns_for[alone - 1](at, c.left.line, alive_rows, column, now, tile + r * panel + columns - alone, more);
            }
        }
        if (k + depth < c.depth) return;
        if (direct) lines.close_up(place, columns, rows, tile);
        if (c.transposed) {
            transpose_tile(tile, rows, columns, turned);
            finish(context, batch, c0, c1, r0, r1, turned, block);
        } else {
            finish(context, batch, r0, r1, c0, c1, tile, panel);
        }
    };
    // Each thread packs what it reads: to read a panel from the cache of another thread takes as long as the products of some fifty
    // rows, to pack it as long as those of five to ten.
    const int threads = c.threads < c.slots ? c.threads : c.slots;
    const auto products = [=, &c](i64 first, i64 last, i64 r0, i64 r1, int thread) {
        float* const mine = workspace + thread * one;
        for (i64 p = first; p < last; ++p)
            for (i64 k = 0; k < c.depth; k += piece) {
                const i64 depth = least(piece, c.depth - k);
                pack(p, k, depth, mine);
                for (i64 r = r0; r < r1; r += block) rows_of(p, r, least(r + block, r1), mine, k, depth);
            }
    };
    if (c.by_rows) parallel(c.rows, c.transposed ? CL : 2, threads, [=, &c](i64 begin, i64 end, int thread) { products(0, panels, begin, end, thread); });
    else parallel(panels, 1, threads, [=, &c](i64 begin, i64 end, int thread) { products(begin, end, 0, c.rows, thread); });
}
