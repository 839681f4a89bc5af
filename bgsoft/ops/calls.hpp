// How Python's side calls the operations: every argument in a slot of its own.
#pragma once

union Slot {
    int number;
    float real;
    const void *address;
};

struct Kernel {
    void (*run)(const Slot *slots);
    const char *kinds;  // of its arguments: see Kind
};

enum Kind : char { NUMBER = 'i', REAL = 'f', ADDRESS = 'p' };

template <class T>
struct Argument {
    static_assert(sizeof(T) == sizeof(int), "a whole number of 32 bits");
    static constexpr char kind = NUMBER;
    static T of(Slot slot) { return (T)slot.number; }
};

template <>
struct Argument<float> {
    static constexpr char kind = REAL;
    static float of(Slot slot) { return slot.real; }
};

template <class T>
struct Argument<T *> {
    static constexpr char kind = ADDRESS;
    static T *of(Slot slot) { return (T *)slot.address; }
};

template <class T>
struct Argument<const T &> {
    static constexpr char kind = ADDRESS;
    static const T &of(Slot slot) { return *(const T *)slot.address; }
};

template <class Function>
struct Called;

template <class... Arguments>
struct Called<void(Arguments...)> {
    static constexpr char kinds[] = {Argument<Arguments>::kind..., 0};

    template <void (*kernel)(Arguments...)>
    static void run(const Slot *slots)
    {
        run_at<kernel>(slots, __make_integer_seq<Sequence, int, sizeof...(Arguments)>{});
    }

private:
    template <class T, T... numbers>
    struct Sequence {};

    template <void (*kernel)(Arguments...), int... at>
    static void run_at(const Slot *slots, Sequence<int, at...>)
    {
        kernel(Argument<Arguments>::of(slots[at])...);
    }
};

// Lets Python call a kernel that has been defined, by the name that KERNEL gave it.
#define CALLED_(function)                                                                         \
    extern "C" __attribute__((visibility("default"))) const Kernel function##_kernel;              \
    const Kernel function##_kernel = {                                                            \
        Called<decltype(function)>::run<function>, Called<decltype(function)>::kinds};
#define CALLED(function) CALLED_(function)
