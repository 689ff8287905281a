// The loops of contraction.h: which thread computes which results, and in which order. The micro-kernels and packing are in panels.h.
// ------------------------------------------------------------------ work sharing
// These functions decide for calls with sizes that are unknown at compile time, in the same way as scheduler/threads.py and packing.py do for all others.
constexpr i64 widest_panel = 64;  // columns of the widest panel of any processor, as in scheduler/threads.py
// Whether the right operand is read as fast in place as from packed panels (_is_direct).
static bool is_direct(const Contraction& c) {
    const i64 beyond = c.columns % widest_lanes, few_rows = ROWS;
    const bool alone = beyond && beyond <= few && c.left.depth == 1 && c.depth >= 4 * widest_lanes;
    if (c.right.line != 1 || (beyond && !alone) || c.depth * c.right.depth >= (i64)1 << 31) return false;
    // Lines begin at multiples of `unit` elements in a vector, CL / unit of them in turn, all but one of which within it.
    const i64 unit = c.right.depth & -c.right.depth, apart = unit && unit < CL ? CL - unit : 0;
    if (c.rows * c.costs.placed_right * apart > c.costs.pack_lines * CL) return false;
    // Columns that are read only once need not stay in a cache.
    if (c.rows <= few_rows) return true;
    for (const auto& cache : c.costs.near_lines) {
        i64 a = cache[0], b = c.right.depth * 4;
        while (b) { const i64 rest = a % b; a = b, b = rest; }
        if (least(c.depth, chunk_depth) > cache[0] / a * cache[1]) return false;
    }
    return true;
}
// The longest thread's share of the time if threads share panels (_longest_share_of_panels). `left`: bytes of the left operand that every panel reads.
static double share_of_panels(const Contraction& c, i64 threads, double left) {
    const i64 across = units(c.columns, widest_panel), panels = across * c.batches[0] * c.batches[1] * c.batches[2];
    const i64 whole = widest_panel / widest_lanes, last = units(c.columns - (across - 1) * widest_panel, widest_lanes), line = (across - 1) * whole + last;
    const double cost = left > c.far_left && panels > 1 ? c.costs.far_read : 1.0;
    if (panels > 64 * threads) return cost / threads;
    const auto before = [=](i64 p) { return p / across * line + p % across * whole; };
    i64 most = 0;
    for (i64 t = 0; t < threads; ++t) {
        const i64 own = before(panels * (t + 1) / threads) - before(panels * t / threads);
        if (own > most) most = own;
    }
    return cost * most / (line * (panels / across));
}
// The same if threads share rows and each packs all panels (_longest_share_of_rows). `packing`: cost of packing, in rows.
static double share_of_rows(const Contraction& c, i64 threads, double left, double packing) {
    const i64 unit = c.transposed ? widest_lanes : 2;
    const double cost = left > c.far_left * (double)threads ? c.costs.far_read : 1.0;
    return cost * (least(units(units(c.rows, unit), threads) * unit, c.rows) + packing) / (c.rows + packing);
}
// Depth to which the right operand is packed at a time (piece_depth). `together`: whether a block of the left one is packed for several panels.
static i64 piece_of(const Contraction& c, bool together) {
    if (together && 2 * (shallow_depth + c.rows) <= c.depth) return shallow_depth;
    return chunk_depth + c.rows <= c.depth ? chunk_depth : c.depth;
}
// The time that is saved in each product if the right operand is packed for many columns at a time, and so prefetched (fetching_gain).
static double fetching_gain(const Contraction& c) {
    const bool lines = c.right.line == 1;
    if (!c.right_comes_from_far() || !lines && c.right.depth != 1) return 0;
    const double gain = lines ? c.costs.pack_far_lines - c.costs.pack_lines : c.costs.pack_far_columns - c.costs.pack_columns;
    return gain > 0 ? gain / c.rows : 0;
}
// Number of panels for which a block of the left operand is packed; 0 if it is not (columns_at_once). `cost`: of packing an element; `saved`: of each product
// by packing; both in products.
static i64 group_of(const Contraction& c, double cost, double saved) {
    const i64 piece = piece_of(c, true), fit = c.far_left / 4 / (4 * (piece + (piece < c.depth ? c.rows : 0))) / panel * panel, near = fit > widest_panel ? fit : widest_panel;
    const i64 most = least(least(least(c.columns, (i64)__builtin_ceil(cost / c.costs.packing_share)), near), c.widest);
    if (saved - cost / most + fetching_gain(c) <= 0) return 0;
    const i64 panels = units(c.columns, panel);
    return units(panels, units(panels, units(most, panel)));  // equal parts
}
// Sets by_rows, direct, group and kept, or the parts of a Winograd convolution.
static void decide(Contraction& c) {
    if (c.tile_lines) return Winograd::share_out(c);
    const i64 threads = c.slots;
    const double left = c.left.batch[0] || c.left.batch[1] || c.left.batch[2] ? 0 : (double)c.rows * c.depth * 4;
    double packing = c.packing, foreign = 1.0, again = 1.0;
    const bool windows = c.windows.channels > 0;
    if (!windows) {
        const bool streamed = c.left.depth == 1;
        const bool close = c.rows * c.depth * 4 <= c.far_left / 4;  // or prefetched in time
        const double columns_cost = close ? c.costs.near_left_columns : c.costs.left_columns, lines_cost = close ? c.costs.near_left_lines : c.costs.left_lines;
        const double cost = streamed ? columns_cost : lines_cost, saved = streamed ? c.costs.streamed_left : c.costs.strided_left;
        const i64 group = group_of(c, cost, saved), columns = group * panel;
        const bool packs_both = group && saved - cost / columns > c.costs.pack_lines / c.rows;
        c.direct = !packs_both && is_direct(c);
        if (!c.direct && group) {
            const i64 all = c.columns * c.batches[0] * c.batches[1] * c.batches[2] / threads;
            c.group = group;
            again = (1 + cost / least(all < panel ? panel : all, columns)) / (1 + cost / columns);
        }
        packing = c.direct ? 0 : c.right.line == 1 ? c.costs.pack_lines : c.costs.pack_columns;
        foreign = c.direct && threads > 1 && c.columns <= c.costs.near_pixels ? 1 + c.costs.foreign_read * (threads - 1) / threads / c.depth : 1.0;
    }
    c.by_rows = share_of_rows(c, threads, left, packing) < share_of_panels(c, threads, left) * foreign * again;
    if (!windows && !c.direct) {
        c.piece = piece_of(c, c.group);
        c.kept = c.piece < c.depth ? c.rows : 0;
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
    const int threads = c.threads < c.slots ? c.threads : c.slots;
    if (c.tile_lines) {
        const Winograd products(c, epilogue, context);
        return parallel(c.row_parts * c.block_parts, 1, threads, c.work, [&](i64 begin, i64 end, int thread) { products.compute(begin, end, thread); }, *c.seen, *c.pause);
    }
    if (c.row_parts) {
        const Exchanged products(c, epilogue, context);
        return parallel(c.row_parts * c.block_parts, 1, threads, c.work, [&](i64 begin, i64 end, int thread) { products.compute(begin, end, thread); }, *c.seen, *c.pause);
    }
    // Whether windows are read from planes; otherwise they are packed as a matrix is.
    const bool windows = w.channels > 0 && w.strip > 0;
    const Planes planes = windows ? planes_of(w) : Planes{};
    // The columns that are computed side by side (places): with planes these are lines of `pitch` windows, of which only `width` are results; the others are
    // dropped.
    const bool lines = windows && w.out_height > 1;
    const i64 pitch = lines ? planes.width : c.columns, width = lines ? w.out_width : c.columns;
    const i64 places = lines ? w.out_height * pitch - pitch + width : c.columns;
    const i64 across = (places + panel - 1) / panel, panels = batches * across;
    // A deep right operand is packed and used up piece by piece, if the partial sums that are kept meanwhile take less memory.
    const bool listed = windows || c.direct;
    const i64 piece = listed ? c.depth : c.piece;
    const i64 packed = piece * panel + CL;
    // The right operand as a thread reads it.
    struct Right {
        float* room;         // the memory in which the thread packs, or fills planes
        const float* panel;  // the first panel
        i64 next;            // distance of the next panel
        const i32* steps;    // offsets of the steps of the depth
        i64 kept;            // the first row whose sums are kept
    };
    const PackedProduct packs{c, epilogue, context, across, piece, {pitch, width}, places};
    // Computes steps [k, k + depth) of the products of panel p and `rows` rows from r0 on, into lines `apart` elements apart; `first`: whether these are the
    // first rows that this thread computes with the panel; the next panel is prefetched meanwhile.
    const auto panel_of = [=, &c](i64 p, i64 r0, int rows, bool first, const float* panel_, const Right& right, i64 k, i64 depth, float* tile, i64 apart, Ahead& ahead) {
        float column[few][chunk_depth];
        const int columns = packs.columns_of(p, p + 1);
        const float* const from = c.left.p + at_batch(c, c.left, p / across) + r0 * c.left.line + k * c.left.depth;
        const int alone = pitch == width && columns % CL <= few && c.left.depth == 1 && c.depth >= 4 * CL ? columns % CL : 0;
        for (i64 done = 0; done < depth; done += c.chunk) {
            const i64 now = least(c.chunk, depth - done);
            const bool more = k + done > 0;
            // Lines of a matrix are evenly spaced; those of packed panels are listed only up to chunk_depth (packed_places).
            const i64 spaced = c.direct ? c.right.depth : panel;
            const float* const base = windows ? panel_ : panel_ + done * spaced;
            const i32* const steps = windows ? right.steps + done : right.steps;
            for (int j = 0; j < alone; ++j)
                for (i64 i = 0; i < now; ++i) column[j][i] = base[steps[i] + columns - alone + j];
            const bool fetches = k + done + now >= c.depth;
            const i64 hop = ROWS * c.left.line;
            // All strips but the last one by one call; one by one if dot products read the same rows, from a near cache then.
            const int before = (rows - 1) / ROWS * ROWS, many = alone || !before ? ROWS : before;
            for (int r = 0; r < rows; r += r < before ? many : ROWS) {
                const bool last = r == before;
                const int own = last ? rows - r : ROWS, count = last ? 1 : many / ROWS;
                const float* const at = from + r * c.left.line + done * c.left.depth;
                float* const sums = tile + r * apart;
                // The distance of the rows that are read next: of these rows, or else of the following block.
                const i64 next = !last ? hop : done + now >= depth ? hop - done * c.left.depth : now * c.left.depth - r * c.left.line;
                const i64 beside = listed && r == 0 && first ? panel : 0;
                if (columns > alone) {
                    Strips strips = fetches ? ahead.strips(count, hop) : Strips{count, hop, nullptr, nullptr};
                    strips.apart = spaced;
                    (windows ? tile_for<STREAMED> : tile_for<SPACED>)(own, columns - alone)(at, c.left.line, c.left.depth, next, own, base, steps, beside, now, sums, apart, more, strips);
                } else if (fetches) ahead.fetch();
                if (alone) columns_for[alone - 1](at, c.left.line, own, column, now, sums + columns - alone, apart, more);
            }
        }
    };
    // Number of panels that are finished together, as each row of results is on a page of its own; one if tiles are transposed or partial sums are kept.
    const i64 side = c.transposed || piece < c.depth ? 1 : wide / panel;
    // The same for rows [r0, r1) of panels [p, end), no more than `side`, with the epilogue if the sums are complete. Partial sums are kept behind the packed
    // panel.
    const auto rows_of = [=, &c](i64 p, i64 end, i64 r0, i64 r1, bool first, const Right& right, i64 k, i64 depth) {
        alignas(64) float whole[block * wide];
        float* const tile = piece < c.depth ? right.room + packed + (r0 - right.kept) * panel : whole;
        const i64 batch = p / across, place = p % across * panel, c0 = packs.lines.before(place);
        const int columns = packs.columns_of(p, end), rows = (int)(r1 - r0);
        Ahead ahead(c, true, batch, r0, rows, c0, packs.lines.before(place + columns) - c0, (end - p) * units(rows, ROWS));
        for (i64 q = p; q < end; ++q) panel_of(q, r0, rows, first, right.panel + (q - p) * right.next, right, k, depth, tile + (q - p) * panel, side * panel, ahead);
        if (k + depth >= c.depth) packs.finish(batch, r0, r1, place, columns, tile, side * panel);
    };
    // Fills the planes of a strip, which has panels [first, last) of one batch, and computes rows [r0, r1) of these. `taps`: offsets of the depth's steps.
    const auto strip = [=, &c, &w](i64 first, i64 last, i64 r0, i64 r1, float* room, const i32* taps) {
        const i64 begin = first % across * panel, end = least(begin + (last - first) * panel, places), batch = first / across;
        const i64 y0 = lines ? begin / pitch : 0, y1 = lines ? (end - 1) / pitch + 1 : 1, x0 = lines ? 0 : begin;
        const i64 height = least(y1, w.out_height) - y0 + planes.height - planes.shown;
        const float* const images = c.right.p + at_batch(c, c.right, batch);
        for (i64 channel = 0; channel < w.channels; ++channel)
            im2col(w, planes, images + channel * w.height * w.width, y0, height, x0, room + channel * planes.channel);
        if (c.group) {
            // The sums are behind the planes and their slack.
            float* const sums = room + (w.channels * planes.channel + CL - 1) / CL * CL + panel + CL;
            const PackedProduct::Room own{room - y0 * pitch - x0, sums, sums + (c.depth > c.chunk ? w.strip * block : 0), block, taps};
            for (i64 r = r0; r < r1; r += block) packs.rows_of(first, last, r, r1, r, 0, c.depth, own);
            return;
        }
        for (i64 p = first; p < last; p += side) {
            const Right right{room, room + (p % across * panel - y0 * pitch - x0), panel, taps, 0};
            for (i64 r = r0; r < r1; r += block) rows_of(p, least(p + side, last), r, least(r + block, r1), r == r0, right, 0, c.depth);
        }
    };
    // Computes panels [first, last) of rows [r0, r1). Each thread packs its own panels or fills its own planes: reading them from another core's cache would
    // take as long as the products of some fifty rows, packing them takes as long as those of five to ten.
    const auto products = [=, &c, &w](i64 first, i64 last, i64 r0, i64 r1, int thread) {
        if (c.group && !windows) return packs.compute(first, last, r0, r1, thread);
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
            for (i64 p = first, end; p < last; p = end) {
                end = least(least(p + side, last), (p / across + 1) * across);
                const Right right{room, c.right.p + at_batch(c, c.right, p / across) + p % across * panel, panel, steps, 0};
                for (i64 r = r0; r < r1; r += block) rows_of(p, end, r, least(r + block, r1), r == r0, right, 0, c.depth);
            }
            return;
        }
        const i64 kept = piece < c.depth ? c.kept : c.rows;
        for (i64 p = first, next; p < last; p = next) {
            next = least(least(p + side, last), (p / across + 1) * across);
            for (i64 begin = r0; begin < r1; begin += kept)
                for (i64 k = 0; k < c.depth; k += piece) {
                    const i64 depth = least(piece, c.depth - k), end = least(begin + kept, r1);
                    pack_panels(c, across, p, next, k, depth, room, piece * panel);
                    const Right right{room, room, piece * panel, packed_places.at, begin};
                    for (i64 r = begin; r < end; r += block) rows_of(p, next, r, least(r + block, end), false, right, k, depth);
                }
        }
    };
    if (c.by_rows) parallel(c.rows, c.transposed ? widest_lanes : 2, threads, c.work, [=, &c](i64 begin, i64 end, int thread) { products(0, panels, begin, end, thread); }, *c.seen, *c.pause);
    else parallel(panels, 1, threads, c.work, [=, &c](i64 begin, i64 end, int thread) { products(begin, end, 0, c.rows, thread); }, *c.seen, *c.pause);
}
