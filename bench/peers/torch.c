/*
 * torch.c - PyTorch as a peer: Python runs inside of this process (python.c), so that torch works on the same memory,
 * in the same context and on the same stream as we do.
 *
 * torch_operators.py knows how to say each operator in torch, torch_peer.py has the functions that are called here. It
 * is looked for beside the program and in the source tree, or named by CKL_TORCH_PEER. torch.compile takes part, which
 * takes seconds a problem, unless CKL_TORCH_COMPILE=0; torch_peer.py has its other values.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "bench/peers/peers.h"
#include "bench/peers/python.h"

struct peer_problem {
    int number; // the script's
    json_t *variants;
};

static ckl_status find(void)
{
    static const char *const places[] = { "@/../bench/peers/torch_peer.py", "@/torch_peer.py",
                                          "bench/peers/torch_peer.py", NULL };
    char path[PEER_PATH_BYTES];
    if (!peer_find_file("CKL_TORCH_PEER", places, path))
        FAIL(CKL_UNSUPPORTED, "torch: torch_peer.py is not found; CKL_TORCH_PEER=path names it");
    return python_load(path);
}

static const char *compile_mode(void)
{
    const char *given = getenv("CKL_TORCH_COMPILE");
    return given ? given : "1";
}

/* The problem as JSON */

static json_t *write_fields(const test_case *c)
{
    json_t *out = json_object();
    for (int i = 0; i < c->test->line->problem.count; i++) {
        field_table one = { &c->test->line->problem.rows[i], 1 };
        text line = { 0 };
        fields_print(one, c->problem, false, &line);
        const char *value = strchr(text_data(&line), '=');
        json_object_set_new(out, one.rows[0].name, json_string(value ? value + 1 : ""));
        text_free(&line);
    }
    return out;
}

static json_t *write_operand(const operand *o)
{
    static const char *const roles[] = { [OPERAND_IN] = "in", [OPERAND_OUT] = "out", [OPERAND_IN_OUT] = "in_out" };
    bool is_there = o->dtype != CKL_DTYPE_DEFAULT;
    json_t *out = json_object(), *shape = json_array(), *stride = json_array();
    for (int d = 0; d < o->rank; d++) {
        json_array_append_new(shape, json_integer(o->shape[d]));
        json_array_append_new(stride, json_integer(o->stride[d]));
    }
    json_object_set_new(out, "name", json_string(o->name ? o->name : ""));
    json_object_set_new(out, "role", json_string(is_there ? roles[o->role] : "absent"));
    json_object_set_new(out, "dtype", json_string(ckl_dtype_name(o->dtype)));
    json_object_set_new(out, "shape", shape);
    json_object_set_new(out, "stride", stride);
    return out;
}

static char *write_problem(const test_case *c)
{
    operand infos[OPERANDS_MAX];
    json_t *operands = json_array();
    for (int i = 0, count = adapter_operands(c->test, c->problem, infos); i < count; i++)
        json_array_append_new(operands, write_operand(&infos[i]));
    json_t *problem = json_pack("{s:s, s:o, s:o, s:s}", "op", c->test->op->name, "fields", write_fields(c), "operands",
                                operands, "compile", compile_mode());
    char *written = json_dumps(problem, 0);
    json_decref(problem);
    return written;
}

/* The peer */

static void release(peer_problem *p)
{
    text unused = { 0 };
    (void)python_call(&unused, "release", "(i)", p->number);
    text_free(&unused);
    json_decref(p->variants);
    heap_free(p);
}

/* {"number": 3, "variants": ["torch 2.11.0 eager"]}, or {"unsupported": "why"} */
static ckl_status read_answer(const char *answer, peer_problem **out)
{
    json_error_t error;
    json_t *document = json_loads(answer, 0, &error);
    const char *reason = json_string_value(json_object_get(document, "unsupported"));
    json_t *variants = json_object_get(document, "variants");
    ckl_status status = CKL_OK;
    if (reason)
        status = status_fail(CKL_UNSUPPORTED, "torch: %s", reason);
    else if (json_array_size(variants) == 0)
        status = status_fail(CKL_UNSUPPORTED, "torch: no answer to a problem: %s", answer);
    if (status == CKL_OK) {
        *out = heap_alloc(1, sizeof **out);
        (*out)->number = (int)json_integer_value(json_object_get(document, "number"));
        (*out)->variants = json_incref(variants);
    }
    json_decref(document);
    return status;
}

static ckl_status prepare(const test_case *c, ckl_device *device, void *const *pointers, peer_problem **out)
{
    (void)device;
    (void)pointers;
    char *problem = write_problem(c);
    text answer = { 0 };
    ckl_status status = python_call(&answer, "prepare", "(s)", problem);
    if (status == CKL_OK)
        status = read_answer(text_data(&answer), out);
    text_free(&answer);
    free(problem);
    return status;
}

static int variants(const peer_problem *p)
{
    return (int)json_array_size(p->variants);
}

static void describe(const peer_problem *p, int variant, text *out)
{
    text_printf(out, "%s", json_string_value(json_array_get(p->variants, (size_t)variant)));
}

/* The script remembers sets of memory by the address of their list of pointers. */
static ckl_status ask(const char *function, const peer_problem *p, int variant, void *const *pointers,
                      ckl_stream stream)
{
    text fault = { 0 };
    ckl_status status = python_call(&fault, function, "(iiKK)", p->number, variant,
                                    (unsigned long long)(uintptr_t)pointers, (unsigned long long)(uintptr_t)stream);
    if (status == CKL_OK && fault.length)
        status = status_fail(CKL_UNSUPPORTED, "torch: %s", text_data(&fault));
    text_free(&fault);
    return status;
}

static ckl_status run(const peer_problem *p, int variant, void *const *pointers, ckl_stream stream)
{
    return ask("run", p, variant, pointers, stream);
}

static ckl_status finish(const peer_problem *p, int variant, void *const *pointers, ckl_stream stream)
{
    return ask("finish", p, variant, pointers, stream);
}

#define X(operator) const peer torch_##operator##_peer = PEER("torch", #operator, .finish = finish);
TORCH_PEERS(X)
#undef X
