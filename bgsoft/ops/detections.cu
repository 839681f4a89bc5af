// From the face detector's raw output to faces, in float32: a warp a view on a device, all views of a
// batch in one launch.
//
// Predictions that overlap are merged into their mean, weighted by score: the best that is left takes
// all that overlap it, and the face has its score (V. Bazarevsky et al., "BlazeFace: Sub-millisecond
// Neural Face Detection on Mobile GPUs", 2019, section 4: this is what keeps detections steady over
// time).
#include "views.cuh"

#define LANES TOGETHER(32)
#define MAX_ANCHORS 896
#define VALUES 16  // centre, width and height, six key points: relative to the anchor's centre

#if ON_DEVICE
OP u32 votes(bool value) { return __ballot_sync(0xffffffffu, value); }
OP int count_of(u32 votes) { return __popc(votes); }
OP void meet() { __syncwarp(); }
template <class T>
OP T of_lane(T value, int apart)
{
    return __shfl_xor_sync(0xffffffffu, value, apart);
}
#else
OP u32 votes(bool value) { return value; }
OP int count_of(u32 votes) { return (int)votes; }
OP void meet() {}
template <class T>
OP T of_lane(T value, int)
{
    return value;
}
#endif

struct Corners {
    float left, top, right, bottom;
};

OP Corners box_of(const float* row, const float* centre)
{
    float x = row[0] + centre[0], y = row[1] + centre[1];
    float half_width = row[2] * 0.5f, half_height = row[3] * 0.5f;
    return {x - half_width, y - half_height, x + half_width, y + half_height};
}

OP float overlap_of(const Corners& a, const Corners& b)
{
    float width = fminf(a.right, b.right) - fmaxf(a.left, b.left);
    float height = fminf(a.bottom, b.bottom) - fmaxf(a.top, b.top);
    if (width <= 0.0f || height <= 0.0f)
        return 0.0f;
    float shared = width * height;
    float both = (a.right - a.left) * (a.bottom - a.top) + (b.right - b.left) * (b.bottom - b.top);
    return shared / (both - shared);
}

// Whether a row has an area, and numbers only.
OP bool is_box(const float* row)
{
    bool is = row[2] > 0.0f && row[3] > 0.0f;
    for (int i = 0; i < VALUES; i++)
        is = is && fabsf(row[i]) <= 3.4e38f;  // false for NaN, too
    return is;
}

// What one view's output holds.
struct Predictions {
    const float *boxes, *logits, *centres;
    int anchors;

    // Those that are sure enough, in the order of their anchors whatever the lanes' order; how many.
    OP int choose(float min_logit, int lane, short* chosen) const
    {
        int count = 0;
        for (int first = 0; first < anchors; first += LANES) {
            int anchor = first + lane;
            bool keep = anchor < anchors && logits[anchor] >= min_logit &&
                        is_box(boxes + anchor * VALUES);
            u32 kept = votes(keep);
            if (keep)
                chosen[count + count_of(kept & ((1u << lane) - 1u))] = (short)anchor;
            count += count_of(kept);
        }
        meet();
        return count;
    }

    // The surer of two, of equals the first; negative: none.
    OP int surer(int one, int other) const
    {
        if (one < 0 || other < 0)
            return max(one, other);
        if (logits[one] == logits[other])
            return min(one, other);
        return logits[one] > logits[other] ? one : other;
    }

    OP int surest(const short* chosen, int count, int lane) const
    {
        int best = -1;
        for (int i = lane; i < count; i += LANES)
            best = surer(best, chosen[i]);
        for (int apart = LANES / 2; apart > 0; apart /= 2)
            best = surer(best, of_lane(best, apart));
        return best;
    }

    // The mean of all that overlap the best, which are gone afterwards: 16 values and the score.
    OP void merge(
        int best, float max_overlap, const View& view, short* chosen, int count, int lane,
        float* face) const
    {
        Corners middle = box_of(boxes + best * VALUES, centres + best * 2);
        float weight = 0.0f, sums[VALUES];
        for (int k = 0; k < VALUES; k++)
            sums[k] = 0.0f;
        for (int i = lane; i < count; i += LANES) {
            int anchor = chosen[i];
            if (anchor < 0)
                continue;
            const float *row = boxes + anchor * VALUES, *centre = centres + anchor * 2;
            Corners box = box_of(row, centre);
            if (anchor != best && !(overlap_of(box, middle) > max_overlap))
                continue;
            chosen[i] = -1;
            float w = probability(logits[anchor]);
            weight += w;
            sums[0] += w * box.left;
            sums[1] += w * box.top;
            sums[2] += w * box.right;
            sums[3] += w * box.bottom;
            for (int k = 4; k < VALUES; k++)
                sums[k] += w * (row[k] + centre[k & 1]);
        }
        for (int apart = LANES / 2; apart > 0; apart /= 2) {
            weight += of_lane(weight, apart);
            for (int k = 0; k < VALUES; k++)
                sums[k] += of_lane(sums[k], apart);
        }
        if (lane == 0) {
            for (int k = 0; k < VALUES; k++)
                face[k] = sums[k] / weight * (k & 1 ? view.y_y : view.x_x) +
                          (k & 1 ? view.y_0 : view.x_0);
            face[VALUES] = probability(logits[best]);
        }
        meet();
    }
};

// Faces of each view, best first.
// shown: what each view is, without rotation. boxes: (views, anchors, 16); logits: (views, anchors);
// centres: (anchors, 2), input pixels. found: (views, 1 + 17 * max_faces): how many, then of each left,
// top, right, bottom and six key points x, y in frame pixels, and the score; the rest is left as it is.
// Launch with LANES threads a block and a block a view; anchors must be MAX_ANCHORS or fewer.
KERNEL(find_faces)(
    const View* shown, const float* boxes, const float* logits, const float* centres, float* found,
    int views, int anchors, int max_faces, float min_logit, float max_overlap)
{
    SHARED short chosen[MAX_ANCHORS];
    for_blocks(views, [&](int view, int lane) INLINED {
        const size_t first = (size_t)view * anchors;
        const Predictions all = {boxes + first * VALUES, logits + first, centres, anchors};
        const int candidates = all.choose(min_logit, lane, chosen);
        float *number = found + (size_t)view * (1 + max_faces * (VALUES + 1)), *face = number + 1;
        int count = 0;
        for (; count < max_faces; count++, face += VALUES + 1) {
            const int best = all.surest(chosen, candidates, lane);
            if (best < 0)
                break;
            all.merge(best, max_overlap, shown[view], chosen, candidates, lane, face);
        }
        if (lane == 0)
            *number = (float)count;
    });
}
