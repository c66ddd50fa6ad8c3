/* text.c - a string that grows by doubling. */
#include "base/text.h"

#include <stdio.h>
#include <string.h>

#include "base/heap.h"

static void reserve(text *t, size_t more)
{
    size_t need = t->length + more + 1;
    if (need <= t->capacity)
        return;
    size_t capacity = t->capacity ? t->capacity : 256;
    while (capacity < need)
        capacity *= 2;
    t->data = heap_resize(t->data, capacity, 1);
    t->capacity = capacity;
}

const char *text_data(const text *t)
{
    return t->data ? t->data : "";
}

void text_append(text *t, const char *data, size_t length)
{
    reserve(t, length);
    memcpy(t->data + t->length, data, length);
    t->length += length;
    t->data[t->length] = '\0';
}

void text_printf(text *t, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length > 0) {
        reserve(t, (size_t)length);
        vsnprintf(t->data + t->length, (size_t)length + 1, format, again);
        t->length += (size_t)length;
    }
    va_end(again);
}

void text_json(text *t, const char *s)
{
    text_append(t, "\"", 1);
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            text_printf(t, "\\%c", *s);
        else if ((unsigned char)*s < ' ')
            text_printf(t, "\\u%04x", (unsigned)*s);
        else
            text_append(t, s, 1);
    text_append(t, "\"", 1);
}

void text_clear(text *t)
{
    t->length = 0;
    if (t->data)
        t->data[0] = '\0';
}

void text_free(text *t)
{
    heap_free(t->data);
    *t = (text){ 0 };
}
