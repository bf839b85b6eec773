// LLVM and the C++ library ask the system's C library for random numbers by `arc4random`, which glibc has from 2.36 on.
// This one serves both in wheels, so that they run on older systems too. It is not seen outside of the extension.
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

uint32_t arc4random(void) {
    uint32_t value;
    // So few bytes are never cut short once the generator is ready, and the call waits until it is.
    if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value)
        abort();
    return value;
}
