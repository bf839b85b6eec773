// The functions of zstd that LLVM and lld name. They compress and read sections with debug information, which is never
// requested: in a wheel these take the place of a library of 300 KB. Each says that it failed.

#include <stddef.h>

static const size_t FAILED = (size_t)-1;

size_t ZSTD_compressBound(size_t bytes) { return bytes; }
void *ZSTD_createCCtx(void) { return NULL; }
size_t ZSTD_freeCCtx(void *context) { (void)context; return 0; }
size_t ZSTD_CCtx_setParameter(void *context, int parameter, int value) {
    (void)context, (void)parameter, (void)value;
    return FAILED;
}
size_t ZSTD_compress2(void *context, void *to, size_t room, const void *from, size_t bytes) {
    (void)context, (void)to, (void)room, (void)from, (void)bytes;
    return FAILED;
}
size_t ZSTD_compressStream2(void *context, void *output, void *input, int directive) {
    (void)context, (void)output, (void)input, (void)directive;
    return FAILED;
}
size_t ZSTD_decompress(void *to, size_t room, const void *from, size_t bytes) {
    (void)to, (void)room, (void)from, (void)bytes;
    return FAILED;
}
unsigned ZSTD_isError(size_t code) { return code == FAILED; }
const char *ZSTD_getErrorName(size_t code) { (void)code; return "zstd is not part of this build"; }
