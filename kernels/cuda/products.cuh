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

DEVICE const Product& product_of(const Products& products, int block) {
    int index = 0;
#pragma unroll
    for (int next = 1; next < MOST_PRODUCTS; next++) {
        if (next < products.count && block >= products.each[next].first_block) index = next;
    }
    return products.each[index];
}
