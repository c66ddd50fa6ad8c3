/*
 * operands.h - the memory of a case: filled inputs, poisoned outputs, canaries around and between.
 *
 * Images hold every operand on the host, from its first canary to its last: `image` before a run, `after` after it.
 * Device memory may exist several times (a benchmark rotates through sets so that the L2 cache is cold); all sets start
 * from the same images.
 */
#pragma once

#include "lab/case.h"

typedef struct operand_image {
    operand info;
    int64_t rows, columns; // columns: the innermost dimension, rows: all others
    int64_t span;          // elements from the first to behind the last, padding included; 0 if there is none
    size_t bytes;          // of an image: canary, displacement, span, canary
    size_t start;          // byte of element 0 in an image
    unsigned char *image, *after;
} operand_image;

typedef struct operand_images {
    int count;
    operand_image each[OPERANDS_MAX];
    void *host[OPERANDS_MAX]; // element 0 of each image, as operator_test.reference takes it; NULL if absent

    unsigned char poison; // in the elements of outputs
    double effort;        // of comparisons, as part of the usual one's work on large problems; 0: all of it
    int roundings;        // of intermediate results to the output's type that a comparison allows
    bool keep_references; // of slices once compared: for callers that compare several results of the same inputs
    reference_slice *references[OPERANDS_MAX]; // of each output, in the order of the sample
    int64_t reference_count[OPERANDS_MAX];
} operand_images;

typedef struct operand_set {
    void *allocation[OPERANDS_MAX];
    void *pointer[OPERANDS_MAX]; // element 0, or what a call gets in its place: the args of a run
} operand_set;

/* CKL_NO_MEMORY, with a sentence, if the host has no room for the images: said before anything is allocated. */
ckl_status operand_images_fit(const test_case *c, const ckl_device_info *device);

/* Bytes of the images of a case for a GPU, and how many more the host has room for. */
double operand_images_bytes(const test_case *c);
double operand_room(void);

/*
 * Makes and fills the images of a case. An emulated device gets no canaries: it checks every access against the
 * allocation, which must then end where the tensor ends. Free them also after a failure.
 */
ckl_status operand_images_create(const test_case *c, const ckl_device_info *device, operand_images *images);
void operand_images_free(operand_images *images);

/* Fills every element of outputs with a byte: 0xff is a NaN of every float type. In-out operands keep their input. */
void operand_images_poison(operand_images *images, unsigned char byte);

/* One set of device memory. Free it also after a failure. */
ckl_status operand_set_create(ckl_device *device, const operand_images *images, operand_set *set);
void operand_set_free(ckl_device *device, operand_set *set);

typedef enum operand_part { OPERANDS_ALL, OPERANDS_INPUTS, OPERANDS_OUTPUTS } operand_part;

/* Copies images to the device; copies operands back to `after`. */
ckl_status operand_set_write(ckl_device *device, const operand_images *images, const operand_set *set,
                             operand_part part, ckl_stream stream);
ckl_status operand_set_read(ckl_device *device, operand_images *images, const operand_set *set, operand_part part,
                            ckl_stream stream);

/* A hash of what operand_set_read() brought back of the outputs: equal bits, equal digest (FNV-1a, 64 bits). */
uint64_t operand_images_digest(const operand_images *images);

/* Does every element between an operand's first and last belong to it? */
bool operand_is_dense(const operand_image *o);

/* The type of an operand's elements after a run. */
ckl_dtype operand_result(const operand *o);

/* The index in elements of column 0 of a row. */
int64_t operand_row_start(const operand_image *o, int64_t row);

/* The byte of an element in an image. */
size_t operand_byte(const operand_image *o, int64_t row, int64_t column);

/* A run of elements without gaps in memory: parallel loops over an operand take one at a time. */
typedef struct operand_run {
    size_t byte; // in an image
    int64_t count;
} operand_run;

int64_t operand_run_count(const operand_image *o);
operand_run operand_run_at(const operand_image *o, int64_t i);
