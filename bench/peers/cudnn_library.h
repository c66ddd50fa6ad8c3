/*
 * cudnn_library.h - the part of cuDNN 9's graph API that we call, declared here so that building needs no CUDA headers.
 * Names and values are those of cudnn_graph.h; the library is opened at run time.
 */
#pragma once

#include "base/status.h"

typedef int dnn_status; // 0 is success, 3000 to 3999 is not supported
typedef struct cudnnContext *dnn_handle;
typedef void *dnn_desc;

/* Types of tensors and of sums. */
enum { DNN_FLOAT = 0, DNN_HALF = 2, DNN_INT8 = 3, DNN_INT32 = 4, DNN_BFLOAT16 = 9 };

/* Of attributes. */
enum {
    DNN_OF_HANDLE = 0,
    DNN_OF_DATA_TYPE = 1,
    DNN_OF_BOOLEAN = 2,
    DNN_OF_INT64 = 3,
    DNN_OF_FLOAT = 4,
    DNN_OF_POINTER = 6,
    DNN_OF_CONVOLUTION_MODE = 7,
    DNN_OF_HEURISTIC_MODE = 8,
    DNN_OF_KNOB_TYPE = 9,
    DNN_OF_DESC = 15
};

/* Descriptors. */
enum {
    DNN_CONVOLUTION = 1,
    DNN_ENGINE = 2,
    DNN_CONFIG = 3,
    DNN_HEURISTIC = 4,
    DNN_PLAN = 5,
    DNN_KNOB_CHOICE = 7,
    DNN_FORWARD = 10,
    DNN_BACKWARD_FILTER = 11,
    DNN_BACKWARD_DATA = 12,
    DNN_GRAPH = 15,
    DNN_VARIANT_PACK = 16,
    DNN_TENSOR = 17
};

/* Attributes. */
enum {
    DNN_CONVOLUTION_COMP_TYPE = 100,
    DNN_CONVOLUTION_CONV_MODE = 101,
    DNN_CONVOLUTION_DILATIONS = 102,
    DNN_CONVOLUTION_FILTER_STRIDES = 103,
    DNN_CONVOLUTION_POST_PADDINGS = 104,
    DNN_CONVOLUTION_PRE_PADDINGS = 105,
    DNN_CONVOLUTION_SPATIAL_DIMS = 106,
    DNN_HEURISTIC_MODE = 200,
    DNN_HEURISTIC_GRAPH = 201,
    DNN_HEURISTIC_RESULTS = 202,
    DNN_CONFIG_ENGINE = 300,
    DNN_CONFIG_KNOB_CHOICES = 302,
    DNN_PLAN_HANDLE = 400,
    DNN_PLAN_CONFIG = 401,
    DNN_PLAN_WORKSPACE_SIZE = 402,
    DNN_KNOB_CHOICE_TYPE = 600,
    DNN_KNOB_CHOICE_VALUE = 601,
    DNN_FORWARD_ALPHA = 700, // then beta, convolution, w, x, y
    DNN_DATA_ALPHA = 706,    // then beta, convolution, w, dx, dy
    DNN_FILTER_ALPHA = 712,  // then beta, convolution, dw, x, dy
    DNN_GRAPH_HANDLE = 800,
    DNN_GRAPH_OPS = 801,
    DNN_GRAPH_ENGINE_COUNT = 802,
    DNN_TENSOR_ALIGNMENT = 900,
    DNN_TENSOR_DATA_TYPE = 901,
    DNN_TENSOR_DIMENSIONS = 902,
    DNN_TENSOR_STRIDES = 903,
    DNN_TENSOR_UNIQUE_ID = 906,
    DNN_PACK_UNIQUE_IDS = 1000,
    DNN_PACK_POINTERS = 1001,
    DNN_PACK_WORKSPACE = 1003,
    DNN_ENGINE_GRAPH = 1300,
    DNN_ENGINE_INDEX = 1301
};

enum { DNN_CROSS_CORRELATION = 1, DNN_MODE_B = 1, DNN_MODE_FALLBACK = 2, DNN_MODE_A = 3, DNN_KNOBS_MAX = 64 };

/* X(function, parameters); every one returns a dnn_status. */
#define DNN_FUNCTIONS(X)                                                                                     \
    X(cudnnCreate, (dnn_handle * handle))                                                                    \
    X(cudnnSetStream, (dnn_handle handle, void *stream))                                                     \
    X(cudnnBackendCreateDescriptor, (int type, dnn_desc *desc))                                              \
    X(cudnnBackendDestroyDescriptor, (dnn_desc desc))                                                        \
    X(cudnnBackendFinalize, (dnn_desc desc))                                                                 \
    X(cudnnBackendSetAttribute, (dnn_desc desc, int attribute, int type, int64_t count, const void *values)) \
    X(cudnnBackendGetAttribute,                                                                              \
      (dnn_desc desc, int attribute, int type, int64_t requested, int64_t *count, void *values))             \
    X(cudnnBackendExecute, (dnn_handle handle, dnn_desc plan, dnn_desc pack))

typedef struct dnn_library {
#define X(function, parameters) dnn_status(*function) parameters;
    DNN_FUNCTIONS(X)
#undef X
    size_t (*cudnnGetVersion)(void);
} dnn_library;

/* The functions; all NULL until dnn_load() has succeeded. */
extern dnn_library dnn;

/* Opens the library, once; CKL_UNSUPPORTED says where it was looked for and how to get it. CKL_CUDNN may name it. */
ckl_status dnn_load(void);
