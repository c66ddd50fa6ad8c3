/* peers.h - the libraries that we race against: one table row per library and operator. */
#pragma once

#include "lab/check.h"

enum { PEER_VARIANTS_MAX = 512, PEER_PATH_BYTES = 512 };

/* What a peer keeps for one problem: descriptors, workspace, algorithms. Each peer has its own. */
typedef struct peer_problem peer_problem;

typedef struct peer {
    const char *name; // "cublaslt"
    const char *op;   // whose problems it computes

    /* Finds the library: CKL_UNSUPPORTED says how to get it. Seconds at first. cuBLASLt's and torch's: any thread. */
    ckl_status (*find)(void);

    /* Makes ready for a problem; CKL_UNSUPPORTED if the peer does not compute it. The pointers tell the alignment. */
    ckl_status (*prepare)(const test_case *c, ckl_device *device, void *const *pointers, peer_problem **out);
    void (*release)(peer_problem *p);

    /* Its ways to compute the problem; number 0 is what its users get without searching. */
    int (*variants)(const peer_problem *p);
    void (*describe)(const peer_problem *p, int variant, text *out);

    /* Enqueues one run on the memory of a set, in the order of operator_test.operands. */
    ckl_status (*run)(const peer_problem *p, int variant, void *const *pointers, ckl_stream stream);

    /* After a run that leaves its results elsewhere: enqueues copies of them all to the operands. NULL: not needed. */
    ckl_status (*finish)(const peer_problem *p, int variant, void *const *pointers, ckl_stream stream);
} peer;

/* A row whose functions have the members' names: PEER("cub", "reduce"). More follows as .name = value. */
#define PEER(library, operator, ...)                                                                                 \
    {                                                                                                                \
        .name = library, .op = operator, .find = find, .prepare = prepare, .release = release, .variants = variants, \
        .describe = describe, .run = run, __VA_ARGS__                                                                \
    }

/* All peers, NULL at the end. */
extern const peer *const peers[];

/* Of that name; CKL_INVALID with the known names. "none" gives NULL. */
ckl_status peer_get(const char *name, const peer **out);

/* Is this a peer of the operator, and of the same name as `only` where that is not NULL? */
bool peer_competes(const peer *p, const char *op, const peer *only);

/* The first such peer of the list; NULL if there is none. */
const peer *peer_of(const char *op, const peer *only);

/*
 * The path of a peer's file: the one that an environment variable names, else the first of the places that can be read;
 * NULL ends them, and @ stands for the program's folder. False: there is none.
 */
bool peer_find_file(const char *variable, const char *const *places, char path[PEER_PATH_BYTES]);

/* A function that is called of a library, and the member of a struct of pointers that it goes to. */
typedef struct peer_function {
    const char *name;
    size_t offset;
} peer_function;

/* A library that is opened at run time. */
typedef struct peer_library {
    const char *name, *needed; // "cuBLASLt", and what is said where it lacks a function: "version 12 or later"
    const char *variable;      // of the environment; may name its file
    const char *places[5]; // where it is looked for if that is not set, up to NULL; @ stands for the program's folder
    const char *advice;    // how to get it
    const peer_function *functions;
    int count;
} peer_library;

/* Opens it and finds its functions, unless they are there. It stays loaded: it may start threads of its own. */
ckl_status peer_open(const peer_library *library, void *functions);

extern const peer cublaslt_peer, cub_peer, cudnn_peer;

/* The operators that PyTorch computes. */
#define TORCH_PEERS(X)  \
    X(attention)        \
    X(attention_decode) \
    X(conv)             \
    X(gemm)             \
    X(softmax)          \
    X(crossentropy)     \
    X(groupnorm)        \
    X(layernorm)        \
    X(rmsnorm)          \
    X(add)              \
    X(elementwise)      \
    X(reduce)           \
    X(transpose)        \
    X(permute)          \
    X(rope)

#define X(op) extern const peer torch_##op##_peer;
TORCH_PEERS(X)
#undef X
