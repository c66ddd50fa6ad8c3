/* conv_halves.h - two CTAs of a cluster split K of a tile; each finishes half of its columns. */
#pragma once

#include "cute/tensor.h"

/* What a CTA has for it, for each warpgroup of consumers. */
typedef struct conv_halves {
    int consumers, columns; // warpgroups; columns that a CTA finishes
    tensor sSums;           // (2,THREADS,PAIRS,CONSUMERS): the other CTA's sums of this one's columns
    int64_t arrived, taken; // a barrier for each consumer: they are here; the other CTA has read those sent to it
} conv_halves;

/* Bytes of shared memory; the first thread of a CTA makes the barriers, and then the cluster meets. */
int64_t conv_halves_bytes(int consumers, int columns);
conv_halves conv_halves_memory(int consumers, int columns);
void conv_halves_init(const conv_halves *halves);

/* One consumer's view: of 128 threads that meet at a named barrier; parity: a variable, 0 first, which alternates. */
typedef struct conv_halves_role {
    val index, tid, barrier, parity;
} conv_halves_role;

/*
 * The first columns of acc become the sums of both CTAs for the columns that this one finishes: those from rank *
 * columns on.
 */
void conv_halves_sum(const conv_halves *halves, const conv_halves_role *role, tensor acc);

/* Before a consumer leaves: waits until the other CTA, which will signal this one, has read what was sent last. */
void conv_halves_leave(const conv_halves *halves, const conv_halves_role *role);
