/* permutation.c - simplification: sorts and joins modes, and finds a matrix among them. */
#include "operators/permute/permutation.h"

#include "base/math.h"
#include "plan/check.h"

enum { SUMS_MAX = 1 << 24 }; // of strides, tried at most: a tenth of a second

/* Outermost of y first: by falling strides. */
static void insert_sorted(permutation *p, permute_mode m)
{
    int i = p->rank++;
    for (; i > 0 && p->modes[i - 1].y < m.y; i--)
        p->modes[i] = p->modes[i - 1];
    p->modes[i] = m;
}

/*
 * Two elements of y meet where differences d of their coordinates, |d| < size in each mode and not all 0, have sum(d *
 * stride) = 0. Searches from the largest stride inwards: d must bring the sum within reach of the inner modes, so for
 * modes that nest only d = 0 is tried. Returns the outermost mode that differs; NULL: none meet. *left: sums that may
 * still be tried.
 */
static const permute_mode *elements_meet(const permutation *p, int i, int64_t sum, const permute_mode *differs,
                                         int64_t *left)
{
    if (i == p->rank)
        return sum == 0 ? differs : NULL;
    const permute_mode *m = &p->modes[i], *found = NULL;
    int64_t reach = 0;
    for (int inner = i + 1; inner < p->rank; inner++)
        reach += (p->modes[inner].size - 1) * p->modes[inner].y;
    if (m->y == 0)
        return m;
    const int64_t low = differs ? -((reach + sum) / m->y) : 0, high = (reach - sum) / m->y; // the first may be positive
    for (int64_t d = max_i64(low, 1 - m->size); d <= min_i64(high, m->size - 1) && !found && --*left > 0; d++)
        found = elements_meet(p, i + 1, sum + d * m->y, differs || d == 0 ? differs : m, left);
    return found;
}

static ckl_status check_distinct(const permutation *p)
{
    int64_t left = SUMS_MAX;
    const permute_mode *m = elements_meet(p, 0, 0, NULL, &left);
    if (m)
        FAIL(CKL_INVALID, "%s: y has a stride of %" PRId64 " elements that others make up: elements share memory",
             p->op, m->y);
    if (left <= 0)
        FAIL(CKL_INVALID, "%s: y has strides that do not nest; whether elements share memory takes more than %d steps",
             p->op, SUMS_MAX);
    return CKL_OK;
}

static bool is_one_mode(permute_mode outer, permute_mode inner)
{
    return outer.x == inner.x * inner.size && outer.y == inner.y * inner.size;
}

static void join_neighbours(permutation *p)
{
    int kept = 0;
    for (int i = 1; i < p->rank; i++) {
        permute_mode *outer = &p->modes[kept], inner = p->modes[i];
        if (is_one_mode(*outer, inner))
            *outer = (permute_mode){ outer->size * inner.size, inner.x, inner.y };
        else
            p->modes[++kept] = inner;
    }
    p->rank = p->rank ? kept + 1 : 0;
}

ckl_status permutation_simplify(permutation *p, int rank, const permute_mode *modes)
{
    p->rank = 0;
    for (int i = 0; i < rank; i++) {
        p->empty |= modes[i].size == 0;
        if (modes[i].size > 1)
            insert_sorted(p, modes[i]);
    }
    if (p->empty)
        return CKL_OK;
    TRY(check_distinct(p));
    join_neighbours(p);
    return CKL_OK;
}

int permutation_mode_at(const permutation *p, bool in_x, int64_t stride)
{
    for (int i = 0; i < p->rank; i++)
        if ((in_x ? p->modes[i].x : p->modes[i].y) == stride && p->modes[i].size > 1)
            return i;
    return -1;
}

void permutation_find_matrix(permutation *p)
{
    int in_x = permutation_mode_at(p, true, 1), in_y = permutation_mode_at(p, false, 1);
    p->has_matrix = !p->empty && in_x >= 0 && in_y >= 0 && in_x != in_y;
    if (!p->has_matrix)
        return;
    const permute_mode row = p->modes[in_y], column = p->modes[in_x];
    permute_matrix *m = &p->matrix;
    *m = (permute_matrix){ .rows = row.size, .cols = column.size, .ldx = row.x, .ldy = column.y };
    bool between_x = false, between_y = false; // do rows of other matrices lie between two of one?
    for (int i = 0; i < p->rank; i++) {
        between_x |= i != in_x && i != in_y && p->modes[i].x < m->ldx;
        between_y |= i != in_x && i != in_y && p->modes[i].y < m->ldy;
    }
    const bool by_x = between_x && (!between_y || m->cols < m->rows);
    for (int i = p->rank - 1; i >= 0; i--) { // in the order of y
        int at = i == in_x || i == in_y ? -1 : m->outer_count++;
        for (; by_x && at > 0 && m->outer[at - 1].x > p->modes[i].x; at--)
            m->outer[at] = m->outer[at - 1];
        if (at >= 0)
            m->outer[at] = p->modes[i];
    }
}

bool permutation_widen(permutation *p, int factor)
{
    permute_mode *inner = &p->modes[max_i64(p->rank, 1) - 1];
    bool divides = factor == 1 || (p->rank && inner->x == 1 && inner->y == 1 && inner->size % factor == 0);
    for (permute_mode *m = p->modes; m < inner; m++) {
        divides &= m->x % factor == 0 && m->y % factor == 0;
        m->x /= factor;
        m->y /= factor;
    }
    inner->size /= factor;
    p->bytes *= factor;
    return divides;
}

bool permutation_in_squares(permutation *p, int side, permute_mode *words)
{
    const int in_x = permutation_mode_at(p, true, 1), in_y = permutation_mode_at(p, false, 1);
    if (in_x < 0 || in_y < 0 || in_x == in_y)
        return false;
    permute_mode *x = &p->modes[in_x], *y = &p->modes[in_y];
    bool divides = x->size % side == 0 && y->size % side == 0 && x->y % side == 0 && y->x % side == 0;
    *words = (permute_mode){ side, y->x / side, x->y / side };
    *x = (permute_mode){ x->size / side, side, x->y * side };
    *y = (permute_mode){ y->size / side, y->x * side, side };
    p->bytes *= side;
    for (int i = 0; i < p->rank; i++) {
        divides &= p->modes[i].x % side == 0 && p->modes[i].y % side == 0;
        p->modes[i].x /= side;
        p->modes[i].y /= side;
    }
    return divides;
}

bool permutation_block(permutation *p, int block, int64_t *width, int64_t *height)
{
    const int in_x = permutation_mode_at(p, true, 1), in_y = permutation_mode_at(p, false, 1);
    if (in_x < 0 || in_y < 0)
        return false;
    const permute_mode x = p->modes[in_x], y = p->modes[in_y];
    int kept = 0;
    *width = x.size;
    *height = y.size;
    for (int i = 0; i < p->rank; i++)
        if (p->modes[i].x != 1 && p->modes[i].y != 1)
            p->modes[kept++] = p->modes[i];
    p->modes[kept++] = (permute_mode){ ceil_div(x.size, block), block, x.y * block };
    p->modes[kept++] = (permute_mode){ ceil_div(y.size, block), y.x * block, block };
    p->modes[kept++] = (permute_mode){ block, 1, x.y };
    p->modes[kept++] = (permute_mode){ block, y.x, 1 };
    p->rank = kept;
    return true;
}

int64_t permutation_elements(const permutation *p)
{
    int64_t count = p->empty ? 0 : 1;
    for (int i = 0; i < p->rank; i++)
        count *= p->modes[i].size;
    return count;
}

int permutation_bank_turns(const int64_t places[PERMUTE_WARP])
{
    enum { BANKS = 32 };
    int asked[BANKS] = { 0 }, most = 1;
    for (int lane = 0; lane < PERMUTE_WARP; lane++) {
        const int64_t word = places[lane] / 4;
        bool known = false;
        for (int other = 0; other < lane; other++)
            known |= places[other] / 4 == word;
        if (!known)
            most = (int)max_i64(most, ++asked[word % BANKS]);
    }
    return most;
}
