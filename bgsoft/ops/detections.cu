// From the face detector's raw output to faces: one warp a view, all views of a batch in one launch.
// Counterpart: bgsoft/face/detect.py (decode, then weighted_nms), which computes in float64; here
// everything is float32, so places differ by parts of a thousandth of an input pixel.
#include "samples.cuh"

#include "views.cuh"

#define LANES 32
#define MAX_ANCHORS 896
#define VALUES 16  // centre, width and height, six key points

// Centre, size and key points relative to the anchor, as the network gives them.
struct Prediction {
    float left, top, right, bottom;
};

OP Prediction box_of(const float* row, const float* centre)
{
    float x = row[0] + centre[0], y = row[1] + centre[1];
    float half_width = row[2] * 0.5f, half_height = row[3] * 0.5f;
    return {x - half_width, y - half_height, x + half_width, y + half_height};
}

OP float overlap_of(const Prediction& a, const Prediction& b)
{
    float width = fminf(a.right, b.right) - fmaxf(a.left, b.left);
    float height = fminf(a.bottom, b.bottom) - fmaxf(a.top, b.top);
    if (width <= 0.0f || height <= 0.0f)
        return 0.0f;
    float shared = width * height;
    float both = (a.right - a.left) * (a.bottom - a.top) + (b.right - b.left) * (b.bottom - b.top);
    return shared / (both - shared);
}

OP bool is_number(float value)
{
    return fabsf(value) <= 3.4e38f;  // false for NaN, too
}

OP float probability(float logit)
{
    return 1.0f / (1.0f + expf(-fminf(fmaxf(logit, -60.0f), 60.0f)));
}

// Faces of each view, best first.
// shown: what each view is, without rotation. boxes: (views, anchors, 16); logits: (views, anchors);
// centres: (anchors, 2), input pixels. counts: (views) int32; faces: (views, max_faces, 17): left,
// top, right, bottom and six key points x, y in frame pixels; score. Rows beyond a view's count are left as they are. Launch with LANES threads a block
// and a block a view; anchors must be MAX_ANCHORS or fewer.
extern "C" __global__ void find_faces(
    const View* __restrict__ shown, const float* __restrict__ boxes,
    const float* __restrict__ logits, const float* __restrict__ centres, int* __restrict__ counts, float* __restrict__ faces,
    int anchors, int max_faces, float min_logit, float max_overlap)
{
    __shared__ short chosen[MAX_ANCHORS];
    int view = blockIdx.x, lane = threadIdx.x;
    const unsigned all = 0xffffffffu;
    boxes += (size_t)view * anchors * VALUES;
    logits += (size_t)view * anchors;
    faces += (size_t)view * max_faces * (VALUES + 1);

    // Candidates in the order of their anchors, whatever the lanes' order.
    int candidates = 0;
    for (int first = 0; first < anchors; first += LANES) {
        int anchor = first + lane;
        bool keep = anchor < anchors && logits[anchor] >= min_logit;
        if (keep) {
            const float* row = boxes + anchor * VALUES;
            keep = row[2] > 0.0f && row[3] > 0.0f;
            for (int i = 0; i < VALUES; i++)
                keep = keep && is_number(row[i]);
        }
        unsigned kept = __ballot_sync(all, keep);
        if (keep)
            chosen[candidates + __popc(kept & ((1u << lane) - 1u))] = (short)anchor;
        candidates += __popc(kept);
    }
    __syncwarp();

    int count = 0;
    while (count < max_faces) {
        // The surest that is left; of equals, the first.
        float best_logit = 0.0f;
        int best = MAX_ANCHORS;
        for (int i = lane; i < candidates; i += LANES) {
            int anchor = chosen[i];
            if (anchor >= 0 && (best == MAX_ANCHORS || logits[anchor] > best_logit)) {
                best = anchor;
                best_logit = logits[anchor];
            }
        }
        for (int step = LANES / 2; step > 0; step /= 2) {
            float other_logit = __shfl_xor_sync(all, best_logit, step);
            int other = __shfl_xor_sync(all, best, step);
            bool better = other < MAX_ANCHORS && (best == MAX_ANCHORS || other_logit > best_logit ||
                                                  (other_logit == best_logit && other < best));
            if (better) {
                best = other;
                best_logit = other_logit;
            }
        }
        if (best == MAX_ANCHORS)
            break;

        // The mean of all that overlap it, weighted by their scores; they are gone afterwards.
        Prediction middle = box_of(boxes + best * VALUES, centres + best * 2);
        float weight = 0.0f, sums[VALUES];
        for (int i = 0; i < VALUES; i++)
            sums[i] = 0.0f;
        for (int i = lane; i < candidates; i += LANES) {
            int anchor = chosen[i];
            if (anchor < 0)
                continue;
            const float* row = boxes + anchor * VALUES;
            const float* centre = centres + anchor * 2;
            Prediction box = box_of(row, centre);
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
        for (int step = LANES / 2; step > 0; step /= 2) {
            weight += __shfl_xor_sync(all, weight, step);
            for (int k = 0; k < VALUES; k++)
                sums[k] += __shfl_xor_sync(all, sums[k], step);
        }
        if (lane == 0) {
            float* face = faces + count * (VALUES + 1);
            for (int k = 0; k < VALUES; k++)
                face[k] = sums[k] / weight * (k & 1 ? shown[view].y_y : shown[view].x_x) +
                          (k & 1 ? shown[view].y_0 : shown[view].x_0);
            face[VALUES] = probability(best_logit);
        }
        count++;
        __syncwarp();
    }
    if (lane == 0)
        counts[view] = count;
}
