/*
 * base.h - status codes, error sentences and the version of the library.
 *
 * How structs grow: a caller zero-initialises them ({ 0 } or designated initialisers). Fields are only appended, and 0
 * in a new one means what the library did before, so a source that compiles today compiles with every later version.
 * The size of a struct is part of the binary interface: while the major version is 0 the library's SONAME carries
 * major.minor, afterwards major, and structs change only where it does. So a program never meets a library whose
 * structs differ.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Around the declarations of a header: they are C's for C++, too. */
#ifdef __cplusplus
#define CKL_BEGIN_DECLS extern "C" {
#define CKL_END_DECLS   }
#else
#define CKL_BEGIN_DECLS
#define CKL_END_DECLS
#endif

CKL_BEGIN_DECLS

#define CKL_VERSION_MAJOR 0
#define CKL_VERSION_MINOR 1
#define CKL_VERSION_PATCH 0

/* CKL_API: a function of the library. CKL_MUST_USE, which comes first: its status is to be looked at. */
#if defined(__GNUC__)
#define CKL_API __attribute__((visibility("default")))
#elif defined(_WIN32)
#define CKL_API __declspec(dllimport)
#else
#define CKL_API
#endif

#if (defined(__cplusplus) && __cplusplus >= 201703L) || (defined(_MSVC_LANG) && _MSVC_LANG >= 201703L)
#define CKL_MUST_USE [[nodiscard]]
#elif defined(__GNUC__)
#define CKL_MUST_USE __attribute__((warn_unused_result))
#else
#define CKL_MUST_USE
#endif

/* What a call came to. Everything but CKL_OK leaves a sentence in ckl_error(). */
typedef enum ckl_status {
    CKL_OK,
    CKL_INVALID,      // the caller's mistake: a size, pointer or choice that no library could accept
    CKL_UNSUPPORTED,  // a fair request that no kernel here takes; the sentence lists who declined and why
    CKL_NO_MEMORY,    // host or device memory ran out
    CKL_DEVICE_FAULT, // the driver, the GPU or the emulator's checker reported a fault
    CKL_INTERNAL,     // our bug
} ckl_status;

/* The name of a status, e.g. "invalid". Never NULL. */
CKL_API const char *ckl_status_name(ckl_status status);

/* The sentence of the last failure on this thread; "" if there was none. Valid until the next failure here. */
CKL_API const char *ckl_error(void);

/* The version of the loaded library, e.g. "0.1.0". */
CKL_API const char *ckl_version(void);

CKL_END_DECLS
