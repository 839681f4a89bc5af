// Makes callables for Python that run operations, on the host or on a CUDA device.
//
// A frame takes some thirty calls with ten arguments each. ctypes and CuPy would take more time for them
// than the rest of the interpreter's work. Of CPython only the stable ABI of 3.11 is used, declared here: the
// package is built without its headers, once for all versions.
#include "calls.hpp"

typedef __PTRDIFF_TYPE__ Size;

struct PyObject;
struct PyThreadState;

struct Py_buffer {
    void *buf;
    PyObject *obj;
    Size len, itemsize;
    int readonly, ndim;
    char *format;
    Size *shape, *strides, *suboffsets;
    void *internal;
};

typedef PyObject *(*Fast)(PyObject *self, PyObject *const *arguments, Size count);

struct PyMethodDef {
    const char *name;
    Fast call;
    int flags;
    const char *doc;
};

extern "C" {
extern PyObject PyLong_Type, PyFloat_Type, PyBool_Type, _Py_NoneStruct;
extern PyObject *PyExc_TypeError, *PyExc_OverflowError;
PyObject *PyCFunction_NewEx(PyMethodDef *method, PyObject *self, PyObject *module);
PyObject *PyCapsule_New(void *pointer, const char *name, void (*destroy)(PyObject *));
void *PyCapsule_GetPointer(PyObject *capsule, const char *name);
PyObject *PyErr_Format(PyObject *type, const char *format, ...);
PyObject *PyErr_Occurred();
PyThreadState *PyEval_SaveThread();
void PyEval_RestoreThread(PyThreadState *state);
double PyFloat_AsDouble(PyObject *number);
long PyLong_AsLong(PyObject *number);
void *PyLong_AsVoidPtr(PyObject *number);
PyObject *PyObject_CallFunctionObjArgs(PyObject *callable, ...);
PyObject *PyObject_GetAttr(PyObject *object, PyObject *name);
int PyObject_GetBuffer(PyObject *object, Py_buffer *view, int flags);
PyObject *PyObject_Type(PyObject *object);
int PyType_IsSubtype(PyObject *type, PyObject *of);
void PyBuffer_Release(Py_buffer *view);
PyObject *PyLong_FromLong(long number);
PyObject *PyTuple_GetItem(PyObject *tuple, Size at);
Size PyTuple_Size(PyObject *tuple);
PyObject *PyUnicode_InternFromString(const char *text);
void Py_DecRef(PyObject *object);
void Py_IncRef(PyObject *object);
void *malloc(__SIZE_TYPE__ bytes);
char *strdup(const char *text);
void free(void *memory);
}

namespace {

constexpr int METH_FASTCALL = 0x80, PyBUF_SIMPLE = 0, MAX_ARGUMENTS = 64;

// cuLaunchKernel of CUDA's driver.
typedef int (*LaunchKernel)(
    void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
    unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,
    void **more);

struct Operation {
    char *name;
    const Kernel *kernel;  // the host's
    // A device's:
    LaunchKernel launch;
    void *function;
    unsigned block[3], shared_bytes;
    PyObject *array_type;
    PyObject *current_stream;  // called without arguments: has a ptr
    PyObject *fail;            // called with what the driver returned, where that is not 0
    PyObject *data, *ptr;      // names
};

// Buffers that are borrowed for the time of a call.
struct Lent {
    Slot slots[MAX_ARGUMENTS];
    char kinds[MAX_ARGUMENTS];
    Py_buffer buffers[MAX_ARGUMENTS];
    int count = 0, buffered = 0;

    ~Lent()
    {
        while (buffered)
            PyBuffer_Release(&buffers[--buffered]);
    }
};

// The attribute of an attribute that is an address; null after an error.
bool address_of(PyObject *object, PyObject *name, const void *&address)
{
    PyObject *number = PyObject_GetAttr(object, name);
    if (!number)
        return false;
    address = PyLong_AsVoidPtr(number);
    Py_DecRef(number);
    return address || !PyErr_Occurred();
}

bool take_number(PyObject *argument, Slot &slot)
{
    const long number = PyLong_AsLong(argument);
    slot.number = (int)number;
    if (slot.number == number && !(number == -1 && PyErr_Occurred()))
        return true;
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_OverflowError, "%ld does not fit 32 bits", number);
    return false;
}

bool take(const Operation &operation, PyObject *argument, Lent &lent)
{
    Slot &slot = lent.slots[lent.count];
    char &kind = lent.kinds[lent.count++];
    slot.address = nullptr;
    kind = ADDRESS;
    if (argument == &_Py_NoneStruct)
        return true;
    PyObject *type = PyObject_Type(argument);
    Py_DecRef(type);  // its object still has it
    if (type == &PyLong_Type || type == &PyBool_Type) {
        kind = NUMBER;
        return take_number(argument, slot);
    }
    if (type == operation.array_type) {
        PyObject *memory = PyObject_GetAttr(argument, operation.data);
        if (!memory)
            return false;
        const bool good = address_of(memory, operation.ptr, slot.address);
        Py_DecRef(memory);
        return good;
    }
    if (PyType_IsSubtype(type, &PyFloat_Type)) {  // a number of NumPy's is a buffer, too
        kind = REAL;
        slot.real = (float)PyFloat_AsDouble(argument);
        return true;
    }
    Py_buffer &buffer = lent.buffers[lent.buffered];
    if (PyObject_GetBuffer(argument, &buffer, PyBUF_SIMPLE) != 0)
        return false;
    lent.buffered++;
    slot.address = buffer.buf;
    if (operation.launch)
        kind = 'v';  // by value: the address is the host's
    return true;
}

bool take_all(const Operation &operation, PyObject *const *arguments, Size count, Lent &lent)
{
    if (count > MAX_ARGUMENTS) {
        PyErr_Format(PyExc_TypeError, "%s: more than %d arguments", operation.name,
                     MAX_ARGUMENTS);
        return false;
    }
    for (Size at = 0; at < count; at++)
        if (!take(operation, arguments[at], lent))
            return false;
    return true;
}

PyObject *run_on_host(const Operation &operation, const Lent &lent)
{
    const char *kinds = operation.kernel->kinds;
    for (int at = 0; at <= lent.count; at++) {
        const char wanted = kinds[at];
        if (wanted == (at < lent.count ? lent.kinds[at] : 0))
            continue;
        return PyErr_Format(
            PyExc_TypeError, "%s: argument %d of kinds %s does not fit", operation.name, at, kinds);
    }
    PyThreadState *state = PyEval_SaveThread();
    operation.kernel->run(lent.slots);
    PyEval_RestoreThread(state);
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
}

// How many blocks cover (rows, columns) or (rows, columns, planes).
bool grid_of(const Operation &operation, PyObject *size, unsigned (&grid)[3])
{
    const Size axes = PyTuple_Size(size);
    grid[2] = 1;
    for (Size axis = 0; axis < axes && axis < 3; axis++) {
        const int at = axis == 2 ? 2 : 1 - (int)axis;
        Slot items;
        if (!take_number(PyTuple_GetItem(size, axis), items))
            return false;
        grid[at] = axis == 2 ? items.number : (items.number + operation.block[at] - 1) / operation.block[at];
    }
    if (axes == 2 || axes == 3)
        return true;
    if (axes >= 0)
        PyErr_Format(PyExc_TypeError, "%s: a size has two or three axes", operation.name);
    return false;
}

PyObject *run_on_device(const Operation &operation, PyObject *size, Lent &lent)
{
    unsigned grid[3];
    if (!grid_of(operation, size, grid))
        return nullptr;
    void *arguments[MAX_ARGUMENTS];
    for (int at = 0; at < lent.count; at++)
        arguments[at] = lent.kinds[at] == 'v' ? (void *)lent.slots[at].address : &lent.slots[at];
    PyObject *current = PyObject_CallFunctionObjArgs(operation.current_stream, nullptr);
    if (!current)
        return nullptr;
    const void *stream;
    const bool good = address_of(current, operation.ptr, stream);
    Py_DecRef(current);
    if (!good)
        return nullptr;
    // With the interpreter's lock: to be without it for three microseconds, and to wait for it
    // again while another thread does the same, takes longer.
    const unsigned *block = operation.block;
    const int fault = operation.launch(
        operation.function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
        operation.shared_bytes, (void *)stream, arguments, nullptr);
    if (!fault) {
        Py_IncRef(&_Py_NoneStruct);
        return &_Py_NoneStruct;
    }
    PyObject *number = PyLong_FromLong(fault);
    PyObject *result = number ? PyObject_CallFunctionObjArgs(operation.fail, number, nullptr) : nullptr;
    Py_DecRef(number);
    return result;
}

// operation(size, *arguments)
PyObject *run(PyObject *self, PyObject *const *arguments, Size count)
{
    const Operation &operation = *(const Operation *)PyCapsule_GetPointer(self, nullptr);
    if (count < 1)
        return PyErr_Format(PyExc_TypeError, "%s: no size", operation.name);
    Lent lent;
    if (!take_all(operation, arguments + 1, count - 1, lent))
        return nullptr;
    return operation.launch ? run_on_device(operation, arguments[0], lent) : run_on_host(operation, lent);
}

PyMethodDef method = {"operation", run, METH_FASTCALL, nullptr};

Operation *make(const char *name)
{
    Operation *made = (Operation *)malloc(sizeof(Operation));
    *made = {};
    made->name = strdup(name);
    return made;
}

// Once nothing calls it any more: each render makes its own.
void discard(PyObject *self)
{
    Operation *operation = (Operation *)PyCapsule_GetPointer(self, nullptr);
    Py_DecRef(operation->array_type);  // null on the host, as the next, which is nothing
    Py_DecRef(operation->current_stream);
    Py_DecRef(operation->fail);
    Py_DecRef(operation->data);
    Py_DecRef(operation->ptr);
    free(operation->name);
    free(operation);
}

PyObject *callable(Operation *operation)
{
    PyObject *self = PyCapsule_New(operation, nullptr, discard);
    PyObject *made = self ? PyCFunction_NewEx(&method, self, nullptr) : nullptr;
    Py_DecRef(self);
    return made;
}

PyObject *kept(PyObject *object)
{
    Py_IncRef(object);
    return object;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// Both are called with the interpreter's lock; names are copied.
EXPORTED PyObject *host_operation(const char *name, const Kernel *kernel)
{
    Operation *made = make(name);
    made->kernel = kernel;
    return callable(made);
}

EXPORTED PyObject *device_operation(
    const char *name, LaunchKernel launch, void *function, unsigned block_x, unsigned block_y,
    unsigned block_z, unsigned shared_bytes, PyObject *array_type, PyObject *current_stream,
    PyObject *fail)
{
    Operation *made = make(name);
    made->launch = launch, made->function = function;
    made->block[0] = block_x, made->block[1] = block_y, made->block[2] = block_z;
    made->shared_bytes = shared_bytes;
    made->array_type = kept(array_type), made->current_stream = kept(current_stream);
    made->fail = kept(fail);
    made->data = PyUnicode_InternFromString("data");
    made->ptr = PyUnicode_InternFromString("ptr");
    return callable(made);
}

// The compiler of the library.
EXPORTED const char *const compiler = __VERSION__;

// Hash of its sources: see build.py.
EXPORTED const char *const digest = DIGEST;
