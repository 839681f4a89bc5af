// Label equivalence with atomics: every cell names a cell of its component with a smaller or equal
// index; cells that name themselves are roots.
// V. M. A. Oliveira, R. A. Lotufo, "A study on connected components labeling algorithms using
// GPUs", SIBGRAPI 2010 (merge by union-find); the merge without locks follows D. P. Playne,
// K. Hawick, "A new algorithm for parallel connected-component labelling on GPUs", IEEE TPDS 2018.
#pragma once

#include "samples.cuh"

#define NO_LABEL (-1)

// Labels may change under the reader: they only ever come nearer to the root.
OP int find_root(const volatile int* labels, int index)
{
    int parent = labels[index];
    while (parent != index) {
        index = parent;
        parent = labels[index];
    }
    return index;
}

OP void unite(int* labels, int a, int b)
{
    a = find_root(labels, a);
    b = find_root(labels, b);
    while (a != b) {
        int high = max(a, b), low = min(a, b);
        int before = atomicMin(labels + high, low);
        if (before == high)
            return;
        // Somebody linked `high` elsewhere first: that component must be joined too.
        a = before;
        b = low;
    }
}

// Start of the run of ones that ends at `lane` in a row of 32 cells.
OP int run_start(u32 row, int lane)
{
    u32 gaps = ~row & ((1u << lane) - 1u);
    return gaps == 0 ? 0 : 32 - __clz((int)gaps);
}
