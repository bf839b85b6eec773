// LLVM's linker as a function of C.
#include <cstring>
#include <lld/Common/Driver.h>
#include <llvm/Support/raw_ostream.h>
#include <string>

// The build writes it.
#include "unused_targets.inc"

LLD_HAS_DRIVER(elf)

// Zero: success. One: failure, with the reason in `message`. Two: the same, and lld must not run again.
extern "C" int octants_lld(size_t count, const char *const *arguments, char *message, size_t capacity) {
    std::string errors, output;
    llvm::raw_string_ostream error_stream(errors), output_stream(output);
    lld::Result result =
        lld::lldMain(llvm::ArrayRef(arguments, count), output_stream, error_stream, {{lld::Gnu, &lld::elf::link}});
    size_t length = std::min(errors.size(), capacity - 1);
    std::memcpy(message, errors.data(), length);
    message[length] = 0;
    return !result.canRunAgain ? 2 : result.retCode != 0;
}
