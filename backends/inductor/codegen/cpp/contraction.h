// Sums of products: result[r][c] = sum over k of left(r, k) * right(k, c). `contract` computes tiles of results and hands each to `epilogue`,
// which computes the operations that are fused behind, and stores. The libraries are the same for all graphs: contraction.cpp, depthwise.cpp.
// Sizes and strides count elements. Left(r, k) is at p + r * line + k * depth, right(k, c) at p + c * line + k * depth.
struct Matrix {
    const float* p;
    i64 line, depth, batch[3];  // strides
};
// A convolution's right operand: column (oh, ow) holds the pixels that the kernel sees there, channel by channel.
struct Windows {
    i64 channels, height, width, out_height, out_width, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    i64 each;  // depthwise: number of rows (filters) that see the same single channel; 0: every row sees all channels
    // If each is 0. strip: number of the result's columns computed from planes that stay in a thread's cache; copies: whether each of the kernel's
    // columns has a plane of its own.
    i64 strip;
    bool copies;
    // Depthwise: rows and columns of results at a time (all columns, or one row); number of channels (rows of the contraction) at a time;
    // elements of a thread's scratch planes.
    i64 tile_rows, tile_columns, several, scratch;
    void set_tiles(i64 rows, i64 columns, i64 n, i64 elements) { tile_rows = rows, tile_columns = columns, several = n, scratch = elements; }
};
struct Contraction {
    i64 batches[3], rows, columns, depth;
    Matrix left, right;   // for a convolution, right.p is the image
    Windows windows;    // channels is 0 if the right operand is a matrix
    i64 taps;           // taps of channels-last filters, each with all channels side by side (left.depth is 0 then); 0: other left operands
    bool transposed;    // lines of a tile are columns of the result, not rows
    i64 row_parts, block_parts;  // number of parts of rows and of blocks of windows, if operands are exchanged (exchanged.h) or transformed; else 0
    i64 tile_lines, tile_groups, tile_rows;  // Winograd: lines of tiles in a group; groups, and rows of filters, transformed together; else 0
    bool by_rows;       // threads share rows, not panels
    bool direct;        // vectors of the right operand are read in place, it is not packed
    bool decided;       // whether by_rows, direct, kept and group are final; if not, the library decides by the sizes of the call
    int threads, slots; // number of threads to use; the largest number for which the workspace has room
    float* workspace;
    i64 slot, kept;     // elements of the workspace for each thread; number of rows whose partial sums stay in it
    i64 group, chunk;   // number of panels for which a block of the left operand is packed (0: it is read in place); depth of a packed block
    i64 piece;          // depth to which a matrix that is the right operand is packed at a time
    i64 widest;         // if not decided: number of columns, in panels side by side, for which the workspace has room
    const float* touched[4];  // buffers that the epilogue reads or writes line by line, to be prefetched; null behind the last. Their common strides:
    i64 touched_line, touched_batch;
    // If not decided: the cost of filling a convolution's planes, in rows, and the costs of TargetInfo by which scheduler/threads.py decides.
    double packing;
    struct Costs {
        double pack_lines, pack_columns, pack_far_lines, pack_far_columns, far_read, foreign_read, left_lines, left_columns, near_left_lines, near_left_columns, strided_left, streamed_left, placed_right;
        i64 near_pixels, near_lines[2][2];
        double packing_share;
    } costs;
    i64 far_left;       // bytes of a left operand from which on it comes from beyond the L2 cache
    // Whether operands that are small enough to stay in that cache come from beyond it nevertheless, as the graph touches so much else in between.
    bool left_is_far, right_is_far;
    bool right_comes_from_far() const { return right_is_far || (double)columns * depth * 4 > far_left / 2; }
    i64 work;           // number of products
    Seen* seen;         // times of this call site with one thread and with several (threads.h)
    Pause* pause;       // the same for the process
};
// Called once for each tile of results: lines [line_begin, line_end), which are rows (columns if transposed), positions [begin, end) within a line;
// the element of line l and position i is tile[(l - line_begin) * pitch + (i - begin)]. `context`: the kernel's arguments.
typedef void Epilogue(const void* context, i64 batch, i64 line_begin, i64 line_end, i64 begin, i64 end, const float* tile, i64 pitch);
extern "C" void PRODUCTS(const Contraction* c, Epilogue* epilogue, const void* context);
extern "C" void DEPTHWISE(const Contraction* c, Epilogue* epilogue, const void* context);
typedef void Contract(const Contraction* c, Epilogue* epilogue, const void* context);
template <Contract* library> INLINE void contract(Contraction& c, Epilogue* epilogue, const void* context, SeenByWork& places) {
    c.seen = &places.of(c.work), c.pause = dynamo_lite_pause;
    library(&c, epilogue, context);
}
