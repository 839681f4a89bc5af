// From the face detector's raw output to faces.
//
// Launched by bgsoft/face/detect.py, on the host: of a device's output some hundred kilobytes are sent there.
//
// Predictions that overlap are merged into their mean, weighted by score: the best that is left takes all
// that overlap it, and the face has its score (V. Bazarevsky et al., "BlazeFace: Sub-millisecond Neural Face
// Detection on Mobile GPUs", 2019, section 4: this is what keeps detections steady over time).
#include "drivers.cuh"

#define VALUES 16  // centre, width and height, six key points: relative to the anchor's centre

// 0 where the logit is no number.
OP double probability(float logit)
{
    return 1.0 / (1.0 + exp(-(double)fminf(60.0f, fmaxf(-60.0f, logit))));
}

// Left, top, right, bottom and the key points of a prediction.
struct Prediction {
    double at[VALUES];

    OP Prediction(const float *row, const float *centre)
    {
        for (int i = 0; i < VALUES; i++)
            at[i] = (double)row[i] + (double)centre[i & 1];
        for (int i = 0; i < 2; i++) {
            const double half = (double)row[2 + i] / 2.0;
            at[2 + i] = at[i] + half;
            at[i] -= half;
        }
    }

    // Intersection over union of the boxes.
    OP double shared(const Prediction &other) const
    {
        const double width = min(at[2], other.at[2]) - max(at[0], other.at[0]);
        const double height = min(at[3], other.at[3]) - max(at[1], other.at[1]);
        if (width <= 0.0 || height <= 0.0)
            return 0.0;
        return width * height / (area() + other.area() - width * height);
    }

    OP double area() const { return (at[2] - at[0]) * (at[3] - at[1]); }
};

// Whether a row has an area, and numbers only.
OP bool is_box(const float *row)
{
    bool is = row[2] > 0.0f && row[3] > 0.0f;
    for (int i = 0; i < VALUES; i++)
        is = is && fabsf(row[i]) <= 3.4e38f;  // false for NaN, too
    return is;
}

// Faces of each view, best first.
//
// places: (views, 6), Affine of bgsoft/face/geometry.py, without rotation. boxes: (views, anchors, 16).
// logits: (views, anchors). centres: (anchors, 2), input pixels. left: (views, anchors). found: (views,
// 1 + 17 * most), how many, then of each left, top, right, bottom and six key points x, y in frame pixels,
// and the score; the rest is left as it is.
KERNEL(find_faces)(
    const double *places, const float *boxes, const float *logits, const float *centres, short *left,
    double *found, int views, int anchors, int most, float min_logit, float max_overlap)
{
    for_samples(1, views, [=](int, int view) INLINED {
        const double *place = places + 6 * view;
        const float *rows = boxes + (size_t)view * anchors * VALUES;
        const float *sure = logits + (size_t)view * anchors;
        short *candidates = left + (size_t)view * anchors;
        const auto prediction = [=](int anchor) {
            return Prediction(rows + anchor * VALUES, centres + 2 * anchor);
        };
        int count = 0;
        for (int anchor = 0; anchor < anchors; anchor++)
            if (sure[anchor] >= min_logit && is_box(rows + anchor * VALUES))
                candidates[count++] = (short)anchor;
        double *number = found + (size_t)view * (1 + most * (VALUES + 1)), *face = number + 1;
        int faces = 0;
        for (; faces < most && count > 0; faces++, face += VALUES + 1) {
            int best = candidates[0];
            for (int i = 1; i < count; i++)
                if (sure[candidates[i]] > sure[best])
                    best = candidates[i];
            const Prediction middle = prediction(best);
            double weight = 0.0, sums[VALUES] = {};
            int rest = 0;
            for (int i = 0; i < count; i++) {
                const int anchor = candidates[i];
                const Prediction each = prediction(anchor);
                if (anchor != best && !(each.shared(middle) > (double)max_overlap)) {
                    candidates[rest++] = (short)anchor;
                    continue;
                }
                const double score = probability(sure[anchor]);
                weight += score;
                for (int k = 0; k < VALUES; k++)
                    sums[k] += score * each.at[k];
            }
            count = rest;
            for (int k = 0; k < VALUES; k++)
                face[k] = sums[k] / weight * place[k & 1 ? 4 : 0] + place[k & 1 ? 5 : 2];
            face[VALUES] = probability(sure[best]);
        }
        *number = (double)faces;
    });
}
