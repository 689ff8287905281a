// The time loop of one layer of a recurrent network in one direction, forward and backward: for each step a product of the hidden state with the
// recurrent weights, and the cell. What does not depend on the hidden state (the product of the inputs, the gradients of the weights) stands outside, as
// products over all steps at once. The recurrent weights are packed once for all steps, and threads share out the rows of the batch, each of which runs
// through all steps by itself: threads never wait for each other, and no result depends on their number.
//
// All tensors are contiguous. Gates lie side by side, [step][row][gate][hidden]: input, forget, cell and output gate of an LSTM; reset, update and new
// gate of a GRU. inductor/recurrent.py has the order of the arguments.
enum Kind : i64 { LSTM, GRU, RNN_TANH, RNN_RELU };
#if defined(__AVX512F__)
constexpr int PV = 4, MAX_ROWS = 6;  // vectors of a panel, rows of a tile: their sums stay in registers
#else
constexpr int PV = 2, MAX_ROWS = 4;
#endif
constexpr i64 PANEL = PV * CL, CHAIN = 256;  // columns of a panel; products that are summed up before they are added to the result

static INLINE fvec sigmoid(fvec x) { return bc<CL>(1.0f) / (bc<CL>(1.0f) + fast_exp<CL>(-x)); }

// The right operand of the products of all steps, [depth][columns]: element (k, c) is p[k * line + c % width + c / width * next].
struct Weights {
    const float* p;
    i64 depth, columns, line, next, width;
    INLINE const float* panel(i64 first) const { return p + first / width * next; }
};
// out[r][c] = sum over k of a[r][k] * weights(k, c), for R rows.
template <int R> static void multiply_rows(const float* a, i64 a_line, const Weights& w, float* out, i64 out_line) {
    for (i64 first = 0; first < w.columns; first += PANEL) {
        const float* const right = w.panel(first);
        const i64 left = w.columns - first;
        some alive[PV];
        for (int v = 0; v < PV; ++v) alive[v] = some{(int)(left - v * CL < 0 ? 0 : least(left - v * CL, CL))};
        for (i64 begin = 0; begin < w.depth; begin += CHAIN) {
            const i64 end = least(begin + CHAIN, w.depth);
            fvec sums[R][PV] = {};
            if (left >= PANEL)
                for (i64 k = begin; k < end; ++k) {
                    fvec b[PV];
#pragma GCC unroll 4
                    for (int v = 0; v < PV; ++v) b[v] = load<CL>(right + k * w.line + v * CL, full());
#pragma GCC unroll 6
                    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
                        for (int v = 0; v < PV; ++v) sums[r][v] = fma_(bc<CL>(a[r * a_line + k]), b[v], sums[r][v]);
                }
            else
                for (i64 k = begin; k < end; ++k)
#pragma GCC unroll 4
                    for (int v = 0; v < PV; ++v) {
                        const fvec b = load<CL>(right + k * w.line + v * CL, alive[v]);
#pragma GCC unroll 6
                        for (int r = 0; r < R; ++r) sums[r][v] = fma_(bc<CL>(a[r * a_line + k]), b, sums[r][v]);
                    }
            for (int r = 0; r < R; ++r)
                for (int v = 0; v < PV; ++v) {
                    float* const to = out + r * out_line + first + v * CL;
                    if (alive[v].n) store<CL>(to, begin ? load<CL>(to, alive[v]) + sums[r][v] : sums[r][v], alive[v]);
                }
        }
    }
}
static void multiply(const float* a, i64 a_line, i64 rows, const Weights& w, float* out, i64 out_line) {
    i64 r = 0;
    for (; r + MAX_ROWS <= rows; r += MAX_ROWS) multiply_rows<MAX_ROWS>(a + r * a_line, a_line, w, out + r * out_line, out_line);
    a += r * a_line, out += r * out_line;
    switch (rows - r) {
#if defined(__AVX512F__)
    case 5: return multiply_rows<5>(a, a_line, w, out, out_line);
    case 4: return multiply_rows<4>(a, a_line, w, out, out_line);
#endif
    case 3: return multiply_rows<3>(a, a_line, w, out, out_line);
    case 2: return multiply_rows<2>(a, a_line, w, out, out_line);
    case 1: return multiply_rows<1>(a, a_line, w, out, out_line);
    }
}
// The same with the weights as they are, [columns][depth]: each sum along a line of them, which costs more for each product and spares packing.
static void multiply_in_place(const float* a, i64 a_line, i64 rows, const float* w, i64 columns, i64 depth, float* out, i64 out_line) {
    for (i64 r = 0; r < rows; ++r)
        for (i64 c = 0; c < columns; ++c) {
            fvec sums[4] = {};
            for_lanes4<CL>(0, depth, [&](const i64 k, auto m, auto n) INLINE_LAMBDA {
                sums[n.n] = fma_(load<CL>(a + r * a_line + k, m), load<CL>(w + c * depth + k, m), sums[n.n]);
            });
            out[r * out_line + c] = fold((sums[0] + sums[1]) + (sums[2] + sums[3]), [](auto x, auto y) INLINE_LAMBDA { return decltype(x)(x + y); });
        }
}

struct Layer {
    i64 kind, steps, batch, hidden, reverse, in_place;
    const float *gates, *weight, *bias, *h0, *c0;  // bias: of the recurrent product, null if there is none
    float *y, *c, *saved;                          // c: of all steps if `saved`, else of the last; saved: null if there is no backward pass
    const float *grad_y, *grad_c;                  // grad_c: of the last step, null if there is none
    float *grad_gates, *grad_recurrent, *grad_h, *grad_c0;  // grad_recurrent: of a GRU, whose new gate differs; else grad_gates
    float* workspace;                              // packed weights, then the recurrent products of one step for all rows
    INLINE i64 count() const { return kind == LSTM ? 4 : kind == GRU ? 3 : 1; }
    INLINE i64 kept() const { return kind == LSTM || kind == GRU ? 4 : 0; }  // values of each element that are saved
    INLINE i64 step(i64 s) const { return reverse ? steps - 1 - s : s; }
    INLINE i64 before(i64 t) const { return reverse ? t + 1 : t - 1; }
};
// Panels [first, last) of the packed weights. Their lines run along the depth in the forward pass, so that tiles are transposed, and along the columns in
// the backward pass. The columns that the last panel lacks are zeros.
static void pack(const float* from, bool backward, i64 depth, i64 columns, i64 first, i64 last, float* to) {
    for (i64 p = first; p < last; ++p)
        for (i64 v = 0; v < PV; ++v) {
            const i64 c = p * PANEL + v * CL;
            const some alive{(int)(columns < c ? 0 : least(columns - c, CL))};
            float* const own = to + p * depth * PANEL + v * CL;
            if (backward)
                for (i64 k = 0; k < depth; ++k) store<CL>(own + k * PANEL, load<CL>(from + k * columns + c, alive), full());
            else
                for (i64 k = 0; k < depth; k += CL) {
                    const some lines{(int)least(depth - k, CL)};
                    fvec tile[CL];
                    load_tile<CL>(tile, from + c * depth + k, depth, lines, alive);
                    for (int n = 0; n < lines.n; ++n) store<CL>(own + (k + n) * PANEL, tile[n], full());
                }
        }
}

// ---------------------------------------------------------------- forward
static void cell(const Layer& l, i64 t, bool is_first, i64 r, const float* products) {
    const i64 H = l.hidden, G = l.count() * H, at = t * l.batch + r, from = is_first ? r : l.before(t) * l.batch + r;
    const float *const in = l.gates + at * G, *const b = l.bias, *const h = is_first ? l.h0 + r * H : l.y + from * H;
    const float* const c_in = l.kind != LSTM ? nullptr : is_first ? l.c0 + r * H : l.saved ? l.c + from * H : l.c + r * H;
    float *const y = l.y + at * H, *const kept = l.saved ? l.saved + at * l.kept() * H : nullptr;
    float* const c_out = l.kind != LSTM ? nullptr : l.saved ? l.c + at * H : l.c + r * H;
    for_lanes<CL>(0, H, [&](const i64 i, auto m) INLINE_LAMBDA {
        const auto recurrent = [&](i64 g) INLINE_LAMBDA {
            const fvec p = load<CL>(products + g * H + i, m);
            return b ? p + load<CL>(b + g * H + i, m) : p;
        };
        const auto input = [&](i64 g) INLINE_LAMBDA { return load<CL>(in + g * H + i, m); };
        const auto keep_at = [&](i64 g, fvec v) INLINE_LAMBDA { store<CL>(kept + g * H + i, v, m); };
        if (l.kind == LSTM) {
            const fvec in_gate = sigmoid(input(0) + recurrent(0)), forget = sigmoid(input(1) + recurrent(1));
            const fvec fresh = fast_tanh<CL>(input(2) + recurrent(2)), out = sigmoid(input(3) + recurrent(3));
            const fvec c = forget * load<CL>(c_in + i, m) + in_gate * fresh;
            store<CL>(c_out + i, c, m), store<CL>(y + i, out * fast_tanh<CL>(c), m);
            if (kept) keep_at(0, in_gate), keep_at(1, forget), keep_at(2, fresh), keep_at(3, out);
        } else if (l.kind == GRU) {
            const fvec reset = sigmoid(input(0) + recurrent(0)), update = sigmoid(input(1) + recurrent(1)), hidden = recurrent(2);
            const fvec fresh = fast_tanh<CL>(input(2) + reset * hidden);
            store<CL>(y + i, (load<CL>(h + i, m) - fresh) * update + fresh, m);
            if (kept) keep_at(0, reset), keep_at(1, update), keep_at(2, fresh), keep_at(3, hidden);
        } else {
            const fvec x = input(0) + recurrent(0);
            store<CL>(y + i, l.kind == RNN_TANH ? fast_tanh<CL>(x) : sel(x < fvec{}, fvec{}, x), m);
        }
    });
}
static void forward_rows(const Layer& l, const Weights& w, float* products, i64 begin, i64 end) {
    const i64 H = l.hidden, G = l.count() * H;
    for (i64 s = 0; s < l.steps; ++s) {
        const i64 t = l.step(s);
        const float* const h = s == 0 ? l.h0 + begin * H : l.y + (l.before(t) * l.batch + begin) * H;
        if (l.in_place) multiply_in_place(h, H, end - begin, l.weight, G, H, products + begin * G, G);
        else multiply(h, H, end - begin, w, products + begin * G, G);
        for (i64 r = begin; r < end; ++r) cell(l, t, s == 0, r, products + r * G);
    }
}

// ---------------------------------------------------------------- backward
static void cell_backward(const Layer& l, i64 t, bool is_first, bool is_last, i64 r) {
    const i64 H = l.hidden, G = l.count() * H, at = t * l.batch + r, from = is_first ? r : l.before(t) * l.batch + r;
    const float *const kept = l.saved + at * l.kept() * H, *const y = l.y + at * H, *const grad = l.grad_y + at * H;
    const float* const h = is_first ? l.h0 + r * H : l.y + from * H;
    const float* const c_in = l.kind != LSTM ? nullptr : is_first ? l.c0 + r * H : l.c + from * H;
    float *const to = l.grad_gates + at * G, *const to_recurrent = l.grad_recurrent + at * G;
    for_lanes<CL>(0, H, [&](const i64 i, auto m) INLINE_LAMBDA {
        const auto saved = [&](i64 g) INLINE_LAMBDA { return load<CL>(kept + g * H + i, m); };
        const auto give = [&](float* p, i64 g, fvec v) INLINE_LAMBDA { store<CL>(p + g * H + i, v, m); };
        const fvec one = bc<CL>(1.0f);
        fvec dh = load<CL>(grad + i, m);
        if (!is_last) dh += load<CL>(l.grad_h + r * H + i, m);
        if (l.kind == LSTM) {
            const fvec in_gate = saved(0), forget = saved(1), fresh = saved(2), out = saved(3), c = fast_tanh<CL>(load<CL>(l.c + at * H + i, m));
            fvec dc = dh * out * (one - c * c);
            if (!is_last) dc += load<CL>(l.grad_c0 + r * H + i, m);
            else if (l.grad_c) dc += load<CL>(l.grad_c + r * H + i, m);
            give(to, 0, dc * fresh * in_gate * (one - in_gate)), give(to, 1, dc * load<CL>(c_in + i, m) * forget * (one - forget));
            give(to, 2, dc * in_gate * (one - fresh * fresh)), give(to, 3, dh * c * out * (one - out));
            store<CL>(l.grad_c0 + r * H + i, dc * forget, m);
        } else if (l.kind == GRU) {
            const fvec reset = saved(0), update = saved(1), fresh = saved(2), hidden = saved(3);
            const fvec dfresh = dh * (one - update) * (one - fresh * fresh);
            const fvec dreset = dfresh * hidden * reset * (one - reset);
            const fvec dupdate = dh * (load<CL>(h + i, m) - fresh) * update * (one - update);
            give(to, 0, dreset), give(to, 1, dupdate), give(to, 2, dfresh);
            give(to_recurrent, 0, dreset), give(to_recurrent, 1, dupdate), give(to_recurrent, 2, dfresh * reset);
            store<CL>(l.grad_h + r * H + i, dh * update, m);
        } else {
            const fvec v = load<CL>(y + i, m);
            give(to, 0, l.kind == RNN_TANH ? dh * (one - v * v) : sel(v <= fvec{}, fvec{}, dh));
        }
    });
}
static void backward_rows(const Layer& l, const Weights& w, float* products, i64 begin, i64 end) {
    const i64 H = l.hidden, G = l.count() * H;
    for (i64 s = l.steps - 1; s >= 0; --s) {
        const i64 t = l.step(s);
        for (i64 r = begin; r < end; ++r) cell_backward(l, t, s == 0, s == l.steps - 1, r);
        const float* const gates = l.grad_recurrent + (t * l.batch + begin) * G;
        if (l.kind != GRU) {
            multiply(gates, G, end - begin, w, l.grad_h + begin * H, H);
            continue;
        }
        multiply(gates, G, end - begin, w, products + begin * H, H);
        for (i64 i = begin * H; i < end * H; ++i) l.grad_h[i] += products[i];
    }
}

static void run_layer(const Layer& l, bool backward, i64 grain) {
    const i64 H = l.hidden, G = l.count() * H, depth = backward ? G : H, columns = backward ? H : G;
    const i64 panels = (columns + PANEL - 1) / PANEL, work = l.steps * l.batch * G * H;
    const int possible = threads_for(work, grain), threads = possible < l.batch ? possible : (int)l.batch;
    Weights w = {l.workspace, depth, columns, PANEL, depth * PANEL, PANEL};
    float* const products = l.workspace + (l.in_place ? 0 : panels * depth * PANEL);
    if (l.in_place) w = {l.weight, depth, columns, H, PANEL, PANEL};  // of the backward pass: lines of the weights are lines of panels
    else parallel(panels, 1, threads, panels * depth * PANEL, [&](i64 first, i64 last, int) {
        pack(l.weight, backward, depth, columns, first, last, l.workspace);
    });
    parallel(l.batch, 1, threads, work, [&](i64 begin, i64 end, int) {
        if (begin < end) (backward ? backward_rows : forward_rows)(l, w, products, begin, end);
    });
}
LIBRARY WHOLE(const i64* n, float* const* p) {
    const Layer l = {n[0], n[1], n[2], n[3], n[4], n[5], p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11], p[12], p[13], p[14]};
    run_layer(l, n[6], n[7]);
}
