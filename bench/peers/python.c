/* python.c - finding libpython, starting it with the packages of its python3, and calling a script's functions. */
#include "bench/peers/python.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct py_object py_object;

/* X(result, function, parameters): the part of Python's stable interface that we call. */
#define PYTHON_FUNCTIONS(X)                                                     \
    X(void, Py_InitializeEx, (int signals))                                     \
    X(int, PyRun_SimpleString, (const char *source))                            \
    X(py_object *, PyImport_ImportModule, (const char *name))                   \
    X(py_object *, PyObject_GetAttrString, (py_object * object, const char *))  \
    X(py_object *, Py_VaBuildValue, (const char *format, va_list arguments))    \
    X(py_object *, PyObject_CallObject, (py_object * f, py_object * arguments)) \
    X(const char *, PyUnicode_AsUTF8, (py_object * text))                       \
    X(void, Py_DecRef, (py_object * object))                                    \
    X(void, PyErr_Print, (void))                                                \
    X(void *, PyEval_SaveThread, (void))                                        \
    X(int, PyGILState_Ensure, (void))                                           \
    X(void, PyGILState_Release, (int state))

static struct {
#define X(result, function, parameters) result(*function) parameters;
    PYTHON_FUNCTIONS(X)
#undef X
} py;

enum { REASON_BYTES = 512 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of what follows
static bool tried, loaded;                               // to start Python, and the script
static char reason[REASON_BYTES];                        // why Python or the script is not there; "" if it is
static py_object *module;                                // the script

/* What a python3 prints: its library, then where it looks for packages. */
static const char question[] = "import os, sys, sysconfig; v = sysconfig.get_config_var; "
                               "print(os.path.join(v('LIBDIR') or '', v('INSTSONAME') or '')); "
                               "print(os.pathsep.join(p for p in sys.path if p))";

static const char loader[] = "import importlib.util, os, sys\n"
                             "def ckl_load(script, path):\n"
                             "    sys.path[:0] = [p for p in path.split(os.pathsep) if p not in sys.path]\n"
                             "    spec = importlib.util.spec_from_file_location('ckl_peer', script)\n"
                             "    module = sys.modules['ckl_peer'] = importlib.util.module_from_spec(spec)\n"
                             "    spec.loader.exec_module(module)\n"
                             "    return module\n";

static const char *interpreter(void)
{
    const char *given = getenv("CKL_PYTHON");
    return given && *given ? given : "python3";
}

/* Reads a line without its end; "" if there is none. */
static void read_line(FILE *from, text *line)
{
    char *read = NULL;
    size_t room = 0;
    if (getline(&read, &room, from) > 0)
        text_append(line, read, strcspn(read, "\n"));
    free(read);
}

static ckl_status ask_interpreter(text *library, text *path)
{
    text command = { 0 };
    text_printf(&command, "'%s' -c \"%s\"", interpreter(), question);
    FILE *answer = popen(text_data(&command), "r");
    text_free(&command);
    if (!answer)
        FAIL(CKL_UNSUPPORTED, "python: %s cannot be started", interpreter());
    read_line(answer, library);
    read_line(answer, path);
    (void)pclose(answer);
    if (library->length == 0)
        FAIL(CKL_UNSUPPORTED, "python: there is no %s", interpreter());
    return CKL_OK;
}

/* Modules of Python's own want its functions to be global. */
static ckl_status open_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        FAIL(CKL_UNSUPPORTED, "python: %s has no shared library: %s", interpreter(), dlerror());
#define X(result, function, parameters)                        \
    if (!(*(void **)&py.function = dlsym(library, #function))) \
        FAIL(CKL_UNSUPPORTED, "python: %s has no function %s", path, #function);
    PYTHON_FUNCTIONS(X)
#undef X
    return CKL_OK;
}

/* Calls object.name(arguments); NULL after an exception. Steals the arguments. */
static py_object *call(py_object *object, const char *name, py_object *arguments)
{
    py_object *function = object ? py.PyObject_GetAttrString(object, name) : NULL;
    py_object *result = function && arguments ? py.PyObject_CallObject(function, arguments) : NULL;
    py.Py_DecRef(function);
    py.Py_DecRef(arguments);
    if (!result)
        py.PyErr_Print();
    return result;
}

static py_object *build(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    py_object *built = py.Py_VaBuildValue(format, arguments);
    va_end(arguments);
    return built;
}

static ckl_status start(text *path)
{
    text library = { 0 };
    ckl_status status = ask_interpreter(&library, path);
    if (status == CKL_OK)
        status = open_library(text_data(&library));
    text_free(&library);
    TRY(status);
    py.Py_InitializeEx(0);
    py.PyRun_SimpleString(loader);
    (void)py.PyEval_SaveThread(); // every call takes the interpreter's lock for itself
    return CKL_OK;
}

static text search_path; // of the interpreter that was asked

/* With the lock. */
static ckl_status start_once(void)
{
    if (!tried && start(&search_path) != CKL_OK)
        snprintf(reason, sizeof reason, "%s", ckl_error());
    tried = true;
    if (*reason)
        FAIL(CKL_UNSUPPORTED, "%s", reason);
    return CKL_OK;
}

ckl_status python_start(void)
{
    pthread_mutex_lock(&lock);
    ckl_status status = start_once();
    pthread_mutex_unlock(&lock);
    return status;
}

static void load(const char *script)
{
    int state = py.PyGILState_Ensure();
    py_object *main = py.PyImport_ImportModule("__main__");
    module = call(main, "ckl_load", build("(ss)", script, text_data(&search_path)));
    py.Py_DecRef(main);
    py.PyGILState_Release(state);
    if (!module)
        snprintf(reason, sizeof reason, "python: %s cannot be loaded; Python has said why", script);
}

ckl_status python_load(const char *script)
{
    pthread_mutex_lock(&lock);
    ckl_status status = start_once();
    if (status == CKL_OK && !loaded)
        load(script);
    loaded = true;
    if (status == CKL_OK && !module)
        status = status_fail(CKL_UNSUPPORTED, "%s", reason);
    pthread_mutex_unlock(&lock);
    return status;
}

ckl_status python_call(text *result, const char *function, const char *format, ...)
{
    va_list arguments;
    int state = py.PyGILState_Ensure();
    va_start(arguments, format);
    py_object *answer = call(module, function, py.Py_VaBuildValue(format, arguments));
    va_end(arguments);
    const char *words = answer ? py.PyUnicode_AsUTF8(answer) : NULL;
    if (words)
        text_append(result, words, strlen(words));
    if (answer)
        py.Py_DecRef(answer);
    py.PyGILState_Release(state);
    if (!words)
        FAIL(CKL_UNSUPPORTED, "python: %s() failed; Python has said why", function);
    return CKL_OK;
}
