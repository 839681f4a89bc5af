// From the face detector's raw output to faces.
//
// Launched by bgsoft/face/detect.py, on the host: a device's output is copied there.
//
// A prediction's score is the root of its class score times its object score, its box has the centre
// (cell + offset) * stride and the size exp(value) * stride (FaceDetectorYN of OpenCV,
// modules/objdetect/src/face_detect.cpp). Predictions that overlap the best by more than `max_overlap` are one
// face; those that overlap it by half are averaged, weighted by score, which keeps boxes steady over time.
#include "drivers.cuh"

#define VALUES 16     // of a prediction: class and object score, box, five key points
#define FACE 15       // of a face: centre, size, five key points x, y in frame pixels, score
#define SAME_BOX 0.5  // intersection over union of predictions that are averaged

struct Cell {
    float column, row, stride;
};

// The score; 0 for NaN.
OP float score_of(const float *row)
{
    return sqrtf(fminf(fmaxf(row[0], 0.0f), 1.0f) * fminf(fmaxf(row[1], 0.0f), 1.0f));
}

OP double magnitude(double value) { return value < 0.0 ? -value : value; }

// Centre, size and key points in pixels of the view.
struct Prediction {
    double at[FACE - 1];

    OP Prediction(const float *row, const Cell &cell)
    {
        const double stride = (double)cell.stride, corner[] = {(double)cell.column, (double)cell.row};
        for (int i = 0; i < 2; i++) {
            at[i] = (corner[i] + (double)row[2 + i]) * stride;
            at[2 + i] = exp((double)fminf(row[4 + i], 8.0f)) * stride;
        }
        for (int i = 0; i < 10; i++)
            at[4 + i] = (corner[i & 1] + (double)row[6 + i]) * stride;
    }

    // Intersection over union of the boxes.
    OP double shared(const Prediction &other) const
    {
        double sides[2];
        for (int i = 0; i < 2; i++)
            sides[i] = min(at[i] + at[2 + i] / 2.0, other.at[i] + other.at[2 + i] / 2.0)
                - max(at[i] - at[2 + i] / 2.0, other.at[i] - other.at[2 + i] / 2.0);
        if (sides[0] <= 0.0 || sides[1] <= 0.0)
            return 0.0;
        const double both = sides[0] * sides[1];
        return both / (at[2] * at[3] + other.at[2] * other.at[3] - both);
    }
};

// Whether a row has numbers only.
OP bool is_finite_row(const float *row)
{
    bool is = true;
    for (int i = 0; i < VALUES; i++)
        is = is && fabsf(row[i]) <= 3.4e38f;  // false for NaN, too
    return is;
}

// Faces of each view, best first.
//
// places: (views, 6), Affine of bgsoft/face/geometry.py. rows: (views, cells, 16). cells: (cells, 3).
// left: (views, cells). scores: (views, cells). found: (views, 1 + 15 * max_faces): how many, then of each what FACE
// has; the rest is unchanged.
KERNEL(find_faces)(
    const double *places, const float *rows, const Cell *cells, int *left, float *scores, double *found,
    int views, int count, int max_faces, float min_score, float max_overlap)
{
    for_samples(1, views, [=](int, int view) INLINED {
        const double *place = places + 6 * view;
        const float *own = rows + (size_t)view * count * VALUES;
        int *candidates = left + (size_t)view * count;
        float *score = scores + (size_t)view * count;
        const auto prediction = [=](int cell) { return Prediction(own + cell * VALUES, cells[cell]); };
        int candidate_count = 0;
        for (int cell = 0; cell < count; cell++) {
            score[cell] = score_of(own + cell * VALUES);
            if (score[cell] >= min_score && is_finite_row(own + cell * VALUES))
                candidates[candidate_count++] = cell;
        }
        double *number = found + (size_t)view * (1 + max_faces * FACE), *face = number + 1;
        int faces = 0;
        for (; faces < max_faces && candidate_count > 0; faces++, face += FACE) {
            int best = candidates[0];
            for (int i = 1; i < candidate_count; i++)
                if (score[candidates[i]] > score[best])
                    best = candidates[i];
            const Prediction middle = prediction(best);
            double weight = 0.0, sums[FACE - 1] = {};
            int rest = 0;
            for (int i = 0; i < candidate_count; i++) {
                const int cell = candidates[i];
                const Prediction each = prediction(cell);
                const double shared = cell == best ? 1.0 : each.shared(middle);
                if (!(shared > (double)max_overlap))
                    candidates[rest++] = cell;
                if (shared < SAME_BOX)
                    continue;
                weight += (double)score[cell];
                for (int k = 0; k < FACE - 1; k++)
                    sums[k] += (double)score[cell] * each.at[k];
            }
            candidate_count = rest;
            for (int k = 0; k < FACE - 1; k += 2) {
                const double x = sums[k] / weight, y = sums[k + 1] / weight;
                const bool is_size = k == 2;
                face[k] = is_size ? magnitude(place[0]) * x + magnitude(place[1]) * y : place[0] * x + place[1] * y + place[2];
                face[k + 1] = is_size ? magnitude(place[3]) * x + magnitude(place[4]) * y
                                      : place[3] * x + place[4] * y + place[5];
            }
            face[FACE - 1] = (double)score[best];
        }
        *number = (double)faces;
    });
}
