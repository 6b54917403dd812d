// What the members of a group make of each other's numbers: kernels/src/ops/exchange.rs. One thread a value.
#include "lanes.cuh"

// parts [ranks][count], added in the order of ranks.
KERNEL void exchange_sum(float* x, const float* parts, Count count, unsigned ranks) {
    const Count i = own_index();
    if (i >= count) return;
    float sum = parts[i];
    for (unsigned rank = 1; rank < ranks; ++rank) sum = sum + parts[rank * count + i];
    x[i] = sum;
}
EMULATED(exchange_sum)

// parts [ranks][slot], a slot beginning with the rank's [rows, own share of width]; out [rows, width]. Rank r has the columns
// from r · width / ranks on.
KERNEL void exchange_columns(float* out, const float* parts, Count rows, Count width, Count slot, unsigned ranks) {
    const Count i = own_index();
    if (i >= rows * width) return;
    const Count row = i / width, column = i % width;
    const Count rank = ((column + 1) * ranks - 1) / width;
    const Count begin = rank * width / ranks, end = (rank + 1) * width / ranks;
    out[i] = parts[rank * slot + row * (end - begin) + column - begin];
}
EMULATED(exchange_columns)
