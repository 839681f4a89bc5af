// What compiled the host's library; a device has no use for it.
#include "samples.cuh"

#if !ON_DEVICE && SAMPLE_BITS == 8
extern "C" __attribute__((visibility("default"))) const char *const compiler = __VERSION__;
#endif
