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
// what the tile holds, of which only the `rows` are written. `places`: where in `right` each step of the depth is. `next`: how far the left operand's next rows are, to be fetched meanwhile; `beside`: how far what
// is read next of `right`, or 0.
template <int R, int V, bool HALF = false> NOINLINE void tile_product(const float* left, i64 line, i64 step, i64 next, int rows, const float* right, const i32* places, i64 beside, i64 depth, float* tile, bool add) {
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
                if (beside)
#pragma GCC unroll 4
                    for (int v = 0; v < V * CL; v += fetched) __builtin_prefetch(line + beside + v);
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
typedef void Tile(const float* left, i64 line, i64 step, i64 next, int rows, const float* right, const i32* places, i64 beside, i64 depth, float* tile, bool add);
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
// im2col of a strip of one channel of an image: it is padded and split into planes, one for each class of rows modulo the stride and for each
// class of columns, or for each of the kernel's columns (copies). So what one tap reads for neighbouring windows lies side by side; with copies
// for windows of two lines, too.
struct Planes {
    i64 across, down;   // so many, for columns and for rows
    i64 height, width;  // of one
    i64 each, channel;  // elements: of one, of all
    i64 shown;          // so many lines of windows see one
};
static Planes planes_of(const Windows& w) {
    // Of an image of one line a strip is part of it; of another it is some lines, the first and the last of which may be cut.
    const bool line = w.out_height == 1;
    const i64 lines = line ? 1 : least((w.strip + w.out_width - 2) / w.out_width + 1, w.out_height);
    const i64 height = lines + (w.kernel_h - 1) * w.dilation_h / w.stride_h, columns = line ? least(w.strip, w.out_width) : w.out_width;
    const i64 width = columns + (w.copies ? 0 : (w.kernel_w - 1) * w.dilation_w / w.stride_w), across = w.copies ? w.kernel_w : w.stride_w;
    return {across, w.stride_h, height, width, height * width, height * width * across * w.stride_h, lines};
}
// Whether a kernel's taps see that class of rows or columns.
static bool seen(i64 which, i64 taps, i64 stride, i64 dilation) {
    for (i64 k = 0; k < least(taps, stride); ++k)
        if (k * dilation % stride == which) return true;
    return false;
}
// Lines [y0, y0 + lines) of the planes of one channel, from column x0 on; behind the last plane there is slack for whole vectors.
static void im2col(const Windows& w, const Planes& planes, const float* image, i64 y0, i64 lines, i64 x0, float* to) {
    for (i64 down = 0; down < planes.down; ++down)
        for (i64 across = 0; across < planes.across; ++across, to += planes.each) {
            if (!seen(down, w.kernel_h, w.stride_h, w.dilation_h) || !w.copies && !seen(across, w.kernel_w, w.stride_w, w.dilation_w)) continue;
            // Where column 0 is in the image.
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
// Where a tap is in one direction, from one tap to the next.
struct Place {
    i64 plane, at;
};
struct Steps {
    i64 count, planes, places;  // how many planes there are; to the next tap
    Steps(i64 dilation, i64 stride) : count(stride), planes(dilation % stride), places(dilation / stride) {}
    Place next(Place p) const {
        const bool over = p.plane + planes >= count;
        return {p.plane + planes - (over ? count : 0), p.at + places + over};
    }
};
// Where the taps see the first window, for each channel.
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
// Lines of an image of which `width` of every `pitch` elements count.
struct Lines {
    i64 pitch, width;
    i64 before(i64 place) const { return place / pitch * width + least(place % pitch, width); }
    // Moves what counts of the places from `place` on together, in each row of a tile.
    void close_up(i64 place, int columns, int rows, float* tile) const {
        if (pitch == width) return;
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

// ------------------------------------------------------------------ work sharing
// Of calls whose sizes no compile knew; scheduler/threads.py says what is counted, and decides for all others.
constexpr i64 widest_lanes = 16, widest_panel = 64;  // as there, whatever vectors are here
static i64 units(i64 n, i64 unit) { return (n + unit - 1) / unit; }
static bool is_direct(const Contraction& c) {
    const i64 beyond = c.columns % widest_lanes, few_rows = ROWS;
    const bool alone = beyond && beyond <= few && c.left.depth == 1 && c.depth >= 4 * widest_lanes;
    if (c.right.line != 1 || (beyond && !alone) || c.depth * c.right.depth >= (i64)1 << 31) return false;
    // What is read once need not stay in a cache.
    if (c.rows <= few_rows) return true;
    constexpr i64 caches[2][2] = {{4 << 10, 64}, {128 << 10, 4}};
    for (const auto& cache : caches) {
        i64 a = cache[0], b = c.right.depth * 4;
        while (b) { const i64 rest = a % b; a = b, b = rest; }
        if (least(c.depth, chunk_depth) > cache[0] / a * cache[1]) return false;
    }
    return true;
}
static double share_of_panels(const Contraction& c, i64 threads, double left) {
    const i64 across = units(c.columns, widest_panel), panels = across * c.batches[0] * c.batches[1] * c.batches[2];
    const i64 whole = widest_panel / widest_lanes, last = units(c.columns - (across - 1) * widest_panel, widest_lanes), line = (across - 1) * whole + last;
    const double cost = left > (2 << 20) && panels > 1 ? 1.05 : 1.0;
    if (panels > 64 * threads) return cost / threads;
    const auto before = [=](i64 p) { return p / across * line + p % across * whole; };
    i64 most = 0;
    for (i64 t = 0; t < threads; ++t) {
        const i64 own = before(panels * (t + 1) / threads) - before(panels * t / threads);
        if (own > most) most = own;
    }
    return cost * most / (line * (panels / across));
}
static double share_of_rows(const Contraction& c, i64 threads, double left, double packing) {
    const i64 unit = c.transposed ? widest_lanes : 2;
    const double cost = left > (2 << 20) * (double)threads ? 1.05 : 1.0;
    return cost * (least(units(units(c.rows, unit), threads) * unit, c.rows) + packing) / (c.rows + packing);
}
static void decide(Contraction& c) {
    const i64 threads = c.slots;
    const double left = c.left.batch[0] || c.left.batch[1] || c.left.batch[2] ? 0 : (double)c.rows * c.depth * 4;
    double packing = c.packing, foreign = 1.0;
    const bool windows = c.windows.channels > 0;
    if (!windows) {
        c.direct = is_direct(c);
        packing = c.direct ? 0 : c.right.line == 1 ? 3 : 8;
        foreign = c.direct && threads > 1 && c.columns <= 4096 ? 1.06 : 1.0;
    }
    c.by_rows = share_of_rows(c, threads, left, packing) < share_of_panels(c, threads, left) * foreign;
    if (!windows && !c.direct) {
        c.kept = chunk_depth + c.rows <= c.depth && chunk_depth < c.depth ? c.rows : 0;
        if (c.by_rows) c.kept = units(units(c.kept, threads), widest_lanes) * widest_lanes;
    }
}

// ------------------------------------------------------------------ the loops
LIBRARY PRODUCTS(const Contraction* contraction, Epilogue* epilogue, const void* context) {
    Contraction own;
    const bool none = contraction->rows <= 0 || contraction->columns <= 0 || contraction->batches[0] * contraction->batches[1] * contraction->batches[2] <= 0;
    if (none) return;
    if (!contraction->decided) {
        own = *contraction;
        decide(own);
        contraction = &own;
    }
    const Contraction& c = *contraction;
    const Windows& w = c.windows;
    const i64 batches = c.batches[0] * c.batches[1] * c.batches[2];
    const bool windows = w.channels > 0;
    const Planes planes = windows ? planes_of(w) : Planes{};
    // Columns side by side: of windows in lines of `pitch`, of which some may be beyond the results', computed and dropped.
    const bool lines = windows && w.out_height > 1;
    const i64 pitch = lines ? planes.width : c.columns, width = lines ? w.out_width : c.columns;
    const i64 places = lines ? w.out_height * pitch - pitch + width : c.columns;
    const i64 across = (places + panel - 1) / panel, panels = batches * across;
    // Deep operands are packed and used up piece by piece, if the sums that are kept meanwhile take less.
    const bool listed = windows || c.direct;
    const i64 piece = !listed && chunk_depth + c.rows <= c.depth ? chunk_depth : c.depth;
    const i64 packed = piece * panel + CL;
    const auto columns_of = [=](i64 p) { return (int)least(panel, places - p % across * panel); };
    // What a thread works with: where it packs or fills planes, where the panel begins, and where its steps of the depth are.
    struct Right {
        float* room;
        const float* panel;
        const i32* steps;
        i64 kept;  // the first row whose sums are kept
    };
    const auto pack = [=, &c](i64 p, i64 k, i64 depth, float* to) {
        const i64 first = p % across * panel;
        const int columns = columns_of(p);
        const float* from = c.right.p + at_batch(c, c.right, p / across) + first * c.right.line + k * c.right.depth;
        if (c.right.line == 1) pack_lines(from, c.right.depth, depth, columns, to);
        else if (c.right.depth == 1) pack_columns(from, c.right.line, depth, columns, to);
        else pack_elements(from, c.right.line, c.right.depth, depth, columns, to);
    };
    // Rows [r0, r1) of a panel's products from k on; `first`: the first ones that this thread computes. Sums that are not done yet are kept behind what is packed.
    const auto rows_of = [=, &c](i64 p, i64 r0, i64 r1, bool first, const Right& right, i64 k, i64 depth) {
        alignas(64) float whole[block * panel], turned[panel * block], column[few][chunk_depth];
        float* const tile = piece < c.depth ? right.room + packed + (r0 - right.kept) * panel : whole;
        const i64 batch = p / across, place = p % across * panel;
        const int columns = columns_of(p), rows = (int)(r1 - r0);
        const Lines kept{pitch, width};
        const i64 c0 = kept.before(place), c1 = kept.before(place + columns);
        const float* const from = c.left.p + at_batch(c, c.left, batch) + r0 * c.left.line + k * c.left.depth;
        const int alone = pitch == width && columns % CL <= few && c.left.depth == 1 && c.depth >= 4 * CL ? columns % CL : 0;
        for (i64 done = 0; done < depth; done += chunk_depth) {
            const i64 now = least(chunk_depth, depth - done);
            const bool more = k + done > 0;
            // Packed steps are listed up to chunk_depth only.
            const float* const base = listed ? right.panel : right.panel + done * panel;
            const i32* const steps = listed ? right.steps + done : right.steps;
            for (int j = 0; j < alone; ++j)
                for (i64 i = 0; i < now; ++i) column[j][i] = base[steps[i] + columns - alone + j];
            for (int r = 0; r < rows; r += ROWS) {
                const int alive_rows = rows - r < ROWS ? rows - r : ROWS;
                const float* const at = from + r * c.left.line + done * c.left.depth;
                if (c.result && !c.transposed && k + done + now >= c.depth)
                    for (int i = 0; i < alive_rows; ++i)
                        for (i64 j = c0; j < c1; j += fetched) __builtin_prefetch(c.result + batch * c.result_batch + (r0 + r + i) * c.result_line + j);
                // What this block reads next, or else the block that follows.
                const i64 next = r + ROWS < rows || done + now >= depth ? ROWS * c.left.line - (r + ROWS < rows ? 0 : done * c.left.depth) : now * c.left.depth - r * c.left.line;
                if (columns > alone) tile_for(alive_rows, columns - alone)(at, c.left.line, c.left.depth, next, alive_rows, base, steps, listed && r == 0 && first ? panel : 0, now, tile + r * panel, more);
                if (alone) columns_for[alone - 1](at, c.left.line, alive_rows, column, now, tile + r * panel + columns - alone, more);
            }
        }
        if (k + depth < c.depth) return;
        kept.close_up(place, columns, rows, tile);
        if (c.transposed) {
            transpose_tile(tile, rows, columns, turned);
            epilogue(context, batch, c0, c1, r0, r1, turned, block);
        } else {
            epilogue(context, batch, r0, r1, c0, c1, tile, panel);
        }
    };
    // Panels [first, last) of one batch, which is a strip at most, from its planes.
    const auto strip = [=, &c, &w](i64 first, i64 last, i64 r0, i64 r1, float* room, const i32* taps) {
        const i64 begin = first % across * panel, end = least(begin + (last - first) * panel, places), batch = first / across;
        const i64 y0 = lines ? begin / pitch : 0, y1 = lines ? (end - 1) / pitch + 1 : 1, x0 = lines ? 0 : begin;
        const i64 height = least(y1, w.out_height) - y0 + planes.height - planes.shown;
        const float* const images = c.right.p + at_batch(c, c.right, batch);
        for (i64 channel = 0; channel < w.channels; ++channel)
            im2col(w, planes, images + channel * w.height * w.width, y0, height, x0, room + channel * planes.channel);
        for (i64 p = first; p < last; ++p) {
            const Right right{room, room + (p % across * panel - y0 * pitch - x0), taps, 0};
            for (i64 r = r0; r < r1; r += block) rows_of(p, r, least(r + block, r1), r == r0, right, 0, c.depth);
        }
    };
    // Each thread packs its panels or fills its planes: to read that from the cache of another thread takes as long as the products of some fifty
    // rows, to pack it as long as those of five to ten.
    const auto products = [=, &c, &w](i64 first, i64 last, i64 r0, i64 r1, int thread) {
        float* const room = c.workspace + thread * c.slot;
        i32* const steps = (i32*)room;
        if (windows) {
            list_taps(w, planes, steps);
            for (i64 p = first, end; p < last; p = end) {
                end = least(least(last, p + w.strip / panel), (p / across + 1) * across);
                strip(p, end, r0, r1, room + (c.depth + CL - 1) / CL * CL, steps);
            }
            return;
        }
        if (c.direct) {
            for (i64 k = 0; k < c.depth; ++k) steps[k] = (i32)(k * c.right.depth);
            for (i64 p = first; p < last; ++p)
                for (i64 r = r0; r < r1; r += block)
                    rows_of(p, r, least(r + block, r1), r == r0, {room, c.right.p + at_batch(c, c.right, p / across) + p % across * panel, steps, 0}, 0, c.depth);
            return;
        }
        const i64 kept = piece < c.depth ? c.kept : c.rows;
        for (i64 p = first; p < last; ++p)
            for (i64 begin = r0; begin < r1; begin += kept)
                for (i64 k = 0; k < c.depth; k += piece) {
                    const i64 depth = least(piece, c.depth - k), end = least(begin + kept, r1);
                    pack(p, k, depth, room);
                    for (i64 r = begin; r < end; r += block) rows_of(p, r, least(r + block, end), false, {room, room, packed_places.at, begin}, k, depth);
                }
    };
    const int threads = c.threads < c.slots ? c.threads : c.slots;
    if (c.by_rows) parallel(c.rows, c.transposed ? CL : 2, threads, [=, &c](i64 begin, i64 end, int thread) { products(0, panels, begin, end, thread); }, *c.seen, *c.pause);
    else parallel(panels, 1, threads, [=, &c](i64 begin, i64 end, int thread) { products(begin, end, 0, c.rows, thread); }, *c.seen, *c.pause);
}
