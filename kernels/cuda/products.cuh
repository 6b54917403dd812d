// Several matrices with the same columns, multiplied by the same rows in one launch.
#pragma once
#include "common.cuh"

constexpr int MOST_PRODUCTS = 4;
// Rows of weights that the tensor cores take at once.
constexpr int TILE_ROWS = 16;

struct Product {
    const void* weights;
    // Of quantised weights; else null.
    const void *scales, *minima;
    // [n], or null.
    const float* bias;
    // [tokens][n]
    float* out;
    int rows;
    // Where the product's blocks begin along the grid.
    int first_block;
};

struct Products {
    Product each[MOST_PRODUCTS];
    int count;
};

// The one that a block along the grid belongs to.
template <class Several>
DEVICE const auto& product_of(const Several& products, int block) {
    int index = 0;
#pragma unroll
    for (int next = 1; next < MOST_PRODUCTS; next++) {
        if (next < products.count && block >= products.each[next].first_block) index = next;
    }
    return products.each[index];
}

// What a block of threads computes of a product: rows from `row` on by tokens `token` to `end`.
struct Part {
    int row, token, end;
};

DEVICE Part part_of(const Product& product, int rows_a_block, int tokens_a_block, int tokens) {
    return {(int(blockIdx.x) - product.first_block) * rows_a_block, int(blockIdx.y) * tokens_a_block, tokens};
}

// ---- Products of experts: tokens stand in order of the experts that they go to (kernels/src/routes.rs), and a block takes a
// tile of them that belong to one.

// The weights of an expert, as in Product.
struct Expert {
    const void *weights, *scales, *minima;
    const float* bias;
};

// The tokens `first` to `end`; none where a launch has room for more tiles than there are.
struct Tile {
    unsigned expert, first, end;
};

struct ExpertProduct {
    const Expert* experts;
    float* out;
    int rows;
    int first_block;
};

struct ExpertProducts {
    ExpertProduct each[MOST_PRODUCTS];
    // One a row of the grid.
    const Tile* tiles;
    int count;
};

DEVICE Product product_of_expert(const ExpertProducts& products, unsigned expert) {
    const ExpertProduct& own = product_of(products, blockIdx.x);
    const Expert& weights = own.experts[expert];
    return {weights.weights, weights.scales, weights.minima, weights.bias, own.out, own.rows, own.first_block};
}

DEVICE Part part_of_tile(const Product& product, int rows_a_block, const Tile& tile) {
    return {(int(blockIdx.x) - product.first_block) * rows_a_block, int(tile.first), int(tile.end)};
}
