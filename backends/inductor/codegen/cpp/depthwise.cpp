// Depthwise convolutions: every row of the contraction (a channel of the result) sees one channel of the image, through a kernel of its own.
//
// A strip of the image is padded into a scratch plane that stays in the L1 cache, its columns split by their classes modulo the stride, so that every tap
// of the kernel reads contiguous vectors. Where masked loads cost nothing, the image is read in place instead. Seven lines of results are held in
// registers: a line of the plane is read once for all of them that see it. Every result adds its products in the same order, at any position.
//
// In these functions rows and columns are those of the image of results, except for the rows of the Contraction, which are channels.
constexpr int RESULTS = 7;  // lines of results at a time: sizes of images are multiples of 7 more often than of 8
constexpr int MAX_KERNEL_WIDTH = 256, MAX_TILE = 8192;  // as in ir/contraction.py
// Keeps a loaded vector in a register: GCC would load it again for each of its uses, and an unaligned load costs as much as two products.
#if defined(__AVX512F__) && !defined(WIDEST_REGISTER)
#define IN_REGISTER(v) asm("" : "+v"(v))
#elif defined(__x86_64__) && !defined(WIDEST_REGISTER)
#define IN_REGISTER(v) asm("" : "+x"(v))
#else
#define IN_REGISTER(v)
#endif
// The vectors that one column of a kernel reads, one in each line: the address of the current one, and a mask of its lanes that are in the image.
struct Column {
    const float* p;
    u32 lanes;
};
// A padded scratch plane.
struct Plane {
    const float* p;
    i64 pitch;          // elements from one line of the image to the next
    const i64* column;  // for each of the kernel's columns, the offset in a line at which it reads for column 0 of the results
    INLINE Column at(int kw, i64 x) const { return {p + column[kw] + x, 0}; }
    template <int L> INLINE vec<float, L> line(int, const Column& c) const { return load<L>(c.p, full()); }
};
// An image that is read in place: lines [first, last) and columns [begin, end), counted from `p`, are in it, the others are padding. `pitch`: elements from
// line to line.
struct Image {
    const float* p;
    i64 pitch, first, last, begin, end, dilation_w;
    INLINE Column at(int kw, i64 x) const {
        const i64 at = x + kw * dilation_w;
        return {p + at, Lanes(begin - at, end - at).mask()};
    }
    template <int L> INLINE vec<float, L> line(int r, const Column& c) const {
        vec<float, L> v{};
        if (r >= first && r < last) v = load_within<L>(c.p, c.lanes);
        return v;
    }
};

// Computes `rows` <= RESULTS rows and L columns of results, from column x on; rows of `out` are `pitch` apart. The kernel is KH x `width`, S is the vertical
// stride, and the vertical dilation is 1.
template <int KH, int S, int L, class Source>
INLINE void depthwise_columns(const Source& source, const float* filter, int width, i64 x, float* out, i64 pitch, int rows) {
    vec<float, L> sum[RESULTS];
#pragma GCC unroll 8
    for (int i = 0; i < RESULTS; ++i) sum[i] = vec<float, L>{};
    for (int kw = 0; kw < width; ++kw) {
        Column column = source.at(kw, x);
        vec<float, L> w[KH];
#pragma GCC unroll 8
        for (int kh = 0; kh < KH; ++kh) w[kh] = bc<L>(filter[kh * width + kw]);
#pragma GCC unroll 24
        for (int r = 0; r < (RESULTS - 1) * S + KH; ++r, column.p += source.pitch) {
            auto line = source.template line<L>(r, column);
            IN_REGISTER(line);
#pragma GCC unroll 8
            for (int kh = 0; kh < KH; ++kh)
                if (r >= kh && (r - kh) % S == 0 && (r - kh) / S < RESULTS) sum[(r - kh) / S] = fma_(w[kh], line, sum[(r - kh) / S]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < RESULTS; ++i)
        if (i < rows) store<L>(out + i * pitch + x, sum[i], full());
}
// The same for an image that is read in place with stride 2: two neighboring taps read every other element of the same vectors.
template <int KH, int L> INLINE void depthwise_halved_columns(const Image& image, const float* filter, int width, i64 x, float* out, i64 pitch, int rows) {
    vec<float, L> sum[RESULTS];
    vec<i32, L> even, odd;
#pragma GCC unroll 8
    for (int i = 0; i < RESULTS; ++i) sum[i] = vec<float, L>{};
    for (int k = 0; k < L; ++k) even[k] = 2 * k, odd[k] = 2 * k + 1;
    for (int kw = 0; kw < width; kw += 2) {
        const bool both = kw + 1 < width;
        const i64 at = 2 * x + kw;
        const u32 first = Lanes(image.begin - at, image.end - at).mask(), second = Lanes(image.begin - at - L, image.end - at - L).mask();
        const float* p = image.p + at;
        vec<float, L> w[KH], v[KH];
#pragma GCC unroll 8
        for (int kh = 0; kh < KH; ++kh) w[kh] = bc<L>(filter[kh * width + kw]), v[kh] = bc<L>(both ? filter[kh * width + kw + 1] : 0.0f);
#pragma GCC unroll 24
        for (int r = 0; r < 2 * (RESULTS - 1) + KH; ++r, p += image.pitch) {
            vec<float, L> a{}, b{};
            if (r >= image.first && r < image.last) a = load_within<L>(p, first), b = load_within<L>(p + L, second);
            auto line = __builtin_shuffle(a, b, even);
            IN_REGISTER(line);
#pragma GCC unroll 8
            for (int kh = 0; kh < KH; ++kh)
                if (r >= kh && (r - kh) % 2 == 0 && (r - kh) / 2 < RESULTS) sum[(r - kh) / 2] = fma_(w[kh], line, sum[(r - kh) / 2]);
            if (both) {
                line = __builtin_shuffle(a, b, odd);
                IN_REGISTER(line);
#pragma GCC unroll 8
                for (int kh = 0; kh < KH; ++kh)
                    if (r >= kh && (r - kh) % 2 == 0 && (r - kh) / 2 < RESULTS) sum[(r - kh) / 2] = fma_(v[kh], line, sum[(r - kh) / 2]);
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < RESULTS; ++i)
        if (i < rows) store<L>(out + i * pitch + x, sum[i], full());
}
template <int KH, int S, int L, class Source>
INLINE void depthwise_block(const Source& source, const float* filter, int width, i64 x, float* out, i64 pitch, int rows) {
    if constexpr (S == 2 && __is_same_as(Source, Image)) depthwise_halved_columns<KH, L>(source, filter, width, x, out, pitch, rows);
    else depthwise_columns<KH, S, L>(source, filter, width, x, out, pitch, rows);
}
template <class Source, int KH, int S>
NOINLINE void depthwise_rows(const Source& source, const float* filter, int width, float* out, i64 pitch, int rows, int columns) {
    // Whole vectors are stored: what exceeds a row is overwritten by the next one's first columns, so the last columns are computed first.
    i64 x = columns / CL * CL;
    if (columns - x > CL / 2) depthwise_block<KH, S, CL>(source, filter, width, x, out, pitch, rows);
    else if (columns > x) depthwise_block<KH, S, CL / 2>(source, filter, width, x, out, pitch, rows);
    while (x > 0) depthwise_block<KH, S, CL>(source, filter, width, x -= CL, out, pitch, rows);
}
// The functions for an image that is read in place, and for a padded plane; null if there is none for the kernel.
template <class Source> using DepthwiseRows = void(const Source& source, const float* filter, int width, float* out, i64 pitch, int rows, int columns);
static DepthwiseRows<Image>* depthwise_image_for(const Windows& w) {
#if MASKED_LOADS
    if (w.dilation_h != 1 || w.tile_rows < RESULTS / 2 || w.stride_h != w.stride_w) return nullptr;
    if (w.stride_h == 1) {
        if (w.kernel_h == 3) return depthwise_rows<Image, 3, 1>;
        if (w.kernel_h == 5) return depthwise_rows<Image, 5, 1>;
        if (w.kernel_h == 7) return depthwise_rows<Image, 7, 1>;
    } else if (w.stride_h == 2 && w.dilation_w == 1) {
        if (w.kernel_h == 3) return depthwise_rows<Image, 3, 2>;
        if (w.kernel_h == 5) return depthwise_rows<Image, 5, 2>;
    }
#endif
    return nullptr;
}
static DepthwiseRows<Plane>* depthwise_for(const Windows& w) {
    if (w.dilation_h != 1 || w.tile_rows < RESULTS / 2) return nullptr;
    if (w.kernel_h == 3 && w.stride_h == 1) return depthwise_rows<Plane, 3, 1>;
    if (w.kernel_h == 3 && w.stride_h == 2) return depthwise_rows<Plane, 3, 2>;
    if (w.kernel_h == 5 && w.stride_h == 1) return depthwise_rows<Plane, 5, 1>;
    if (w.kernel_h == 5 && w.stride_h == 2) return depthwise_rows<Plane, 5, 2>;
    if (w.kernel_h == 7 && w.stride_h == 1) return depthwise_rows<Plane, 7, 1>;
    return nullptr;
}
// Computes V vectors of one row of results, from column x on, for any kernel; `columns`: number of results to store.
template <int V> INLINE void depthwise_line(const Windows& w, const Plane& plane, const float* filter, i64 x, float* out, int columns) {
    fvec sum[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[v] = fvec{};
    for (i64 kh = 0; kh < w.kernel_h; ++kh)
        for (i64 kw = 0; kw < w.kernel_w; ++kw) {
            const fvec factor = bc<CL>(filter[kh * w.kernel_w + kw]);
            const float* const p = plane.p + kh * w.dilation_h * plane.pitch + plane.column[kw] + x;
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) sum[v] = fma_(factor, load<CL>(p + v * CL, full()), sum[v]);
        }
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
        if (columns >= (v + 1) * CL) store<CL>(out + x + v * CL, sum[v], full());
        else store<CL>(out + x + v * CL, sum[v], columns - v * CL);
    }
}
// Fills a plane with lines [first, first + lines) of the padded image, from column `left` on; `width`: elements of each class of columns, a multiple of CL;
// `inner`: whether the lines that are all padding hold zeros already.
static void fill_plane(const Windows& w, const float* image, i64 first, i64 lines, i64 left, i64 width, float* to, bool inner) {
    left -= w.pad_w;
    const i64 pitch = w.stride_w * width;
    const SplitLines split(-left, w.width - left, w.stride_w, width);
    for (i64 y = first - w.pad_h; y < first - w.pad_h + lines; ++y, to += pitch) {
        if (y >= 0 && y < w.height) split.copy<true>(image + y * w.width + left, to);
        else if (!inner) split.clear(pitch, to);
    }
}

LIBRARY DEPTHWISE(const Contraction* contraction, Epilogue* epilogue, const void* context) {
    const Contraction& c = *contraction;
    const Windows& w = c.windows;
    const i64 across = (w.out_width + w.tile_columns - 1) / w.tile_columns, down = (w.out_height + w.tile_rows - 1) / w.tile_rows;
    const i64 tiles = across * down, batches = c.batches[0] * c.batches[1] * c.batches[2];
    const i64 pad_size = w.scratch / w.several;
    i64 columns[MAX_KERNEL_WIDTH];
    const i64 width = (w.tile_columns + (w.kernel_w - 1) * w.dilation_w / w.stride_w + CL - 1) / CL * CL;
    for (i64 kw = 0; kw < w.kernel_w; ++kw) columns[kw] = kw * w.dilation_w % w.stride_w * width + kw * w.dilation_w / w.stride_w;
    DepthwiseRows<Plane>* const rows_at_once = depthwise_for(w);
    DepthwiseRows<Image>* const image_rows = depthwise_image_for(w);
    const i64* const column = columns;
    parallel(batches * c.rows * tiles, 1, c.threads < c.slots ? c.threads : c.slots, c.work, [=, &c, &w](i64 begin, i64 end, int thread) {
        float* const scratch = c.workspace + thread * w.scratch;
        alignas(64) float tile[MAX_TILE];
        const i64 pitch = w.stride_w * width;
        i64 padded = 0;  // number of planes in which the lines of padding above and below a whole image are zeros already
        for (i64 at = begin; at < end;) {
            const i64 place = at % tiles, row = at / tiles % c.rows, batch = at / tiles / c.rows;
            const i64 y0 = place / across * w.tile_rows, y1 = least(y0 + w.tile_rows, w.out_height);
            const i64 x0 = place % across * w.tile_columns, x1 = least(x0 + w.tile_columns, w.out_width);
            const i64 count = tiles > 1 ? 1 : least(w.several, least(end - at, c.rows - row)), size = (y1 - y0) * (x1 - x0);
            const i64 lines = (y1 - y0 - 1) * w.stride_h + (w.kernel_h - 1) * w.dilation_h + 1;
            const float* const images = c.right.p + at_batch(c, c.right, batch);
            // All planes are filled first: vectors that overlap several recent stores are slow to read (no store forwarding).
            for (i64 k = 0; k < count && !image_rows; ++k)
                fill_plane(w, images + (row + k) / w.each * w.height * w.width, y0 * w.stride_h, lines, x0 * w.stride_w, width,
                           scratch + k * pad_size, tiles == 1 && k < padded);
            padded = padded > count ? padded : count;
            for (i64 k = 0; k < count; ++k) {
                const float* const filter = c.left.p + (row + k) * c.left.line;
                float* const out = tile + k * size;
                if (image_rows) {
                    const i64 left = x0 * w.stride_w - w.pad_w;
                    const float* const p = images + (row + k) / w.each * w.height * w.width + left;
                    for (i64 y = y0; y < y1; y += RESULTS) {
                        const i64 top = y * w.stride_h - w.pad_h;
                        image_rows({p + top * w.width, w.width, -top, w.height - top, -left, w.width - left, w.dilation_w}, filter, (int)w.kernel_w,
                                   out + (y - y0) * (x1 - x0), x1 - x0, (int)least(RESULTS, y1 - y), (int)(x1 - x0));
                    }
                    continue;
                }
                for (i64 y = 0; rows_at_once && y < y1 - y0; y += RESULTS)
                    rows_at_once({scratch + k * pad_size + y * w.stride_h * pitch, pitch, column}, filter, (int)w.kernel_w, out + y * (x1 - x0), x1 - x0,
                                 (int)least(RESULTS, y1 - y0 - y), (int)(x1 - x0));
                for (i64 y = 0; !rows_at_once && y < y1 - y0; ++y) {
                    const Plane plane{scratch + k * pad_size + y * w.stride_h * pitch, pitch, column};
                    i64 x = 0;
                    for (; x1 - x0 - x >= 4 * CL; x += 4 * CL) depthwise_line<4>(w, plane, filter, x, out + y * (x1 - x0), 4 * CL);
                    for (; x < x1 - x0; x += CL) depthwise_line<1>(w, plane, filter, x, out + y * (x1 - x0), (int)(x1 - x0 - x));
                }
            }
            epilogue(context, batch, row, row + count, y0 * w.out_width + x0, y0 * w.out_width + x0 + size, tile, size);
            at += tiles > 1 ? 1 : count;
        }
    }, *c.seen, *c.pause);
}
