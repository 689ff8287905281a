// Sums of products: result[r][c] = sum over k of left(r, k) * right(k, c).
//
// Columns of the right operand are packed in panels of `panel` columns, [k][column], so that the innermost loop reads them in
// order; the left operand stays where it is, one element at a time spread over a vector. A tile of ROWS x panel results is
// held in registers while k runs. Tiles of a block of rows go to `finish`, which computes what is fused behind and stores.
// This is the scheme of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, 2008) with the left operand
// unpacked: its rows are read as streams, once. No result depends on how many threads there are.
#if defined(__AVX512F__)
constexpr int CL = 16, CV = 4, ROWS = 6;
#elif defined(__AVX2__)
constexpr int CL = 8, CV = 2, ROWS = 6;
#else
constexpr int CL = 4, CV = 2, ROWS = 4;
#endif
constexpr int panel = CL * CV;
constexpr i64 block = 48;         // rows of a block: a multiple of ROWS and of CL
constexpr i64 chunk_depth = 1024;  // so much of a panel stays in the second cache
constexpr i64 chain = 256;         // so many products are added up one after the other: longer sums are sums of sums
typedef vec<float, CL> fvec;
#define INLINE_LAMBDA __attribute__((always_inline))

struct Product {
    i64 batches, rows, columns, depth;
    i64 row, step;  // strides of the left operand
};

// rows <= ROWS; those beyond are computed again from the last. `add`: to what the tile holds.
template <int V> NOINLINE void tile_product(const float* left, i64 row, i64 step, int rows, const float* right, i64 depth, float* tile, bool add) {
    const float* line[ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) line[r] = left + (r < rows ? r : rows - 1) * row;
    for (i64 from = 0; from < depth; from += chain) {
        const i64 to = least(from + chain, depth);
        fvec sum[ROWS][V];
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) sum[r][v] = fvec{};
        for (i64 k = from, at = from * step; k < to; ++k, at += step) {
            fvec x[V];
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) x[v] = load<CL>(right + k * panel + v * CL, full());
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; ++r) {
                const fvec w = bc<CL>(line[r][at]);
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v) sum[r][v] = fma_(w, x[v], sum[r][v]);
            }
        }
        const bool more = add || from > 0;
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) {
                float* const p = tile + r * panel + v * CL;
                store<CL>(p, more ? load<CL>(p, full()) + sum[r][v] : sum[r][v], full());
            }
    }
}

// ------------------------------------------------------------------ packing
// Neighbouring columns are neighbours in memory.
static NOINLINE void pack_lines(const float* p, i64 step, i64 depth, int columns, float* to) {
    for (i64 k = 0; k < depth; ++k, p += step, to += panel)
        for_lanes<CL>(0, columns, [&](i64 c, auto m) INLINE_LAMBDA { store<CL>(to + c, load<CL>(p + c, m), full()); });
}
// Neighbouring elements of a column are.
static NOINLINE void pack_columns(const float* p, i64 line, i64 depth, int columns, float* to) {
    fvec tile[CL];
    for_lanes<CL>(0, columns, [&](i64 c, auto alive_columns) INLINE_LAMBDA {
        for_lanes<CL>(0, depth, [&](i64 k, auto alive_depth) INLINE_LAMBDA {
            load_tile<CL>(tile, p + c * line + k, line, alive_depth, alive_columns);
            for (int j = 0; j < alive(alive_depth, CL); ++j) store<CL>(to + (k + j) * panel + c, tile[j], full());
        });
    });
}
// The tile with rows and columns exchanged; `from` has lines of `panel`, `to` of `block`.
static NOINLINE void transpose_tile(const float* from, int rows, int columns, float* to) {
    fvec tile[CL];
    for (int r = 0; r < rows; r += CL)
        for (int c = 0; c < columns; c += CL) {
            load_tile<CL>(tile, from + r * panel + c, panel, full(), full());
#pragma GCC unroll 16
            for (int j = 0; j < CL; ++j) store<CL>(to + (c + j) * block + r, tile[j], full());
        }
}

struct Windows {
    i64 channels, height, width, out_height, out_width, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    INLINE i64 plane_height() const { return out_height + (kernel_h - 1) * dilation_h / stride_h; }
    INLINE i64 plane_width() const { return out_width + (kernel_w - 1) * dilation_w / stride_w; }
    INLINE i64 plane() const { return plane_height() * plane_width(); }
};
// One channel of the input as planes: padded, and its rows and columns dealt out by their classes modulo the stride.
static NOINLINE void deal_planes(const Windows& w, const float* p, float* to) {
    const i64 rows = w.plane_height(), columns = w.plane_width();
    for (i64 class_h = 0; class_h < w.stride_h; ++class_h)
        for (i64 class_w = 0; class_w < w.stride_w; ++class_w)
            for (i64 y = 0; y < rows; ++y, to += columns) {
                const i64 in_y = y * w.stride_h + class_h - w.pad_h;
                if (in_y < 0 || in_y >= w.height) {
                    for (i64 x = 0; x < columns; ++x) to[x] = 0;
                    continue;
                }
                const float* line = p + in_y * w.width;
                const i64 shift = class_w - w.pad_w;
                const i64 first = shift >= 0 ? 0 : (-shift + w.stride_w - 1) / w.stride_w;
                const i64 last = least(columns, (w.width - shift + w.stride_w - 1) / w.stride_w);
                i64 x = 0;
                for (; x < least(first, columns); ++x) to[x] = 0;
                if (w.stride_w == 1)
                    for (; x < last; ++x) to[x] = line[x + shift];
                else
                    for (; x < last; ++x) to[x] = line[x * w.stride_w + shift];
                for (; x < columns; ++x) to[x] = 0;
            }
}
// Columns [begin, begin + columns): what the kernel sees at those places. Whole vectors are copied: what goes beyond a piece of
// a line is overwritten by the next, what goes beyond the panel is slack.
static NOINLINE void pack_windows(const Windows& w, const float* planes, i64 begin, int columns, float* to) {
    int at[panel + 1];
    i64 from[panel];
    int pieces = 0;
    const i64 pitch = w.plane_width(), plane = w.plane();
    for (int c = 0; c < columns;) {
        const i64 y = (begin + c) / w.out_width, x = (begin + c) % w.out_width;
        at[pieces] = c;
        from[pieces++] = y * pitch + x;
        c += (int)least(w.out_width - x, columns - c);
    }
    at[pieces] = columns;
    for (i64 ch = 0; ch < w.channels; ++ch, planes += w.stride_h * w.stride_w * plane)
        for (i64 kh = 0; kh < w.kernel_h; ++kh)
            for (i64 kw = 0; kw < w.kernel_w; ++kw, to += panel) {
                const i64 y = kh * w.dilation_h, x = kw * w.dilation_w;
                const float* p = planes + (y % w.stride_h * w.stride_w + x % w.stride_w) * plane + y / w.stride_h * pitch + x / w.stride_w;
                for (int i = 0; i < pieces; ++i)
                    for (int c = at[i], j = 0; c < at[i + 1]; c += CL, j += CL) store<CL>(to + c, load<CL>(p + from[i] + j, full()), full());
            }
}

// ------------------------------------------------------------------ the loops
// TAIL: vectors of the last panel. `share`: whether the panels are packed once, for all threads, before the rows are shared out;
// otherwise the panels are shared out. `workspace`: of (share ? all panels : slots) * (depth * panel + CL) elements.
// left(batch) is where the left operand begins; pack(batch, first column, columns, to); finish(batch, rows, columns, tile, line).
template <int TAIL, bool share, bool transposed, class Left, class Pack, class Finish>
INLINE void contract(const Product& s, int threads, int slots, float* workspace, Left left, Pack pack, Finish finish) {
    const i64 across = (s.columns + panel - 1) / panel, panels = s.batches * across, one = s.depth * panel + CL;
    const i64 blocks = (s.rows + block - 1) / block;
    const auto columns_of = [=](i64 p) INLINE_LAMBDA { return (int)least(panel, s.columns - p % across * panel); };
    const auto rows_of = [=](i64 p, i64 b, const float* right) NOINLINE {
        alignas(64) float tile[block * panel];
        alignas(64) float turned[transposed ? panel * block : 1];
        const i64 batch = p / across, c0 = p % across * panel, r0 = b * block;
        const int columns = columns_of(p), rows = (int)least(block, s.rows - r0);
        const float* from = left(batch) + r0 * s.row;
        for (i64 k = 0; k < s.depth; k += chunk_depth)
            for (int r = 0; r < rows; r += ROWS) {
                const i64 depth = least(chunk_depth, s.depth - k);
                const float* here = from + r * s.row + k * s.step;
                const int alive_rows = rows - r < ROWS ? rows - r : ROWS;
                if (TAIL == CV || columns > TAIL * CL) tile_product<CV>(here, s.row, s.step, alive_rows, right + k * panel, depth, tile + r * panel, k > 0);
                else tile_product<TAIL>(here, s.row, s.step, alive_rows, right + k * panel, depth, tile + r * panel, k > 0);
            }
        if (transposed) {
            transpose_tile(tile, rows, columns, turned);
            finish(batch, c0, c0 + columns, r0, r0 + rows, turned, block);
        } else {
            finish(batch, r0, r0 + rows, c0, c0 + columns, tile, (i64)panel);
        }
    };
    if (share) {
        parallel(panels, 1, threads, [=](i64 begin, i64 end, int) NOINLINE {
            for (i64 p = begin; p < end; ++p) pack(p / across, p % across * panel, columns_of(p), workspace + p * one);
        });
        parallel(blocks, 1, threads, [=](i64 begin, i64 end, int) NOINLINE {
            for (i64 b = begin; b < end; ++b)
                for (i64 p = 0; p < panels; ++p) rows_of(p, b, workspace + p * one);
        });
    } else {
        parallel(panels, 1, threads < slots ? threads : slots, [=](i64 begin, i64 end, int thread) NOINLINE {
            float* const mine = workspace + thread * one;
            for (i64 p = begin; p < end; ++p) {
                pack(p / across, p % across * panel, columns_of(p), mine);
                for (i64 b = 0; b < blocks; ++b) rows_of(p, b, mine);
            }
        });
    }
}
