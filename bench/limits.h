/* limits.h - what the hardware allows, measured: no row can be faster. */
#pragma once

#include "bench/results.h"
#include "cutekernellib/device.h"

/* FLOP per byte below which a problem is bound by memory on every GPU: its matrix limit need not be known. */
enum { LIMITS_MATRIX_INTENSITY = 16 };

/*
 * The bandwidth of a large copy, bytes read and written, of reading alone and of writing alone, and the time of an
 * empty kernel in a CUDA graph after L2 was overwritten, as rows are timed, into header->copy_gbs, read_gbs, write_gbs
 * and launch_us.
 */
ckl_status limits_measure_memory(ckl_device *device, ckl_stream stream, result_header *header);

/* The problems that tell the rate of the matrix units, of 16 and of 8 bits; NULL at the end. */
extern const char *const limits_matrix_lines[], *const limits_matrix8_lines[];

/*
 * The best rate of large products in 16 bits, cuBLASLt's or ours, into header->matrix_*; 0 and why if all of ours are
 * wrong.
 */
ckl_status limits_measure_matrix(ckl_device *device, ckl_stream stream, result_header *header);

/* The same in 8 bits, into header->matrix8_*. */
ckl_status limits_measure_matrix8(ckl_device *device, ckl_stream stream, result_header *header);

/*
 * Fills in limit_us, limit, of_limit, beyond_limit and shared of a row whose flops, bytes, l2, method and median are
 * known. The limit is the matrix rate of its types, the bandwidth (of copying as far as a row reads as much as it
 * writes, of reading or writing alone for the rest) or, of rows measured in graphs, an empty kernel, whichever takes
 * longest.
 * Peers that are faster than the hardware get a fault.
 */
void limits_apply(const result_header *header, result_row *row);
