/*
 * fake_cudnn.c - a library with the functions of cuDNN's graph API that the peer calls. A descriptor keeps what it is
 * told; a graph has three engines, of which the heuristics name some, with a knob or without; a run computes nothing,
 * but is remembered.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/peers/cudnn_library.h"

#define EXPORT __attribute__((visibility("default")))

enum { ATTRIBUTES_MAX = 16, VALUES_MAX = 8, ENGINES = 3, INVALID = 2000, UNSUPPORTED = 3000 };

typedef struct fake_attribute {
    int name;
    int64_t count, values[VALUES_MAX]; // of 8 bytes each: smaller ones are not looked at
} fake_attribute;

typedef struct fake_desc {
    int type, count;
    bool final;
    int64_t engine, knob; // of a configuration, an engine or a choice of a knob; knob 0: none
    fake_attribute attributes[ATTRIBUTES_MAX];
} fake_desc;

static int alive;
static fake_desc last_pack;

EXPORT int fake_cudnn_alive(void);
EXPORT int fake_cudnn_alive(void)
{
    return alive;
}

static fake_attribute *find(fake_desc *d, int name)
{
    for (int i = 0; i < d->count; i++)
        if (d->attributes[i].name == name)
            return &d->attributes[i];
    return NULL;
}

/* The pointer that the last run got for a tensor. */
EXPORT void *fake_cudnn_pointer(int64_t id);
EXPORT void *fake_cudnn_pointer(int64_t id)
{
    const fake_attribute *ids = find(&last_pack, DNN_PACK_UNIQUE_IDS), *data = find(&last_pack, DNN_PACK_POINTERS);
    for (int i = 0; ids && i < ids->count; i++)
        if (ids->values[i] == id)
            return (void *)(uintptr_t)data->values[i];
    return NULL;
}

EXPORT dnn_status cudnnCreate(dnn_handle *handle);
EXPORT dnn_status cudnnCreate(dnn_handle *handle)
{
    *handle = (dnn_handle)&alive;
    return 0;
}

EXPORT dnn_status cudnnSetStream(dnn_handle handle, void *stream);
EXPORT dnn_status cudnnSetStream(dnn_handle handle, void *stream)
{
    return handle && !stream ? 0 : INVALID;
}

EXPORT size_t cudnnGetVersion(void);
EXPORT size_t cudnnGetVersion(void)
{
    return 9;
}

EXPORT dnn_status cudnnBackendCreateDescriptor(int type, dnn_desc *desc);
EXPORT dnn_status cudnnBackendCreateDescriptor(int type, dnn_desc *desc)
{
    fake_desc *d = calloc(1, sizeof *d);
    d->type = type;
    *desc = d;
    alive++;
    return 0;
}

EXPORT dnn_status cudnnBackendDestroyDescriptor(dnn_desc desc);
EXPORT dnn_status cudnnBackendDestroyDescriptor(dnn_desc desc)
{
    free(desc);
    alive--;
    return 0;
}

EXPORT dnn_status cudnnBackendSetAttribute(dnn_desc desc, int attribute, int type, int64_t count, const void *values);
EXPORT dnn_status cudnnBackendSetAttribute(dnn_desc desc, int attribute, int type, int64_t count, const void *values)
{
    fake_desc *d = desc;
    const bool wide = type == DNN_OF_INT64 || type == DNN_OF_POINTER || type == DNN_OF_DESC || type == DNN_OF_HANDLE;
    if (d->final || d->count == ATTRIBUTES_MAX || count > VALUES_MAX || find(d, attribute))
        return INVALID;
    fake_attribute *a = &d->attributes[d->count++];
    *a = (fake_attribute){ .name = attribute, .count = count };
    memcpy(a->values, values, (size_t)count * (wide ? 8 : 4));
    if (attribute == DNN_ENGINE_INDEX)
        d->engine = a->values[0];
    if (attribute == DNN_CONFIG_ENGINE)
        d->engine = ((fake_desc *)(uintptr_t)a->values[0])->engine;
    return 0;
}

/* A tensor lacks nothing, and engine 2 has no default. */
EXPORT dnn_status cudnnBackendFinalize(dnn_desc desc);
EXPORT dnn_status cudnnBackendFinalize(dnn_desc desc)
{
    fake_desc *d = desc;
    if (d->type == DNN_TENSOR && d->count != 5)
        return INVALID;
    if (d->type == DNN_ENGINE && d->engine == 2)
        return UNSUPPORTED;
    d->final = true;
    return 0;
}

/* Mode A: engine 1 with a knob, engine 0; B: engine 0; fallback: engine 2. */
static dnn_status name_configs(fake_desc *heuristic, int64_t requested, int64_t *count, fake_desc **configs)
{
    const int64_t mode = find(heuristic, DNN_HEURISTIC_MODE)->values[0];
    *count = mode == DNN_MODE_A ? 2 : 1;
    for (int i = 0; i < requested && i < *count; i++) {
        configs[i]->engine = mode == DNN_MODE_A ? 1 - i : mode == DNN_MODE_FALLBACK ? 2 : 0;
        configs[i]->knob = mode == DNN_MODE_A && i == 0 ? 7 : 0;
    }
    return 0;
}

EXPORT dnn_status cudnnBackendGetAttribute(dnn_desc desc, int attribute, int type, int64_t requested, int64_t *count,
                                           void *values);
EXPORT dnn_status cudnnBackendGetAttribute(dnn_desc desc, int attribute, int type, int64_t requested, int64_t *count,
                                           void *values)
{
    fake_desc *d = desc, **descs = values;
    int64_t *numbers = values;
    *count = 1;
    switch (attribute) {
    case DNN_HEURISTIC_RESULTS:
        return name_configs(d, requested, count, descs);
    case DNN_CONFIG_ENGINE:
        descs[0]->engine = d->engine;
        return 0;
    case DNN_CONFIG_KNOB_CHOICES:
        *count = d->knob != 0;
        if (requested)
            descs[0]->knob = d->knob;
        return 0;
    case DNN_KNOB_CHOICE_TYPE:
        *(int *)values = 2;
        return type == DNN_OF_KNOB_TYPE ? 0 : INVALID;
    case DNN_KNOB_CHOICE_VALUE:
        numbers[0] = d->knob;
        return 0;
    case DNN_ENGINE_INDEX:
        numbers[0] = d->engine;
        return 0;
    case DNN_GRAPH_ENGINE_COUNT:
        numbers[0] = ENGINES;
        return 0;
    case DNN_PLAN_WORKSPACE_SIZE:
        numbers[0] = 64;
        return 0;
    default:
        return INVALID;
    }
}

EXPORT dnn_status cudnnBackendExecute(dnn_handle handle, dnn_desc plan, dnn_desc pack);
EXPORT dnn_status cudnnBackendExecute(dnn_handle handle, dnn_desc plan, dnn_desc pack)
{
    last_pack = *(fake_desc *)pack;
    return handle && ((fake_desc *)plan)->final && last_pack.final ? 0 : INVALID;
}
