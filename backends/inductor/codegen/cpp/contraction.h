// Sums of products: result[r][c] = sum over k of left(r, k) * right(k, c). `contract` computes tiles of results and hands each to
// `epilogue`, which computes what is fused behind and stores. It is the same for all graphs: contraction.cpp, depthwise.cpp.
struct Matrix {
    const float* p;
    i64 line, depth, batch[3];  // strides
};
struct Windows {
    i64 channels, height, width, out_height, out_width, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    i64 each;  // so many rows see one channel each; 0: every row sees all of them
    // If not each: so many columns of the result are computed from planes that one thread has in its cache; whether there is a
    // plane for each of the kernel's columns.
    i64 strip;
    bool copies;
    // If each: results at a time (all columns, or one row), of how many rows of the result; elements that one thread needs.
    i64 tile_rows, tile_columns, several, scratch;
    void set_tiles(i64 rows, i64 columns, i64 n, i64 elements) { tile_rows = rows, tile_columns = columns, several = n, scratch = elements; }
};
struct Contraction {
    i64 batches[3], rows, columns, depth;
    Matrix left, right;   // of windows, p is the image
    Windows windows;    // of no channels if the right operand is a matrix
    i64 taps;           // of a left operand whose rows have so many taps, each with all channels side by side (its depth is 0 then); 0: of another one
    bool transposed;    // lines of a tile are columns
    i64 row_parts, block_parts;  // into how many parts rows and windows are divided if operands exchange their roles (exchanged.h) or are transformed, else 0
    i64 tile_lines, tile_groups, tile_rows;  // lines of tiles of a group; groups, and rows of filters, that are transformed together (winograd.h); 0: none are
    bool by_rows;       // threads share out rows, not panels
    bool direct;        // vectors are read where the right operand is, which is not packed
    bool decided;       // by_rows, direct, kept and group are; the library decides if not, for the sizes that it finds
    int threads, slots; // at most `slots` threads: so many pack panels side by side
    float* workspace;
    i64 slot, kept;     // elements of it that each of them has; of how many rows it holds sums that are not done yet
    i64 group, chunk;   // a block of the left operand is packed for so many panels, so deep; 0: it is read where it is
    i64 widest;         // if not decided: columns of all panels side by side for which the workspace has room
    const float* touched[4];  // what the epilogue reads or writes line by line, to be fetched ahead, and null behind the last; the strides of all
    i64 touched_line, touched_batch;
    // If not decided: of windows, what it costs to fill their planes, in rows; what else decides (scheduler/threads.py).
    double packing;
    struct Costs {
        double pack_lines, pack_columns, far_read, foreign_read, left_lines, left_columns, strided_left, streamed_left;
        i64 far_left, near_pixels, near_lines[2][2], near_panels;
        double packing_share;
    } costs;
    i64 work;           // in products
    Seen* seen;         // what the threads of this place have taken, and those of all
    Pause* pause;
};
typedef void Epilogue(const void* context, i64 batch, i64 line_begin, i64 line_end, i64 begin, i64 end, const float* tile, i64 pitch);
extern "C" void PRODUCTS(const Contraction* c, Epilogue* epilogue, const void* context);
extern "C" void DEPTHWISE(const Contraction* c, Epilogue* epilogue, const void* context);
typedef void Contract(const Contraction* c, Epilogue* epilogue, const void* context);
template <Contract* library> INLINE void contract(Contraction& c, Epilogue* epilogue, const void* context, SeenByWork& places) {
    c.seen = &places.of(c.work), c.pause = dynamo_lite_pause;
    library(&c, epilogue, context);
}
