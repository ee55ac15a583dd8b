// base/build_id.h: which build of the program is running.

#ifndef CY_BASE_BUILD_ID_H
#define CY_BASE_BUILD_ID_H

#include <stddef.h>

// The first 16 hexadecimal digits of the linker's build id of the file that holds this code, a hash
// of its contents; "" where the linker gave it none. `bytes` is at least 17.
void cy_build_id(char *text, size_t bytes);

#endif
